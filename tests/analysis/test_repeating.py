"""Patterns in the order of kernels: made runs whose turns are known, plain loops, and real files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import opspan
import twins
from analysis.frames import table
from opspan.analysis import Analysis
from opspan.analysis import repeating as module
from opspan.analysis.repeating import period, repeating
from opspan.tables import Metadata, Tables


def period_of(codes: Sequence[int]) -> tuple[list[int], int] | None:
    found = period(pl.Series(codes, dtype=pl.UInt64), np.ones(len(codes), dtype=np.int64))
    return None if found is None else (found[0].tolist(), found[1])


LAYERS = [0, *[1, 2, 3, 4, 5] * 24, 6, 7, *[8, 9, 1] * 24]


@pytest.mark.parametrize("turn", [[0, 1], [0, 1, 2], LAYERS, [1, 1, 2, 2], [1, 2, 1, 1, 2, 2]])
@pytest.mark.parametrize("times", [3, 40])
def test_a_turn_that_repeats_is_found_whatever_is_around_it(turn: list[int], times: int) -> None:
    for before in ([], [90, 91], [90, 91, 91, 92] * (len(turn) * times // 5 // 4)):
        found = period_of([*before, *turn * times, 95])
        assert found is not None
        begins, kernels = found
        assert kernels == len(turn)
        assert len(begins) in (times, times - 1)  # it may be told by a place inside the turn
        assert set(np.diff(begins)) <= {len(turn)}


@pytest.mark.parametrize("at", [0, 1, 57, 130, 190])
def test_one_turn_with_a_kernel_more_or_fewer_is_still_one(at: int) -> None:
    more, fewer = list(LAYERS), list(LAYERS)
    more.insert(at, 99)
    del fewer[at]
    for odd in (more, fewer):
        begins, kernels = period_of([*LAYERS * 5, *odd, *LAYERS * 4]) or ([], 0)
        assert kernels == len(LAYERS)
        assert 9 <= len(begins) <= 10
        gaps = np.diff(begins).tolist()
        assert len(gaps) - gaps.count(len(LAYERS)) <= 1


def test_what_happens_every_tenth_time_is_no_longer_period() -> None:
    run = [code for number in range(60) for code in (*LAYERS, *([70] if number % 10 == 9 else []))]
    assert (period_of(run) or ((), 0))[1] == len(LAYERS)


def test_several_turns_of_layers_before_an_optimizer_are_one_iteration() -> None:
    accumulated = [*LAYERS * 4, *range(100, 140)]
    assert (period_of(accumulated * 5) or ((), 0))[1] == len(accumulated)


def test_a_run_that_is_longer_than_what_is_looked_at_is_followed_to_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAMPLE", 4 * len(LAYERS))
    run = [90, 91, *LAYERS * 9, 95]
    begins, kernels = period_of(run) or ([], 0)
    assert kernels == len(LAYERS)
    assert set(np.diff(begins)) == {kernels}
    # It may be told by a place inside the turn: less than one turn is before the first, and after the last.
    assert begins[0] < 2 + kernels
    assert begins[-1] + 2 * kernels > len(run)


@pytest.mark.parametrize(
    "codes",
    [
        [],
        [1],
        [1] * 100,  # one kernel, over and over
        list(range(100)),
        [1, 2, 3] * 2,  # too few
        [*[1, 2, 3] * 2, *range(50, 90), 1, 2, 3],
        [1, 2, 7, 1, 2, 8, 9, 1, 2, 3, 3, 3, 1, 2, 9, 9, 4, 5, 6],
    ],
)
def test_it_does_not_guess(codes: list[int]) -> None:
    assert period_of(codes) is None


@given(st.lists(st.integers(0, 3), max_size=60))
def test_what_is_found_keeps_the_rules(codes: list[int]) -> None:
    found = period_of(codes)
    if found is not None:
        twins.check_turns(codes, *found)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=20), st.integers(4, 8), st.lists(st.integers(6, 9), max_size=9))
def test_the_shortest_period_is_found(turn: list[int], times: int, before: list[int]) -> None:
    assume(len(set(turn)) > 1)
    codes = turn * times
    shortest = next(n for n in range(1, len(codes)) if codes[n:] == codes[:-n])
    assume(2 * len(before) <= len(codes) - shortest)  # else too much is of something else
    found = period_of(before + codes)
    assert found is not None
    assert found[1] == shortest
    assert len(found[0]) >= len(codes) // shortest - 1
    assert set(np.diff(found[0])) <= {shortest}


def work_of(codes: Sequence[int], lengths: int = 5, **more: object) -> pl.DataFrame:
    """A kernel every 10 ns; before each 0 the device pauses for 30."""
    now, rows = 0, []
    for code in codes:
        now += 40 if code == 0 else 10
        rows.append({"start_ns": now, "end_ns": now + lengths, "name": f"kernel {code}", **more})
    return table("work", rows, rank=0, pid=1, device_id=0, context_id=1, stream_id=7, kind="kernel")


def test_an_iteration_begins_after_the_pause_and_ends_where_the_next_one_begins() -> None:
    found = repeating(work_of([2, 3, *[0, 1, 2, 3] * 5, 0]))
    starts = [10 + 10 + 40 + 70 * number for number in range(5)]
    assert found["start_ns"].to_list() == starts
    assert found["end_ns"].to_list() == [*starts[1:], starts[-1] + 30 + 5]


def test_each_process_has_its_own_and_the_busiest_device_and_stream_say_them() -> None:
    regular = [0, 1, 2] * 5
    busy, idle = work_of(regular, 9), work_of(range(15), 1, device_id=1)
    other = work_of([5, 4, 6, *regular, 8], 9, pid=2, stream_id=8)
    found = repeating(pl.concat([idle, busy, other, work_of(range(40, 55), 1, stream_id=9)]))
    assert found.group_by("pid").len().sort("pid").rows() == [(1, 5), (2, 5)]
    assert not repeating(pl.concat([busy, work_of(range(150), 500, device_id=0, stream_id=2)])).height


def test_it_must_take_half_of_the_time() -> None:
    assert repeating(work_of([*[0, 1, 2] * 5, *range(20, 34)])).height == 5
    assert not repeating(work_of([*[0, 1, 2] * 5, *range(20, 36)])).height


def test_what_repeats_is_no_step_and_is_told_where_there_are_none() -> None:
    work = work_of([0, 1, 2] * 5)
    steps = [{"name": f"ProfilerStep#{number}", "start_ns": number, "end_ns": number + 1} for number in range(2)]
    ranges = table("ranges", steps, rank=0, pid=1, tid=1)
    assert not Analysis(Tables((Metadata("kineto"),), ranges=ranges, work=work)).patterns.height
    others = ranges.with_columns(pid=pl.lit(2, dtype=pl.Int64))
    found = Analysis(Tables((Metadata("kineto"),), ranges=others, work=work))
    assert found.patterns.rows() == [(0, 1, 5, 60)]
    assert found.iterations.select("pid", "how").unique().rows() == [(2, "step")]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"start_ns": None, "end_ns": 5, "name": "a"}] * 9,
        [{"start_ns": 5, "end_ns": 1, "name": "a"}, {"start_ns": 5, "end_ns": 5, "name": "b"}] * 9,
        [{"start_ns": -(2**63), "end_ns": 2**63 - 1, "name": name} for name in "ab" * 9],
        [{"start_ns": number, "end_ns": number + 1} for number in range(20)],
        [{"start_ns": number, "end_ns": number + 1, "name": "a", "stream_id": number} for number in range(10_000)],
        [{"start_ns": number, "end_ns": number + 1, "kind": "memcpy"} for number in range(20)],
    ],
)
def test_odd_work_has_none_or_some_but_is_no_error(rows: list[dict]) -> None:
    found = repeating(table("work", [{"kind": "kernel", **row} for row in rows]))
    assert (found["end_ns"] >= found["start_ns"]).all()


@pytest.mark.parametrize("name", ["ns_resolution.pt.trace", "mi300_ddp_resnet18"])
def test_where_ranges_say_the_steps_kernels_say_the_same(name: str, traces_dir: Path) -> None:
    trace = opspan.load(traces_dir / "kineto" / f"{name}.json.gz")
    said, found = trace.analysed.iterations, repeating(trace.work)
    # The order does not say with which kernel a step begins, so one may be cut at the ends of the trace.
    assert said.height - 1 <= found.height <= said.height
    lengths = [(rows["end_ns"] - rows["start_ns"]).median() for rows in (said, found)]
    assert lengths[1] == pytest.approx(lengths[0], rel=0.05)


def test_a_file_whose_ranges_have_other_names(traces_dir: Path) -> None:
    trace = opspan.load(traces_dir / "nvprof" / "ort_markers.nvvp")
    times = trace.ranges.filter(pl.col("name") == "Batch- Backward").height
    assert repeating(trace.work).height in (times - 1, times)


def test_a_file_without_ranges(traces_dir: Path) -> None:
    """An optimisation that draws a picture after every 16 steps: that is what repeats as a whole."""
    trace = opspan.load(traces_dir / "nsys" / "graph_nodes.sqlite")
    found = repeating(trace.work)
    kernels = trace.work.filter(pl.col("kind") == "kernel", pl.col("stream_id") == 14).select("full_name", "start_ns")
    begins = found["start_ns"].to_list()
    inside = kernels.filter(pl.col("start_ns").is_between(begins[0], found["end_ns"][-1], closed="left"))
    often = inside.group_by("full_name").len()["len"]
    assert {found.height, 16 * found.height} <= set(often)
    turns = [
        inside.filter(pl.col("start_ns").is_between(begin, end, closed="left"))["full_name"].sort().to_list()
        for begin, end in found.select("start_ns", "end_ns").rows()
    ]
    # Now and then an environment map is sampled as well: two kernels more.
    odd = [turn for turn in turns if turn != turns[0]]
    assert [len(turn) - len(turns[0]) for turn in odd] == [2, 2]
    assert not trace.analysed.iterations.height
    assert trace.analysed.patterns["turns"].to_list() == [found.height]


def test_one_pass_through_a_model_repeats_its_layers(traces_dir: Path) -> None:
    found = repeating(opspan.load(traces_dir / "nsys" / "infer_2gpu.sqlite").work)
    assert found.group_by("pid").len()["len"].to_list() == [
        23,
        23,
    ]  # there are 28, but the first five come in another order


def test_where_no_order_fills_half_of_the_time_there_is_none(traces_dir: Path) -> None:
    """Five steps of training and ten of inference."""
    assert not repeating(opspan.load(traces_dir / "nsys" / "torch_lm_2025.sqlite").work).height
