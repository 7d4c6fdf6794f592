"""Checks the sizes that a Parquet file states, before polars reads the file.

polars allocates as many elements as the footer or a page claims to have, and the process ends if there is not enough
memory. A file of 2 KB may ask for any number of gigabytes. So this module first checks that the counts in the footer
and in the heads of the pages agree.

The footer also has the least and the largest value of most columns. If both are equal, or if all values are null, the
column does not have to be read. This is common for columns of profilers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import polars as pl

from opspan.errors import ReadError
from opspan.files import open_file, size_on_disk
from opspan.formats.budget import FOOTER, PAGE, ROWS
from opspan.formats.counts import SAYS_MORE, within
from opspan.formats.thrift import PLAIN, CompactReader, Fields

_MAGIC: Final = b"PAR1"
_END: Final = 8  # the number of bytes at the end of the file that contain the footer's length and the magic
_HEAD: Final = 256  # bytes to read first for the head of a page; only a head with long texts has more bytes

# Maps field numbers of the format to names. `data` is the head of a data page; its two field numbers are for the
# format's two versions of data pages. An index page has no `data`.
_STATISTICS: Final[Fields] = {3: ("nulls", PLAIN), 5: ("largest", PLAIN), 6: ("least", PLAIN)}
_COLUMN: Final[Fields] = {
    5: ("values", PLAIN),
    7: ("bytes", PLAIN),
    9: ("data_at", PLAIN),
    11: ("dictionary_at", PLAIN),
    12: ("statistics", _STATISTICS),
}
_GROUP: Final[Fields] = {1: ("columns", {3: ("column", _COLUMN)}), 3: ("rows", PLAIN)}
_FOOTER: Final[Fields] = {3: ("rows", PLAIN), 4: ("groups", _GROUP)}
_DATA: Final[Fields] = {1: ("values", PLAIN)}
_DATA_2: Final[Fields] = {**_DATA, 2: ("nulls", PLAIN), 3: ("rows", PLAIN), 5: ("depths", PLAIN), 6: ("repeats", PLAIN)}
_PAGE: Final[Fields] = {
    2: ("unpacked", PLAIN),
    3: ("bytes", PLAIN),
    5: ("data", _DATA),
    7: ("dictionary", _DATA),
    8: ("data", _DATA_2),
}


# The types whose values have the same bytes in the footer as in memory, and how many bytes these are.
_NUMBERS: Final[dict[type[pl.DataType], int]] = {pl.Int32: 4, pl.UInt32: 4, pl.Int64: 8, pl.UInt64: 8}


class Constant(NamedTuple):
    """The value that all rows of a column have, as the bytes of a number; None for null."""

    raw: bytes | None

    def of(self, dtype: pl.DataType) -> pl.Series | None:
        """Returns the value as a Series of one row, or None if the bytes cannot be converted to this type."""
        if self.raw is None:
            return None if dtype.is_nested() else pl.Series([None], dtype=dtype)
        if _NUMBERS.get(dtype.base_type()) != len(self.raw):
            return None
        value = int.from_bytes(self.raw, "little", signed=dtype.is_signed_integer())
        return pl.Series([value], dtype=dtype)


def check(path: Path) -> list[Constant | None]:
    """Raises an error if the file is cut off, states sizes that its bytes cannot hold, or exceeds a limit. Returns, for
    each column, the value that all rows have, or None if the rows differ or the value is not known."""
    with open_file(path) as stream:
        file_bytes = size_on_disk(os.fstat(stream.fileno()))
        raw, end = _footer(stream, path)
        try:
            footer = CompactReader(raw).struct(_FOOTER)
            if _longest(footer) > ROWS.allows(file_bytes):
                raise ROWS.passed(path, file_bytes)
            for group in footer["groups"]:
                for column in group["columns"]:
                    if _longest_page(stream, end, column["column"]) > PAGE.allows(file_bytes):
                        raise PAGE.passed(path, file_bytes)
            groups = [[_constant(column["column"]) for column in group["columns"]] for group in footer["groups"]]
            return [known.pop() if len(known := set(column)) == 1 else None for column in zip(*groups, strict=True)]
        except (IndexError, ValueError, KeyError, TypeError, AttributeError):  # a field is missing, or of another type
            raise _damaged(path, SAYS_MORE) from None


def _damaged(path: Path, why: str) -> ReadError:
    return ReadError(f"{path} is a damaged Parquet file: {why}; copy it again")


def _footer(stream: IO[bytes], path: Path) -> tuple[bytes, int]:
    """Returns the footer and its offset."""
    size = os.fstat(stream.fileno()).st_size
    if size < len(_MAGIC) + _END:
        raise ReadError(f"{path} is not a Parquet file: it has {size} bytes; copy it again")
    stream.seek(size - _END)
    end = stream.read(_END)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _MAGIC or length > size - len(_MAGIC) - _END:
        raise _damaged(path, "its last bytes are not those of one")
    if length > FOOTER.allows():
        raise FOOTER.passed(path)
    stream.seek(size - _END - length)
    return stream.read(length), size - _END - length


def _longest(footer: dict[str, Any]) -> int:
    """Returns the greater of two numbers: all rows of the file, and the most values that a column has in one group of
    rows. A column of lists may have more values than rows."""
    rows = [within(group["rows"]) for group in footer["groups"]]
    if sum(rows) != within(footer["rows"]):
        raise ValueError(rows)
    values = [0]
    for group, least in zip(footer["groups"], rows, strict=True):
        values += [within(column["column"]["values"], least=least) for column in group["columns"]]
    return max(sum(rows), *values)


def _constant(column: dict[str, Any]) -> Constant | None:
    statistics = column.get("statistics", {})
    nulls = within(statistics.get("nulls", 0), most=column["values"])
    if nulls == column["values"] > 0:
        return Constant(None)
    least = statistics.get("least")
    has_no_nulls = "nulls" in statistics and nulls == 0
    is_one = has_no_nulls and isinstance(least, bytes) and statistics.get("largest") == least
    return Constant(least) if is_one else None


def _longest_page(stream: IO[bytes], end: int, column: dict[str, Any]) -> int:
    """Returns the unpacked length, in bytes, of the column's longest page."""
    at = column.get("dictionary_at", column["data_at"])
    stop = at + within(column["bytes"])
    if not len(_MAGIC) <= at <= stop <= end:
        raise ValueError(at)
    values, longest = 0, 0
    while at < stop:
        page, head_bytes = _page(stream, at, stop)
        at += head_bytes + within(page["bytes"])
        longest = max(longest, within(page["unpacked"]))
        data = page.get("data", {"values": 0})
        values += within(data["values"])
        within(data.get("rows", 0), most=data["values"])
        within(data.get("nulls", 0), most=data["values"])
        within(within(data.get("depths", 0)) + within(data.get("repeats", 0)), most=page["bytes"])
        dictionary = page.get("dictionary", {"values": 0})
        within(dictionary["values"], most=page["unpacked"])  # a value has at least one byte
    if at != stop or values != column["values"]:
        raise ValueError(values)
    return longest


def _page(stream: IO[bytes], at: int, stop: int) -> tuple[dict[str, Any], int]:
    """Returns the head of a page, and the number of its bytes."""
    ahead = _HEAD
    while True:
        stream.seek(at)
        raw = stream.read(min(ahead, stop - at))
        reader = CompactReader(raw)
        try:
            return reader.struct(_PAGE), reader.at
        except IndexError:
            if len(raw) < ahead:
                raise
            ahead *= 16
