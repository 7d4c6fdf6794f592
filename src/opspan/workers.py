"""A process of Python that is started afresh and never imports a user's program: it calls functions and answers.

multiprocessing's import the program's own file again, which runs it again where it has no `if __name__ == "__main__"`.
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


class WorkerEnded(Exception):
    """The process was ended before it had an answer."""


class WorkerError(Exception):
    """The function raised in its process: only the text comes back."""


def has_python() -> bool:
    """Whether `sys.executable` is a Python. A frozen program, or one that embeds Python, would be started again."""
    return not getattr(sys, "frozen", False) and bool(_PYTHON.fullmatch(Path(sys.executable or "").name))


class Worker:
    """The process, from the side of the program. Raises EOFError or OSError where it has gone: `why` says how."""

    def __init__(self, count: int) -> None:
        """`count`: how many of them share the processors."""
        if not has_python():
            raise OSError(f"{sys.executable or 'this program'} is no Python")
        self._pipe, its = Pipe()
        # Threads of its own for its share of the processors: two that both use all of them wait for each other.
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
        """`job`: a function, its arguments, and those by name. Returns its result, and what it raised, as text."""
        self._pipe.send(job)
        answer: tuple[Any, str | None] = self._pipe.recv()
        return answer

    def why(self) -> str:
        """In words, how it was ended."""
        self._pipe.close()
        code = self.process.wait()
        if code >= 0:
            return f"its process ended with exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", as happens where memory is short" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"

    def end(self) -> None:
        """It ends when the pipe does."""
        self._pipe.close()
        self.process.wait()

    def kill(self) -> None:
        self.process.kill()


def main(descriptor: int) -> None:
    """What runs in the process. `descriptor` is its end of the pipe: it ends with the program at the other end."""
    # Who interrupts the program interrupts all of its group: the program then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if descriptor > 2:  # else the program had closed one of its three
        with suppress(OSError):
            os.dup2(2, 1)  # what a library prints is no result of the program's
    pipe = Connection(descriptor)
    while True:
        try:
            function, arguments, named = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            result, error = function(*arguments, **named), None
        except BaseException as raised:  # noqa: BLE001  whatever it is, the program is told
            result, error = None, f"{type(raised).__name__}: {raised}"
        try:
            pipe.send((result, error))
        except OSError:
            return
