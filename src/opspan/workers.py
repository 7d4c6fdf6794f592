"""Starts a new Python process that calls functions and returns their results. It never imports the user's program.

multiprocessing is not used, because its processes import the program's file, which runs the program again if the file
has no `if __name__ == "__main__"`.
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
    """The process ended before it returned a result."""


class WorkerError(Exception):
    """The function raised an error in the worker's process. The worker returns only the text of the error."""


def has_python() -> bool:
    """Returns whether `sys.executable` is a Python interpreter. If it is a frozen program, or a program that embeds
    Python, starting it would run the user's program a second time."""
    return not getattr(sys, "frozen", False) and bool(_PYTHON.fullmatch(Path(sys.executable or "").name))


class Worker:
    """A worker process, as seen by the program that started it. If the process has ended, `ask` raises EOFError or
    OSError, and `why` returns how it ended."""

    def __init__(self, count: int) -> None:
        """`count`: the number of workers that share the processors."""
        if not has_python():
            raise OSError(f"{sys.executable or 'this program'} is no Python")
        self._pipe, its = Pipe()
        # Limits polars' threads in a worker to its share of the processors. Otherwise the workers would wait for each
        # other. Fewer threads than this would not save processor time.
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
        """Runs `job`, a tuple of a function, its arguments and its keyword arguments. Returns the function's result
        and None. If the function raises an error, returns None and the text of the error."""
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
    """Runs in the worker's process. `descriptor` is the worker's end of the pipe. The process ends when the program
    closes the other end."""
    # Ctrl-C interrupts all processes of the terminal. It is ignored here, because the program itself ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A descriptor up to 2 is the number of a standard stream. It was free because the program had closed this stream.
    if descriptor > 2:
        with suppress(OSError):
            os.dup2(2, 1)  # what a library prints goes to stderr
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
