"""emit_nvtx, emit_itt and record: from entering to leaving, every op of every thread is labelled. How an op is told to
a sink is `observer`, what the sink makes of it native/sinks.

    Session            the contract that all three share (torch's: once, one at a time, nothing when not enabled)
    |-- emit_nvtx
    |-- emit_itt
    `-- record         in record.py

A fork takes part in the sessions that it was made in: their end and their schedule's turns reach it.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, ClassVar, Literal

from opspan.emit import compiled, injection, notices, observer, ranges, sinks
from opspan.emit import modules as module_ranges
from opspan.emit.changes import active, change, told_over
from opspan.emit.fallback import TorchEmitter
from opspan.emit.observer import Observer
from opspan.emit.schedule import Schedule
from opspan.emit.sinks import FORM_NAMES, FORMS, IN_SESSION, ITT, MAX_STRINGS, NVTX, Sinks, Stats
from opspan.emit.steps import Steps
from opspan.errors import AlreadyActive, NoCompiler

_warned: set[type] = set()  # who has said that nobody listens
_observing = 0  # sessions that label
_torch_thought: bool | None = None  # what torch's flag was before the first of them


class Session:
    """What the three have in common. A subclass says how its sink starts and what to tell the tool."""

    _sink: ClassVar[int]
    _what: ClassVar[str]  # for messages
    _under: ClassVar[str]  # the command of a tool that listens

    def __init__(self, enabled: bool, record_shapes: bool, modules: bool, schedule: Schedule | None) -> None:
        self.enabled = enabled
        self.entered = False
        self.record_shapes = record_shapes
        self.modules = modules
        self.labels: str | None = None  # the form in use; None when nothing was labelled
        self.stats = Stats()  # of the whole session, once it is over
        self.gives_way = False  # to one that the program itself enters: `opspan exec` started this one
        self._steps = Steps(schedule, 1 << self._sink, self._turn) if schedule is not None else None
        self._owner = 0  # process
        self._native: Sinks | None = None  # while the sink is on
        self._observer: Observer | None = None
        self._instead: TorchEmitter | None = None
        self._undo = contextlib.ExitStack()  # what entering did
        self._labelling: contextlib.ExitStack | None = None  # what turning on did

    def __enter__(self) -> Any:
        if not self.enabled:
            return self
        if self.entered:
            raise RuntimeError(f"{self._what} context manager is not reentrant")
        self.entered = True
        with change():
            other = active.get(self._sink)
            if isinstance(other, Session) and (other.gives_way or not other._is_owner()):
                other.__exit__()
            if self._sink in active:
                name = type(self).__name__
                raise AlreadyActive(f"{name} is already active in this process: one at a time, for all its threads")
            self._owner = os.getpid()
            active[self._sink] = self
            self._undo.callback(active.pop, self._sink, None)
        try:
            self._start()
        except BaseException:
            with contextlib.suppress(Exception):  # the first one says what is wrong
                self._stop()
            self._discard()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if compiled.compiling() or not self.enabled or active.get(self._sink) is not self:
            return
        try:
            self._stop()
        except Exception as error:  # noqa: BLE001  # the program has done nothing wrong
            notices.warn_at_end(
                f"{type(self).__name__} is off, but not all of its end went well: {error!r}", stacklevel=2
            )
        self._report_losses()

    def step(self) -> None:
        """A training step is over. With a schedule, this is what turns labelling on and off. Nothing in a fork."""
        if self._steps is not None and self._is_running() and self._is_owner():
            with change():
                self._steps.step()

    def _start(self) -> None:
        observer.Torch.here()  # a clear error, before anything else asks for torch
        _synchronize()
        native = sinks.require()
        if not self._listening(native):
            if type(self) not in _warned:
                _warned.add(type(self))
                notices.warn(self._nobody_listens(), stacklevel=4)
            return
        try:
            found: Observer | TorchEmitter = observer.load()
        except NoCompiler as error:
            found = self._without_observer(error)
        with change():
            self._undo.callback(self._ended)
            if isinstance(found, TorchEmitter):
                self._instead, self.labels = found, "torch"
            else:
                native.tell_forks(told_over)
                self._undo.callback(self._stop_sink, native)
                self.labels = self._start_sink(native)
                self._observer, self._native = found, native
            ranges.refresh()
            if self._steps is None:
                self._undo.callback(self._turn, on=False)
                self._turn(True)
            else:
                native.turn(self._sink, False)
                self._tell(False)
                self._undo.callback(self._turn, on=False)
                self._undo.callback(self._stop_steps, self._steps)
                self._steps.start()

    def _stop(self) -> None:
        """Leave this process as it was, whatever goes wrong on the way; then the error comes out."""
        with change():
            undo, self._undo = self._undo, contextlib.ExitStack()
            if self._is_running():
                undo.callback(_synchronize)
            undo.close()

    def _stop_steps(self, steps: Steps) -> None:
        if self._is_owner():  # the step that is open is its own
            steps.stop()

    def _stop_sink(self, native: Sinks) -> None:
        self.stats = native.stop(self._sink)

    def _ended(self) -> None:
        self._native = self._instead = self._observer = None

    def _discard(self) -> None:
        """Entering failed: leave no files."""

    def _is_running(self) -> bool:
        return self._native is not None or self._instead is not None

    def _is_owner(self) -> bool:
        return self._owner == os.getpid()

    def _turn(self, on: bool) -> None:
        """Label from here on, or no more. What has begun still ends."""
        if not on:
            done, self._labelling = self._labelling, None
            if done is not None:
                done.close()
        elif self._labelling is None:
            with contextlib.ExitStack() as undo:
                self._label(undo)
                self._labelling = undo.pop_all()

    def _label(self, undo: contextlib.ExitStack) -> None:
        """Turn everything on, and note what turns it off."""
        if self._steps is not None and self._is_owner():
            undo.callback(self._pause)
            self._tell(True)
        _tell_torch(on=True)
        undo.callback(_tell_torch, on=False)
        only_in_session = 0
        if self._instead is not None:
            undo.callback(self._instead.turn, on=False)
            self._instead.turn(True)
        elif self._observer is not None and self._native is not None:
            undo.callback(self._observer.detach, self._sink)
            self._observer.attach(self._sink, self.record_shapes, self.labels == "torch" and self.record_shapes)
            undo.callback(self._native.turn, self._sink, on=False)
            self._native.turn(self._sink, on=True)
            undo.callback(self._native.labelling, self._sink, on=False)
            self._native.labelling(self._sink, on=True)
            only_in_session = IN_SESSION << self._sink
        if self.modules:
            to = 1 << self._sink | only_in_session
            undo.callback(module_ranges.stop, to)
            module_ranges.start(to)

    def _pause(self) -> None:
        if self._is_owner():  # what the tool collects is not a fork's business
            _synchronize()
            self._tell(False)

    def _in_fork(self) -> None:
        """In the child, first of all."""
        if self.gives_way:  # nobody wrote it into the program, so each process has one for itself
            if self._native is not None:
                self._native.adopt(self._sink)
            self._owner = os.getpid()
        elif self._instead is not None:
            self._turn(False)  # torch's emitter cannot be told of the session's end
        elif self._steps is not None and self._native is not None:
            self._turn(True)  # ready for the owner's next active step

    def _report_losses(self) -> None:
        counted = {
            "sizes_dropped": "labels are without their sizes: there were too many distinct ones",
            "relations_missed": "backward ops are not linked to their forward: it was not labelled, or too long ago",
            "lost": "events could not be written",
            "given_up": "ranges stay open: a thread remembers 16,384 that have not ended, the outermost were given up",
            "fields_dropped": "annotations are without their category, colour, payload or args: labels='torch' has no "
            "place for them, the other forms have",
        }
        said = [f"{getattr(self.stats, name)} {what}" for name, what in counted.items() if getattr(self.stats, name)]
        if said:
            notices.warn_at_end(f"{type(self).__name__}: {'; '.join(said)}", stacklevel=3)

    # What differs

    def _listening(self, native: Sinks) -> bool:
        raise NotImplementedError

    def _nobody_listens(self) -> str:
        kind = "NVTX" if self._sink == NVTX else "ITT"
        why = injection.problem(self._sink) or f"no {kind} tool is attached to this process"
        return (
            f"{type(self).__name__} labels nothing: {why}. Run it under one: `{self._under} python train.py`, or with "
            "none installed `opspan run -o capture -- python train.py`"
        )

    def _start_sink(self, native: Sinks) -> str:
        """Start it; the form of its labels."""
        raise NotImplementedError

    def _without_observer(self, error: NoCompiler) -> TorchEmitter:
        """What does the work where the observer cannot be built. Or the error."""
        raise error

    def _tell(self, on: bool) -> None:
        """Tell the tool to collect, or not: only with a schedule."""


class _Emitter(Session):
    """What emit_nvtx and emit_itt share: forms of labels, and torch's emitter in place of ours."""

    _forms: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        enabled: bool,
        record_shapes: bool,
        modules: bool,
        schedule: Schedule | None,
        labels: str,
        max_strings: int,
    ) -> None:
        if labels not in self._forms:
            raise ValueError(f"labels={labels!r}: {type(self).__name__} knows {', '.join(self._forms)}")
        super().__init__(enabled, record_shapes, modules, schedule)
        self._asked = labels
        self._max_strings = max_strings

    def _start_sink(self, native: Sinks) -> str:
        return FORM_NAMES[native.start(self._sink, FORMS[self._asked], self.record_shapes, self._max_strings)]

    def _without_observer(self, error: NoCompiler) -> TorchEmitter:
        emitter = TorchEmitter(type(self).__name__, self.record_shapes)
        if not emitter.works():
            raise error
        notices.warn(
            f"{error}. Until then torch's own emitter labels instead: {emitter.lost}, and only on this thread and its "
            "autograd threads",
            stacklevel=5,
        )
        return emitter


