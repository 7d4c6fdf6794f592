"""What a file may cost: a refusal in one line, in place of a full disk, an endless wait or a killed process.

OPSPAN_BUDGET=10     ten times as much of every Limit below; 0: no limit. For files that you trust
OPSPAN_MEMORY=64G    as much memory may be taken, whatever the system says is free; 0: do not ask

A limit is far past what the tools write, so that whoever meets one has a file that is damaged or was made to do harm.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import polars as pl

from opspan.errors import TooLarge, UsageError
from opspan.files import open_file
from opspan.formats.keys import beside, places
from opspan.tables import Issues

BUDGET = "OPSPAN_BUDGET"
LIMIT = "OPSPAN_MEMORY"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# What is smaller is not asked about: a wrong estimate of it would do more harm than it prevents.
SMALL_BYTES = 256 << 20
NO_LIMIT = 1 << 62


class Limit(NamedTuple):
    """How much of something there may be: always so much, and more of it for each byte of the file."""

    what: str
    always: int
    per_byte: int = 0
    most: int = NO_LIMIT

    def allows(self, file_bytes: int = 0) -> int:
        times = _times()
        return int(min(self.most, max(self.always, self.per_byte * file_bytes)) * times) if times else NO_LIMIT

    def read(self, path: Path) -> bytes:
        """A file that may have no more bytes than that."""
        with open_file(path) as file:
            # Room is taken for all that is asked for: of a limit that was raised there is not so much.
            raw = file.read(min(self.allows(), os.fstat(file.fileno()).st_size) + 1)
        if len(raw) > self.allows():
            raise self.passed(path)
        return raw

    def passed(self, where: object, file_bytes: int = 0) -> TooLarge:
        return TooLarge(f"{where}: {self.said(file_bytes)}")

    def said(self, file_bytes: int = 0) -> str:
        """What was found, what is allowed, and what to do about it."""
        count = self.allows(file_bytes)
        much = gigabytes(count) if "bytes" in self.what else f"{count:,}"
        return (
            f"more {self.what} than are allowed ({much}); if you trust the file, {BUDGET}=10 allows ten times as much "
            f"({BUDGET}=0: no limit)"
        )


# Databases and traces shrink to a tenth or a thirtieth.
UNPACKED = Limit("bytes come out of it", always=64 << 20, per_byte=200, most=64 << 30)
# One that is read as a whole: a report, an event, a text that describes.
REPORT = Limit("bytes are in a report", always=64 << 20)
REPORT_TABLES = Limit("tables are in a report", always=1_000)
REPORT_COLUMNS = Limit("columns are in a report", always=4_096)
EVENT = Limit("bytes are in one event", always=256 << 20)
DESCRIPTION = Limit("bytes are in a file that describes the others", always=1 << 20)
# Each is a folder and some files; one is expected.
RESULTS = Limit("results are in an archive", always=1_000)
MEMBERS = Limit("names are in an archive", always=1_000_000)
# Steps of SQLite's machine for opening a file: many more than a sound one takes.
STEPS = Limit("steps are needed to open it", always=50_000_000, per_byte=1_000, most=2**31 - 1)
# A payload may be taken apart again and again where schemas refer to each other.
FIELDS = Limit("fields are in payloads", always=100_000)
# A text that the file has once may be named by every row, and so may the name of a field.
TEXTS = Limit("bytes of text come of the rows", always=64 << 20, per_byte=32)
# What a database has once it may tell of again and again, where pages lead to the same ones.
CELLS = Limit("bytes are in the texts of a table", always=64 << 20, per_byte=4)
# Some bytes of Parquet may stand for any number of rows.
ROWS = Limit("rows are in a table", always=10_000_000, per_byte=64)
# The footer of a table of thirty million rows has a megabyte.
FOOTER = Limit("bytes are in the footer of a table", always=64 << 20)
# Parquet's writers begin another page after a megabyte. A buffer of Arrow's has a column of all the rows of a batch.
PAGE = Limit("bytes come out of a page of a table", always=64 << 20, per_byte=200, most=64 << 30)


class Meter:
    """What is left of a limit while a file is read. What is past it is left out, and said once."""

    def __init__(self, limit: Limit, file_bytes: int, issues: Issues) -> None:
        self._limit, self._file_bytes, self._issues = limit, file_bytes, issues
        self._left = limit.allows(file_bytes)

    def take(self, count: int) -> bool:
        """Whether so many more are allowed."""
        self._left -= count
        if self._left >= 0:
            return True
        if self._left + count >= 0:
            self._issues.add("over_budget", detail=self._limit.said(self._file_bytes))
        return False

    def gather(self, texts: pl.Series, rows: pl.Series) -> pl.Series:
        """The texts of the rows; those past the limit are null."""
        if not len(rows):
            return texts.clear()
        found = texts[rows]  # views, which take little whatever they show
        sizes = found.str.len_bytes().cast(pl.Int64)
        left = self._left
        if self.take(int(sizes.sum())):
            return found
        return texts.gather(rows.set(sizes.fill_null(0).cum_sum() > max(left, 0), None))

    def join(self, frame: pl.DataFrame, rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
        """The frame with the columns of the rows that its key refers to, each key once; texts as in `gather`."""
        return beside(frame, self.found(rows, places(frame.select(key), rows.select(key)), *key))

    def found(self, rows: pl.DataFrame, at: pl.Series, *key: str) -> list[pl.Series]:
        """The columns of the rows at these places but the key's, null where there is none; texts as in `gather`."""
        return [
            self.gather(column, at) if column.dtype == pl.String else column[at]
            for column in rows.iter_columns()
            if column.name not in key
        ]


