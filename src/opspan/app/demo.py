"""Implements the demo: trains a small model under `record`, and shows the ranges of the trace as indented text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opspan import private_files
from opspan.emit.annotate import annotate
from opspan.emit.record import record
from opspan.errors import TorchUnsupported, WriteError

if TYPE_CHECKING:
    from opspan.trace import Trace

STEPS = 2
# The fields of a range that `tree` shows, each with the text before its value.
_FACTS = {"class_name": "", "seq": "seq ", "forward_tid": "forward on thread ", "sizes": "sizes "}


def train(folder: Path, during: AbstractContextManager[object]) -> Trace:
    """Records two steps of a multilayer perceptron into `folder`. `during` is entered while it trains."""
    torch = _torch()

    class MLP(torch.nn.Module):  # type: ignore[misc, name-defined]  # mypy does not follow torch
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

        def forward(self, x: Any) -> Any:
            return self.layers(x)

    torch.manual_seed(0)
    model = MLP()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = torch.randn(4, 8), torch.tensor([0, 1, 2, 1])
    with record(record_shapes=True, modules=True, path=folder) as recording, during:
        for step in range(STEPS):
            with annotate(f"ProfilerStep#{step}"):
                loss = torch.nn.functional.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    return recording.trace


def train_compiled(folder: Path) -> Trace:
    """Records three steps of a model that torch.compile compiles, without the time that compiling takes."""
    torch = _torch()

    class Compiled(torch.nn.Module):  # type: ignore[misc, name-defined]  # mypy does not follow torch
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = (
                torch.nn.Linear(64, 256),
                torch.nn.LayerNorm(256),
                torch.nn.Linear(256, 8),
            )

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.first(x))
            y = self.norm(y) * 2
            return self.last(y)

    torch.manual_seed(0)
    model, inputs = torch.compile(Compiled()), torch.randn(512, 64)
    with record(folder, compiled=True) as recording:
        recording.turn(False)
        try:
            model(inputs).sum().backward()
        except Exception as error:
            raise TorchUnsupported(
                f"torch.compile cannot compile the demo's model ({str(error).strip().partition(chr(10))[0]}): it needs "
                "a C++ compiler (apt install g++)"
            ) from error
        recording.turn(True)
        for _ in range(3):
            model(inputs).sum().backward()
    return recording.trace


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise TorchUnsupported(
            f"the demo trains a model, and torch cannot be imported ({error}): pip install torch"
        ) from error
    return torch


def write_tree(trace: Trace, text: Path) -> Path:
    try:
        with private_files.unfinished(text, overwrite=False) as path:
            path.write_text("".join(f"{line}\n" for line in tree(trace)), encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{text} cannot be written: {error.strerror}") from error
    return text


def tree(trace: Trace) -> Iterator[str]:
    """Yields a line for each range, indented below the range that encloses it on its thread."""
    ranges = trace.ranges.sort("pid", "tid", "start_ns", "id")
    thread: tuple[int, int] | None = None
    ends: list[int] = []
    for row in ranges.iter_rows(named=True):
        if (row["pid"], row["tid"]) != thread:
            thread = (row["pid"], row["tid"])
            ends.clear()
            yield f"process {thread[0]}, thread {thread[1]}"
        while ends and ends[-1] <= row["start_ns"]:
            ends.pop()
        yield "  " * (len(ends) + 1) + _line(row)
        if not row["is_mark"]:
            ends.append(row["end_ns"] if row["end_ns"] is not None else 2**63 - 1)


def _line(row: dict[str, Any]) -> str:
    parts = [row["name"], f"[{row['kind']}]"]
    parts += [f"{title}{row[name]}" for name, title in _FACTS.items() if row[name] not in (None, "")]
    if row["end_ns"] is not None:
        parts.append(f"{(row['end_ns'] - row['start_ns']) / 1000:.1f} us")
    return "  ".join(parts)
