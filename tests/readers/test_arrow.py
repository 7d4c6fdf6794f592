"""A file in Arrow's stream format is believed only as far as its size: no more rows and bytes than it holds."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from opspan.errors import ReadError, TooLarge
from opspan.formats.arrow import check
from readers.loading import OVER_BUDGET

SAYS_MORE = "it says more of itself than it holds"


def test_rows_of_a_stream(tmp_path: Path, budget: Callable[[float], None]) -> None:
    path = tmp_path / "x.arrow"
    pl.DataFrame({"nothing": [None] * 100_000}).write_ipc_stream(path)
    budget(100_000 / 10_000_000)
    check(path)
    budget(99_999 / 10_000_000)
    with pytest.raises(TooLarge, match="more rows are in a table " + OVER_BUDGET):
        check(path)


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_bytes_that_come_out_of_a_buffer(tmp_path: Path, compression: Any, budget: Callable[[float], None]) -> None:
    path = tmp_path / "x.arrow"
    pl.DataFrame({"text": ["x" * (1 << 20)]}).write_ipc_stream(path, compression=compression)
    budget((2 << 20) / (64 << 20))
    check(path)
    budget(
        (1 << 19) / (64 << 20) / (200 if compression == "uncompressed" else 1)
    )  # the same number of bytes in the file
    with pytest.raises(TooLarge, match="more bytes come out of a page of a table " + OVER_BUDGET):
        check(path)


def test_bytes_that_describe(tmp_path: Path, budget: Callable[[float], None]) -> None:
    path = tmp_path / "x.arrow"
    pl.DataFrame({"a" * (1 << 20): [1]}).write_ipc_stream(path)
    budget((2 << 20) / (64 << 20))
    check(path)
    budget((1 << 20) / (64 << 20))
    with pytest.raises(TooLarge, match="more bytes are in the footer of a table " + OVER_BUDGET):
        check(path)


@pytest.mark.parametrize("number", [-1, 1 << 40, -(1 << 63), (1 << 63) - 1])
def test_a_batch_that_counts_what_it_does_not_hold_is_not_believed(tmp_path: Path, number: int) -> None:
    """polars would make room for a buffer's bytes, and abort the process where there is none."""
    path = tmp_path / "x.arrow"
    rows = 0x1234  # as numbers of the head are found again
    pl.DataFrame({"a": range(rows), "b": ["some text, longer than a view"] * rows}).write_ipc_stream(path)
    check(path)
    raw = path.read_bytes()
    wanted = {rows, 8 * rows, 16 * rows, 29}
    places = [at for at in range(0, len(raw) - 8, 4) if struct.unpack_from("<q", raw, at)[0] in wanted]
    assert len(places) >= 5
    refused = 0
    for at in places:
        path.write_bytes(raw[:at] + struct.pack("<q", number) + raw[at + 8 :])
        try:
            check(path)
        except ReadError as error:
            refused += SAYS_MORE in str(error) or isinstance(error, TooLarge)
    assert refused >= 5  # the other ones are rows of that value


def test_what_is_cut_is_refused_or_has_whole_batches(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    pl.DataFrame({"a": range(100), "b": ["x"] * 100}).write_ipc_stream(path)
    raw = path.read_bytes()
    lengths = range(0, len(raw), 7)
    refused = []
    for length in lengths:
        path.write_bytes(raw[:length])
        try:
            check(path)
        except ReadError as error:
            refused.append(str(error))
    assert len(refused) > len(lengths) * 3 // 4  # between messages it is whole
    assert all(SAYS_MORE in said for said in refused)


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
@pytest.mark.parametrize("rows", [0, 1, 700])
def test_what_is_sound_is_believed(tmp_path: Path, compression: Any, rows: int) -> None:
    path = tmp_path / "x.arrow"
    texts = [None if row % 5 == 0 else f"name {row % 20}" * 40 for row in range(rows)]
    columns = {"empty": [None] * rows, "texts": texts, "lists": [list(range(row % 4)) for row in range(rows)]}
    frame = pl.DataFrame(columns, schema_overrides={"lists": pl.List(pl.Int64), "texts": pl.String})
    frame.with_columns(names=pl.col("texts").cast(pl.Categorical)).write_ipc_stream(path, compression=compression)
    check(path)
    assert pl.read_ipc_stream(path).height == rows


@pytest.mark.slow
def test_a_stream_of_pyarrows_is_believed(tmp_path: Path) -> None:
    """The stream that nsys's library writes, with dictionaries and in several batches."""
    path = tmp_path / "x.arrow"
    program = """
import sys, pyarrow as pa
names = pa.array([f"name {row % 7}" for row in range(1000)])
table = pa.table({"a": pa.array(range(1000)), "b": names.dictionary_encode()})
with pa.ipc.new_stream(sys.argv[1], table.schema) as stream:
    for batch in table.to_batches(max_chunksize=300): stream.write_batch(batch)
"""
    subprocess.run([sys.executable, "-c", program, path], check=True)
    check(path)
    assert pl.read_ipc_stream(path).height == 1000
