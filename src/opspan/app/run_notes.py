"""Writes and reads notes. Python processes under `opspan run` write them, and the last sentence that `opspan run`
prints is based on them. Each note is a line of one file: `PID <tab> KIND <tab> TEXT`.

    4242    python  3.11                      the process has this Python (written by launch_site/sitecustomize.py)
    4242    without /usr/bin/python3          its Python does not have opspan (written by the same file)
    4242    torch                             the process has imported torch
    4242    failed  no C++ compiler was ...   the process could not be labelled, recorded or made to listen

This module imports no large module, because every Python process under `opspan run` imports it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opspan.printable import printable

VARIABLE = "OPSPAN_NOTES"
_NAME = ".opspan-run"
_LONGEST = 1000  # maximum number of characters of a text, so that one write suffices for a line
_MOST_BYTES = 1 << 20
_OLDEST = (3, 10)


@dataclass
class Notes:
    """The notes of all processes. The keys of the dicts are process ids."""

    pythons: dict[int, str] = field(default_factory=dict)  # the version of the process's Python
    without: dict[int, str] = field(default_factory=dict)  # the path of a Python that has no opspan
    torch: set[int] = field(default_factory=set)
    # Why the process could not be labelled, recorded or made to listen.
    failed: dict[int, str] = field(default_factory=dict)

    def why_nothing(self, wanted: str) -> str:
        """Returns why no process was labelled or recorded. `wanted` is the missing result, such as "labelled"."""
        if self.failed:
            reasons = dict.fromkeys(self.failed.values())
            return f"{_processes(len(self.failed))} imported torch and could not be {wanted}: {'; '.join(reasons)}"
        if self.torch:
            return f"{_processes(len(self.torch))} imported torch, and ran no ops while they were to be {wanted}"
        if not self.pythons:
            return "no Python process was reached: none was started, or with -S, -E or -I, which leave opspan out"
        unseen = dict.fromkeys(f"opspan is not installed for {name}" for name in self.without.values())
        old = sorted({version for version in self.pythons.values() if _number(version) < _OLDEST})
        unseen |= dict.fromkeys(f"Python {version} is older than opspan needs (3.10)" for version in old)
        if unseen:
            return f"{_processes(len(self.pythons))} ran, and no import of torch was seen: {'; '.join(unseen)}"
        return f"{_processes(len(self.pythons))} ran, and none imported torch"


@contextlib.contextmanager
def collect(folder: Path) -> Iterator[tuple[Path, Notes]]:
    """Yields the path of an empty file for notes, and a Notes object, which is filled from the file at the end of the
    `with` block."""
    path, notes = folder / _NAME, Notes()
    with contextlib.suppress(OSError):  # without this file, for example on a full disk, there are no notes
        path.touch(mode=0o600)
    try:
        yield path, notes
    finally:
        _read(path, notes)
        with contextlib.suppress(OSError):
            path.unlink()


def note(kind: str, text: str = "") -> None:
    """Writes a line about this process if there is a file for notes."""
    line = f"{os.getpid()}\t{kind}\t{printable(text)[:_LONGEST]}\n"
    with contextlib.suppress(KeyError, OSError):
        number = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(number, line.encode(errors="backslashreplace"))
        finally:
            os.close(number)


def _read(path: Path, notes: Notes) -> None:
    text = ""
    with contextlib.suppress(OSError), path.open("rb") as file:
        text = file.read(_MOST_BYTES).decode(errors="replace")
    for line in text.splitlines():
        pid, _, rest = line.partition("\t")
        kind, _, what = rest.partition("\t")
        if not (pid.isascii() and pid.isdigit()):
            continue
        if kind == "python":
            notes.pythons[int(pid)] = what
        elif kind == "without":
            notes.without[int(pid)] = what
        elif kind == "torch":
            notes.torch.add(int(pid))
        elif kind == "failed":
            notes.failed.setdefault(int(pid), what)


def _processes(count: int) -> str:
    return "1 Python process" if count == 1 else f"{count} Python processes"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
