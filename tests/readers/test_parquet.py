"""A Parquet file is believed only as far as its size: no more rows, footer and pages than it holds."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from opspan.errors import ReadError, TooLarge
from opspan.formats.parquet import check
from opspan.formats.sqlite_cells import Type
from opspan.readers.nsys.folders import Folder
from opspan.tables import Issues
from readers.loading import OVER_BUDGET


def test_rows_of_a_parquet_file(tmp_path: Path, budget: Callable[[float], None]) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({"start": [1]}).select(pl.col("start").repeat_by(100_000).explode()).write_parquet(path)
    budget(100_000 / 10_000_000)
    check(path)
    budget(99_999 / 10_000_000)
    with pytest.raises(TooLarge, match="more rows are in a table " + OVER_BUDGET):
        check(path)


def test_footer_of_a_parquet_file(tmp_path: Path, budget: Callable[[float], None]) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({f"column {number}": [1] for number in range(100)}).write_parquet(path)
    length = int.from_bytes(path.read_bytes()[-8:-4], "little")
    budget((length + 1) / (64 << 20))
    check(path)
    budget((length - 1) / (64 << 20))
    with pytest.raises(TooLarge, match="more bytes are in the footer of a table " + OVER_BUDGET):
        check(path)


def test_bytes_that_come_out_of_a_page(tmp_path: Path, budget: Callable[[float], None]) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({"text": ["x" * (1 << 20)]}).write_parquet(path)
    budget((2 << 20) / (64 << 20))
    check(path)
    budget((1 << 20) / (64 << 20))  # the limit for the text only
    with pytest.raises(TooLarge, match="more bytes come out of a page of a table " + OVER_BUDGET):
        check(path)


# The head of a page of data, as polars writes it: 15 is a field of a number, 2C the structure with its counts.
COUNTED = re.compile(rb"\x15\x00\x15.{1,2}\x15.{1,2}\x2c\x15(?=([\x02-\x7e])\x15)", re.DOTALL)


@pytest.mark.parametrize("count", [b"\x25", b"\x00", b"\x7e", b"\x7f"], ids=["-19", "0", "63", "-64"])
def test_a_page_that_counts_other_values_than_its_column_is_not_believed(tmp_path: Path, count: bytes) -> None:
    """polars takes a number below zero for one that has no end."""
    path = tmp_path / "x.parquet"
    pl.DataFrame({"a": [1, None, 3], "b": ["x", None, "y"], "c": [[1.5], [], None]}).write_parquet(path)
    check(path)
    raw = path.read_bytes()
    pages = list(COUNTED.finditer(raw))
    assert len(pages) == 3
    for page in pages:
        path.write_bytes(raw[: page.end()] + count + raw[page.end() + 1 :])
        with pytest.raises(ReadError, match="it says more of itself than it holds"):
            check(path)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "uncompressed"])
@pytest.mark.parametrize("rows", [0, 1, 700])
def test_what_is_sound_is_believed(tmp_path: Path, compression: Any, rows: int) -> None:
    path = tmp_path / "x.parquet"
    columns = {
        "empty": [None] * rows,
        "numbers": range(rows),
        "texts": [None if row % 5 == 0 else f"name {row % 20}" * 40 for row in range(rows)],
        "lists": [list(range(row % 4)) for row in range(rows)],
        "structures": [{"a": row, "b": [str(row)]} for row in range(rows)],
    }
    frame = pl.DataFrame(columns, schema_overrides={"empty": pl.Int64, "lists": pl.List(pl.Int64)}, strict=False)
    frame.write_parquet(path, compression=compression, row_group_size=200, data_page_size=400)
    check(path)
    assert pl.read_parquet(path).height == rows


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_what_pyarrow_writes_is_believed(tmp_path: Path, version: str) -> None:
    """The library that nsys has."""
    path = tmp_path / "x.parquet"
    program = """
