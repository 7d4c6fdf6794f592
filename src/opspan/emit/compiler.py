"""Finds a C++ compiler, and compiles one source file with it. `observer_cache` chooses the file and the options."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from opspan.errors import BuildFailed

CANDIDATES = ("c++", "g++", "clang++")
# Messages that a compiler prints if the disk is full.
_NO_ROOM = {errno.ENOSPC: "No space left on device", errno.EDQUOT: "Disk quota exceeded"}
# If fewer bytes are free after a failed build, the disk counts as full. This is more than twice the size of a build.
_ROOM = 8 << 20


@dataclass(frozen=True)
class Compiler:
    command: tuple[str, ...]  # the program, and its arguments from CXX
    identity: str  # the program and the first line of its --version. If these change, the observer is built again


def find() -> Compiler | None:
    """Returns the compiler that CXX names or, if CXX is not set, the first of `CANDIDATES` that runs. Returns None if
    there is no such compiler."""
    return _look()[0]


def why_none() -> str:
    """Returns why `find` found no compiler, as the beginning of a sentence."""
    return _look()[1]


def _look() -> tuple[Compiler | None, str]:
    chosen = os.environ.get("CXX", "").strip()
    try:
        commands = [shlex.split(chosen)] if chosen else [[name] for name in CANDIDATES]
    except ValueError as error:
        return None, f"CXX={chosen} cannot be read as a command ({error})"
    why = f"no C++ compiler was found (looked at CXX, {', '.join(CANDIDATES)})"
    for command in commands:
        program = shutil.which(command[0])
        if program is None:
            if chosen:
                why = f"CXX={chosen} names no program that is there"
            continue
        try:
            version = subprocess.run([program, *command[1:], "--version"], capture_output=True, text=True, timeout=60)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            why = f"the C++ compiler {program} does not run ({error})"
            continue
        if version.returncode == 0 and version.stdout:
            return Compiler((program, *command[1:]), f"{program} {version.stdout.splitlines()[0]}"), ""
        why = f"the C++ compiler {shlex.join(command)} does not say its version (exit code {version.returncode})"
    return None, why


def compile_library(
    compiler: Compiler, source: Path, library: Path, options: list[str], log: Path, log_later: Path | None
) -> None:
    """Compiles one source to one shared library. Writes the compiler's output to `log`, which the caller later moves to
    `log_later`. So errors name `log_later`. The compiler's temporary files go to the library's folder. Raises OSError
    if the disk is full."""
    command = [*compiler.command, *options, str(source), "-o", str(library)]
    environment = {**os.environ, "TMPDIR": str(library.parent), "LC_ALL": "C"}
    with log.open("w", errors="backslashreplace") as out:
        out.write(shlex.join(command) + "\n")
        out.flush()
        try:
            result = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
            )
        except OSError as error:
            raise BuildFailed(f"the compiler {compiler.command[0]} could not be run: {error}") from error
    if result.returncode == 0 and library.is_file():
        return
    lines = log.read_text(errors="replace").splitlines()[1:]
    _check_room(library.parent, lines)
    code = result.returncode
    how_it_ended = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    reason = next((line for line in lines if "error" in line.lower()), how_it_ended)
    where = "" if log_later is None else f": see {log_later}"
    raise BuildFailed(f"{compiler.command[0]} could not build the observer ({reason}){where}")


def _check_room(folder: Path, lines: list[str]) -> None:
    """Raises OSError if the compiler failed because the disk is full: the compiler's output says so, or little space is
    free."""
    for number, text in _NO_ROOM.items():
        if any(text in line for line in lines):
            raise OSError(number, text, str(folder))
    facts = os.statvfs(folder)
    if facts.f_bavail * facts.f_frsize < _ROOM:
        raise OSError(errno.ENOSPC, _NO_ROOM[errno.ENOSPC], str(folder))
