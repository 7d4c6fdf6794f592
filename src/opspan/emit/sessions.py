"""The common part of emit_nvtx, emit_itt and record: entering, leaving, how many may be active, schedules, forks.

    Session            used once, one at a time except recordings, no effect if not enabled (all as in torch)
    |-- Emitter        for a tool, in emitters.py
    |   |-- emit_nvtx  in nvtx.py
    |   `-- emit_itt   in itt.py
    `-- record         in record.py

`labelling` is on between entering and leaving, or in active steps. `observer` sends ops to a sink, and native/sinks has
the sinks. A forked process takes part in the sessions that were active at the fork. It follows their schedule and their
end.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, ClassVar

from opspan.emit import compile_log, compiled, notices, observer, ranges, sinks, step_ends, tools, unharmed
from opspan.emit.changes import active, change, note_over
from opspan.emit.fallback import TorchEmitter
from opspan.emit.installed_torch import Torch
from opspan.emit.labelling import Details, Labelling
from opspan.emit.observer import Observer
from opspan.emit.schedule import Schedule
from opspan.emit.sink_list import Sink
from opspan.emit.sinks import Sinks, Stats
from opspan.emit.steps import StepMarks, Steps
from opspan.errors import AlreadyActive, ObserverError

_warned: set[type] = set()  # kinds of sessions that have warned that nobody listens


class Session:
    """Labels ops from entering until leaving. Subclasses define the sink, how it starts, and the messages to a tool."""

    _sinks: ClassVar[tuple[Sink, ...]]  # the sinks for this kind of session. Each active session takes one of them
    _sink: Sink  # the sink that the session took when it was entered
    _what: ClassVar[str]  # the name of this kind of session in messages
    _owner = 0  # the process that entered the session
    # Why the session could not be entered. Set here because compiled code enters sessions without their __init__.
    failed = ""
    # Only recordings set these.
    memory = False  # records memory that torch takes and gives back
    stacks = False  # records the functions of Python that call ops
    overloads = False  # records the overloads of ops
    python = False  # records the calls of Python functions
    _labelling: Labelling | None = None  # set from entering until the end of the session, if somebody listens

    def __init__(
        self, enabled: bool, record_shapes: bool, modules: bool, schedule: Schedule | None, compiled: bool = False
    ) -> None:
        self.enabled = enabled
        self.entered = False
        self.record_shapes = record_shapes
        self.modules = modules
        self.compiled = compiled
        self.labels: str | None = None  # the form of labels in use. None if nothing was labelled
        self.stats = Stats()  # the counts of the complete session, set when it ends
        # Whether a command of opspan started this session, not the program. Such a session ends when the program
        # enters a session of its own and all sinks are taken.
        self.gives_way = False
        self.covers_start = False  # whether ops are labelled from the end of `import torch` on
        self.in_each_process = False  # whether each forked process gets its own session, as under `opspan exec`
        self._steps = Steps(schedule, self._turn, self._step_is_over) if schedule is not None else None
        self._ended_steps = StepMarks()
        self._undo = contextlib.ExitStack()  # reverts what entering did

    def __enter__(self) -> Any:
        if not self.enabled:
            return self
        if self.entered:
            raise RuntimeError(f"{self._what} context manager is not reentrant")
        self.entered = True
        with change():
            for sink in self._sinks:
                other = active.get(sink.number)
                if isinstance(other, Session) and not other._is_owner():
                    other.__exit__()
            free = self._free() or self._make_room()
            if free is None:
                self.failed = self._too_many()
                raise AlreadyActive(self.failed)
            self._sink, number = free, free.number
            self._owner = os.getpid()
            active[number] = self
            self._undo.callback(active.pop, number, None)
        try:
            self._start()
        except BaseException as error:
            self.failed = str(error) or type(error).__name__
            with contextlib.suppress(Exception):  # the first error says what is wrong
                self._stop()
            self._discard()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if compiled.compiling() or not self._is_active():
            return
        name = type(self).__name__
        try:
            self._stop()
        except Exception as error:  # noqa: BLE001  # an error of ours must not reach the program
            notices.warn_at_end(f"{name} is off, but not all of its end went well: {error!r}", stacklevel=2)
        if losses := self._losses():
            notices.warn_at_end(f"{name}: {'; '.join(losses)}", stacklevel=2)
        unharmed.say(name, stacklevel=2)

    def step(self) -> None:
        """Say that a training step is over. With a schedule, this turns labelling on and off. It does nothing in a
        forked process. Without a schedule it also does nothing in compiled code, where a mark would break the graph."""
        if self._steps is None and compiled.compiling():
            return
        if not (self._is_running() and self._is_owner()):
            return
        if self._steps is None:
            unharmed.call("marking a step", self._ended_steps.step, self._sink.bit, self._is_on())
        else:
            with change():
                self._steps.step()
        step_ends.tell()

    def turn(self, on: bool) -> None:
        """Pause labelling, or resume it. Ranges that have begun still end. It does nothing in a forked process."""
        if self._is_running() and self._is_owner():
            with change():
                self._turn(on)

    def _start(self) -> None:
        Torch.here()  # raises a clear error before other code needs torch
        _synchronize()
        native = sinks.require()
        if not tools.listens(native, self._sink):
            if type(self) not in _warned:
                _warned.add(type(self))
                notices.warn(self._nobody_listens(), stacklevel=4)
            return
        try:
            by: Observer | TorchEmitter = observer.load()
        except ObserverError as error:
            by = self._without_observer(error)
        with change():
            if self.compiled:
                self._undo.callback(compile_log.stop)
                compile_log.start()
            self._undo.callback(self._drop_labelling)
            if isinstance(by, TorchEmitter):
                self.labels = "torch"
            else:
                native.tell_forks(note_over)
                self._undo.callback(self._stop_sink, native)
                self.labels = self._start_sink(native)
            if self._sink.tool is None:
                self._undo.callback(ranges.set_open, self._sink.bit, on=False)
                ranges.set_open(self._sink.bit, on=True)
            else:
                ranges.refresh()
            self._labelling = Labelling(
                self._sink,
                native,
                by,
                Details(
                    inputs=self._inputs() if self.record_shapes else observer.NO_INPUTS,
                    memory=self.memory,
                    stacks=self.stacks,
                    overloads=self.overloads,
                    modules=self.modules,
                    python=self.python,
                    compiled=self.compiled,
                ),
                collect=self._collect if self._collects() else None,
            )
            self._undo.callback(self._turn, on=False)
            if self._steps is None:
                self._turn(True)
            else:
                native.turn(self._sink.number, False)
                self._tell(False)
                if not self.gives_way:
                    self._undo.enter_context(step_ends.ignore_optimizers())
                self._undo.callback(self._stop_steps, self._steps)
                self._steps.start(self._sink.bit)

    def _stop(self) -> None:
        """Undoes everything that entering did. If a part of that fails, does the rest and then raises the error."""
        with change():
            undo, self._undo = self._undo, contextlib.ExitStack()
            if self._is_running():
                undo.callback(_synchronize)
            undo.close()

    def _stop_steps(self, steps: Steps) -> None:
        if self._is_owner():  # a forked process does not own the open step
            steps.stop()

    def _stop_sink(self, native: Sinks) -> None:
        self.stats = native.stop(self._sink.number)

    def _losses(self) -> list[str]:
        return self.stats.losses()

    def _drop_labelling(self) -> None:
        self._labelling = None

    def _step_is_over(self) -> None:
        """Notes the end of a step. Only recordings do so."""

    def _discard(self) -> None:
        """Deletes a recording's files, for instance if the session could not be entered."""

    def _free(self) -> Sink | None:
        return next((sink for sink in self._sinks if sink.number not in active), None)

    def _make_room(self) -> Sink | None:
        others = (active[sink.number] for sink in self._sinks)
        other = next((session for session in others if isinstance(session, Session) and session.gives_way), None)
        if other is not None and not self.gives_way:
            other.__exit__()
        return self._free()

    def _is_active(self) -> bool:
        return self._owner != 0 and active.get(self._sink.number) is self

    def _is_running(self) -> bool:
        return self._labelling is not None

    def _is_on(self) -> bool:
        return self._labelling is not None and self._labelling.is_on

    def _is_owner(self) -> bool:
        return self._owner == os.getpid()

    def _turn(self, on: bool) -> None:
        if self._labelling is not None:
            self._labelling.turn(on)

    def _collect(self, on: bool) -> None:
        """Makes the tool collect, or stop. Does nothing in a forked process."""
        if self._is_owner():
            if not on:
                _synchronize()
            self._tell(on)

    def _in_fork(self) -> None:
        """Runs in the child process right after a fork."""
        if self.in_each_process:
            if self._labelling is not None:
                self._labelling.native.adopt(self._sink.number)
            self._owner = os.getpid()
        elif self._labelling is not None and isinstance(self._labelling.by, TorchEmitter):
            self._turn(False)  # torch's emitter cannot learn that the session has ended
        elif self._steps is not None:
            self._turn(True)  # labelling stays on here; native code pauses and resumes it whenever the owner does

    def _nobody_listens(self) -> str:
        why = tools.problem(self._sink) or f"no {self._sink.name.upper()} tool is attached to this process"
        under = self._sink.tool.command if self._sink.tool is not None else ""
        return (
            f"{type(self).__name__} labels nothing: {why}. Run it under one: `{under} python train.py`, or with "
            "none installed `opspan run -o capture -- python train.py`"
        )

    def _too_many(self) -> str:
        name, most = type(self).__name__, len(self._sinks)
        if most == 1:
            return f"{name} is already active in this process: one at a time, for all its threads"
        return f"{name} is already active {most} times in this process: no more at a time, for all its threads"

    # The parts in which sessions differ

    def _start_sink(self, native: Sinks) -> str:
        """Starts the sink and returns the form of its labels."""
        raise NotImplementedError

    def _inputs(self) -> int:
        """Returns which inputs the sink gets."""
        return observer.TENSORS if self.labels == "torch" else observer.SIZES

    def _without_observer(self, error: ObserverError) -> TorchEmitter:
        """Returns the emitter to use instead of the observer, or raises the error."""
        raise error

    def _collects(self) -> bool:
        """Returns whether the tool should collect only while labelling is on."""
        return self._steps is not None

    def _tell(self, on: bool) -> None:
        """Tells the tool to collect, or to stop."""


def _synchronize() -> None:
    """Waits for work that was launched before, if a device is in use. Does not start a device."""
    import torch

    for device in (torch.cuda, torch.xpu):
        if device.is_initialized():
            device.synchronize()
