"""Limits the time, memory and disk space that a file may cost. Without limits, a bad file could fill the disk, be read
forever, or exhaust the memory. With limits, reading it raises an error with a one-line message.

OPSPAN_BUDGET=10     every Limit below is ten times as large; 0: no limit. For files that you trust
OPSPAN_MEMORY=64G    this much memory may be used, whatever the system says is free; 0: no limit

The limits are far above what tools write, so a file that exceeds one is damaged or was made to do harm.
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
# Smaller amounts are not checked, because a wrong estimate would reject a small file that can be read.
SMALL_BYTES = 256 << 20
NO_LIMIT = 1 << 62


class Limit(NamedTuple):
    """The allowed amount of something: `per_byte` times the bytes of the file, but at least `always` and at most
    `most`."""

    what: str
    always: int
    per_byte: int = 0
    most: int = NO_LIMIT

    def allows(self, file_bytes: int = 0) -> int:
        times = _times()
        return int(min(self.most, max(self.always, self.per_byte * file_bytes)) * times) if times else NO_LIMIT

    def read(self, path: Path) -> bytes:
        """Returns the bytes of a file. Raises an error if there are more bytes than the limit allows."""
        with open_file(path) as stream:
            # read(n) allocates n bytes at once, which may not fit into memory if the limit was raised. So n is at most
            # the file's size.
            raw = stream.read(min(self.allows(), os.fstat(stream.fileno()).st_size) + 1)
        if len(raw) > self.allows():
            raise self.passed(path)
        return raw

    def passed(self, path: Path, file_bytes: int = 0) -> TooLarge:
        return TooLarge(f"{path}: {self.message(file_bytes)}")

    def message(self, file_bytes: int = 0) -> str:
        """Returns a text that says what exceeds the limit, how much is allowed, and what to do."""
        count = self.allows(file_bytes)
        much = gigabytes(count) if "bytes" in self.what else f"{count:,}"
        return (
            f"more {self.what} than are allowed ({much}); if you trust the file, {BUDGET}=10 allows ten times as much "
            f"({BUDGET}=0: no limit)"
        )


# For comparison, databases and traces compress to between a tenth and a thirtieth of their size.
UNPACKED = Limit("bytes come out of it", always=64 << 20, per_byte=200, most=64 << 30)
# Limits for data that is read into memory at once: a report, an event, a text that describes other files.
REPORT = Limit("bytes are in a report", always=64 << 20)
REPORT_TABLES = Limit("tables are in a report", always=1_000)
REPORT_COLUMNS = Limit("columns are in a report", always=4_096)
EVENT = Limit("bytes are in one event", always=256 << 20)
DESCRIPTION = Limit("bytes are in a file that describes the others", always=1 << 20)
# An archive usually has one result. A result is a folder and some files.
RESULTS = Limit("results are in an archive", always=1_000)
MEMBERS = Limit("names are in an archive", always=1_000_000)
# Steps of SQLite's virtual machine for opening a file. An undamaged file needs far fewer.
STEPS = Limit("steps are needed to open it", always=50_000_000, per_byte=1_000, most=2**31 - 1)
# The schemas of payloads may refer to each other, so reading one payload may decode many fields.
FIELDS = Limit("fields are in payloads", always=100_000)
# A text, or the name of a field, is in the file once, but every row may refer to it.
TEXTS = Limit("bytes of text come of the rows", always=64 << 20, per_byte=32)
# Damaged pages of a database may refer to the same page, so the same text may be read many times.
CELLS = Limit("bytes are in the texts of a table", always=64 << 20, per_byte=4)
# A few bytes of Parquet may encode any number of rows.
ROWS = Limit("rows are in a table", always=10_000_000, per_byte=64)
# For comparison, the footer of a table of thirty million rows has one megabyte.
FOOTER = Limit("bytes are in the footer of a table", always=64 << 20)
# The limit for a page of Parquet, or for a buffer of Arrow, which holds one column of a batch. Usual pages are far
# smaller, because Parquet's writers begin a new page after a megabyte.
PAGE = Limit("bytes come out of a page of a table", always=64 << 20, per_byte=200, most=64 << 30)


class Meter:
    """Counts how much of a limit is left while a file is read. Data past the limit is left out, and reported as one
    issue."""

    def __init__(self, limit: Limit, file_bytes: int, issues: Issues) -> None:
        self._limit, self._file_bytes, self._issues = limit, file_bytes, issues
        self._left = limit.allows(file_bytes)

    def take(self, count: int) -> bool:
        """Subtracts `count` from what is left, and returns whether there was enough."""
        self._left -= count
        if self._left >= 0:
            return True
        if self._left + count >= 0:
            self._issues.add("over_budget", detail=self._limit.message(self._file_bytes))
        return False

    def fits(self, sizes: pl.Series) -> pl.Series:
        """Subtracts the sizes, in their order, and returns whether there was enough for each."""
        left = max(self._left, 0)
        if self.take(int(sizes.sum())):
            return pl.repeat(True, len(sizes), dtype=pl.Boolean, eager=True)
        return sizes.cum_sum() <= left

    def gather(self, texts: pl.Series, rows: pl.Series) -> pl.Series:
        """Returns `texts` at the row numbers `rows`. Texts past the limit are null."""
        if not len(rows):
            return texts.clear()
        gathered = texts[rows]  # polars copies references, so this takes little memory, however long the texts are
        sizes = gathered.str.len_bytes().cast(pl.Int64)
        fit = self.fits(sizes.fill_null(0))
        return gathered if fit.all() else texts.gather(rows.set(~fit, None))

    def join(self, frame: pl.DataFrame, rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
        """Joins `rows` to the frame by the key, which is unique in `rows`. Texts past the limit are null."""
        return beside(frame, self.columns_at(rows, places(frame.select(key), rows.select(key)), *key))

    def columns_at(self, rows: pl.DataFrame, at: pl.Series, *key: str) -> list[pl.Series]:
        """Returns columns of `rows` at the row numbers `at`, without the columns of the key. A null number gives nulls.
        Texts past the limit are null."""
        return [
            self.gather(column, at) if column.dtype == pl.String else column[at]
            for column in rows.iter_columns()
            if column.name not in key
        ]


def _times() -> float:
    times = os.environ.get(BUDGET, "1").strip()
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", times):
        raise UsageError(
            f"{BUDGET}={times!r} is not a number; expected one such as 10 (times as much), or 0 for no limit"
        )
    return float(times)


def check_room(path: Path, factor: float, has_parts: bool) -> None:
    """Raises TooLarge if reading the file needs more memory than is free. Reading needs `factor` bytes of memory for
    each byte of the file. `has_parts` says whether the reader can read a part of the file with less memory."""
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
    """Returns how much more memory this process may take, or None if that is not known or not to be checked."""
    limit = os.environ.get(LIMIT)
    if limit is not None:
        size = re.fullmatch(r"([0-9]{1,15})\s*([KMGT]?)i?B?", limit.strip(), re.IGNORECASE)
        if size is None:
            raise UsageError(f"{LIMIT}={limit!r} is not a size; expected one such as 64G, or 0 for no limit")
        return int(size[1]) * _UNITS[size[2].upper()] or None
    return min((room for room in (_of_machine(), *_of_groups()) if room is not None), default=None)


def _of_machine() -> int | None:
    available = re.search(r"^MemAvailable:\s+([0-9]+) kB", _text(Path("/proc/meminfo")), re.MULTILINE)
    return int(available[1]) * 1024 if available else None


def _of_groups() -> list[int]:
    """Returns the memory left in each control group (cgroup v1 or v2) of the process and in the groups above it."""
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
        # In a container, the path of the group may exist only outside of the container. Then only the root group is
        # visible.
        for folder in (group, *group.parents):
            if root not in (folder, *folder.parents):
                break
            limit, taken = _text(folder / most).strip(), _text(folder / used).strip()
            if limit.isdigit() and taken.isdigit():
                # If memory is short, the system frees the inactive pages of its file cache, so they count as free.
                spare = re.search(rf"^{cache} ([0-9]+)$", _text(folder / "memory.stat"), re.MULTILINE)
                rooms.append(max(0, int(limit) - int(taken) + (int(spare[1]) if spare else 0)))
    return rooms


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _size(path: Path) -> int:
    """Returns the number of bytes of a file, or of all files in a folder."""
    try:
        if not path.is_dir():
            return path.stat().st_size
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    except OSError:
        return 0  # the reader reports the error


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"
