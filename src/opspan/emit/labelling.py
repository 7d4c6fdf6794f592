"""Turns on and off everything that labels: torch's profiler flag, the observer, ranges of modules and so on.

A session without a schedule turns labelling on once. A session with a schedule turns labelling on for each sequence of
active steps. `sessions` decides who may enter a session.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from opspan.emit import compile_log, fast_ranges, modules, notices, python_calls, python_frames
from opspan.emit.fallback import TorchEmitter
from opspan.emit.observer import Observer
from opspan.emit.sink_list import IN_SESSION, Sink
from opspan.emit.sinks import Sinks

NO_MEMORY = "no memory is recorded: what allocates torch's memory in this process cannot be watched"
NO_STACKS = "no Python stacks are recorded: "

_observing = 0  # how many sessions label now
_flag_before: bool | None = None  # the value of torch's flag before the first session began to label


@dataclass(frozen=True)
class Details:
    """The details that are recorded in addition to the ops themselves."""

    inputs: int  # one of the constants in observer.py, such as SIZES
    memory: bool
    stacks: bool
    overloads: bool
    modules: bool
    python: bool
    compiled: bool


class Labelling:
    """Labels ops for one session. `by` sends the ops to the sink. `collect`, if there is one, starts the tool's
    collection before labelling begins, and stops it afterwards."""

    def __init__(
        self,
        sink: Sink,
        native: Sinks,
        by: Observer | TorchEmitter,
        details: Details,
        collect: Callable[[bool], None] | None,
    ) -> None:
        self.by = by
        self.native = native
        self._sink = sink
        self._wanted = details
        self._collect = collect
        self._undo: contextlib.ExitStack | None = None  # reverts what turning on did
        self._sent = 0  # how many marks of torch.compile's log were sent to the sink

    @property
    def is_on(self) -> bool:
        return self._undo is not None

    def turn(self, on: bool) -> None:
        """Starts or stops labelling. Ranges that have begun still end."""
        if not on:
            undo, self._undo = self._undo, None
            if undo is not None:
                undo.close()
        elif self._undo is None:
            with contextlib.ExitStack() as undo:
                self._turn_on(undo)
                self._undo = undo.pop_all()

    def _turn_on(self, undo: contextlib.ExitStack) -> None:
        if self._collect is not None:
            undo.callback(self._collect, False)
            self._collect(True)
        _set_torchs_flag(on=True)
        undo.callback(_set_torchs_flag, on=False)
        number, only_in_session = self._sink.number, 0
        if isinstance(self.by, TorchEmitter):
            undo.callback(self.by.turn, on=False)
            self.by.turn(True)
        else:
            self._attach(self.by, undo)
            undo.callback(self.native.turn, number, on=False)
            self.native.turn(number, on=True)
            undo.callback(self.native.labelling, number, on=False)
            self.native.labelling(number, on=True)
            only_in_session = IN_SESSION << number
        if self._wanted.compiled:
            undo.callback(self._end_compile_log)
            # A tool may begin a new file each time that it starts to collect, so it gets all marks again.
            compile_log.turn_on(self._sink.bit, 0 if self._collect is not None else self._sent)
        if self._wanted.modules:
            to = self._sink.bit | only_in_session
            undo.callback(modules.stop, to)
            modules.start(to)
        if self._wanted.python:
            undo.callback(python_calls.stop, self.native, number)
            python_calls.start(self.native, number)

    def _end_compile_log(self) -> None:
        self._sent = compile_log.turn_off(self._sink.bit)

    def _attach(self, by: Observer, undo: contextlib.ExitStack) -> None:
        number, details = self._sink.number, self._wanted
        undo.callback(by.detach, number)
        if details.stacks:
            undo.callback(by.stacks, number, on=False)
            if not by.stacks(number, on=True):
                notices.warn(NO_STACKS + python_frames.why_not(), stacklevel=4)
        if details.overloads:
            undo.callback(by.overloads, number, on=False)
            by.overloads(number, on=True)
        by.attach(number, details.inputs)
        undo.callback(fast_ranges.stop)
        fast_ranges.start(by)
        if details.memory:
            undo.callback(by.memory, number, on=False)
            if not by.memory(number, on=True):
                notices.warn(NO_MEMORY, stacklevel=4)


def torch_profiles() -> bool:
    """Returns whether one of torch's own profilers is on."""
    from torch.autograd import profiler

    return bool(_flag_before if _observing else getattr(profiler, "_is_profiler_enabled", False))


def _set_torchs_flag(on: bool) -> None:
    """Sets torch's flag that says that a profiler is on, so that Dynamo and Inductor add record_function ranges."""
    global _observing, _flag_before
    from torch.autograd import profiler

    _observing += 1 if on else -1
    if on and _observing == 1:
        _flag_before = getattr(profiler, "_is_profiler_enabled", None)
    if _flag_before is False and _observing == (1 if on else 0):
        profiler._is_profiler_enabled = on
