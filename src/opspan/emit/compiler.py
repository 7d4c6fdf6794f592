"""Finds a C++ compiler and runs it once. Knows nothing of torch or of caches: that is `observer`."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from opspan.errors import BuildFailed

CANDIDATES = ("c++", "g++", "clang++")


@dataclass(frozen=True)
class Compiler:
    command: tuple[str, ...]  # the program, and what CXX may hold besides
    identity: str  # first line of --version: another compiler, another build


def find() -> Compiler | None:
    """CXX if it is set, else the first of `CANDIDATES` on the PATH; None when there is none that runs."""
    chosen = shlex.split(os.environ.get("CXX", ""))
    for command in [chosen] if chosen else [[name] for name in CANDIDATES]:
        program = shutil.which(command[0])
        if program is None:
            continue
        try:
            asked = subprocess.run([program, *command[1:], "--version"], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if asked.returncode == 0 and asked.stdout:
            return Compiler((program, *command[1:]), f"{program} {asked.stdout.splitlines()[0]}")
    return None


def compile_library(compiler: Compiler, source: Path, library: Path, options: list[str], log: Path) -> None:
    """One source to one shared library; what the compiler said is left in `log`."""
    command = [*compiler.command, *options, str(source), "-o", str(library)]
    with log.open("w", errors="backslashreplace") as out:
        out.write(shlex.join(command) + "\n")
        out.flush()
        try:
            result = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        except OSError as error:
            raise BuildFailed(f"the compiler {compiler.command[0]} could not be run: {error}") from error
    if result.returncode != 0 or not library.is_file():
        said = [line for line in log.read_text(errors="replace").splitlines()[1:] if "error" in line.lower()]
        reason = said[0] if said else f"exit code {result.returncode}"
        raise BuildFailed(f"{compiler.command[0]} could not build the observer ({reason}): see {log}")