class emit_nvtx(_Emitter):  # noqa: N801  # torch's name
    """Every autograd op becomes an NVTX range, for Nsight Systems or `opspan run`. Works on a CPU-only torch as well.

    A context manager as torch.autograd.profiler.emit_nvtx is one, for all threads of the process. `labels`:

    - "auto": "schema" if the tool understands extended payloads, else "payload"
    - "schema", "payload": the op's name, and its numbers beside it
    - "text": everything in the name
    - "torch": the text that torch's emit_nvtx writes, byte for byte; an `annotate` is its bare name, what it drops is
      counted in `stats.fields_dropped`

    `modules` adds a range for every nn.Module call. With a `schedule`, call `step()` after each training step.
    `max_strings` bounds the distinct names with sizes that the tool is given; labels past it come without sizes,
    counted in `stats.sizes_dropped`.
    """

    _sink = NVTX
    _what = "NVTX annotation"
    _under = "nsys profile -t cuda,nvtx -o report"
    _untold = False  # to collect, as CUDA was not in use yet
    _forms = ("auto", "schema", "payload", "text", "torch")

    def __init__(
        self,
        enabled: bool = True,
        record_shapes: bool = False,
        *,
        modules: bool = False,
        labels: Literal["auto", "schema", "payload", "text", "torch"] = "auto",
        schedule: Schedule | None = None,
        max_strings: int = MAX_STRINGS,
    ) -> None:
        super().__init__(enabled, record_shapes, modules, schedule, labels, max_strings)

    def __enter__(self) -> emit_nvtx:
        super().__enter__()
        return self

    def _listening(self, native: Sinks) -> bool:
        return native.nvtx_listening()

    def step(self) -> None:
        super().step()
        if self._untold and self._labelling is not None and self._is_owner():
            self._tell(True)

    def _tell(self, on: bool) -> None:
        """In CUDA's words, where a program uses CUDA. What it begins to use in an active step counts from the next."""
        import torch

        # Not is_available(): it starts the driver, which forks then cannot use, and warns where that is too old.
        self._untold = on and not torch.cuda.is_initialized()
        if torch.cuda.is_initialized():
            (torch.cuda.profiler.start if on else torch.cuda.profiler.stop)()


