"""Clocks of hosts made one by collectives: against runs whose clocks were set apart by known amounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opspan
from builders import training
from builders.training_files import kineto_files, nsys_files
from builders.training_plan import Plan
from opspan.analysis import attribute
from opspan.analysis.clocks import LEAST, LEAST_ERROR_NS, clocks, collectives_of, one_clock
from opspan.analysis.collectives import collectives
from opspan.analysis.narrowed import steps_of_all
from opspan.tables import Metadata, Tables
from opspan.tables import side_by_side as as_ranks
from opspan.tables.clocks import Shift, shifted, times

RANKS = 4
PLAN = Plan(ranks=RANKS, steps=6, straggler=(2, 1.5))
MS = 10**6


@cache
def rows_of_run() -> pl.DataFrame:
    return collectives_of(run())


@cache
def run() -> Tables:
    """A run whose clocks agree, its ranks on hosts of their own."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        parts = [opspan.load(path) for path in kineto_files(Path(folder), training.run(PLAN))]
    whole = as_ranks(parts)
    return Tables(tuple(replace(rank, host=f"node{rank.rank}") for rank in whole.ranks), **whole.frames)


def apart(trace: Tables, by: Mapping[int, Shift]) -> Tables:
    frames = {name: shifted(name, frame, by) for name, frame in trace.frames.items()}
    return Tables(trace.ranks, **frames)


def codes(trace: Tables) -> dict[str, int]:
    return dict(trace.issues.group_by("code").agg(pl.col("count").sum()).iter_rows())


def ends(trace: Tables) -> np.ndarray:
    """Returns the ends of the collectives, in order, with a row for each rank."""
    rows = collectives(attribute(trace)).sort("rank", "start_ns")
    return rows["end_ns"].to_numpy().reshape(RANKS, -1)


def test_what_is_about_collectives_is_enough_to_know_them() -> None:
    whole, small = collectives(attribute(run())), rows_of_run()
    kept = [name for name in small.columns if name not in ("work", "range")]
    assert small.height > 0
    assert small.select(kept).sort("rank", "start_ns").equals(whole.select(kept).sort("rank", "start_ns"))


def test_clocks_that_agree_are_left_alone() -> None:
    found = one_clock(run())
    assert codes(found) == {}
    for name, frame in run().frames.items():
        assert frame.equals(found.frames[name]), name
    assert [rank.options.get("aligned", {}).get("shift_ns") for rank in found.ranks] == [None, 0, 0, 0]


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(-(10**12), 10**12), min_size=RANKS, max_size=RANKS))
def test_any_offsets_are_found(offsets: list[int]) -> None:
    found = one_clock(apart(run(), {rank: Shift(by) for rank, by in enumerate(offsets)}))

    for rank in range(1, RANKS):
        said = found.ranks[rank].options["aligned"]
        assert said["collectives"] == ends(run()).shape[1]
        # The reference keeps its own clock.
        assert abs(said["shift_ns"] - (offsets[0] - offsets[rank])) <= said["within_ns"]
    for name in ("ranges", "calls", "work"):
        error = found.frames[name]["start_ns"] - run().frames[name]["start_ns"] - offsets[0]
        assert error.abs().max() <= max(rank.options["aligned"]["within_ns"] for rank in found.ranks[1:])


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 1_000, 50_000, 1_000_000]), st.integers(-(10**10), 10**10))
def test_the_error_is_what_ends_differ_by(seed: int, jitter_ns: int, offset: int) -> None:
    """Nine in ten ends agree within the error that is said, whatever the clocks' jitter."""
    rows = rows_of_run()
    noise = np.random.default_rng(seed).integers(-jitter_ns, jitter_ns + 1, rows.height)
    moved = rows.with_columns(times(pl.col("start_ns", "end_ns"), {2: Shift(offset)}))
    moved = moved.with_columns(pl.col("end_ns") + pl.Series(noise))

    found = clocks(moved, run().ranks)

    assert set(found) == {1, 2, 3}
    ended = moved.sort("rank", rows["start_ns"])["end_ns"].to_numpy().reshape(RANKS, -1)
    for rank, clock in found.items():
        assert LEAST_ERROR_NS <= clock.within_ns <= max(4 * jitter_ns, LEAST_ERROR_NS)
        assert (np.abs(ended[rank] + clock.shift.ns - ended[0]) <= clock.within_ns).mean() >= 0.9


