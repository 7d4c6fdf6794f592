"""create_graph: backward ops that are themselves differentiated, so ops inside backward have sequence numbers."""

import torch
from session import run


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 4, requires_grad=True)
    y = (x.tanh() @ x).sum()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    gradient.pow(2).sum().backward()


if __name__ == "__main__":
    run(main)
