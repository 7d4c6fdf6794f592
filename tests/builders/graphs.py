"""Chrome traces of an engine that captures graphs, and of its run, in which the graphs are launched, with known truth.

capture(Graph(...), ...)       the recording of the captures: one capture for each graph
execution(Step(...), ...)      the run: each step launches graphs
both(...)                      one recording of the captures and of a run
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders.kineto import BASE_NS, HEAD, MAIN, kernel, span

TAKES = 10.0  # microseconds of each kernel


@dataclass(frozen=True)
class Op:
    name: str
    kernels: tuple[str, ...]
    sizes: str = "[[4, 4]]"
    module: str | None = None  # without nn.Module:
    around: str | None = None  # an op around it
    category: str = "cpu_op"  # "python_function" has no range, only a function


@dataclass(frozen=True)
class Graph:
    ops: tuple[Op, ...]
    batch_size: int | None = None
    mode: str = "FULL"

    @property
    def kernels(self) -> list[tuple[str, Op]]:
        return [(name, op) for op in self.ops for name in op.kernels]


@dataclass(frozen=True)
class Step:
    """A step of an engine; without a label, its graphs are launched outside of all ranges."""

    label: str | None
    graphs: tuple[Graph, ...]


class _Clock:
    def __init__(self, at: float) -> None:
        self.at = at

    def tick(self, by: float = 1.0) -> float:
        self.at += by
        return self.at


def _call(name: str, clock: _Clock, correlation: int, **args: Any) -> Any:
    return span("cuda_runtime", name, MAIN, clock.tick(), 0.5, **{"correlation": correlation, **args})


def _captured(
    graphs: Sequence[Graph], clock: _Clock, correlation: int, *, has_names: bool, has_bounds: bool
) -> Iterator[Any]:
    for graph in graphs:
        begin = clock.tick()
        if has_bounds:
            yield _call("cudaStreamBeginCapture", clock, (correlation := correlation + 1))
        for op in graph.ops:
            opened = clock.tick()
            for name in op.kernels:
                correlation += 1
                is_kernel = not name.startswith(("Memcpy", "Memset"))
                args = {"kernel": name} if has_names and is_kernel else {}
                call = "cudaLaunchKernel" if is_kernel else f"cuda{name.split()[0]}Async"
                yield _call(call, clock, correlation, **args)
            closed = clock.tick()
            ends = closed - opened
            yield span(op.category, op.name, MAIN, opened, ends, **{"Input Dims": json.loads(op.sizes)})
            if op.around:
                yield span("cpu_op", op.around, MAIN, opened - 0.2, ends + 0.4, **{"Input Dims": []})
            if op.module:
                yield span("python_function", f"nn.Module: {op.module}", MAIN, opened - 0.4, ends + 0.8)
        if has_bounds:
            yield _call("cudaStreamEndCapture", clock, (correlation := correlation + 1))
        if graph.batch_size is not None:
            yield span("user_annotation", f"capture_{graph.batch_size}_{graph.mode}", MAIN, begin, clock.tick() - begin)


def _run(steps: Sequence[Step], clock: _Clock, correlation: int) -> Iterator[Any]:
    for step in steps:
        begin = clock.tick()
        for graph in step.graphs:
            correlation += 1
            yield _call("cudaGraphLaunch", clock, correlation)
            for name, _ in graph.kernels:
                is_kernel = not name.startswith(("Memcpy", "Memset"))
                event = kernel(name, clock.tick(), TAKES, correlation)
                clock.tick(TAKES)
                yield event if is_kernel else {**event, "cat": f"gpu_{name.split()[0].lower()}"}
        if step.label is not None:
            yield span("user_annotation", step.label, MAIN, begin, clock.tick() - begin)


def _file(path: Path, events: Sequence[Any], **head: Any) -> Path:
    document = {**HEAD, "baseTimeNanoseconds": BASE_NS, "traceEvents": list(events), **head}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def capture(path: Path, *graphs: Graph, has_names: bool = True, has_bounds: bool = True) -> Path:
    events = _captured(graphs, _Clock(100.0), 1, has_names=has_names, has_bounds=has_bounds)
    return _file(path, list(events))


def execution(path: Path, *steps: Step, **head: Any) -> Path:
    return _file(path, list(_run(steps, _Clock(1_000_000.0), 5000)), **head)


def both(path: Path, graphs: Sequence[Graph], *steps: Step, has_names: bool = True) -> Path:
    """Writes one recording, which has the captures before the run."""
    captured = _captured(graphs, _Clock(100.0), 1, has_names=has_names, has_bounds=True)
    return _file(path, [*captured, *_run(steps, _Clock(1_000_000.0), 5000)])


def layers(count: int, batch_size: int, *, kernels: tuple[str, ...] = ("gemm", "norm")) -> tuple[Graph, ...]:
    """Returns a graph for each of several layers that are alike but for their modules."""
    sizes = f"[[{batch_size}, 4]]"
    return tuple(
        Graph(
            (
                Op("aten::addmm", (kernels[0],), sizes, f"Linear_{number}", "aten::linear"),
                Op("aten::native_layer_norm", (kernels[1],), sizes, f"LayerNorm_{number}"),
            ),
            batch_size,
            "PIECEWISE",
        )
        for number in range(count)
    )
