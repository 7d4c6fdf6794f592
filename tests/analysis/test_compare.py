"""Two runs compared: by hand, and what must hold whatever they are."""

from __future__ import annotations

from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st

from analysis.frames import nested_rows, ranges, table
from opspan.analysis import Analysis, averages, parts
from opspan.analysis.compare import BY, compare, step_change
from opspan.analysis.figures import KEYS, StepFigures, figures, parts_of, several, step_figures, together
from opspan.analysis.iterations import iterations
from opspan.analysis.until_done import until_done
from opspan.errors import UsageError
from opspan.tables import Metadata, Tables
from properties import property_of

WHERE = {"rank": 0, "pid": 1}
STEP = 10_000


def run(marked: list[Any], launched: list[tuple[int, int, str]] = ()) -> Tables:
    """`launched`: how long the kernel is, when it was launched, what it is called; it begins as the call ends."""
    calls = [
        {"start_ns": at, "end_ns": at + 1, "tid": 1, "correlation_id": number}
        for number, (_, at, _) in enumerate(launched)
    ]
    work = [
        {"start_ns": at + 1, "end_ns": at + 1 + ns, "kind": "kernel", "name": name, "correlation_id": number}
        for number, (ns, at, name) in enumerate(launched)
    ]
    frames = {"calls": table("calls", calls, **WHERE), "work": table("work", work, device_id=0, stream_id=7, **WHERE)}
    tables = Tables((Metadata(source="test", paths=()),), ranges=ranges(*marked), **frames)
    return Analysis(tables).complete


def training(*ops: tuple[int, int], first: int = 0) -> Tables:
    """A step for each: how long aten::mm and aten::add take in it."""
    rows: list[Any] = []
    for number, (mm, add) in enumerate(ops):
        begin = STEP * number
        rows += [
            {"name": f"ProfilerStep#{first + number}", "start_ns": begin, "end_ns": begin + STEP, "kind": "user"},
            ("aten::mm", begin + 10, begin + 10 + mm),
            ("aten::add", begin + 5000, begin + 5000 + add),
        ]
    return run(rows)


def by_name(rows: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows.to_dicts()}


def test_what_is_slower_in_every_step_is_real_and_first() -> None:
    before = training((1000, 300), (1010, 310), (990, 305), (1005, 295), (1000, 300))
    after = training((1200, 308), (1212, 300), (1188, 295), (1206, 305), (1200, 300), first=40)
    rows = by_name(compare(before, after))
    mm, add = rows["aten::mm"], rows["aten::add"]
    assert next(iter(rows)) == "aten::mm"
    assert (mm["before_ns"], mm["after_ns"], mm["step_before_ns"], mm["step_after_ns"]) == (5005, 6006, 1001, 1201)
    assert (mm["change_ns"], mm["change"], mm["is_real"]) == (200, pytest.approx(200 / 1001), True)
    assert (mm["state"], mm["time_of"], mm["count_before"], mm["count_after"]) == ("same", "cpu", 5, 5)
    assert not add["is_real"]
    assert rows["ProfilerStep*"]["state"] == "same"


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_in_no_step_has_no_usual_time_whatever_ranks_come_together(ranks: int) -> None:
    """One of two ranks, as of many files, has no time of devices."""
    steps = [
        {"name": f"ProfilerStep#{number}", "start_ns": STEP * number, "end_ns": STEP * number + 900, "kind": "user"}
        for number in range(4)
    ]
    marked = [*steps, ("aten::mm", 10, 100), ("setup", 5 * STEP, 5 * STEP + 50)]
    each = [parts_of(run(marked, [(30, 20, "gemm")] if rank == 0 else []), "op") for rank in range(ranks)]
    found = together({name: parts.together([one[name] for one in each]) for name in each[0]}, "op")
    (setup,) = found.rows.filter(pl.col("name") == "setup").to_dicts()
    assert (setup["count"], setup["usual"], setup["error"]) == (ranks, None, None)


def test_one_slow_step_is_noise() -> None:
    before = training(*[(1000, 300)] * 5)
    after = training((1000, 300), (1000, 300), (4000, 300), (1000, 300), (1000, 300))
    mm = by_name(compare(before, after))["aten::mm"]
    assert (mm["change_ns"], mm["is_real"]) == (600, False)


