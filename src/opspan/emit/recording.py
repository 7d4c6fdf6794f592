"""Creates, reads and deletes the folder and the file of one recording, and keeps other recordings out of the folder.

`record` decides when to record. The capture sink writes the bytes (native/capture).
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from opspan import capture_files, private_files
from opspan.emit import dumps
from opspan.emit.keep import EVERYTHING, Retention
from opspan.emit.sink_list import Sink
from opspan.emit.sinks import Sinks
from opspan.errors import CaptureError, EmitError, NotReadable

if TYPE_CHECKING:
    from opspan.trace import Trace


class Recording:
    """A recording in `folder`, or in a temporary folder. A temporary folder is deleted after it was read, or at
    exit."""

    def __init__(self, folder: Path | None, add: bool, keep: Retention = EVERYTHING) -> None:
        self.folder = folder
        self.keep = keep
        self._file: Path | None = None  # the process' file, or the first file of a rolling recording
        self._add = add
        self._temporary = folder is None
        self._created: list[Path] = []  # created folders, the innermost first
        self._others: set[Path] = set()  # files that were in the folder before the recording

    @property
    def file(self) -> Path | None:
        """Returns the file of the process that started the recording, or the newest file of a rolling recording."""
        if not self.keep or self._file is None:
            return self._file
        return next(reversed(capture_files.segments(self._file)), self._file)

    def start(self, native: Sinks, sink: Sink) -> None:
        try:
            if self.folder is None:
                self.folder = private_files.folder("opspan-record-")
            else:
                self._created = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
                self.folder.mkdir(parents=True, exist_ok=True)
                self._others = set(self._files())
                self._refuse_others()
        except OSError as error:
            is_limit = error.errno in (errno.EMFILE, errno.ENFILE)
            todo = "raise the limit (ulimit -n)" if is_limit else "choose another path="
            raise CaptureError(f"the folder for the capture cannot be created ({error}): {todo}") from error
        try:
            _, file = native.start(sink.number, folder=os.fsencode(self.folder), keep=self.keep)
        except EmitError as error:
            raise CaptureError(str(error)) from error
        self._file = Path(os.fsdecode(file))
        if not self._temporary:
            self._refuse_others()  # another recording may have begun at the same moment

    def is_gone(self) -> bool:
        """Returns whether somebody has deleted the file, or its folder, since the recording began."""
        return self._file is not None and not (self.file or self._file).exists()

    def read(self, keep: bool) -> Trace:
        """Reads the recording. Unless `keep` is set, a temporary folder is deleted now."""
        file = self.file
        if file is None:
            raise RuntimeError("nothing was recorded: enter the context manager first, outside of compiled code")
        if self.is_gone():
            raise NotReadable(f"{file} was deleted, or its folder was, before it was read: record again")
        from opspan.loading import load_recording

        trace = load_recording(file)
        if self._temporary and self.folder is not None and not keep:
            private_files.remove(self.folder)
        return trace

    def dump(self, target: Path) -> None:
        """Copies the files that a rolling recording keeps."""
        files = [] if self._file is None else capture_files.segments(self._file)
        if not files:
            raise CaptureError("there is nothing to dump: nothing was recorded, or the temporary folder is gone")
        dumps.write(files, target)

    def discard(self) -> None:
        """Deletes the files of a recording that failed to start, or that recorded nothing. Suppresses errors, which
        would hide the reason of the failure."""
        # self._file is not used, because an interrupt may have come before it was set.
        with contextlib.suppress(OSError):
            for file in {*self._files(), *capture_files.device_files(self.folder or Path())} - self._others:
                if file.name.startswith(f"{os.getpid()}-"):
                    file.unlink()
        self._file = None
        if self._temporary and self.folder is not None:
            private_files.remove(self.folder)
            self.folder = None
        for folder in self._created:
            with contextlib.suppress(OSError):  # somebody else uses the folder by now
                folder.rmdir()

    def _refuse_others(self) -> None:
        if self._add:
            return
        # Compare names without the folder, because the folder may have several paths.
        own = self.file.name if self.file is not None else None
        other = next((file for file in self._files() if file.name != own and not _is_of_same_job(file)), None)
        if other is not None:
            raise CaptureError(
                f"{self.folder} holds another recording ({other.name}): choose another path=, delete it, or add to it "
                "with add=True"
            )

    def _files(self) -> list[Path]:
        return capture_files.captures(self.folder) if self.folder is not None else []


def _is_of_same_job(file: Path) -> bool:
    """Returns whether another process that still runs created the file. Such a process counts as a rank
    of the same job."""
    pid = file.name.partition("-")[0]
    return pid.isascii() and pid.isdigit() and int(pid) != os.getpid() and private_files.is_alive(int(pid))