import sys, pyarrow as pa, pyarrow.parquet
names = [None if row % 5 == 0 else f"name {row % 7}" for row in range(5000)]
table = pa.table({"a": range(5000), "b": names, "c": [[row] * (row % 3) for row in range(5000)]})
options = dict(data_page_version=sys.argv[2], row_group_size=2000, data_page_size=1000, write_page_index=True)
pyarrow.parquet.write_table(table, sys.argv[1], **options)
"""
    subprocess.run([sys.executable, "-c", program, path, version], check=True)
    check(path)
    assert pl.read_parquet(path).height == 5000


ROWS = 700
COLUMNS = {
    "same": pl.Series([59] * ROWS),
    "high": pl.Series([(1 << 63) + 7] * ROWS, dtype=pl.UInt64),
    "low": pl.Series([-1] * ROWS, dtype=pl.Int32),
    "nothing": pl.Series([None] * ROWS, dtype=pl.String),
    "far": pl.Series([1 << 40] * ROWS),
    "one other": pl.Series([1] * (ROWS - 1) + [2]),
    "by group": pl.Series([row // 200 for row in range(ROWS)]),
    "some": pl.Series([None] + [1] * (ROWS - 1)),
    "floats": pl.Series([0.0, -0.0] * (ROWS // 2)),
    "texts": pl.Series(["x"] * ROWS),
    "empty lists": pl.Series([[]] * ROWS, dtype=pl.List(pl.Int64)),
}
TOLD = ["same", "high", "low", "nothing", "far"]


@pytest.mark.parametrize("statistics", [True, False])
def test_what_all_rows_hold_is_told_without_reading_them(tmp_path: Path, statistics: bool) -> None:
    path = tmp_path / "x.parquet"
    frame = pl.DataFrame(COLUMNS)
    frame.write_parquet(path, row_group_size=200, statistics=statistics)
    told = dict(zip(frame.columns, check(path), strict=True))
    cells = {name: cell for name, one in told.items() if one and (cell := one.of(frame.schema[name])) is not None}
    assert list(cells) == (TOLD if statistics else [])
    for name, cell in cells.items():
        assert cell.new_from_index(0, ROWS).rename(name).equals(frame[name])


def test_what_is_told_is_as_if_it_had_been_read(tmp_path: Path) -> None:
    asked: dict[str, Type] = dict.fromkeys(("one other", *TOLD, "not there"), "int")
    for wanted in (asked, {**asked, "far": "int32", "nothing": "text"}, {"same": "int"}, {"low": "float"}):
        found = []
        for statistics in (True, False):
            folder, issues = tmp_path / str(statistics), Issues()
            folder.mkdir(exist_ok=True)
            pl.DataFrame(COLUMNS).write_parquet(folder / "T.parquet", row_group_size=200, statistics=statistics)
            with Folder(folder, issues) as source:
                source.ahead("T", wanted)
                found.append((source.frame("T", wanted), issues.frame()))
        (told, of_told), (read, of_read) = found
        assert told.equals(read)
        assert told.schema == read.schema
        assert told.height == ROWS
        assert of_told["count"].to_list() == of_read["count"].to_list()
        assert of_told["count"].to_list() == ([ROWS] if wanted.get("far") == "int32" else [])


def test_a_footer_that_says_more_than_it_holds_is_not_believed(tmp_path: Path) -> None:
    """polars would make room for what it says, and abort the process where there is none."""
    path = tmp_path / "x.parquet"
    pl.DataFrame({"a": [1, 2], "b": ["x", None], "c": [[1.5], []]}).write_parquet(path)
    raw = path.read_bytes()
    start = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    check(path)
    at = raw.index(b"\x19", start)  # the schema: a list of so many
    for many in (b"\xfc\xff\xff\xff\xff\x07", b"\xfc\xff\xff\x7f"):
        hostile_footer = raw[start : at + 1] + many + raw[at + 2 : -8]
        path.write_bytes(raw[:start] + hostile_footer + len(hostile_footer).to_bytes(4, "little") + b"PAR1")
        with pytest.raises(ReadError, match="it says more of itself than it holds"):
            check(path)
    path.write_bytes(raw[:-1])
    with pytest.raises(ReadError, match="its last bytes are not those of one"):
        check(path)
    path.write_bytes(b"PAR1")
    with pytest.raises(ReadError, match="not a Parquet file"):
        check(path)
