"""emit_nvtx, emit_itt and record: from entering to leaving, every op of every thread is labelled. How an op is told to
a sink is `observer`, what the sink makes of it native/sinks.

    Session            the contract that all three share (torch's: once, one at a time, nothing when not enabled)
    |-- emit_nvtx
    |-- emit_itt
    `-- record         in record.py
"""

from __future__ import annotations

import threading
from typing import Any, ClassVar, Literal

from opspan.emit import injection, notices, observer, ranges, sinks
from opspan.emit import modules as module_ranges
from opspan.emit.fallback import TorchEmitter
from opspan.emit.observer import Observer
from opspan.emit.schedule import Schedule
from opspan.emit.sinks import FORM_NAMES, FORMS, ITT, MAX_STRINGS, NVTX, Sinks, Stats
from opspan.emit.steps import Steps
from opspan.errors import AlreadyActive, NoCompiler

_lock = threading.Lock()
_active: dict[int, Session] = {}  # by sink
_warned: set[type] = set()  # who has said that nobody listens
_observing = 0  # sessions with an observer attached
_torch_thought: bool | None = None  # what torch's flag was before the first of them


class Session:
    """What the three have in common. A subclass says how its sink starts and what to tell the tool."""

    _sink: ClassVar[int]
    _what: ClassVar[str]  # for messages

    def __init__(self, enabled: bool, record_shapes: bool, modules: bool, schedule: Schedule | None) -> None:
        self.enabled = enabled
        self.entered = False
        self.record_shapes = record_shapes
        self.modules = modules
        self.labels: str | None = None  # the form in use; None when nothing was labelled
        self.stats = Stats()  # of the whole session, once it is over
        self.gives_way = False  # to one that the program itself enters: `opspan exec` started this one
        self._steps = Steps(schedule, 1 << self._sink, self._turn) if schedule is not None else None
        self._native: Sinks | None = None  # while the sink is on
        self._observer: Observer | None = None
        self._instead: TorchEmitter | None = None
        self._on = False  # labelling at this moment

    def __enter__(self) -> Any:
        if not self.enabled:
            return self
        if self.entered:
            raise RuntimeError(f"{self._what} context manager is not reentrant")
        self.entered = True
        other = _active.get(self._sink)
        if other is not None and other.gives_way:
            other.__exit__()
        with _lock:
            if self._sink in _active:
                name = type(self).__name__
                raise AlreadyActive(f"{name} is already active in this process: one at a time, for all its threads")
            _active[self._sink] = self
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.enabled and _active.get(self._sink) is self:
            self._stop()
            self._report_losses()

    def step(self) -> None:
        """A training step is over. With a schedule, this is what turns labelling on and off."""
        if self._steps is not None and self._is_running():
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
            self._observer = observer.load()
        except NoCompiler as error:
            self._instead = self._without_observer(error)
            self.labels = "torch"
        else:
            self.labels = self._start_sink(native)
            self._native = native
        ranges.refresh()
        if self._steps is None:
            self._turn(True)
        else:
            self._tell(False)
            self._steps.start()

    def _stop(self) -> None:
        try:
            if self._is_running():
                _synchronize()
                if self._steps is not None:
                    self._steps.stop()
                self._turn(False)
            if self._native is not None:
                self.stats = self._native.stop(self._sink)
        finally:
            self._native = self._instead = None
            with _lock:
                if _active.get(self._sink) is self:
                    del _active[self._sink]

    def _is_running(self) -> bool:
        return self._native is not None or self._instead is not None

    def _turn(self, on: bool) -> None:
        """Label from here on, or no more. What has begun still ends."""
        if on == self._on:
            return
        self._on = on
        scheduled = self._steps is not None
        if on and scheduled:
            self._tell(True)
        if self._instead is not None:
            self._instead.turn(on)
        elif self._observer is not None and on:
            self._observer.attach(self._sink, self.record_shapes, self.labels == "torch" and self.record_shapes)
            self._say_labelling(on)
        elif self._observer is not None:
            self._say_labelling(on)  # before: rather an op told twice in between than not at all
            self._observer.detach(self._sink)
        _tell_torch(on)
        if self.modules:
            (module_ranges.start if on else module_ranges.stop)(1 << self._sink)
        if not on and scheduled:
            _synchronize()
            self._tell(False)

    def _say_labelling(self, on: bool) -> None:
        if self._native is not None:
            self._native.labelling(self._sink, on)

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
            notices.warn(f"{type(self).__name__}: {'; '.join(said)}", stacklevel=3)

    # What differs

    def _listening(self, native: Sinks) -> bool:
        raise NotImplementedError

    def _nobody_listens(self) -> str:
        raise NotImplementedError

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

    def _nobody_listens(self) -> str:
        return (
            f"emit_nvtx labels nothing: {injection.problem(NVTX) or 'no NVTX tool is attached to this process'}. "
            "Run it under one: `nsys profile -t nvtx,osrt python ...`, or with none installed `opspan run -- ...`"
        )

    def step(self) -> None:
        super().step()
        if self._untold and self._on:
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

    def _nobody_listens(self) -> str:
        return (
            f"emit_itt labels nothing: {injection.problem(ITT) or 'no ITT tool is attached to this process'}. "
            "Run it under one: `vtune -collect hotspots -- python ...`, or with none installed `opspan run -- ...`"
        )

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

    with _lock:
        _observing += 1 if on else -1
        if on and _observing == 1:
            _torch_thought = getattr(profiler, "_is_profiler_enabled", None)
        if _torch_thought is False and _observing == (1 if on else 0):
            profiler._is_profiler_enabled = on
