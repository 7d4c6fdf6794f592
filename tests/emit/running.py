"""Runs programs in processes of their own: what a session leaves behind must not reach the next test."""

from __future__ import annotations

import atexit
import fcntl
import functools
import json
import os
import pty
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import textwrap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from once import made_once
from opspan.sources import SOURCES

# A tool that the tests themselves run under must not listen to the programs they start.
_TOOLS = (
    "NVTX_INJECTION64_PATH",
    "INTEL_LIBITTNOTIFY64",
    "INTEL_ITTNOTIFY_GROUPS",
    "OPSPAN_CAPTURE_DIR",
    "OPSPAN_EMIT",
)

# torch.compile itself asks for CUDA, and warns where the driver is older than the build. That opspan does not ask is
# a test in test_sessions.py, which needs no such machine.
WARNINGS = ("-W", "error", "-W", "ignore:CUDA initialization:UserWarning")

# Modules that a labelling program imports. It uses polars for recordings; polars starts no thread before it is used.
LABELLING = ("torch", "polars")
# The first optimizer and the first torch.compile import this, too; that takes almost as long as torch.
TRAINING = (*LABELLING, "torch._dynamo")
# The verbs that read, and what they import for one file or another. Those that answer have a view of their name.
ANSWER = ("comm", "diff", "findings", "flops", "idle", "launches", "memory", "path", "steps", "summary", "table")
ANSWER += ("waits",)
READ = (*ANSWER, "export", "push", "report")
READING = (
    *(f"opspan.cli.{verb}" for verb in READ),
    *(f"opspan.views.{verb}" for verb in ANSWER),
    *(f"opspan.readers.{source.name}" for source in SOURCES),
    "opspan.loading",
    "opspan.many.asking",
    # The modules above import these when they are called.
    "numpy.ma",
    "opspan.analysis.narrowed",
    "opspan.analysis.repeating",
    "opspan.many.files",
    "opspan.remote",
    "polars._utils.udfs",
    "rich.cells",
)

# The command line.
MAIN = "from opspan.cli import main; main()"
# Runs a file as Python does.
FILE = """
import os, runpy, sys
del sys.argv[0]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# Finds or builds the observer, and says where.
LOAD = "import torch; from opspan.emit import observer; print(observer.load().path)"


def built_observer(shared_folder: Path) -> Path:
    """A copy of the observer in the user's cache, where programs find it: building another takes twenty seconds."""

    def make(good: Path) -> None:
        done = forked(LOAD)
        assert done.returncode == 0, done.stderr
        shutil.copy(done.stdout.strip(), good)

    folder = shared_folder / "observer"
    folder.mkdir(exist_ok=True)
    return made_once(folder / "good.so", make)


def copier_of(observer: Path) -> Path:
    """A compiler that copies it: that takes no twenty seconds."""

    def make(compiler: Path) -> None:
        last = 'for last; do :; done; [ "$last" = --version ] && echo copier 1.0 && exit 0'
        compiler.write_text(f'#!/bin/sh\n{last}\nhead -c -32 {shlex.quote(str(observer))} > "$last"\n')
        compiler.chmod(0o755)

    return made_once(observer.with_name("c++"), make)


# The begin of the programs that annotate.
HEAD = """
import asyncio, pickle, sys, threading, opspan
"""


