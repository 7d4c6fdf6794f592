"""Native functions over columns: their errors, and that no frame can break them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from analysis.frames import EXTREMES, ranges
from opspan import libraries, native
from opspan.analysis import nest
from opspan.errors import OpspanError


@pytest.fixture
def opened_anew(monkeypatch: pytest.MonkeyPatch):
    native._load.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    native._load.cache_clear()


def test_a_missing_library_is_a_clear_error(opened_anew, tmp_path: Path) -> None:
    opened_anew.setenv("OPSPAN_LIB_DIR", str(tmp_path))
    with pytest.raises(OpspanError, match=r"was not installed, and without it only .* are read; pip install opspan"):
        nest(ranges(("a", 0, 1)))


def test_what_is_no_library_is_a_clear_error(opened_anew, tmp_path: Path) -> None:
    (tmp_path / libraries.COLUMNS).write_bytes(b"not a library")
    opened_anew.setenv("OPSPAN_LIB_DIR", str(tmp_path))
    with pytest.raises(OpspanError, match=r"cannot open .*; reinstall opspan"):
        nest(ranges(("a", 0, 1)))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pl.DataFrame({"parent": [1]}, schema={"parent": pl.UInt32}), "column marked is missing"),
        (pl.DataFrame({"parent": [1], "marked": [True]}), "column parent has Arrow format l, expected I"),
    ],
)
def test_a_wrong_frame_is_refused(frame: pl.DataFrame, message: str) -> None:
    with pytest.raises(OpspanError, match=message):
        native.nearest(frame)


def parents(*rows: int | None) -> pl.DataFrame:
    return pl.DataFrame({"parent": rows}, schema={"parent": pl.UInt32})


def test_parents_out_of_range_are_none_and_rings_end() -> None:
    frame = parents(1, 0, 6, 2**32 - 1, 0, 5).with_columns(marked=pl.Series([True, False, True, False, False, True]))
    work = pl.DataFrame(
        {"range": [0, 1, 5, 99, None], "start_ns": [0] * 5, "end_ns": [1] * 5},
        schema={"range": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64},
    )
    # 0 and 1 are each other's parent, 5 its own; 4 is below the first ring.
    assert native.nearest(frame).to_list() == [None, None, 2, None, None, None]
    assert list(native.rollup(frame, work).iter_rows()) == [(1, 1), (1, 1), (0, 0), (0, 0), (0, 0), (1, 1)]


def test_frames_in_pieces_and_slices_are_read_where_they_lie() -> None:
    rows = [(f"r{row}", row // 3, row // 3 + row % 5) for row in range(200)]
    whole = ranges(*rows, domain="d")
    pieces = pl.concat([whole[:7], whole[7:90], whole[90:]], rechunk=False)
    padded = pl.concat([whole[:13], whole, whole[:5]], rechunk=True)[13:213]
    assert pieces.n_chunks() == 3

    expected = nest(whole)

    assert nest(pieces).equals(expected)
    assert nest(padded).equals(expected)


def test_no_rows_are_no_trouble() -> None:
    empty = ranges(("a", 0, 1)).clear()
    assert nest(empty).height == 0
    assert native.nearest(parents().with_columns(marked=pl.Series([], dtype=pl.Boolean))).len() == 0
    assert native.labels(pl.Series([], dtype=pl.String), threads=2).height == 0


def test_the_largest_and_the_smallest_times_neither_wrap_nor_crash() -> None:
    frame = ranges(*((f"{start} {end}", start, end) for start in EXTREMES for end in EXTREMES))
    found = nest(frame)
    assert found.filter(pl.col("self_ns") < 0).height == 0
    assert found["self_ns"].max() == 2**63 - 1


def test_many_ranges_that_overlap_each_other_take_linear_time() -> None:
    rows = 300_000
    frame = ranges(("a", 0, 1)).clear()
    numbers = pl.DataFrame({"start_ns": range(rows)}).with_columns(
        end_ns=pl.col("start_ns") + rows,
        rank=pl.lit(0, dtype=pl.Int32),
        pid=pl.lit(1, dtype=pl.Int64),
        tid=pl.lit(1, dtype=pl.Int64),
    )
    found = nest(pl.concat([frame, numbers], how="diagonal"))
    assert found["overlaps"].sum() == rows - 1


@pytest.mark.slow
def test_memory_comes_back() -> None:
    # A result that leaks, or an input that is held, shows within some hundred calls of 8 MB each.
    program = """
import resource, polars as pl
from opspan.analysis.nest import nest
from opspan.labels import parse_column
from opspan.tables import schema
texts = pl.select(pl.format("aten::mm, args = some argument {}", pl.int_range(50_000))).to_series()
frame = schema.conform("ranges", pl.select(start_ns=pl.int_range(50_000), end_ns=pl.int_range(50_000) + 5))
def peak(calls):
    for _ in range(calls):
        parse_column(texts), nest(frame)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak(20)
print((peak(150) - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100


def test_more_rows_than_are_sorted_at_once_are_nested_as_few_are() -> None:
    """Two ranges a pair, one in the other, in an order that has nothing to do with time; one far from all others."""
    count = 700_000
    pair = pl.int_range(count, dtype=pl.Int64, eager=True).alias("pair")
    outer = pair.to_frame().select("pair", start_ns=pair * 10, end_ns=pair * 10 + 9)
    inner = pair.to_frame().select("pair", start_ns=pair * 10 + 1, end_ns=pair * 10 + 3)
    frame = pl.concat([outer.with_columns(is_inner=False), inner.with_columns(is_inner=True)])
    frame = frame.sample(fraction=1, shuffle=True, seed=1).with_row_index("row")
    frame = pl.concat([frame, pl.DataFrame({"row": [2 * count], "pair": [-1], "start_ns": [2**62], "end_ns": [2**62],
                                            "is_inner": [False]}, schema=frame.schema)])  # fmt: skip

    nested = nest(ranges(("a", 0, 1)).clear().pipe(_filled, frame))

    expected = (
        frame.filter("is_inner")
        .select("pair")
        .join(frame.filter(~pl.col("is_inner")).select("pair", parent="row"), on="pair", maintain_order="left")[
            "parent"
        ]
    )
    assert nested["parent"].filter(frame["is_inner"]).equals(expected, check_names=False)
    assert nested["parent"].filter(~frame["is_inner"]).null_count() == count + 1


def _filled(empty: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Ranges of one thread at these times."""
    known = {"rank": 0, "pid": 1, "tid": 1, "is_mark": False, "is_async": False}
    columns = [
        times[name] if name in times.columns else pl.lit(known.get(name), dtype=dtype).alias(name)
        for name, dtype in empty.schema.items()
    ]
    return times.select(columns)
