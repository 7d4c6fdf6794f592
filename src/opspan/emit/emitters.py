"""The common part of emit_nvtx and emit_itt. It chooses the form of labels. If the observer cannot be used, it uses
torch's own emitter where that works."""

from __future__ import annotations

from typing import ClassVar

from opspan.emit import notices, process_facts, unharmed
from opspan.emit.fallback import TorchEmitter
from opspan.emit.schedule import Schedule
from opspan.emit.sessions import Session
from opspan.emit.sinks import FORM_NAMES, FORMS, Sinks
from opspan.errors import ObserverError


class Emitter(Session):
    """A session for a tool. Subclasses are named like torch's emitters."""

    _lost: ClassVar[str]  # how labels of torch's emitter differ from opspan's, for a warning

    def __init__(
        self,
        enabled: bool,
        record_shapes: bool,
        modules: bool,
        schedule: Schedule | None,
        labels: str,
        max_strings: int,
        compiled: bool,
    ) -> None:
        if labels not in self._sinks[0].forms:
            raise ValueError(f"labels={labels!r}: {type(self).__name__} knows {', '.join(self._sinks[0].forms)}")
        super().__init__(enabled, record_shapes, modules, schedule, compiled)
        self._requested = labels
        self._max_strings = max_strings

    def _start_sink(self, native: Sinks) -> str:
        form, _ = native.start(self._sink.number, FORMS[self._requested], self._max_strings)
        return FORM_NAMES[form]

    def _stop_sink(self, native: Sinks) -> None:
        super()._stop_sink(native)
        if self._is_owner() and self.stats.ranges:
            unharmed.call("describing this process", self._tell_collectors)

    def _tell_collectors(self) -> None:
        if (file := process_facts.collectors_file()) is not None:
            process_facts.tell_after_ops(file, self.covers_start)

    def _without_observer(self, error: ObserverError) -> TorchEmitter:
        emitter = TorchEmitter(type(self).__name__, self.record_shapes)
        if not emitter.is_there() or not self._torch_can():
            raise error
        notices.warn(
            f"{error}. Until then torch's own emitter labels instead: {self._lost}, and only on this thread and its "
            "autograd threads",
            stacklevel=5,
        )
        return emitter

    def _torch_can(self) -> bool:
        """Returns whether torch's emitter works here. The check must not start CUDA."""
        raise NotImplementedError