class emit_itt(_Emitter):  # noqa: N801  # torch's name
    """Every autograd op becomes an ITT task, for VTune or `opspan run`: with sequence number, sizes and relations.

    A context manager as torch.autograd.profiler.emit_itt is one, for all threads of the process. `labels`:

    - "auto", "task": the op's name; ids and sizes as metadata, backward related to forward
    - "text": everything in the name, for readers that lose metadata
    - "torch": the bare name, as torch's emit_itt writes it

    `modules`, `schedule` and `max_strings` as in `emit_nvtx`.
    """

    _sink = ITT
    _what = "ITT annotation"
    _under = "vtune -collect hotspots -knob enable-user-tasks=true -r r000hs --"
    _forms = ("auto", "task", "text", "torch")

    def __init__(
        self,
        enabled: bool = True,
        record_shapes: bool = False,
        *,
        modules: bool = False,
        labels: Literal["auto", "task", "text", "torch"] = "auto",
        schedule: Schedule | None = None,
        max_strings: int = MAX_STRINGS,
    ) -> None:
        super().__init__(enabled, record_shapes, modules, schedule, labels, max_strings)

    def __enter__(self) -> emit_itt:
        super().__enter__()
        return self

    def _listening(self, native: Sinks) -> bool:
        return ranges.open_itt(native) and native.itt_listening()

    def _tell(self, on: bool) -> None:
        if self._native is not None:
            self._native.itt_collect(on)


def _synchronize() -> None:
    """What was launched before belongs before. Only where CUDA is in use: this must not be what starts it."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _tell_torch(on: bool) -> None:
    """torch's own flag that somebody profiles: Dynamo and Inductor add record_function ranges when it is set."""
    global _observing, _torch_thought
    from torch.autograd import profiler

    _observing += 1 if on else -1
    if on and _observing == 1:
        _torch_thought = getattr(profiler, "_is_profiler_enabled", None)
    if _torch_thought is False and _observing == (1 if on else 0):
        profiler._is_profiler_enabled = on