def _times() -> float:
    asked = os.environ.get(BUDGET, "1").strip()
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", asked):
        raise UsageError(
            f"{BUDGET}={asked!r} is not a number; expected one such as 10 (times as much), or 0 for no limit"
        )
    return float(asked)


def check_room(path: Path, factor: float, has_parts: bool) -> None:
    """`factor`: bytes of memory for each byte of the file. `has_parts`: a part needs no more than it has."""
    size = _size(path)
    needed = int(size * factor)
    if needed < SMALL_BYTES and LIMIT not in os.environ:
        return
    room = available_bytes()
    if room is None or needed <= room:
        return
    way_out = "read a part of it (--between START END or --step N; load(between=... or step=...))"
    raise TooLarge(
        f"{path} has {gigabytes(size)} and needs about {gigabytes(needed)} of memory, {gigabytes(room)} are available: "
        f"{way_out if has_parts else 'record a shorter time'}, or say with {LIMIT}=64G what may be used ({LIMIT}=0: "
        "do not ask)"
    )


def available_bytes() -> int | None:
    """What this process may take more than it has; None: it is not known, or is not to be asked."""
    asked = os.environ.get(LIMIT)
    if asked is not None:
        found = re.fullmatch(r"([0-9]{1,15})\s*([KMGT]?)i?B?", asked.strip(), re.IGNORECASE)
        if found is None:
            raise UsageError(f"{LIMIT}={asked!r} is not a size; expected one such as 64G, or 0 for no limit")
        return int(found[1]) * _UNITS[found[2].upper()] or None
    return min((room for room in (_of_machine(), *_of_groups()) if room is not None), default=None)


def _of_machine() -> int | None:
    found = re.search(r"^MemAvailable:\s+([0-9]+) kB", _text(Path("/proc/meminfo")), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _of_groups() -> list[int]:
    """What is left in the process' control groups, of both versions, up to the root."""
    rooms = []
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            root, most, used, cache = Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            root, most = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
            used, cache = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        group = root / place.strip("/")
        # In a container the path may be the host's, of which only the root is seen here.
        for folder in (group, *group.parents):
            if root not in (folder, *folder.parents):
                break
            limit, taken = _text(folder / most).strip(), _text(folder / used).strip()
            if limit.isdigit() and taken.isdigit():
                # Pages of files that nobody waits for are given back when memory is asked for.
                spare = re.search(rf"^{cache} ([0-9]+)$", _text(folder / "memory.stat"), re.MULTILINE)
                rooms.append(max(0, int(limit) - int(taken) + (int(spare[1]) if spare else 0)))
    return rooms


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _size(path: Path) -> int:
    """Returns the bytes of a file, or of the files in a folder."""
    try:
        if not path.is_dir():
            return path.stat().st_size
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    except OSError:
        return 0  # the reader says what is wrong with it


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"