@pytest.mark.parametrize(("after", "is_real"), [(1009, False), (1011, True), (989, True), (1000, False)])
def test_where_all_steps_are_alike_a_hundredth_is_real(after: int, is_real: bool) -> None:
    rows = compare(training(*[(1000, 300)] * 3), training(*[(after, 300)] * 3))
    assert by_name(rows)["aten::mm"]["is_real"] is is_real


def test_the_noise_is_that_of_the_run_that_has_more() -> None:
    calm, loud = [(1000, 300)] * 5, [(800, 300), (1300, 300), (1100, 300), (900, 300), (1200, 300)]
    for pair in ((calm, loud), (loud, calm)):
        assert by_name(compare(training(*pair[0]), training(*pair[1])))["aten::mm"]["is_real"] is False


def test_two_steps_do_not_tell_the_noise() -> None:
    rows = compare(training((1000, 300), (1000, 300)), training(*[(2000, 300)] * 5))
    mm = by_name(rows)["aten::mm"]
    assert (mm["change_ns"], mm["is_real"]) == (1000, None)


def test_without_steps_it_is_the_whole_run() -> None:
    rows = by_name(compare(run([("a", 0, 10), ("b", 20, 25)]), run([("a", 0, 7), ("c", 20, 26)])))
    assert {
        name: (row["state"], row["before_ns"], row["after_ns"], row["change_ns"]) for name, row in rows.items()
    } == {
        "c": ("new", 0, 6, 6),
        "b": ("gone", 5, 0, -5),
        "a": ("same", 10, 7, -3),
    }
    assert rows["c"]["change"] is None
    assert all(row["step_before_ns"] is None and row["is_real"] is None for row in rows.values())


def test_a_run_of_more_steps_is_no_slower() -> None:
    rows = compare(training(*[(1000, 300)] * 3), training(*[(1000, 300)] * 9))
    assert rows["change_ns"].to_list() == [0, 0, 0]
    assert not rows["is_real"].any()


def test_ranks_differ_from_each_other_and_that_is_no_noise() -> None:
    def of_ranks(slower: int) -> Tables:
        rows: list[Any] = []
        for rank, usual in ((0, 1000), (1, 3000)):
            for number in range(3):
                begin = STEP * number
                step = {"name": f"ProfilerStep#{number}", "start_ns": begin, "end_ns": begin + STEP, "kind": "user"}
                op = {"name": "aten::mm", "start_ns": begin + 10, "end_ns": begin + 10 + usual + slower}
                rows += [step | {"rank": rank}, op | {"rank": rank}]
        return run(rows)

    mm = by_name(compare(of_ranks(0), of_ranks(300)))["aten::mm"]
    assert (mm["step_before_ns"], mm["step_after_ns"], mm["is_real"]) == (2000, 2300, True)


def test_time_is_of_devices_where_either_run_has_any() -> None:
    with_device = run([("aten::mm", 0, 10)], [(50, 1, "gemm")])
    without = run([("aten::mm", 0, 10)])
    (row,) = compare(without, with_device).to_dicts()
    assert (row["time_of"], row["before_ns"], row["after_ns"]) == ("device", 0, 50)


def test_a_kernel_is_of_the_step_that_launched_it() -> None:
    def late(length: int) -> Tables:
        steps = [(f"ProfilerStep#{number}", 100 * number, 100 * number + 100) for number in range(3)]
        return run(steps, [(length, 100 * number + 99, "gemm") for number in range(3)])

    (row,) = compare(late(60), late(90), "kernel").to_dicts()
    assert (row["kind"], row["name"], row["count_before"]) == ("kernel", "gemm", 3)
    assert (row["step_before_ns"], row["step_after_ns"], row["is_real"]) == (60, 90, True)


