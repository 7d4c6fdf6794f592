"""Programs that torch.compile compiles in different ways: compiled_programs.py NAME [CAPTURE].

Prints a digest of the results. With CAPTURE, the program runs inside of `opspan.record(CAPTURE, compiled=True)`.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterator

import torch
from torch import nn

Step = Callable[[], torch.Tensor]
PROGRAMS: dict[str, Callable[[], Iterator[torch.Tensor]]] = {}


def program(function: Callable[[], Iterator[torch.Tensor]]) -> Callable[[], Iterator[torch.Tensor]]:
    PROGRAMS[function.__name__] = function
    return function


def trained(model: nn.Module, *inputs: torch.Tensor, **options: object) -> Iterator[torch.Tensor]:
    """Trains the compiled model, and yields outputs and gradients."""
    compiled = torch.compile(model, **options)
    for one in inputs:
        out = compiled(one)
        out.sum().backward()
        yield out.detach()
    yield from (parameter.grad for parameter in model.parameters() if parameter.grad is not None)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        y = self.norm(y * 2)
        return self.second(y).sigmoid()


@program
def mlp() -> Iterator[torch.Tensor]:
    x = torch.randn(16, 32)
    yield from trained(Mlp(), x, x)


@program
def convolution() -> Iterator[torch.Tensor]:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    yield from trained(model, torch.randn(4, 3, 12, 12))


@program
def transformer() -> Iterator[torch.Tensor]:
    model = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    yield from trained(model, torch.randn(2, 6, 32))


@program
def dynamic_sizes() -> Iterator[torch.Tensor]:
    yield from trained(Mlp(), torch.randn(16, 32), torch.randn(24, 32), torch.randn(40, 32), dynamic=True)


@program
def graph_break() -> Iterator[torch.Tensor]:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x) * 2
        torch._dynamo.graph_break()
        return torch.cos(y) + 1

    yield torch.compile(function)(torch.randn(64))


@program
def alike() -> Iterator[torch.Tensor]:
    """Two graphs with a kernel of the same name, from different lines."""

    def first(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + 1

    def second(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        return y + 2

    yield torch.compile(first)(torch.randn(64))
    yield torch.compile(second)(torch.randn(64))


@program
def recompiled() -> Iterator[torch.Tensor]:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 3

    compiled = torch.compile(function, dynamic=False)
    yield compiled(torch.randn(8))
    yield compiled(torch.randn(9))


@program
def autotuned() -> Iterator[torch.Tensor]:
    x = torch.randn(16, 32)
    yield from trained(Mlp(), x, mode="max-autotune-no-cudagraphs")


@torch.library.custom_op("opspan_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@program
def custom_op() -> Iterator[torch.Tensor]:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = doubled(torch.exp(x))
        return y.log() - 1

    yield torch.compile(function)(torch.rand(64))


@program
def checkpoint() -> Iterator[torch.Tensor]:
    from torch.utils.checkpoint import checkpoint as recomputed

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return recomputed(self.inner, x, use_reentrant=False).exp()

    yield from trained(Block(), torch.randn(16, 32))


@program
def vmapped() -> Iterator[torch.Tensor]:
    def one(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x).sum() * 2

    yield torch.compile(torch.vmap(one))(torch.randn(8, 16))


@program
def inference() -> Iterator[torch.Tensor]:
    compiled = torch.compile(Mlp().eval())
    with torch.inference_mode():
        yield compiled(torch.randn(16, 32)).clone()


def main(name: str, *folder: str) -> None:
    torch.manual_seed(0)
    digest = hashlib.sha256()
    if folder:
        import opspan

        session: contextlib.AbstractContextManager[object] = opspan.record(folder[0], compiled=True)
    else:
        session = contextlib.nullcontext()
    with session:
        for tensor in PROGRAMS[name]():
            digest.update(tensor.numpy(force=True).tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
