"""Makes short recordings of a running process for `opspan top`, one after another, until the
user ends `opspan top`.

The next recording begins before the previous one is read, so that few events are missed. Every recording is written to
a temporary folder of this user, which is deleted after reading.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

from opspan import capture_files, private_files
from opspan.app import attaching, capturing, launch, run_notes
from opspan.app.top_rows import Snapshot, snapshot_of
from opspan.errors import EmitError, OpspanError, UsageError, WriteError
from opspan.trace import Trace


@dataclass
class Wish:
    """The user's choice of what to show. It may change at any time."""

    by: str = "ops"
    by_total: bool = False
    is_paused: bool = False


class Recorder:
    """Makes recordings of process `pid` in a thread until `close` is called or an error occurs. Each recording lasts
    `seconds`."""

    def __init__(self, pid: int, seconds: float, wish: Wish) -> None:
        self._pid = pid
        self._seconds = seconds
        self._wish = wish
        self._done: queue.Queue[tuple[str, Path] | OpspanError] = queue.Queue(maxsize=1)
        self._over = threading.Event()
        self._asking: list[attaching.Attachment] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def next(self, seconds: float) -> Snapshot | None:
        """Waits at most `seconds` for the next recording. Returns None if none was ready in time. Raises OpspanError if
        recording has failed."""
        try:
            result = self._done.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(result, OpspanError):
            raise result
        by, folder = result
        try:
            return snapshot_of(_read(folder), by)
        finally:
            private_files.remove(folder)

    def close(self) -> None:
        """Ends the current recording, and the thread that makes recordings."""
        self._over.set()
        attaching.end(self._asking)
        while self._thread.is_alive():
            try:
                self._done.get(timeout=0.05)
            except queue.Empty:
                self._thread.join(0.05)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                if self._wish.is_paused:
                    self._over.wait(0.1)
                else:
                    by = self._wish.by
                    self._done.put((by, self._record(by)))
        except OpspanError as error:
            self._done.put(error)
        except OSError as error:  # for example, the disk is full
            self._done.put(EmitError(f"nothing more can be recorded: {error}"))

    def _record(self, by: str) -> Path:
        folder = private_files.folder("opspan-top-")
        request = attaching.Request(
            str(folder), 0, self._seconds, False, by == "lines", False, by == "modules", devices=True
        )
        with attaching.connected([self._pid]) as self._asking:
            if self._over.is_set():
                return folder
            attaching.ask(self._asking, request)
        if (error := self._asking[0].error) is not None:
            private_files.remove(folder)
            raise error
        return folder


def start(command: Sequence[str]) -> tuple[int, Path]:
    """Starts a program so that its Python processes listen for `opspan attach`. Returns the first process that listens,
    and the file with the program's output."""
    log, file = _new_log()
    with private_files.claimed(None, "opspan-top-") as folder, run_notes.collect(folder) as (path, notes):
        with file:
            child = capturing.start(command, launch.idle_environment(os.environ, path), file)
        while child.poll() is None:
            if listeners := attaching.listening(child.pid):
                return listeners[0], log
            time.sleep(0.1)
    why = f": {notes.why_nothing('attached to')}" if notes.failed or not notes.torch else ""
    raise UsageError(
        f"{command[0]} ended with exit code {child.returncode} before it could be attached to{why}; "
        f"its output is in {log}"
    )


def _new_log() -> tuple[Path, BinaryIO]:
    for number in count(1):
        path = Path.cwd() / f"opspan-top-{number}.log"
        try:
            return path, path.open("xb")
        except FileExistsError:
            continue
        except OSError as error:
            raise WriteError(
                f"{path} cannot be written ({error.strerror}): the output of the program goes there"
            ) from error
    raise AssertionError  # not reached, because `count` never ends


def _read(folder: Path) -> Trace:
    from opspan.loading import load_recording

    files = capture_files.captures(folder)
    if not files:
        raise UsageError("nothing was recorded")
    return load_recording(files[0])
