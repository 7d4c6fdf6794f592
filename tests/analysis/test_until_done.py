"""How long steps took until what they launched was done: by example, and against nested loops in plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st

from analysis.frames import maybe_times, places, table, times
from builders.training_files import load
from builders.training_plan import Plan
from opspan.analysis import launches, nest
from opspan.analysis.compare import step_change
from opspan.analysis.figures import figures
from opspan.analysis.until_done import until_done
from opspan.views.diff import answer, figures_of
from properties import property_of

LAST = 2**63 - 1
KEY = {"rank": pl.Int32, "pid": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64, "how": pl.String}
WHERE = {"rank": 0, "pid": 1}


def frame(steps: list[Any]) -> pl.DataFrame:
    rows = [dict(zip(("start_ns", "end_ns"), row, strict=True)) if isinstance(row, tuple) else row for row in steps]
    return pl.DataFrame([WHERE | {"how": "step"} | row for row in rows], schema=KEY)


def took(steps: list[Any], launched: list[tuple[int | None, int, int]] = (), **more: Any) -> list[int]:
    """`launched`: when the call began (None: there is none), and the begin and end of its work."""
    calls = [
        {"start_ns": at, "end_ns": at + 1, "correlation_id": number}
        for number, (at, *_) in enumerate(launched)
        if at is not None
    ]
    work = [
        {"start_ns": begin, "end_ns": end, "kind": "kernel", "correlation_id": number}
        for number, (_, begin, end) in enumerate(launched)
    ]
    of_calls, of_work = table("calls", calls, **WHERE, tid=1), table("work", work, **(WHERE | {"device_id": 0} | more))
    found = launches(nest(table("ranges", [])), of_calls, of_work)
    return until_done(frame(steps), found.calls, found.work)["took_ns"].to_list()


THREE = [(0, 100), (100, 200), (200, 300)]


def test_on_the_host_alone_it_is_the_length() -> None:
    assert took(THREE) == [100, 100, 100]
    assert took([(0, 100), (150, 220), (220, 220)]) == [100, 70, 0]
    assert took([]) == []


def test_of_a_host_that_runs_ahead_it_is_from_done_to_done() -> None:
    late = [(10, 20, 250), (110, 250, 500), (210, 500, 750)]
    assert took(THREE, late) == [250, 250, 250]
    assert sum(took(THREE, late)) == 750


def test_where_the_device_is_done_first_it_is_the_length() -> None:
    assert took(THREE, [(10, 20, 100), (110, 120, 190), (210, 220, 300)]) == [100, 100, 100]
    assert took([(0, 100), (400, 500)], [(90, 100, 300), (490, 500, 700)]) == [300, 300]


def test_what_one_step_has_running_for_long_is_that_step_alone() -> None:
    assert took([*THREE, (300, 400)], [(10, 20, 5000), (110, 120, 200)]) == [5000, 0, 100, 100]


def test_work_without_a_call_was_launched_when_it_began() -> None:
    assert took(THREE, [(None, 150, 260), (None, 300, 900)]) == [100, 160, 40]


def test_steps_that_overlap_have_their_own_time_each() -> None:
    assert took([(0, 100), (0, 100), (100, 200), (100, 200)]) == [100, 100, 100, 100]
    assert took([(0, 100), (50, 150), (100, 200)], [(60, 70, 180)]) == [180, 130, 20]


def test_of_two_devices_the_later_one_counts() -> None:
    work = [(10, 20, 150), (20, 30, 190), (110, 200, 400), (120, 190, 260)]
    assert took(THREE[:2], work) == [190, 210]


@pytest.mark.parametrize("more", [{"kind": "sync"}, {"is_overhead": True}, {"end_ns": None}, {"pid": 2}])
def test_what_a_device_does_not_do_for_the_step_does_not_count(more: dict[str, Any]) -> None:
    work = table("work", [{"start_ns": 20, "end_ns": 500, "kind": "kernel", **WHERE} | more])
    found = launches(nest(table("ranges", [])), table("calls", []), work)
    assert until_done(frame(THREE), found.calls, found.work)["took_ns"].to_list() == [100, 100, 100]


def twin(steps: list[dict], calls: list[dict], work: list[dict]) -> list[int]:
    def done(step: dict) -> int:
        ends = [step["end_ns"]]
        for row in work:
            start = row["start_ns"] if row["call"] is None else calls[row["call"]]["start_ns"]
            start = row["start_ns"] if start is None else start
            same = all(row[name] == step[name] for name in ("rank", "pid"))
            is_known = None not in (start, row["start_ns"], row["end_ns"]) and row["end_ns"] >= row["start_ns"]
            if same and is_known and step["start_ns"] <= start < step["end_ns"]:
                ends.append(row["end_ns"])
        return max(ends)

    found = []
    for step in steps:
        before = [
            other
            for other in steps
            if (other["rank"], other["pid"]) == (step["rank"], step["pid"])
            and other["start_ns"] < other["end_ns"] <= step["start_ns"]
        ]
        latest = max((other["end_ns"] for other in before), default=None)
        begins = [step["start_ns"], *(done(other) for other in before if other["end_ns"] == latest)]
        found.append(min(max(done(step) - max(begins), 0), LAST))
    return found


PLACE = {name: places[name] for name in ("rank", "pid")}
spans = st.tuples(times, times).map(sorted).map(lambda pair: dict(zip(("start_ns", "end_ns"), pair, strict=True)))
some_steps = st.lists(st.builds(dict.__or__, st.fixed_dictionaries(PLACE), spans), max_size=6)
number = st.sampled_from([None, 1, 2, 3])
some_calls = st.lists(st.fixed_dictionaries({**PLACE, "start_ns": maybe_times, "correlation_id": number}), max_size=5)
some_work = st.lists(
    st.fixed_dictionaries({**PLACE, "start_ns": maybe_times, "end_ns": maybe_times, "correlation_id": number}),
    max_size=6,
)


@property_of(some_steps, some_calls, some_work, few=100, many=2000)
def test_it_is_what_nested_loops_find(steps: list[dict], calls: list[dict], work: list[dict]) -> None:
    found = launches(nest(table("ranges", [])), table("calls", calls, tid=1), table("work", work, kind="kernel"))
    made = frame(steps)
    expected = twin(made.to_dicts(), found.calls.to_dicts(), found.work.to_dicts())
    assert until_done(made, found.calls, found.work)["took_ns"].to_list() == expected


SLOWER = {"aten::mm": 2.0}


@pytest.mark.parametrize("source", ["kineto", "nsys"])
@pytest.mark.parametrize("item", [True, False])
def test_the_gate_sees_a_device_that_is_slower_and_no_noise(item: bool, source: str, tmp_path: Path) -> None:
    def made(seed: int, slower: dict[str, float]) -> Any:
        plan = Plan(steps=5, seed=seed, slower=slower, item_per_step=item)
        return load(tmp_path / f"{seed} {len(slower)}", plan, source).analysed

    good, slow = made(0, {}), made(4, SLOWER)
    for seed in (1, 2, 3):
        assert answer(figures_of(good), figures_of(made(seed, {})), 0.01).exit_code == 0
    for by in ("op", "kernel"):
        assert answer(figures_of(good, by), figures_of(slow, by), 0.05).exit_code == 1
    assert answer(figures_of(slow), figures_of(good), 0.0).exit_code == 0
    # The device is busy nearly all the time: what mm takes longer, each step takes longer.
    mm = [figures_of(run).rows.filter(name="aten::mm")["step"][0] for run in (good, slow)]
    change = step_change(figures_of(good).steps, figures_of(slow).steps)
    assert change is not None
    assert change.is_real
    assert change.after_ns - change.before_ns == pytest.approx(mm[1] - mm[0], rel=0.05)


def test_what_steps_that_are_chosen_took_goes_by_those_before_them(tmp_path: Path) -> None:
    found = load(tmp_path / "run", Plan(steps=5)).analysed
    each = [figures_of(found, step=(number, number)).steps.median for number in range(5)]
    work, steps = found.complete.work, found.iterations
    ends = work.filter(pl.col("kind") != "sync")["end_ns"]
    until = max(steps["end_ns"][-1], ends.max())
    assert sum(each) == until - steps["start_ns"][0]
    assert max(each[1:]) < 1.1 * min(each[1:])  # and not longer and longer, as the host gets ahead
    assert figures(found.complete, steps=found.iterations).steps.median == sorted(each)[2]
