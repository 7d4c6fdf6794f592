"""A scripted function, whose calls come in a scope of their own."""

import warnings

import torch
from session import run


def scaled(x: torch.Tensor, times: int) -> torch.Tensor:
    for _ in range(times):
        x = torch.relu(x) * 0.5
    return x


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and still in people's programs
        script = torch.jit.script(scaled)
    x = torch.randn(3, 3, requires_grad=True)
    for _ in range(4):
        script(x, 2).sum().backward()


if __name__ == "__main__":
    run(main)
