"""Finds a C++ compiler and runs it once. Knows nothing of torch or of caches: that is `observer`."""

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
_NO_ROOM = {errno.ENOSPC: "No space left on device", errno.EDQUOT: "Disk quota exceeded"}  # as a compiler says it
_ROOM = 8 << 20  # bytes: more than twice what a build takes


@dataclass(frozen=True)
class Compiler:
    command: tuple[str, ...]  # the program, and what CXX may hold besides
    identity: str  # first line of --version: another compiler, another build


def find() -> Compiler | None:
    """CXX if it is set, else the first of `CANDIDATES` on the PATH; None when there is none that runs."""
    return _look()[0]


def why_none() -> str:
    """What `find` found instead of a compiler, as the beginning of a sentence."""
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
            asked = subprocess.run([program, *command[1:], "--version"], capture_output=True, text=True, timeout=60)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            why = f"the C++ compiler {program} does not run ({error})"
            continue
        if asked.returncode == 0 and asked.stdout:
            return Compiler((program, *command[1:]), f"{program} {asked.stdout.splitlines()[0]}"), ""
        why = f"the C++ compiler {shlex.join(command)} does not say its version (exit code {asked.returncode})"
    return None, why


def compile_library(
    compiler: Compiler, source: Path, library: Path, options: list[str], log: Path, log_later: Path | None
) -> None:
    """One source to one shared library; what the compiler said is left in `log`, which will be called `log_later`, if
    it stays. All that the compiler writes lies beside the library. OSError where there is no room for it."""
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
    said = log.read_text(errors="replace").splitlines()[1:]
    _check_room(library.parent, said)
    reason = next((line for line in said if "error" in line.lower()), _how_it_ended(result.returncode))
    where = "" if log_later is None else f": see {log_later}"
    raise BuildFailed(f"{compiler.command[0]} could not build the observer ({reason}){where}")


def _check_room(folder: Path, said: list[str]) -> None:
    """OSError where that is why the compiler failed: it says so, or dies of it."""
    for number, text in _NO_ROOM.items():
        if any(text in line for line in said):
            raise OSError(number, text, str(folder))
    facts = os.statvfs(folder)
    if facts.f_bavail * facts.f_frsize < _ROOM:
        raise OSError(errno.ENOSPC, _NO_ROOM[errno.ENOSPC], str(folder))


def _how_it_ended(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
