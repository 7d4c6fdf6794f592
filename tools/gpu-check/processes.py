"""Runs processes with a time limit. At the limit a process is killed together with its descendants, such as the program
that a profiler starts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


def start(
    command: Sequence[str], environment: Mapping[str, str] | None = None, output: IO[bytes] | int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )


def wait(process: subprocess.Popen[bytes], end: float) -> int | None:
    """Returns the exit code of the process. If it still runs at `end` (a time of time.monotonic), kills it with its
    descendants and returns None."""
    try:
        return process.wait(max(end - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        for pid in (*descendants(process.pid), process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        return None


def descendants(pid: int) -> list[int]:
    """Returns the children of the process, their children, and so on. /proc has the parent of each process."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        # Reading fails if the process has ended meanwhile.
        with contextlib.suppress(OSError):
            # The text is "77 (name of any kind) S 76 ...". The parent's number is the second word after the name.
            parents[int(path.parent.name)] = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
    found = [pid]
    for parent in found:
        found += [process for process, of in parents.items() if of == parent]
    return found[1:]


def run(
    command: Sequence[str], limit_s: float, log: Path, environment: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Runs the command. Returns its exit code, its duration and the last lines of its output. `log` gets the complete
    output."""
    began = time.monotonic()
    with log.open("wb") as output:
        code = wait(start(command, environment, output), began + limit_s)
    printed = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return {
        "command": " ".join(command),
        "exit_code": code,
        "seconds": round(time.monotonic() - began, 1),
        "last_lines": printed[-8:],
    } | ({"failed": f"ended at its limit of {limit_s:.0f} s"} if code is None else {})
