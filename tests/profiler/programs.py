"""Programs that torch.profiler and opspan.profiler watch at the same time.

`python programs.py out.json [argument=value ...]` writes, for each program, what either of them says of every op, as
rows, and of the averages. The arguments are those of `profile`, as JSON. `python programs.py out.json functions` writes
which function of the program either of them says that each op was called in.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import functions
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity

PROGRAMS: dict[str, Callable[[], object]] = {}


def program(function: Callable[[], object]) -> Callable[[], object]:
    PROGRAMS[function.__name__] = function
    return function


@program
def mlp() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    functional.cross_entropy(model(torch.randn(3, 8)), torch.tensor([1, 0, 3])).backward()
    optimizer.step()
    optimizer.zero_grad()


class Block(torch.nn.Module):
    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.one = torch.nn.Conv2d(channels, 2 * channels, 3, stride=stride, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(2 * channels)
        self.two = torch.nn.Conv2d(2 * channels, 2 * channels, 3, padding="same", groups=2)
        self.short = torch.nn.Conv2d(channels, 2 * channels, 1, stride=stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.two(functional.relu_(self.norm(self.one(x)))) + self.short(x))


@program
def resnet() -> None:
    model = torch.nn.Sequential(Block(3, 1), torch.nn.MaxPool2d(2), Block(6, 2), torch.nn.AdaptiveAvgPool2d(1))
    model(torch.randn(2, 3, 16, 16)).flatten(1).sum().backward()
    functional.conv2d(torch.randn(1, 2, 8, 8), torch.randn(4, 2, 3, 3), dilation=2, padding=(1, 2))
    functional.conv1d(torch.randn(1, 2, 8), torch.randn(4, 2, 3))
    functional.conv_transpose2d(torch.randn(1, 2, 8, 8), torch.randn(2, 4, 3, 3), stride=2)
    functional.conv3d(torch.randn(1, 2, 4, 4, 4), torch.randn(4, 2, 3, 3, 3))


@program
def lstm() -> None:
    model = torch.nn.LSTM(3, 5, num_layers=2, bidirectional=True)
    model(torch.randn(4, 2, 3))[0].sum().backward()


@program
def transformer() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    layer(torch.randn(2, 6, 16)).sum().backward()
    q, k, v = (torch.randn(2, 2, 6, 8, requires_grad=True) for _ in range(3))
    functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.25).sum().backward()


@program
def autocast() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(3, 8)).float().square().mean()
    loss.backward()


@program
def sparse() -> None:
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        indices = torch.tensor([[0, 1, 1], [2, 0, 2]])
        matrix = torch.sparse_coo_tensor(indices, torch.ones(3), (2, 3)).coalesce()
        torch.sparse.mm(matrix, torch.randn(3, 4, requires_grad=True)).sum().backward()
        torch.nn.Embedding(5, 3, sparse=True)(torch.tensor([1, 4])).sum().backward()


@program
def complex_numbers() -> None:
    x = torch.randn(4, 4, dtype=torch.complex64, requires_grad=True)
    (torch.fft.fft(x) * (1 + 2j) @ x.conj()).abs().sum().backward()
    torch.full((2,), 3 - 4j, dtype=torch.complex128)


@program
def views() -> None:
    x = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4).requires_grad_()
    y = x.clone()
    y[:, 1].mul_(2.0).add_(y[:, 0], alpha=0.5)
    y.transpose(0, 2)[None, ..., 1].unfold(1, 2, 1).contiguous().sum().backward()
    torch.zeros(3).index_put_((torch.tensor([0, 2]),), torch.ones(2), accumulate=True)
    torch.ones(2, 3).std(dim=[0, 1]).item()
    torch.empty(0).fill_(float("inf")).clamp_(min=float("-inf"), max=1e-30)


@program
def nested() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        several = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])
        torch.nested.to_padded_tensor(several * 2, 0.0)


@program
def lists() -> None:
    tensors = [torch.ones(2), torch.ones(3)]
    torch._foreach_add_(tensors, 1.0)
    torch.cat([*tensors, torch.ones(1)]).split([2, 4])
    torch.stack([torch.ones(2)] * 3).unbind(0)
    torch.einsum("ij,kj->ik", torch.ones(2, 3), torch.ones(4, 3))
    torch.block_diag(*tensors)
    torch.ones(40).view([1] * 32 + [40]).sum(list(range(20)))
    torch.ops.aten.index(torch.zeros(3, 3), [None, torch.tensor([1])])


class Double(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        context.factor = factor
        return x * factor

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return gradients[0] * context.factor, None


@program
def custom() -> None:
    x = torch.randn(3, requires_grad=True)
    Double.apply(x, 2.0).sum().backward()
    (gradient,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    gradient.sum().backward()


@program
def checkpointed() -> None:
    layer = torch.nn.Linear(4, 4)
    torch.utils.checkpoint.checkpoint(
        layer, torch.randn(2, 4, requires_grad=True), use_reentrant=False
    ).sum().backward()


@program
def integers() -> None:
    x = torch.randint(0, 10, (4, 4), dtype=torch.int32)
    (x.to(torch.uint8) << 1).bitwise_and_(3).to(torch.bool).any(dim=1)
    torch.topk(x.half(), 2, dim=-1, largest=False)
    torch.bincount(x.flatten().long(), minlength=12).cumsum(0)


@program
def products() -> None:
    a, b, c = torch.randn(3, 2, 4), torch.randn(3, 4, 5), torch.randn(3, 2, 5)
    torch.bmm(a, b)
    torch.baddbmm(c, a, b, beta=0.5, alpha=2)
    torch.addmm(torch.randn(5), a[0], b[0], alpha=0.1)
    (a @ b[0]) * 2 + a.sum()
    torch.mv(a[0], torch.randn(4)).dot(torch.randn(2))
    torch.nn.Bilinear(3, 4, 5)(torch.randn(2, 3), torch.randn(2, 4))


MEMORY = ("cpu_memory_usage", "self_cpu_memory_usage")
INPUTS = [  # Older versions of torch do not have them.
    name
    for name in ("structured_input_shapes", "structured_input_strides", "input_dtypes")
    if hasattr(torch.autograd.profiler_util.FunctionEvent(0, "", 0, 0, 0), name)
]


def memory(event: Any) -> dict[str, Any]:
    return {"name": event.name, **{name: getattr(event, name) for name in MEMORY}}


def rows(events: Any) -> list[Any]:
    ordered = sorted(events, key=lambda event: (event.time_range.start, -event.time_range.end))
    return [
        memory(event)  # an event outside of ops has no other fields to compare
        if event.name == "[memory]"
        else {
            **memory(event),
            "input_shapes": event.input_shapes,
            **{name: getattr(event, name) for name in INPUTS},
            "concrete_inputs": repr(event.concrete_inputs),
            "sequence_nr": event.sequence_nr,
            "scope": event.scope,
            "parent": event.cpu_parent and event.cpu_parent.name,
            "is_backward": event.fwd_thread not in (None, 0),
            "flops": event.flops or 0,
        }
        for event in ordered
        if not event.name.startswith("ProfilerStep")
    ]


def averages(prof: Any) -> list[Any]:
    """Returns the count and the memory of each name, and of all names, as the table shows them."""
    found = prof.key_averages()
    sums = [(row.key, row.count, row.cpu_memory_usage, row.self_cpu_memory_usage) for row in found]
    total = found.total_average()
    return [*sorted(sums), ("Total", total.count, total.cpu_memory_usage, total.self_cpu_memory_usage)]


def said(prof: Any) -> dict[str, list[Any]]:
    return {"rows": rows(prof.events()), "averages": averages(prof)}


def watched(run: Callable[[], object], asked: dict[str, Any]) -> list[dict[str, list[Any]]]:
    from opspan import profiler

    run()  # one-time work happens before the recording
    asked = {"activities": [ProfilerActivity.CPU], "record_shapes": True, **asked}
    with torch.profiler.profile(**asked) as theirs, profiler.profile(**asked) as ours:
        run()
    return [said(theirs), said(ours)]


def called_in(run: Callable[[], object]) -> list[list[Any]]:
    from opspan import profiler

    run()
    asked: dict[str, Any] = {"activities": [ProfilerActivity.CPU], "with_stack": True}
    with torch.profiler.profile(**asked) as theirs, profiler.profile(**asked) as ours:
        run()
    file = Path(__file__).name
    return [functions.of_torch(theirs, file), functions.of_ours(ours.trace, file)]


def main(out: str, *asked: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if asked == ("functions",):
        Path(out).write_text(json.dumps({name: called_in(run) for name, run in PROGRAMS.items()}))
        return
    arguments = {name: json.loads(value) for name, value in (text.split("=") for text in asked)}
    Path(out).write_text(json.dumps({name: watched(run, arguments) for name, run in PROGRAMS.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
