"""emit_itt: sessions for VTune, or for `opspan run`."""

from __future__ import annotations

from typing import Literal

from opspan.emit import sink_list
from opspan.emit.emitters import Emitter
from opspan.emit.schedule import Schedule
from opspan.emit.sinks import MAX_STRINGS


class emit_itt(Emitter):  # noqa: N801  # torch's name
    """Label every autograd op as an ITT task, for VTune or `opspan run`, with sequence number, sizes and relations.

    It is a context manager, as torch.autograd.profiler.emit_itt is, and covers all threads of the process.

    Args:
        enabled: if False, nothing is labelled.
        record_shapes: add the sizes of the inputs to each label.
        modules: add a task for every call of a nn.Module.
        compiled: add what torch.compile says: the ops and source lines that each of its kernels was made from, and why
            it compiled again (docs/compiled.md).
        labels: "task" writes the op's name; ids and sizes are metadata, and backward ops are related to forward ops.
            "text" writes everything into the name, for readers that lose metadata. "torch" writes the bare name, as
            torch's emit_itt does. "auto" is "task".
        schedule: which steps to label; call `step()` after each training step.
        max_strings: how many distinct names with sizes the tool may be given.
    """

    _sinks = (sink_list.ITT,)
    _what = "ITT annotation"
    _lost = "bare names, without sequence numbers, ids, sizes and relations, none in forks"

    def __init__(
        self,
        enabled: bool = True,
        record_shapes: bool = False,
        *,
        modules: bool = False,
        compiled: bool = False,
        labels: Literal["auto", "task", "text", "torch"] = "auto",
        schedule: Schedule | None = None,
        max_strings: int = MAX_STRINGS,
    ) -> None:
        super().__init__(enabled, record_shapes, modules, schedule, labels, max_strings, compiled)

    def __enter__(self) -> emit_itt:
        super().__enter__()
        return self

    def _tell(self, on: bool) -> None:
        if self._labelling is not None:
            self._labelling.native.itt_collect(on)

    def _torch_can(self) -> bool:
        import torch

        return bool(torch.profiler.itt.is_available())
