"""Copies a rolling recording when the program asks for a copy, after an exception, a signal or a slow step, or at exit.

A rolling recording keeps only its last part. A dump is such a copy: a folder of captures, like the folder of any
recording. It appears complete or not at all. A failed automatic dump causes only a warning, because the program has
done nothing wrong.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import statistics
import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final

from opspan import private_files
from opspan.emit import notices
from opspan.emit.keep import EXCEPTION, EXIT, REASONS, SIGNAL, SLOW_STEP
from opspan.errors import CaptureError, UsageError

# The number of earlier steps that a step is compared with. Two dumps of slow steps are at least this number of steps
# apart.
_WINDOW: Final = 50
_ENOUGH: Final = 10  # the fewest earlier steps to compare with. After fewer steps, no step counts as slow
# The offset and the layout of three fields in the header of a capture: close_monotonic_ns, close_utc_ns and state
# (docs/formats/capture.md).
_CLOSED_AT: Final = 40
_CLOSED: Final = struct.Struct("<2qI")


def write(files: Sequence[Path], target: Path) -> None:
    """Copies these captures to a new folder. The newest capture, which is still being written, is copied first."""
    try:
        _refuse_if_no_room(sum(file.stat().st_size for file in files), target.parent)
        with private_files.unfinished(target, overwrite=False) as folder:
            folder.mkdir()
            for file in sorted(files, reverse=True):
                _close(_copied(file, folder))
    except FileExistsError as error:
        raise CaptureError(f"{target} is there already: name a folder that is not") from error
    except OSError as error:
        raise CaptureError(f"no dump was written to {target} ({error}): the recording goes on") from error


def _copied(file: Path, folder: Path) -> Path:
    """Copies the file up to its present size. Bytes that threads append during the copy are left out, because they
    continue chunks that the copy has only in part."""
    copy = folder / file.name
    with file.open("rb") as source, copy.open("xb") as target:
        left = os.fstat(source.fileno()).st_size
        while left and (sent := os.sendfile(target.fileno(), source.fileno(), None, left)):
            left -= sent
    shutil.copymode(file, copy)
    return copy


def _refuse_if_no_room(size: int, folder: Path) -> None:
    """Raises an error unless the copy fits with some space to spare, which the recording itself needs."""
    facts = os.statvfs(folder)
    free = facts.f_bavail * facts.f_frsize
    if size + size // 8 > free:
        raise CaptureError(
            f"no dump was written to {folder}: it takes {size:,} bytes, and {free:,} are free; the recording goes on"
        )


def _close(copy: Path) -> None:
    """Marks the copy as closed now if its original is still being written."""
    with copy.open("r+b") as file:
        file.seek(_CLOSED_AT)
        if _CLOSED.unpack(file.read(_CLOSED.size))[2] == 0:
            file.seek(_CLOSED_AT)
            file.write(_CLOSED.pack(time.monotonic_ns(), time.time_ns(), 1))


class Dumping:
    """Writes dumps into `folder` when a reason in `on` occurs. Only the last `most` dumps stay."""

    def __init__(self, folder: str | os.PathLike[str], on: Collection[str], slow: float, most: int) -> None:
        self.on = frozenset([on] if isinstance(on, str) else on)
        if not self.on or not self.on <= set(REASONS):
            raise UsageError(f"dump_on={on!r}: expected some of {', '.join(map(repr, REASONS))}")
        if not slow > 1:
            raise UsageError(f"slow={slow!r}: expected how many times the median a slow step takes, more than 1")
        if most < 1:
            raise UsageError(f"dumps={most!r}: expected how many dumps stay, at least 1")
        self.folder = Path(folder).absolute()
        self.written: list[Path] = []
        self._slow, self._most = slow, most
        self._numbers = count(1)
        # The function that copies the recording, set while the recording is on.
        self._write: Callable[[Path], object] | None = None
        self._before: Any = None  # the previous handler of SIGUSR2
        self._took: deque[float] = deque(maxlen=_WINDOW)
        self._began = 0.0
        self._steps_left = 0  # steps until a slow step may be dumped again

    def check(self) -> None:
        """Raises an error if a signal is a reason for dumps, but the handler of SIGUSR2 cannot be set."""
        if SIGNAL not in self.on:
            return
        if signal.getsignal(signal.SIGUSR2) is None:
            raise CaptureError("dump_on='signal': SIGUSR2 has a handler that is not Python's, which would be lost")
        try:
            signal.signal(signal.SIGUSR2, signal.getsignal(signal.SIGUSR2))
        except ValueError as error:
            raise CaptureError("dump_on='signal': enter the recording on the main thread") from error

    def start(self, write: Callable[[Path], object]) -> None:
        self._write = write
        self._began = time.perf_counter()
        atexit.register(self.dump, EXIT)
        if SIGNAL in self.on:
            self._before = signal.signal(signal.SIGUSR2, self._on_signal)

    def stop(self) -> None:
        self._write = None
        atexit.unregister(self.dump)
        if SIGNAL in self.on and signal.getsignal(signal.SIGUSR2) == self._on_signal:
            with contextlib.suppress(ValueError):  # only the main thread can change a handler
                signal.signal(signal.SIGUSR2, self._before)

    def leaving(self, error: type[BaseException] | None) -> None:
        """Writes a dump at the end of the `with` block if `on` has the reason for which the block ends."""
        self.dump(EXIT if error is None or issubclass(error, SystemExit) else EXCEPTION)

    def step(self) -> None:
        took = time.perf_counter() - self._began
        self._steps_left = max(0, self._steps_left - 1)
        is_slow = len(self._took) >= _ENOUGH and took > self._slow * statistics.median(self._took)
        if is_slow and not self._steps_left and self.dump(SLOW_STEP):
            self._steps_left = _WINDOW
        self._took.append(took)
        self._began = time.perf_counter()

    def dump(self, reason: str) -> bool:
        """Writes a dump if this reason asks for one. Returns whether a dump was written."""
        if self._write is None or reason not in self.on:
            return False
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{reason.replace(' ', '-')}"
        target = self.folder / f"{name}-{os.getpid()}-{next(self._numbers)}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write(target)
        except (CaptureError, OSError) as error:
            notices.warn_at_end(f"{reason}: {error}", stacklevel=2)
            return False
        except Exception as error:  # noqa: BLE001  # a signal or a step must not raise an error of ours
            notices.warn_at_end(f"{reason}: no dump was written ({error!r}): the recording goes on", stacklevel=2)
            return False
        self.written.append(target)
        while len(self.written) > self._most:
            shutil.rmtree(self.written.pop(0), ignore_errors=True)
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.dump(SIGNAL)
        if callable(self._before):
            self._before(number, frame)
