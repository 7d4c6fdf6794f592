"""Measures how many launches a queue holds before the host has to wait. `path --what-if` needs this depth.

A long kernel keeps a stream busy while the host goes on launching. The duration of each launch on the host shows when
the queue was full. The first slow launch waited for the end of the long kernel. The launches after it show how many
entries of the queue became free together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import gpu

LAUNCHES = 3000
LONG_CYCLES = 700_000_000  # about 0.4 s
SHORT_CYCLES = 40_000  # about 20 us, which is longer than a launch takes
WAITED_NS = 20_000_000  # a launch that takes longer has waited for a free entry of the queue
Launch = Callable[[int], Any]


def main(pieces: gpu.Pieces) -> None:
    pieces.piece("facts", gpu.facts)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    source, target = (torch.empty(1024, pin_memory=not gpu.DRY) for _ in range(2))
    on_device = torch.empty(1024, device=gpu.DEVICE)

    def in_turn(nth: int) -> None:
        with torch.cuda.stream((first, second)[nth % 2]):
            torch.cuda._sleep(10)

    def on_second(nth: int) -> None:
        with torch.cuda.stream(second):
            torch.cuda._sleep(10)

    def after_full(nth: int) -> None:
        on_first(nth) if nth < 1000 else on_second(nth)

    def on_first(nth: int) -> None:
        torch.cuda._sleep(10)

    def filled_and_event(nth: int) -> None:
        torch.cuda.Event().record()

    one = [first]
    pieces.piece("one stream", depth, one, on_first)
    pieces.piece("one stream, again", depth, one, on_first)
    pieces.piece("one stream, kernels of 20 us", depth, one, lambda nth: torch.cuda._sleep(SHORT_CYCLES))
    pieces.piece("ops of torch", depth, one, lambda nth: on_device.add_(1))
    pieces.piece("two busy streams in turn", depth, [first, second], in_turn)
    pieces.piece("two streams, one of them busy, in turn", depth, one, in_turn)
    pieces.piece("another stream than the busy one", depth, one, on_second)
    pieces.piece("1,000 on the busy stream, then on another", depth, one, after_full)
    pieces.piece("copies to the device", depth, one, lambda nth: on_device.copy_(source, non_blocking=True))
    pieces.piece("copies from the device", depth, one, lambda nth: target.copy_(on_device, non_blocking=True))
    pieces.piece("memory set", depth, one, lambda nth: on_device.zero_())
    pieces.piece("events", depth, one, filled_and_event)
    for kernels in (1, 10, 100):
        pieces.piece(f"graphs of {kernels} kernels", graphs, first, kernels)
    pieces.piece("trace", traced, pieces.folder, first)


def depth(busy: list[Any], launch: Launch, launches: int = LAUNCHES) -> dict[str, Any]:
    """Launches many times while these streams are busy. Returns which launches waited, and how long launches took on
    the host."""
    with torch.cuda.stream(busy[0]):
        launch(0)
    torch.cuda.synchronize()
    for stream in busy:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG_CYCLES)
    took = []
    begun = time.perf_counter_ns()
    with torch.cuda.stream(busy[0]):
        for nth in range(launches):
            before = time.perf_counter_ns()
            launch(nth)
            took.append(time.perf_counter_ns() - before)
    launched_ns = time.perf_counter_ns() - begun
    torch.cuda.synchronize()
    waited = [nth for nth, ns in enumerate(took) if ns > WAITED_NS]
    first = waited[0] if waited else None
    before_full = sorted(took[:first] or took)
    usual = before_full[len(before_full) // 2]
    return {
        "launches_before_the_first_that_waited": first,
        "those_that_waited": waited[:20],
        "usual_ns": usual,
        "launched_in_ns": launched_ns,
        "until_all_done_ns": time.perf_counter_ns() - begun,
        # Launches that took long, because the queue was full. The number of launches from one of these to the next
        # shows how many entries of the queue become free together.
        "longer_than_four_times_usual": [nth for nth, ns in enumerate(took) if ns > 4 * usual][:400],
        "took_ns_around_full": took[max((first or 0) - 10, 0) : (first or 0) + 300],
    }


def graphs(stream: Any, kernels: int) -> dict[str, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(kernels):
            torch.cuda._sleep(10)
    return depth([stream], lambda nth: graph.replay())


def traced(folder: Any, stream: Any) -> dict[str, Any]:
    """Writes a trace of a queue that fills up twice, to test the rule that finds such queues."""

    def fill() -> None:
        for _ in range(2):
            depth([stream], lambda nth: torch.cuda._sleep(SHORT_CYCLES), 1500)

    return gpu.profiled(folder / "full_queue.json.gz", fill)
