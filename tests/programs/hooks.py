"""Module hooks, tensor hooks and a post-accumulate hook, all of which run ops of their own."""

import torch
from session import run


def halve(parameter: torch.nn.Parameter) -> None:
    parameter.grad.mul_(0.5)


def main() -> None:
    model = torch.nn.Linear(4, 4)
    handles = [
        model.register_forward_hook(lambda module, inputs, output: output.mul(1.5)),
        model.register_full_backward_hook(lambda module, grad_in, grad_out: None),
        model.weight.register_post_accumulate_grad_hook(halve),
    ]
    y = model(torch.randn(3, 4))
    y.register_hook(lambda gradient: gradient.clone())
    y.sum().backward()
    for handle in handles:
        handle.remove()


if __name__ == "__main__":
    run(main)
