"""Runs another program and its children with opspan's collectors, for `opspan run`."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from opspan import libraries
from opspan.capture_files import captures
from opspan.errors import UsageError, WriteError
from opspan.files import exists
from opspan.printable import path_text

# These constants suffice to find out whether a file has events. native/capture/format.h describes the complete format.
_PAGE, _UNIT_BYTES = 4096, 64
_CHUNK = struct.Struct("<2IQ48x")
_CHUNK_MAGIC, _TEXTS = 0x4B4E4843, 2
# The kinds of units that are ranges, marks, counters, frames or memory. A file with only other kinds counts as empty.
_EVENT_KINDS = frozenset((1, 2, 3, 10, 13, 14, 15, 17, 18))

# Signals that this process passes on to the program. The signals that stop and continue a job are not in the list,
# because the terminal sends them to the program itself.
_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)


@dataclass(frozen=True)
class CaptureContents:
    """The contents of a capture folder."""

    processes: int
    bytes: int
    ranges: bool  # True if the captures have an event, such as a range


def collectors() -> Path:
    """Returns the path of the library that a captured program loads. First checks that the library can be loaded."""
    path = libraries.collectors()
    if not path.is_file():
        raise UsageError(f"{path_text(path)} is missing: opspan's native part was not installed; pip install opspan")
    try:
        libraries.check_for_others(path)
    except OSError as error:  # a program that loads this library would crash, or run without being captured
        raise UsageError(f"{path_text(path)} cannot be given to a program ({error}): reinstall opspan") from error
    return path


@contextlib.contextmanager
def capture_folder(wanted: Path | None, name: str = "opspan-capture") -> Iterator[Path]:
    """Provides an empty folder: `wanted`, or a new folder `name`-N in the working directory, with the first free N.

    If this function created the folder, and the folder is still empty at the end, removes the folder.
    """
    ours = wanted is None or not exists(wanted)
    folder = _make_folder(wanted, name)
    try:
        yield folder
    finally:
        if ours:
            with contextlib.suppress(OSError):  # fails if the folder is not empty
                folder.rmdir()


def _make_folder(wanted: Path | None, name: str) -> Path:
    if wanted is None:
        number = 1
        while True:
            folder = Path.cwd() / f"{name}-{number}"
            try:
                folder.mkdir()
            except FileExistsError:
                number += 1
            except OSError as error:
                raise WriteError(
                    f"{path_text(folder)} cannot be made ({error.strerror}): choose another folder with -o"
                ) from error
            else:
                return folder
    folder = wanted.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(
                f"{path_text(wanted)} is not empty, and a capture is never overwritten: choose another folder with -o"
            )
    except OSError as error:
        raise WriteError(
            f"{path_text(wanted)} cannot be made ({error.strerror}): choose another folder with -o"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise WriteError(f"{path_text(wanted)} cannot be written: choose another folder with -o")
    return folder


def become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replaces this process by the program (exec). So the program gets the signals for this process, and the program's
    exit code becomes the exit code of this process."""
    # Python ignores these signals, and the program would inherit this setting.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), environment)
    except OSError as error:
        raise _not_run(command[0], error) from None


def start(command: Sequence[str], environment: Mapping[str, str], output: BinaryIO) -> subprocess.Popen[bytes]:
    """Starts the program, which may run longer than this process. It is in a new session, so that Ctrl-C in this
    terminal sends no signal to the program."""
    try:
        return subprocess.Popen(
            list(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise _not_run(command[0], error) from error


def run(command: Sequence[str], environment: Mapping[str, str], before_exec: Callable[[], None] | None = None) -> int:
    """Runs the program, waits for its end, and returns its exit code, or 128 + the number of the signal that killed
    it. `before_exec` is called in the new process, before it runs the program."""
    # Blocks the signals, because sigwaitinfo() returns a blocked signal together with its sender. A signal handler
    # would not know the sender.
    waited = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    # If SIGCHLD were ignored, the exit code of a child would be lost. The program still inherits the old setting.
    inherited = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def as_without_us() -> None:
        signal.signal(signal.SIGCHLD, inherited or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def in_child() -> None:
        if before_exec is not None:
            before_exec()
            # A signal that came meanwhile ends the new process. Python's handler of Ctrl-C would raise an error here.
            for number in _FORWARDED:
                if callable(signal.getsignal(number)):
                    signal.signal(number, signal.SIG_DFL)
        as_without_us()

    try:
        try:
            # Python ignores SIGPIPE. With restore_signals, the program does not inherit this.
            child = subprocess.Popen(
                list(command), env=environment, close_fds=False, restore_signals=True, preexec_fn=in_child
            )
        except OSError as error:
            raise _not_run(command[0], error) from error
        # `_wait` has read the exit code, which Popen cannot read a second time.
        child.returncode = _wait(child.pid, waited)
        return child.returncode
    finally:
        as_without_us()


def _not_run(command: str, error: OSError) -> UsageError:
    if isinstance(error, FileNotFoundError):
        return UsageError(f"there is no command {command}: looked for it on the PATH")
    return UsageError(f"the command {command} cannot be run: {error.strerror}")


def _wait(child: int, waited: set[signal.Signals]) -> int:
    while True:
        info = signal.sigwaitinfo(waited)
        if info.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        elif info.si_pid:  # the signal came from a process; Ctrl-C in the terminal reaches the program directly
            os.kill(child, info.si_signo)


def look(folder: Path) -> CaptureContents:
    files = captures(folder)
    pids = {file.name.partition("-")[0] for file in files}
    return CaptureContents(len(pids), sum(file.stat().st_size for file in files), any(map(_holds_a_range, files)))


def _holds_a_range(path: Path) -> bool:
    """Returns whether the capture has an event, such as a range. Reads only up to the first event, because the file may
    be as large as the disk."""
    offset = _PAGE
    try:
        with path.open("rb") as file:
            while True:
                file.seek(offset)
                head = file.read(_CHUNK.size)
                magic, kind, size = _CHUNK.unpack(head) if len(head) == _CHUNK.size else (0, 0, 0)
                if magic != _CHUNK_MAGIC or size < _PAGE:
                    return False
                if kind != _TEXTS and not _EVENT_KINDS.isdisjoint(file.read(size - _CHUNK.size)[::_UNIT_BYTES]):
                    return True
                offset += size
    except OSError:  # the file is missing or belongs to another user; the reader of the capture reports that later
        return True