def test_how_long_a_step_took_is_the_median_of_its_run() -> None:
    def steps(*lengths: int) -> StepFigures:
        rows = [(f"ProfilerStep#{n}", 1000 * n, 1000 * n + ns) for n, ns in enumerate(lengths)]
        made = run(rows)
        return step_figures(until_done(iterations(made.ranges), made.calls, made.work))

    assert step_change(steps(100, 101, 102), steps(120, 121, 122)) == (101, 121, True)
    assert step_change(steps(100, 101, 500), steps(120, 121, 122)) == (101, 121, False)  # one of three says little
    assert step_change(steps(100, 101, 99), steps(102, 90, 103)) == (100, 102, False)
    assert step_change(steps(100), steps(200)) == (100, 200, None)
    assert step_change(steps(), steps(200)) is None


def test_a_small_change_is_real_if_there_are_many_steps() -> None:
    """Times change by 7 %, and steps differ by 2.5 %: that is fifteen times the error of sixty steps."""
    random = Random(0)
    before, after, again = (
        training(*((round(4000 * slower * random.gauss(1, 0.025)), 300) for _ in range(60))) for slower in (1, 1.07, 1)
    )
    assert by_name(compare(before, after))["aten::mm"]["is_real"] is True
    assert by_name(compare(before, again))["aten::mm"]["is_real"] is False


def test_what_cannot_be_compared_by() -> None:
    with pytest.raises(UsageError, match="cannot compare by 'stream'"):
        compare(run([]), run([]), "stream")


names = st.sampled_from(["aten::mm", "aten::add", "train", "ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3", None])


@st.composite
def runs(draw: st.DrawFn) -> Tables:
    rows = [row | {"name": draw(names)} for row in draw(nested_rows())]
    kernel = st.tuples(st.integers(0, 5), st.integers(0, 12), st.sampled_from(["gemm", "add"]))
    return run(rows, draw(st.lists(kernel, max_size=4)))


@property_of(runs(), st.sampled_from(list(BY)), few=30, many=300)
def test_a_run_has_not_changed_from_itself(one: Tables, by: str) -> None:
    rows = compare(one, one, by)
    assert not any(rows["change_ns"])
    assert not any(rows["is_real"])
    assert set(rows["state"]) <= {"same"}


# By place: of several longest sequences in common it may find another one the other way round.
@property_of(runs(), runs(), st.sampled_from([by for by in BY if by != "place"]), few=30, many=300)
def test_the_other_way_round_every_change_is_the_opposite(one: Tables, other: Tables, by: str) -> None:
    there, back = (
        {tuple(row[key] for key in BY[by]): row for row in compare(*pair, by).to_dicts()}
        for pair in ((one, other), (other, one))
    )
    assert there.keys() == back.keys()
    opposite = {"new": "gone", "gone": "new", "same": "same"}
    for key, row in there.items():
        assert row["change_ns"] == -back[key]["change_ns"]
        assert (row["is_real"], row["state"]) == (back[key]["is_real"], opposite[back[key]["state"]])


@property_of(runs(), runs(), st.sampled_from(list(BY)), few=30, many=300)
def test_no_time_is_lost(one: Tables, other: Tables, by: str) -> None:
    rows = compare(one, other, by)
    for trace, side in ((one, "before"), (other, "after")):
        sums = averages(trace.ranges, trace.work, "name" if by in ("op", "place") else by)
        time = "self_cpu_ns" if rows["time_of"].to_list()[:1] == ["cpu"] else "self_device_ns"
        time = "device_ns" if by == "kernel" else time
        assert rows[f"{side}_ns"].sum() == sums[time].sum()
        assert rows[f"count_{side}"].sum() == sums["count"].sum()
        time = rows[f"step_{side}_ns" if rows[f"step_{side}_ns"].count() else f"{side}_ns"]
        shares = [ns / time.sum() for ns in time] if time.sum() else []
        assert rows[f"share_{side}"].drop_nulls().to_list() == pytest.approx(shares)


def test_several_ways_at_once_say_what_each_says_alone() -> None:
    one = training((1000, 300), (1010, 310), (990, 305))
    together = several(one, list(KEYS))
    assert list(KEYS) == [by for by in KEYS if together[by].rows.height or by == "kernel"]
    for by, keys in KEYS.items():
        alone = figures(one, by)
        assert together[by].rows.sort(keys).equals(alone.rows.sort(keys))
        assert (together[by].time, together[by].steps) == (alone.time, alone.steps)
