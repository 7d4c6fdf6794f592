"""The calls that a profiler makes between two steps, by the actions of both steps. torch.profiler has the same
table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from opspan.emit.schedule import ProfilerAction

NONE, WARMUP = ProfilerAction.NONE, ProfilerAction.WARMUP
RECORD, SAVE = ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE


class Cycles(Protocol):
    """The methods of a profiler that a transition calls."""

    def prepare_trace(self) -> None: ...
    def start_trace(self) -> None: ...
    def stop_trace(self) -> None: ...
    def _trace_ready(self) -> None: ...


def _prepare(profiler: Cycles) -> None:
    profiler.prepare_trace()


def _start(profiler: Cycles) -> None:
    profiler.start_trace()


def _stop(profiler: Cycles) -> None:
    profiler.stop_trace()


def _ready(profiler: Cycles) -> None:
    profiler._trace_ready()


# The calls between two steps, by the actions of the last and the next step. A next action of None means that the
# profiler stops.
TRANSITIONS: dict[tuple[ProfilerAction, ProfilerAction | None], tuple[Callable[[Cycles], None], ...]] = {
    (NONE, NONE): (),
    (NONE, WARMUP): (_prepare,),
    (NONE, RECORD): (_prepare, _start),
    (NONE, SAVE): (_prepare, _start),
    (WARMUP, NONE): (_start, _stop),
    (WARMUP, WARMUP): (),
    (WARMUP, RECORD): (_start,),
    (WARMUP, SAVE): (_start,),
    (WARMUP, None): (_start, _stop),
    (RECORD, NONE): (_stop,),
    (RECORD, WARMUP): (_stop,),
    (RECORD, RECORD): (),
    (RECORD, SAVE): (),
    (RECORD, None): (_stop, _ready),
    (SAVE, NONE): (_stop, _ready),
    (SAVE, WARMUP): (_stop, _ready, _prepare),
    (SAVE, RECORD): (_stop, _ready, _prepare, _start),
    (SAVE, SAVE): (_stop, _ready, _prepare, _start),
    (SAVE, None): (_stop, _ready),
}
# Transitions that discard a warmup or a recording. Like torch, opspan warns about a schedule with one of them.
INCORRECT = {(WARMUP, NONE), (RECORD, NONE), (RECORD, WARMUP)}


def action_of(answer: object) -> ProfilerAction:
    """Returns the ProfilerAction for a schedule's answer, which may be an action of torch's own enum. Raises ValueError
    for other answers, and for DEVICE_STOPPED."""
    name = getattr(answer, "name", None)
    if name == ProfilerAction.DEVICE_STOPPED.name:
        raise ValueError("a schedule answered DEVICE_STOPPED, which only the profiler itself may set")
    if name not in ProfilerAction.__members__:
        raise ValueError(f"a schedule answered {answer!r}; expected a ProfilerAction")
    return ProfilerAction[str(name)]
