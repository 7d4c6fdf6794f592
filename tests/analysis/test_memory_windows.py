"""Sums over pieces of time: of any window of them those of a trace that has the events of that window alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import strategies as st

import opspan
from analysis.frames import nested_rows, range_rows, table
from analysis.test_allocations import event_rows
from analysis.test_memory_use import here, nested, on_one_thread
from opspan.analysis.memory_use import SUMS, operators
from opspan.analysis.memory_windows import Pieces, in_pieces
from properties import property_of

SUMMED = (*SUMS, *(f"self_{name}" for name in SUMS))
KEY = ("rank", "device_id", "name")


def summed(rows: pl.DataFrame, *names: str) -> dict[tuple, tuple]:
    """Without rows of nothing."""
    sums = rows.group_by(KEY).agg(pl.col(names).sum())
    found = {row[:3]: row[3:] for row in sums.with_columns(pl.col("name").cast(pl.String)).rows()}
    return {key: figures for key, figures in found.items() if any(figures)}


@property_of(nested_rows() | range_rows() | on_one_thread, event_rows | here, st.data(), few=60, many=400)
def test_a_window_is_the_sum_of_its_pieces(rows: list[dict], happened: list[dict], data: st.DataObject) -> None:
    frame, _ = nested(rows, data)
    events = table("memory", happened)
    pieces = Pieces.of(events["time_ns"], data.draw(st.integers(1, 5)))
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, pieces.count - 1)] * 2)))
    from_ns, to_ns = (pieces.first_ns + pieces.length_ns * at for at in (first, last + 1))

    found = in_pieces(frame, events, pieces)

    time = pl.col("time_ns").cast(pl.Int128)
    inside = events.filter(time >= from_ns, time < to_ns)
    assert summed(found.filter(pl.col("piece").is_between(first, last)), *SUMMED) == summed(
        operators(frame, inside), *SUMMED
    )
    whole = operators(frame, events.drop_nulls("time_ns"))
    assert summed(found, "calls", *SUMMED) == summed(whole, "calls", *SUMMED)


def test_what_lies_outside_of_the_pieces_is_in_the_first_or_the_last() -> None:
    pieces = Pieces(first_ns=100, length_ns=10, count=3)
    times = pl.DataFrame({"time_ns": [-(2**62), 99, 100, 119, 129, 130, 2**62]})
    assert times.select(pieces.piece("time_ns")).to_series().to_list() == [0, 0, 0, 1, 2, 2, 2]


def test_nothing_happened_in_no_piece() -> None:
    nothing = table("memory", [])
    pieces = Pieces.of(nothing["time_ns"], 10)
    assert in_pieces(nested([], None)[0], nothing, pieces).is_empty()  # type: ignore[arg-type]


@pytest.mark.slow
def test_all_pieces_of_a_recorded_run_are_its_ops(traces_dir: Path) -> None:
    trace = opspan.load(traces_dir / "kineto" / "resnet50_memory_without_category.pt.trace.json.gz")
    events = trace.memory
    found = in_pieces(trace.analysed.attributed.ranges, events, Pieces.of(events["time_ns"], 400))
    assert found["piece"].n_unique() > 100
    assert summed(found, "calls", *SUMMED) == summed(trace.analysed.memory_by_op, "calls", *SUMMED)