def test_a_drift_is_found_where_it_is_more_than_the_error() -> None:
    plan = replace(PLAN, steps=12)
    rows = _stretched(plan)
    metadata = [Metadata("test", host=f"node{rank}", rank=rank) for rank in range(RANKS)]
    drift = Shift(5 * MS, 2e-5, int(rows["end_ns"].median() or 0))
    moved = rows.with_columns(times(pl.col("start_ns", "end_ns"), {1: drift}))

    found = clocks(moved, metadata)

    assert found[1].shift.drift == pytest.approx(-2e-5, rel=0.02)
    assert found[2].shift.drift == 0
    assert found[1].within_ns <= 2 * LEAST_ERROR_NS
    back = moved.with_columns(times(pl.col("start_ns", "end_ns"), {rank: one.shift for rank, one in found.items()}))
    assert (back["end_ns"] - rows["end_ns"]).abs().max() <= found[1].within_ns


def _stretched(plan: Plan) -> pl.DataFrame:
    """Collectives of a run whose steps are a minute apart."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        trace = opspan.load(*kineto_files(Path(folder), training.run(plan)))
    rows = collectives_of(trace).sort("rank", "start_ns")
    each = rows.height // RANKS // plan.steps
    step = pl.int_range(pl.len()).over("rank") // each
    return rows.with_columns(pl.col("start_ns", "end_ns") + step * 60 * 10**9)


def test_who_was_last_and_who_waited_stay_the_same() -> None:
    of = opspan.Trace.of
    by_rank = of(run()).comm("rank")
    moved = of(one_clock(apart(run(), {1: Shift(3_000 * MS), 3: Shift(-70 * MS)}))).comm("rank")
    assert moved.equals(by_rank)


@pytest.mark.parametrize("write", [kineto_files, nsys_files])
def test_files_are_put_on_one_clock_when_they_are_loaded(write: object, tmp_path: Path) -> None:
    paths = write(tmp_path, training.run(replace(PLAN, apart={3: 40 * MS})))  # type: ignore[operator]
    trace = opspan.load(*paths)

    assert codes(trace) == {"clocks_aligned": 1}
    assert np.ptp(ends(trace), axis=0).max() <= trace.ranks[3].options["aligned"]["within_ns"]
    trace.save(tmp_path / "saved")
    again = opspan.load(tmp_path / "saved")
    assert again.ranks == trace.ranks
    assert again.issues.equals(trace.issues)


def test_ranks_that_read_one_clock_are_moved_together() -> None:
    """Two on a host; one of them is out of step with its neighbour by what is theirs, and stays so."""
    trace = run()
    on = tuple(replace(rank, host=f"node{rank.rank // 2}", clock="CLOCK_MONOTONIC") for rank in trace.ranks)
    moved = apart(Tables(on, **trace.frames), {2: Shift(9 * MS), 3: Shift(9 * MS + 1_000)})
    found = one_clock(moved)
    shifts = [rank.options.get("aligned", {}).get("shift_ns") for rank in found.ranks]
    assert shifts[:2] == [None, None]
    assert shifts[2] == shifts[3]
    assert abs(shifts[2] + 9 * MS) <= LEAST_ERROR_NS

    of_one = one_clock(Tables(tuple(replace(rank, host="node0") for rank in on), **moved.frames))
    assert of_one.ranges.equals(moved.ranges)


def test_ranks_that_share_nothing_with_the_first_are_set_by_those_that_do() -> None:
    """0 with 1, 1 with 2, 2 with 3: groups of pipelines."""
    rows = rows_of_run()
    pairs = [
        rows.filter(pl.col("rank").is_in([first, first + 1])).with_columns(
            group=pl.lit(f"pair{first}"), members=pl.lit(f"[{first}, {first + 1}]"), stream_id=pl.lit(first, pl.Int64)
        )
        for first in range(RANKS - 1)
    ]
    offsets = [0, 5 * MS, -7 * MS, 900 * MS]
    moved = pl.concat(pairs).with_columns(
        times(pl.col("start_ns", "end_ns"), {rank: Shift(by) for rank, by in enumerate(offsets)})
    )
    found = clocks(moved, run().ranks)
    assert {rank: round(clock.shift.ns / MS) for rank, clock in found.items()} == {1: -5, 2: 7, 3: -900}
    assert found[1].within_ns < found[2].within_ns < found[3].within_ns


def without_collectives(trace: Tables) -> Tables:
    work = trace.work.filter(~pl.col("name").cast(pl.String).str.contains("nccl"))
    ranges = trace.ranges.filter(~pl.col("name").cast(pl.String).str.contains("c10d|nccl|record_param_comms"))
    return Tables(trace.ranks, **{**trace.frames, "work": work, "ranges": ranges})


def test_without_collectives_nothing_is_moved_and_that_is_said_once() -> None:
    trace = apart(without_collectives(run()), {1: Shift(5 * MS)})
    found = one_clock(trace)
    assert codes(found) == {"clocks_of_hosts": RANKS - 1}
    assert found.issues.height == 1
    assert found.work.equals(trace.work)
    # Ranks without a host are not put on one clock.
    unknown = Tables(tuple(replace(rank, host=None) for rank in trace.ranks), **trace.frames)
    assert one_clock(unknown) is unknown


def test_runs_that_are_mixed_are_not_aligned() -> None:
    trace = apart(run(), {1: Shift(5 * MS)})
    told = [replace(rank.told, run=f"torchrun {rank.rank}") for rank in trace.ranks]
    mixed = tuple(replace(rank, told=one) for rank, one in zip(trace.ranks, told, strict=True))
    assert one_clock(Tables(mixed, **trace.frames)).work.equals(trace.work)

    again = [opspan.Trace.of(Tables((replace(rank, rank=0),), work=trace.work)) for rank in trace.ranks[:1]]
    doubled = as_ranks([*again, *again])
    assert codes(doubled)["doubled_rank"] == 1
    assert one_clock(doubled) is doubled


def test_few_collectives_say_nothing() -> None:
    rows = rows_of_run().sort("start_ns")
    few = rows.filter(pl.int_range(pl.len()).over("rank") < LEAST - 1)
    assert clocks(few, run().ranks) == {}


def test_a_file_without_utc_is_put_on_the_clock_of_the_others() -> None:
    trace = run()
    parts = [
        Tables(
            (replace(rank, origin_utc_ns=None if rank.rank == 1 else rank.origin_utc_ns, rank=0),),
            **{name: frame.filter(pl.col("rank") == rank.rank).with_columns(rank=0) for name, frame in frames.items()},
        )
        for frames in [apart(trace, {1: Shift(-(10**9))}).frames]
        for rank in trace.ranks
    ]
    whole = as_ranks(parts)
    assert "clocks_not_aligned" in codes(whole)
    assert codes(one_clock(whole)) == {"clocks_aligned": 1}


def test_a_file_that_no_collective_aligns_is_still_said_not_to_be() -> None:
    trace = run()
    silent = without_collectives(trace)
    parts = []
    for rank in trace.ranks:
        frames = (silent if rank.rank == 1 else apart(trace, {2: Shift(-(10**9))})).frames
        own = {name: frame.filter(pl.col("rank") == rank.rank).with_columns(rank=0) for name, frame in frames.items()}
        utc = None if rank.rank == 1 else rank.origin_utc_ns
        parts.append(Tables((replace(rank, origin_utc_ns=utc, rank=0),), **own))
    assert codes(one_clock(as_ranks(parts))) == {"clocks_aligned": 1, "clocks_not_aligned": 1}


def test_steps_that_were_found_before_are_moved_with_their_ranks() -> None:
    moved = apart(run(), {1: Shift(10**9)})
    steps = pl.DataFrame({"rank": [0, 1], "start_ns": [5, 6], "end_ns": [7, 8]}, schema_overrides={"rank": pl.Int32})
    whole = one_clock(moved)
    found = steps_of_all([moved], [steps], whole)
    assert found is not None
    by = whole.ranks[1].options["aligned"]["shift_ns"]
    assert found.rows() == [(0, 5, 7), (1, 6 + by, 8 + by)]
