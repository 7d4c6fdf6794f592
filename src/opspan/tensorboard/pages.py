"""The pages that were asked for: each is made by a process of its own, and its parts are kept in a temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

HEAD = "head.json"
MOST_PAGES = 16  # that are kept; the one that was not asked for the longest goes
AT_ONCE = 2  # processes
_SAID = "said"  # what the process wrote to stderr

Files = tuple[Path, ...]
_Key = tuple[tuple[str, int, int], ...]  # path, size and time of each file; an empty path before those compared to


@dataclass
class _Made:
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0


def part_file(name: str) -> str:
    return f"{name}.json.gz"


class Waiting(Exception):
    """The page is not there yet: a sentence to show."""


class Failed(Exception):
    """There is no page of these files: a sentence that says why."""


class Pages:
    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="opspan-tensorboard-"))
        self._made: dict[_Key, _Made] = {}  # the one that was asked for last comes last
        self._lock = threading.Lock()
        self._ended = weakref.finalize(self, _end, self._made, self._folder)  # at exit, too

    def close(self) -> None:
        self._ended()

    def head(self, files: Files, others: Files = ()) -> bytes:
        return (self._ready(files, others) / HEAD).read_bytes()

    def part(self, name: str, files: Files, others: Files = ()) -> bytes:
        """Gzipped JSON. KeyError where the page has no such part."""
        path = self._ready(files, others) / part_file(name)
        if not path.is_file():
            raise KeyError(name)
        return path.read_bytes()

    def _ready(self, files: Files, others: Files) -> Path:
        key = _key(files, others)
        with self._lock:
            made = self._made.pop(key, None)
            if made is None:
                made = _Made(Path(tempfile.mkdtemp(dir=self._folder)))
                self._drop_old()
            self._made[key] = made
            if made.process is None:
                running = [one for one in self._made.values() if one.process and one.process.poll() is None]
                if len(running) >= AT_ONCE:
                    raise Waiting("Other traces are being read; this one is next")
                made.process, made.began = _started(made.folder, files, others), time.monotonic()
            process = made.process
        code = process.poll()
        if code is None:
            raise Waiting(f"Reading {_names(files)}: {time.monotonic() - made.began:.0f} s")
        if code != 0:
            raise Failed(_why(made.folder, code, files))
        return made.folder

    def _drop_old(self) -> None:
        for key in list(self._made)[: max(0, len(self._made) - MOST_PAGES + 1)]:
            _stop(self._made.pop(key))


def _key(files: Files, others: Files) -> _Key:
    """A file that was written again is another: its page is made again."""
    try:
        facts = [(str(path), path.stat()) for path in (*files, *others)]
    except OSError as error:
        raise Failed(f"{error.filename}: {error.strerror}") from error
    keys = [(name, fact.st_size, fact.st_mtime_ns) for name, fact in facts]
    return (*keys[: len(files)], ("", 0, 0), *keys[len(files) :])


def _started(folder: Path, files: Files, others: Files) -> subprocess.Popen[bytes]:
    command: list[str | Path] = [sys.executable, "-m", "opspan.tensorboard.work", folder, *files]
    with (folder / _SAID).open("wb") as said:
        return subprocess.Popen(
            [*command, "--against", *others] if others else command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # the opspan that this one is
        )


def _why(folder: Path, code: int, files: Files) -> str:
    if code == 2:
        lines = (folder / _SAID).read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else f"{_names(files)} cannot be read"
    what = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
    return f"Reading {_names(files)} {what}: `opspan report` of it may say more"


def _names(files: Files) -> str:
    return files[0].name if len(files) == 1 else f"{len(files)} traces"


def _stop(made: _Made) -> None:
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    shutil.rmtree(made.folder, ignore_errors=True)


def _end(made: dict[_Key, _Made], folder: Path) -> None:
    for one in made.values():
        _stop(one)
    shutil.rmtree(folder, ignore_errors=True)
