"""record: what `opspan run` captures, in process and with no tool at all. Reading it is readers.capture's."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from opspan import private_files
from opspan.emit import ranges
from opspan.emit.compiled import compiling
from opspan.emit.schedule import Schedule
from opspan.emit.sessions import Session
from opspan.emit.sinks import CAPTURE, Sinks
from opspan.errors import CaptureError

if TYPE_CHECKING:
    from opspan.events import EventList
    from opspan.trace import Trace


class record(Session):  # noqa: N801  # stands beside emit_nvtx and emit_itt
    """Every autograd op of every thread, recorded to a file by opspan itself: no tool, no `opspan run`.

    `path` is the folder to write to, created if need be; each process, a fork for instance, writes a file of its own
    there. Without one the folder is temporary and goes once `trace` was read, or at exit. A folder that holds an
    earlier recording is refused; `add=True` adds to it. Processes that run at the same time, as the ranks of one job,
    may share one. `trace` is this recording alone, whatever else is there.

        with opspan.record(record_shapes=True) as rec:
            train()
        rec.trace.ranges
        print(rec.events().key_averages().table())
    """

    _sink = CAPTURE
    _what = "recording"

    path: Path | None = None
    file: Path | None = None  # the one of the process that entered it, in `path`
    _trace: Trace | None = None

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        record_shapes: bool = False,
        *,
        add: bool = False,
        modules: bool = False,
        schedule: Schedule | None = None,
        enabled: bool = True,
    ) -> None:
        if compiling():  # as torch.profiler.profile there: it cannot be entered
            return
        super().__init__(enabled, record_shapes, modules, schedule)
        if isinstance(path, bool):
            raise TypeError(f"record({path}): the first argument is the folder: write record(record_shapes={path})")
        if path is not None and not os.fspath(path):
            raise ValueError("record(path=''): name a folder, or leave path out for a temporary one")
        if path is not None:
            self.path = Path(path).absolute()
        self._add = add
        self._temporary = path is None
        self._created: list[Path] = []  # folders, the innermost first
        self._others: set[Path] = set()  # files that were there before

    def __enter__(self) -> record:
        if not compiling():
            super().__enter__()
        return self

    @property
    def trace(self) -> Trace:
        """What was recorded, read when first asked for."""
        if self._trace is None:
            if self.file is None or self.path is None:
                raise RuntimeError("nothing was recorded: enter the context manager first, outside of compiled code")
            if self._is_running():
                raise RuntimeError("still recording: leave the context manager first")
            from opspan.readers import capture
            from opspan.trace import Trace

            self._trace = Trace.of(capture.read_recording(self.file))
            if self._temporary and self._is_owner():
                private_files.remove(self.path)
        return self._trace

    def events(self) -> EventList:
        """What was recorded as torch's kind of list."""
        return self.trace.events()

    def _listening(self, native: Sinks) -> bool:
        return True

    def _start_sink(self, native: Sinks) -> str:
        try:
            if self.path is None:
                self.path = private_files.folder("opspan-record-")
            else:
                self._created = [path for path in (self.path, *self.path.parents) if not path.exists()]
                self.path.mkdir(parents=True, exist_ok=True)
                self._others = set(self._files())
                self._refuse_others()
        except OSError as error:
            is_limit = error.errno in (errno.EMFILE, errno.ENFILE)
            todo = "raise the limit (ulimit -n)" if is_limit else "choose another path="
            raise CaptureError(f"the folder for the capture cannot be created ({error}): {todo}") from error
        self.file = Path(os.fsdecode(native.capture_start(os.fsencode(self.path), self.record_shapes)))
        if not self._temporary:
            self._refuse_others()  # one that began at this very moment
        self._undo.callback(ranges.set_capturing, on=False)
        ranges.set_capturing(True)
        return "capture"

    def _refuse_others(self) -> None:
        if self._add or self.path is None:
            return
        other = next((file for file in self._files() if file != self.file and not _is_of_same_job(file)), None)
        if other is not None:
            raise CaptureError(
                f"{self.path} holds another recording ({other.name}): choose another path=, delete it, or add to it "
                "with add=True"
            )

    def _files(self) -> list[Path]:
        return sorted(self.path.glob("*.opspan")) if self.path is not None else []

    def _discard(self) -> None:
        # Not self.file: an interrupt may have come before that was known. Nor may this hide why entering failed.
        with contextlib.suppress(OSError):
            for file in set(self._files()) - self._others:
                if file.name.startswith(f"{os.getpid()}-"):
                    file.unlink()
        self.file = None
        if self._temporary and self.path is not None:
            private_files.remove(self.path)
            self.path = None
        for folder in self._created:
            with contextlib.suppress(OSError):  # somebody else uses it by now
                folder.rmdir()


def _is_of_same_job(file: Path) -> bool:
    """Ranks of one job record side by side: of another process that still runs, so of no earlier run, and not ours."""
    pid = file.name.partition("-")[0]
    return pid.isascii() and pid.isdigit() and int(pid) != os.getpid() and private_files.is_alive(int(pid))
