"""merge: two tools' views of one run, made from one truth, become that truth again."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opspan
from opspan.errors import UsageError
from opspan.tables import Metadata
from opspan.trace import Trace

UTC = 1_700_000_000_000_000_000


def trace(
    rows: list[dict], *, source: str = "one", origin: int | None = UTC, clock: str | None = None, **more
) -> Trace:
    frame = pl.DataFrame(
        [{"id": number, "rank": 0, "pid": 1, "tid": 1, **row} for number, row in enumerate(rows)],
        infer_schema_length=None,
    )
    metadata = Metadata(source=source, paths=(f"{source}.file",), host="box", origin_utc_ns=origin, clock=clock)
    return Trace((metadata,), ranges=frame if rows else pl.DataFrame(), **more)


def ops(starts: list[int], name: str = "aten::mm", **more) -> list[dict]:
    return [{"name": name, "start_ns": start, "end_ns": start + 50, **more} for start in starts]


def alignment(merged: Trace) -> dict:
    return merged.metadata.options["alignment"]


def counts(merged: Trace) -> dict[str, int]:
    return dict(merged.issues.select("code", "count").iter_rows())


def test_ranges_that_both_saw_are_there_once_with_what_each_knew() -> None:
    starts = [number * 1000 for number in range(20)]
    one = trace(ops(starts), source="vtune")
    # The second tool's clock reads 7 ms less than its UTC time says, and it sees every range 40 ns later.
    other = trace([{**row, "seq": 3, "sizes": "[[2]]"} for row in ops([start + 40 for start in starts])], source="nsys")

    merged = opspan.merge(one, other)

    assert merged.ranges["start_ns"].to_list() == starts
    assert merged.ranges["seq"].to_list() == [3] * 20
    assert merged.ranges["sizes"].cast(pl.String).to_list() == ["[[2]]"] * 20
    assert alignment(merged) == {"by": "ranges", "shift_ns": -40, "pairs": 20, "within_ns": 0}
    assert counts(merged) == {"seen_twice": 20}
    assert merged.metadata.source == "vtune+nsys"
    assert merged.metadata.paths == ("vtune.file", "nsys.file")


def test_work_and_calls_of_the_other_come_along_on_the_firsts_clock() -> None:
    starts = [number * 1000 for number in range(20)]
    calls = pl.DataFrame(
        {"id": [0], "rank": [0], "pid": [1], "tid": [1], "start_ns": [2_010_000], "end_ns": [2_010_020]}
    )
    calls = calls.with_columns(name=pl.lit("cudaLaunchKernel"), correlation_id=pl.lit(7))
    work = pl.DataFrame({"id": [0], "rank": [0], "pid": [1], "device_id": [0], "start_ns": [2_010_100]})
    work = work.with_columns(end_ns=pl.lit(2_010_900), correlation_id=pl.lit(7), kind=pl.lit("kernel"))
    other = trace(ops([start + 2_000_000 for start in starts]), source="nsys", calls=calls, work=work)
    ours = pl.DataFrame({"id": [0], "rank": [0], "pid": [1], "tid": [1], "start_ns": [5], "end_ns": [6]})
    one = trace(ops(starts), source="capture", calls=ours.with_columns(correlation_id=pl.lit(7)))

    merged = opspan.merge(one, other)

    assert merged.calls["start_ns"].to_list() == [5, 10_000]
    # Numbers that paired nothing in their own trace must not pair here.
    assert merged.calls["correlation_id"].to_list() == [None, 7]
    attributed = opspan.analysis.attribute(merged)
    assert attributed.work["range"].to_list() == [10]
    assert alignment(merged)["shift_ns"] == -2_000_000
    assert counts(merged) == {"seen_twice": 20, "clocks_disagree": 1}


def test_parents_and_relations_follow_the_range_that_was_kept() -> None:
    starts = [number * 1000 for number in range(10)]
    one = trace(ops(starts))
    extra = ops([400], "only here", parent_id=9)
    relations = pl.DataFrame({"rank": [0], "range_id": [10], "relation": ["is_child_of"], "other_id": [3]})
    other = trace([*ops(starts), *extra], relations=relations)

    merged = opspan.merge(one, other)

    kept = merged.ranges.filter(pl.col("name").cast(pl.String) == "only here").row(0, named=True)
    assert kept["parent_id"] == 9
    assert merged.ranges.filter(id=9)["start_ns"].item() == 9000
    assert merged.relations.select("range_id", "other_id").row(0) == (kept["id"], 3)
    assert merged.ranges["id"].is_unique().all()


def test_without_common_ranges_the_clocks_have_to_do_and_it_is_said() -> None:
    one = trace(ops([100]), origin=UTC)
    other = trace(ops([100], "data"), origin=UTC + 500)
    merged = opspan.merge(one, other)
    assert sorted(merged.ranges["start_ns"]) == [100, 600]
    assert alignment(merged) == {"by": "UTC", "shift_ns": 500, "pairs": 0, "within_ns": None}
    assert counts(merged) == {"aligned_by_clocks": 1}

    same = trace(ops([100], "data"), origin=UTC + 500, clock="CLOCK_MONOTONIC")
    merged = opspan.merge(trace(ops([100]), clock="CLOCK_MONOTONIC"), same)
    assert alignment(merged)["by"] == "clock"
    assert sorted(merged.ranges["start_ns"]) == [100, 100]


def test_ranges_align_what_no_clock_does() -> None:
    starts = [number * 1000 for number in range(9)]
    merged = opspan.merge(trace(ops(starts)), trace(ops([start + 5_000_000_000 for start in starts]), origin=None))
    assert merged.ranges["start_ns"].to_list() == starts
    assert alignment(merged)["by"] == "ranges"


def test_what_cannot_be_merged_is_refused_with_the_reason() -> None:
    one, far = trace(ops([100])), trace(ops([100]), origin=None)
    with pytest.raises(UsageError, match="no clock is known of one of them, and 1 range that both saw"):
        opspan.merge(one, far)
    with pytest.raises(UsageError, match="no process is in both \\(1 and 2\\)"):
        opspan.merge(one, trace(ops([100], pid=2)))
    elsewhere = Trace((Metadata(source="x", host="other"),), ranges=one.ranges)
    with pytest.raises(UsageError, match="hosts box and other"):
        opspan.merge(one, elsewhere)
    work = pl.DataFrame({"id": [0], "rank": [0], "pid": [1], "start_ns": [1], "end_ns": [2]})
    with pytest.raises(UsageError, match="counted twice"):
        opspan.merge(one.replace(work=work), one.replace(work=work))
    two = Trace((one.metadata, one.metadata), ranges=one.ranges)
    with pytest.raises(UsageError, match="2 ranks"):
        opspan.merge(two, one)


@st.composite
def views(draw: st.DrawFn) -> tuple[list[dict], list[dict], int, list[bool], list[bool]]:
    """One truth, and what each of two tools saw of it, the second on another clock and a little late."""
    count = draw(st.integers(12, 30))
    truth = [
        {"name": draw(st.sampled_from(["a", "b", "c"])), "tid": draw(st.integers(1, 2)), "start_ns": 100_000 * number}
        for number in range(count)
    ]
    shift = draw(st.integers(-(10**12), 10**12))
    late = [draw(st.integers(0, 900)) for _ in truth]
    # One tool came later, or left earlier: it has a stretch of the truth, and the rest of the names are whole.
    lost = draw(st.sets(st.integers(0, count - 1), max_size=2))
    one = [{**row, "end_ns": row["start_ns"] + 1000} for row in truth]
    other = [
        {**row, "start_ns": row["start_ns"] + shift + more, "end_ns": row["start_ns"] + shift + 2000, "seq": number}
        for number, (row, more) in enumerate(zip(truth, late, strict=True))
        if number not in lost
    ]
    whole = {(row["tid"], row["name"]) for row in one}
    counts = [
        sum((row["tid"], row["name"]) == key for row in one)
        for key in whole
        if sum((row["tid"], row["name"]) == key for row in one)
        == sum((row["tid"], row["name"]) == key for row in other)
    ]
    return one, other, sum(counts), sorted(lost), shift


@pytest.mark.slow
@given(views())
def test_two_views_of_one_truth_become_it_again(drawn) -> None:
    one, other, paired, lost, shift = drawn
    if paired < 8:
        return  # too few for the ranges to be believed: another test's business

    merged = opspan.merge(trace(one), trace(other, origin=UTC - shift))

    rows = merged.ranges.sort("start_ns")
    assert rows["start_ns"].to_list() == [row["start_ns"] for row in one]
    assert rows["seq"].to_list() == [None if number in lost else number for number in range(len(one))]
    assert abs(alignment(merged)["shift_ns"] + shift) <= 900


def test_a_host_that_one_of_them_knows_is_that_of_both() -> None:
    known = trace(ops([100]))
    unknown = Trace((Metadata(source="two", origin_utc_ns=UTC),), ranges=trace(ops([900], "other")).ranges)
    assert [opspan.merge(*pair).metadata.host for pair in ((known, unknown), (unknown, known))] == ["box", "box"]
