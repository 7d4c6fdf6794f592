"""A fresh process of Python that never imports the user's program: it calls functions and returns results.

multiprocessing's processes import the program's file, which runs it again if it has no `if __name__ == "__main__"`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final

_PROGRAM: Final = "import sys; sys.path[:] = sys.argv[2:]; from opspan.workers import main; main(int(sys.argv[1]))"
_PYTHON: Final = re.compile(r"(python|pypy)[\d.]*[a-z]*(\.exe)?", re.IGNORECASE)


class WorkerExit(Exception):
    """The process ended before it had a result."""


class WorkerError(Exception):
    """The function raised an error in its process; only the text comes back."""


def has_python() -> bool:
    """Returns whether `sys.executable` is a Python: a frozen program, or one that embeds Python, would start again."""
    return not getattr(sys, "frozen", False) and bool(_PYTHON.fullmatch(Path(sys.executable or "").name))


class Worker:
    """The process, as the program sees it. If it has ended, EOFError or OSError is raised, and `why` explains it."""

    def __init__(self, count: int) -> None:
        """`count`: how many workers share the processors."""
        if not has_python():
            raise OSError(f"{sys.executable or 'this program'} is no Python")
        self._pipe, its = Pipe()
        # Limits its threads to its share of the processors: two workers that both use all of them wait for each other.
        # One thread for each process would take as much processor time.
        share = max(1, len(os.sched_getaffinity(0)) // count)
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        command = [sys.executable, *flags, "-c", _PROGRAM, str(its.fileno()), *filter(None, sys.path)]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(its.fileno(),),
                env={"POLARS_MAX_THREADS": str(share), **os.environ},
            )
        except BaseException:
            self._pipe.close()
            raise
        finally:
            its.close()

    def ask(self, job: tuple[Any, ...]) -> tuple[Any, str | None]:
        """Runs `job`: a function, its arguments, and keyword arguments. Returns its result, and its error as text."""
        self._pipe.send(job)
        answer: tuple[Any, str | None] = self._pipe.recv()
        return answer

    def why(self) -> str:
        """Returns a sentence about how the process ended."""
        self._pipe.close()
        code = self.process.wait()
        if code >= 0:
            return f"its process ended with exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", as happens where memory is short" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"

    def end(self) -> None:
        """Ends the process by closing the pipe."""
        self._pipe.close()
        self.process.wait()

    def kill(self) -> None:
        self.process.kill()


def main(descriptor: int) -> None:
    """Runs the process. `descriptor` is its end of the pipe; the process ends when the other end closes."""
    # Ctrl-C interrupts the whole group: the program then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if descriptor > 2:  # otherwise the program had closed one of the first three descriptors
        with suppress(OSError):
            os.dup2(2, 1)  # output that a library prints is not a result
    pipe = Connection(descriptor)
    while True:
        try:
            function, arguments, named = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            result, error = function(*arguments, **named), None
        except BaseException as raised:  # noqa: BLE001  # the program gets any error
            result, error = None, f"{type(raised).__name__}: {raised}"
        try:
            pipe.send((result, error))
        except OSError:
            return
