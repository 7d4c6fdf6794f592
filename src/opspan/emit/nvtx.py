"""emit_nvtx: sessions for Nsight Systems, or for `opspan run`."""

from __future__ import annotations

from typing import Literal

from opspan.emit import sink_list
from opspan.emit.emitters import Emitter
from opspan.emit.schedule import Schedule
from opspan.emit.sinks import MAX_STRINGS


class emit_nvtx(Emitter):  # noqa: N801  # torch's name
    """Label every autograd op as an NVTX range, for Nsight Systems or `opspan run`. A CPU-only torch will do.

    It is a context manager, as torch.autograd.profiler.emit_nvtx is, and covers all threads of the process.

    Args:
        enabled: if False, nothing is labelled.
        record_shapes: add the sizes of the inputs to each label.
        modules: add a range for every call of a nn.Module.
        compiled: add what torch.compile says: the ops and source lines that each of its kernels was made from, and why
            it compiled again (docs/compiled.md).
        labels: "schema" and "payload" write the op's name, and its numbers as a payload. "text" writes everything into
            the name. "torch" writes exactly the text of torch's emit_nvtx; of an `annotate` only the name is written,
            and `stats.fields_dropped` counts the annotations that lose something. "auto" is "schema" if the tool
            understands extended payloads, else "payload".
        schedule: which steps to label; call `step()` after each training step.
        max_strings: how many distinct names with sizes the tool may be given. Further labels have no sizes, and
            `stats.sizes_dropped` counts them.
    """

    _sinks = (sink_list.NVTX,)
    _what = "NVTX annotation"
    _lost = "torch's text labels, without forward threads, none in forks"
    _untold = False  # whether the tool must be started once the program uses CUDA

    def __init__(
        self,
        enabled: bool = True,
        record_shapes: bool = False,
        *,
        modules: bool = False,
        compiled: bool = False,
        labels: Literal["auto", "schema", "payload", "text", "torch"] = "auto",
        schedule: Schedule | None = None,
        max_strings: int = MAX_STRINGS,
    ) -> None:
        super().__init__(enabled, record_shapes, modules, schedule, labels, max_strings, compiled)

    def __enter__(self) -> emit_nvtx:
        super().__enter__()
        return self

    def step(self) -> None:
        super().step()
        if self._untold and self._is_on() and self._is_owner():
            self._tell(True)

    def _tell(self, on: bool) -> None:
        """Starts or stops the tool through CUDA's functions if the program uses CUDA. If the program first uses CUDA
        within an active step, the tool collects from the next step on."""
        import torch

        # is_available() is not used. It would start the driver, which forked processes then cannot use, and it would
        # warn if the driver is too old.
        self._untold = on and not torch.cuda.is_initialized()
        if torch.cuda.is_initialized():
            (torch.cuda.profiler.start if on else torch.cuda.profiler.stop)()

    def _torch_can(self) -> bool:
        import torch

        return bool(torch.cuda.is_initialized())  # torch's emitter synchronizes first, and that must not start CUDA
