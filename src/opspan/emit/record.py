"""record: what `opspan run` captures, in process and with no tool at all. Reading it is readers.capture's."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from opspan.emit import ranges
from opspan.emit.schedule import Schedule
from opspan.emit.sessions import Session
from opspan.emit.sinks import CAPTURE, Sinks
from opspan.errors import CaptureError

if TYPE_CHECKING:
    from opspan.events import EventList
    from opspan.trace import Trace


class record(Session):  # noqa: N801  # stands beside emit_nvtx and emit_itt
    """Every autograd op of every thread, recorded to a file by opspan itself: no tool, no `opspan run`.

    `path` is the folder to write to, made if need be; each process, a fork for instance, writes a file of its own
    there. Without one the folder is temporary and goes once `trace` was read, or at exit.

        with opspan.record(record_shapes=True) as rec:
            train()
        rec.trace.ranges
        print(rec.events().key_averages().table())
    """

    _sink = CAPTURE
    _what = "recording"

    def __init__(
        self,
        record_shapes: bool = False,
        *,
        modules: bool = False,
        schedule: Schedule | None = None,
        path: str | os.PathLike[str] | None = None,
        enabled: bool = True,
    ) -> None:
        super().__init__(enabled, record_shapes, modules, schedule)
        self.path: Path | None = None if path is None else Path(path).absolute()
        self.file: Path | None = None  # this process' own, in `path`
        self._temporary = path is None
        self._trace: Trace | None = None

    def __enter__(self) -> record:
        super().__enter__()
        return self

    @property
    def trace(self) -> Trace:
        """What was recorded, read when first asked for."""
        if self._trace is None:
            if self.file is None or self.path is None:
                raise RuntimeError("nothing was recorded: enter the context manager first")
            if self._is_running():
                raise RuntimeError("still recording: leave the context manager first")
            from opspan.readers import capture

            self._trace = capture.read(self.path)
            if self._temporary:
                shutil.rmtree(self.path, ignore_errors=True)
        return self._trace

    def events(self) -> EventList:
        """What was recorded as torch's kind of list."""
        return self.trace.events()

    def _listening(self, native: Sinks) -> bool:
        return True

    def _start_sink(self, native: Sinks) -> str:
        try:
            if self.path is None:
                self.path = Path(tempfile.mkdtemp(prefix="opspan-record-"))
                _remove_at_exit(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CaptureError(f"the folder for the capture cannot be made ({error}): choose another path=") from error
        self.file = Path(os.fsdecode(native.capture_start(os.fsencode(self.path), self.record_shapes)))
        ranges.set_capturing(True)
        return "capture"

    def _stop(self) -> None:
        super()._stop()
        ranges.set_capturing(False)


def _remove_at_exit(folder: Path) -> None:
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a fork must not take its parent's recording away
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
