"""An autograd.Function of the user's own."""

import torch
from session import run


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2


def main() -> None:
    x = torch.randn(6, requires_grad=True)
    Cube.apply(Cube.apply(x)).sum().backward()


if __name__ == "__main__":
    run(main)
