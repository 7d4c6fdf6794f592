"""Keeps the requested pages. A separate process makes each page, and stores the parts of the page in a temporary
folder."""

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
MOST_PAGES = 16  # the most pages to keep; one more page replaces the least recently used page
AT_ONCE = 2  # the most processes that make pages at the same time
_ERRORS = "said"  # the name of the file that gets the stderr of the process that makes a page

Files = tuple[Path, ...]
# Entries of path, size and modification time: first for the page's files, then one entry with an empty path, then for
# the files to compare with (`others`).
_Key = tuple[tuple[str, int, int], ...]


@dataclass
class _Page:
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0


def part_file(name: str) -> str:
    return f"{name}.json.gz"


class PageNotReady(Exception):
    """The page is not ready yet. The message is a text to show until then."""


class PageError(Exception):
    """No page could be made of these files. The message says why."""


class Pages:
    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="opspan-tensorboard-"))
        self._pages: dict[_Key, _Page] = {}  # the most recently used page is last
        self._lock = threading.Lock()
        self._ended = weakref.finalize(self, _end, self._pages, self._folder)  # also runs when Python exits

    def close(self) -> None:
        self._ended()

    def head(self, files: Files, others: Files = ()) -> bytes:
        return (self._ready(files, others) / HEAD).read_bytes()

    def part(self, name: str, files: Files, others: Files = ()) -> bytes:
        """Returns a part of the page as gzipped JSON. Raises KeyError if the page has no such part."""
        path = self._ready(files, others) / part_file(name)
        if not path.is_file():
            raise KeyError(name)
        return path.read_bytes()

    def _ready(self, files: Files, others: Files) -> Path:
        key = _key(files, others)
        with self._lock:
            page = self._pages.pop(key, None)
            if page is None:
                page = _Page(Path(tempfile.mkdtemp(dir=self._folder)))
                self._drop_old()
            self._pages[key] = page
            if page.process is None:
                running = [other for other in self._pages.values() if other.process and other.process.poll() is None]
                if len(running) >= AT_ONCE:
                    raise PageNotReady("Other traces are being read; this one is next")
                page.process, page.began = _start(page.folder, files, others), time.monotonic()
            process = page.process
        code = process.poll()
        if code is None:
            raise PageNotReady(f"Reading {_names(files)}: {time.monotonic() - page.began:.0f} s")
        if code != 0:
            raise PageError(_why(page.folder, code, files))
        return page.folder

    def _drop_old(self) -> None:
        for key in list(self._pages)[: max(0, len(self._pages) - MOST_PAGES + 1)]:
            _stop(self._pages.pop(key))


def _key(files: Files, others: Files) -> _Key:
    """Returns a key for the files. It changes if a file is rewritten, so that the page is made again."""
    try:
        facts = [(str(path), path.stat()) for path in (*files, *others)]
    except OSError as error:
        raise PageError(f"{error.filename}: {error.strerror}") from error
    keys = [(name, fact.st_size, fact.st_mtime_ns) for name, fact in facts]
    return (*keys[: len(files)], ("", 0, 0), *keys[len(files) :])


def _start(folder: Path, files: Files, others: Files) -> subprocess.Popen[bytes]:
    command: list[str | Path] = [sys.executable, "-m", "opspan.tensorboard.work", folder, *files]
    with (folder / _ERRORS).open("wb") as errors:
        return subprocess.Popen(
            [*command, "--against", *others] if others else command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # The new process must import the same opspan as this process.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )


def _why(folder: Path, code: int, files: Files) -> str:
    if code == 2:
        lines = (folder / _ERRORS).read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else f"{_names(files)} cannot be read"
    what = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
    return f"Reading {_names(files)} {what}: `opspan report` of it may say more"


def _names(files: Files) -> str:
    return files[0].name if len(files) == 1 else f"{len(files)} traces"


def _stop(page: _Page) -> None:
    if page.process is not None and page.process.poll() is None:
        page.process.kill()
        page.process.wait()
    shutil.rmtree(page.folder, ignore_errors=True)


def _end(pages: dict[_Key, _Page], folder: Path) -> None:
    for page in pages.values():
        _stop(page)
    shutil.rmtree(folder, ignore_errors=True)