def environment(more: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Ours without any tool, and with `more`; None takes a variable away."""
    kept = {name: value for name, value in os.environ.items() if name not in (*_TOOLS, "COLUMNS")}
    for name, value in (more or {}).items():
        kept.pop(name, None)
        if value is not None:
            kept[name] = value
    return kept


def run(
    command: list[str | Path], env: Mapping[str, str | None] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run to the end, whatever the exit code."""
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env=environment(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )


def cpu_seconds(*arguments: str) -> float:
    """Returns the processor time of this Python with these arguments: the machine may be too busy for the clock."""
    process = subprocess.Popen([sys.executable, *arguments], env=environment(), stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = status  # it has been waited for
    assert status == 0
    return used.ru_utime + used.ru_stime


def python(code: str, *arguments: str, env: Mapping[str, str | None] | None = None, cwd: Path | None = None) -> str:
    """The output of a program that must not fail; warnings are errors unless it says otherwise."""
    code = textwrap.dedent(code)
    first = re.search(r"\b(torch|opspan)\b", code)
    if first is None or first[0] != "torch":
        done = run([sys.executable, *WARNINGS, "-c", code, *arguments], env, cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    done = forked(code, *arguments, env=env, cwd=cwd, strict=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def forked(
    code: str,
    *arguments: str | Path,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
    strict: bool = False,
    imported: tuple[str, ...] | None = None,
) -> subprocess.CompletedProcess[str]:
    """A program that imports these first, whatever its exit code; None: what a program of torch's has. Strict: its
    warnings are errors."""
    if imported is None:
        imported = TRAINING if re.search(r"\boptim\b|torch\.compile|\b_dynamo\b", code) else LABELLING
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        files = (out.fileno(), err.fileno())
        status = forked_into(files, code, *arguments, env=env, cwd=cwd, strict=strict, imported=imported)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([], status, out.read().decode(), err.read().decode())


def forked_into(
    files: tuple[int, int],
    code: str,
    *arguments: str | Path,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
    strict: bool = False,
    imported: tuple[str, ...] = READING,
) -> int:
    """Runs such a program with these descriptors as its output and errors; returns its exit code, or less than 0 for a
    signal."""
    request = {"code": code, "arguments": arguments, "env": environment(env), "cwd": cwd, "strict": strict}
    with Path(os.devnull).open() as nothing:
        return _with_imported(imported).run(request, [nothing.fileno(), *files])


def forked_file(
    program: Path, *arguments: str | Path, env: Mapping[str, str | None] | None = None
) -> subprocess.CompletedProcess[str]:
    """A file that trains, in a process that has imported what training imports."""
    return forked(FILE, program, *arguments, env=env, imported=TRAINING)


def told(code: str, *arguments: str | Path, cwd: Path | None = None) -> Any:
    """Returns the last line that such a program prints, which is JSON."""
    done = forked(code, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class _Imported:
    """tests/programs/imported.py, started once: importing torch takes longer than most programs take afterwards."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        ours, theirs = socket.socketpair()
        program = Path(__file__).parent.parent / "programs" / "imported.py"
        command = [sys.executable, *WARNINGS, program, str(theirs.fileno()), *modules]
        with theirs:
            self._process = subprocess.Popen(
                command, env=environment(), stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        self._channel = ours
        self._answers = ours.makefile()
        ours.settimeout(300)
        atexit.register(self.close)

    def run(self, request: dict[str, Any], files: list[int]) -> int:
        """The exit code, or less than 0 for a signal."""
        socket.send_fds(self._channel, [json.dumps(request, default=str).encode() + b"\n"], files)
        child = int(self._answers.readline())
        try:
            return os.waitstatus_to_exitcode(int(self._answers.readline()))
        except TimeoutError:
            os.killpg(child, signal.SIGKILL)
            raise

    def close(self) -> None:
        self._channel.close()
        self._answers.close()
        self._process.wait(300)


@functools.cache
def _with_imported(modules: tuple[str, ...]) -> _Imported:
    return _Imported(modules)


def on_terminal(
    code: str,
    *arguments: str | Path,
    stream: str,
    env: Mapping[str, str | None] | None = None,
    columns: int | None = None,
) -> str:
    """Returns what a reading program writes to `stream` ("stdout" or "stderr") if that is a terminal with so many
    columns.

    The program must not fail.
    """
    leader, follower = pty.openpty()
    if columns is not None:
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 25, columns, 0, 0))
    request = {"code": code, "arguments": arguments, "env": environment(env), "cwd": None, "strict": False}

    def run_there() -> int:
        with Path(os.devnull).open("r+") as nothing:
            files = {name: nothing.fileno() for name in ("stdin", "stdout", "stderr")} | {stream: follower}
            try:
                return _with_imported(READING).run(request, list(files.values()))
            finally:
                os.close(follower)

    with ThreadPoolExecutor(1) as beside:
        status = beside.submit(run_there)
        shown = b""
        try:
            while part := os.read(leader, 4096):
                shown += part
        except OSError:  # the terminal's other end is closed
            pass
        finally:
            os.close(leader)
    assert status.result() == 0
    return shown.decode()


def opspan(
    *arguments: str | Path, env: Mapping[str, str | None] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The command line, whatever its exit code.

    A verb that reads takes longer to import what it reads with than to read a test's file, so it runs in a process that
    has imported that. Not where the environment is what is tested: it may say how a process begins, but for what is
    looked at when it prints. Newlines stay as they are written there.
    """
    if arguments[0] in READ and set(env or ()) <= {"COLUMNS", "TERM"}:
        return forked(MAIN, *arguments, env=env, cwd=cwd, imported=READING)
    return run([sys.executable, "-m", "opspan", *arguments], env, cwd)


def under_collectors(folder: Path) -> dict[str, str]:
    """The environment in which opspan's own collectors listen, to NVTX and to ITT."""
    from opspan import libraries
    from opspan.app import launch

    folder.mkdir(exist_ok=True)
    made = launch.environment({}, libraries.collectors(), folder, None)
    return {name: made[name] for name in ("NVTX_INJECTION64_PATH", "INTEL_LIBITTNOTIFY64", "OPSPAN_CAPTURE_DIR")}


def program(body: str, captured: Path) -> str:
    """The output of a program that annotates, captured into this folder."""
    return python(HEAD + body, env=under_collectors(captured))
