"""--step, --steps and --between: the same part of a trace, whatever it is said by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st

import opspan as package
import twins
from analysis.frames import maybe_times, places, ranges, table
from builders import kineto, training
from builders.training_files import kineto_files, nsys_files
from builders.training_plan import Plan
from cli.answers import rows
from emit.running import opspan
from opspan.tables import Metadata, Tables
from opspan.tables.window import Window, cut
from properties import property_of

US = 1000
VERBS = ["table", "summary", "steps", "idle", "waits", "memory"]


def run(path: Path, names: list[str | None]) -> Path:
    """A turn of 100 us for each name, with an op and a kernel; None: no range says that it is one."""
    events = []
    for number, name in enumerate(names):
        begin = 100 * number
        if name is not None:
            events.append(kineto.span("user_annotation", name, kineto.MAIN, begin, 95))
        events += [
            kineto.op("aten::mm", kineto.MAIN, begin + 5, 10),
            kineto.call("cudaLaunchKernel", kineto.MAIN, begin + 7, 4, 2 * number + 1),
            kineto.kernel("gemm", begin + 20, 40, 2 * number + 1),
            kineto.kernel("relu", begin + 62, 9 + number, 2 * number + 2),
        ]
    return kineto.write(path, kineto.document(events))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("parts")
    return {
        "torch's": run(folder / "torch.json", [f"ProfilerStep#{number + 2}" for number in range(6)]),
        "ranges": run(folder / "ranges.json", ["turn"] * 6),
        "others": run(folder / "others.json", ["round"] * 6),
    }


def alike(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    """The same rows, but for the last digits of shares."""
    return len(some) == len(others) and all(
        one == pytest.approx(other) for one, other in zip(some, others, strict=True)
    )


@pytest.mark.parametrize("said", [["--step", "4-6"], ["--steps", "4:6"], ["--steps", "4-6"]])
def test_both_ends_are_in_it(files: dict[str, Path], said: list[str]) -> None:
    assert [row["step"] for row in rows("steps", files["torch's"], *said)] == [
        f"ProfilerStep#{number}" for number in (4, 5, 6)
    ]


def test_without_numbers_the_steps_that_are_found_are_counted(files: dict[str, Path]) -> None:
    every = rows("steps", files["ranges"])
    assert [row["step"] for row in every] == [f"turn #{number}" for number in range(6)]
    assert alike(rows("steps", files["ranges"], "--steps", "2:4"), every[2:5])
    assert alike(rows("steps", files["ranges"], "--step", "3"), every[3:4])
    assert alike(package.load(files["ranges"], step=(2, 4)).steps().to_dicts(), every[2:5])


def test_it_is_what_lies_in_the_time_of_these_steps(files: dict[str, Path]) -> None:
    whole = package.load(files["ranges"])
    steps = whole.steps()
    begin = min(whole.ranges["start_ns"].min(), whole.work["start_ns"].min())
    between = (steps["start_ns"][2] - begin, steps["end_ns"][3] - begin)
    one, other = package.load(files["ranges"], step=(2, 3)), package.load(files["ranges"], between=between)
    assert one.work.height == 4
    for name_of, frame in one.frames.items():
        if name_of != "issues":
            assert frame.equals(other.frames[name_of]), name_of
    assert one.metadata.options["window"] == "steps 2 to 3"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_them(files: dict[str, Path], verb: str) -> None:
    said = [
        opspan(verb, files["ranges"], "--format", "json", *part) for part in (["--steps", "1:2"], ["--step", "1-2"])
    ]
    assert [done.returncode for done in said] == [0, 0], said[0].stderr
    assert said[0].stdout == said[1].stdout
    assert said[0].stdout != opspan(verb, files["ranges"], "--format", "json").stdout


def test_of_several_files_each_has_its_own(files: dict[str, Path]) -> None:
    found = rows("steps", files["ranges"], files["others"], "--step", "5")
    assert [(row["rank"], row["step"]) for row in found] == [(3, "turn #5"), (8, "round #5")]  # both say: 3 of 8


@pytest.mark.parametrize(
    ("names", "said", "message"),
    [
        (["turn"] * 6, "6", "there is no step 6: the trace has steps 0 to 5"),
        (
            [None] * 2,
            "0:3",
            "the trace has no ranges ProfilerStep#N, and neither its ranges nor an optimizer tell what its steps are",
        ),
        (["turn"] * 6, "5:2", "in the wrong order"),
    ],
)
def test_steps_that_are_not_there_are_one_line(tmp_path: Path, names: list[str], said: str, message: str) -> None:
    done = opspan("idle", run(tmp_path / "run.json", names), "--steps", said)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr


# --- what steps launched


@pytest.mark.parametrize("write", [kineto_files, nsys_files])
def test_an_op_has_the_device_time_that_it_launched_in_the_step(
    write: Callable[..., list[Path]], tmp_path: Path
) -> None:
    """The host of this run is steps ahead of its device."""
    made = training.run(Plan(steps=5))
    (path,) = write(tmp_path, made)
    by_step = {row["step"]: row["self_device_ns"] for row in rows("table", path, "--by", "step", "--limit", "-1")}
    whole = package.load(path).analysed.complete.ranges
    launched = {call.correlation: call.start for call in made.calls}
    for number in range(5):
        step = f"ProfilerStep#{number}"
        found = rows("table", path, "--step", str(number), "--limit", "-1")
        ops = {row["name"]: row["self_device_ns"] for row in found if row["self_device_ns"]}
        of_step = whole.filter(pl.col("step").cast(pl.String) == step).select(
            pl.col("name").cast(pl.String), "self_device_ns"
        )
        expected = dict(of_step.group_by("name").sum().filter(pl.col("self_device_ns") > 0).iter_rows())
        assert ops == expected
        (one,) = (row for row in made.ranges if row.name == step)
        in_step = [row for row in made.work if one.start <= launched[row.correlation] < one.end]
        assert sum(ops.values()) == by_step[step] == sum(row.end - row.start for row in in_step)
        assert number == 0 or max(row.end for row in in_step) > one.end


def test_a_time_has_what_ran_in_it(tmp_path: Path) -> None:
    (path,) = kineto_files(tmp_path, training.run(Plan(steps=5)))
    whole = package.load(path)
    step = whole.ranges.filter(pl.col("name").cast(pl.String) == "ProfilerStep#3")
    begin, end = step["start_ns"][0], step["end_ns"][0]
    first = min(frame["start_ns"].min() for frame in (whole.ranges, whole.calls, whole.work))
    part = package.load(path, between=(begin - first, end - first))
    ran = whole.work.filter(pl.col("start_ns") < end, pl.col("end_ns") > begin)
    assert part.work.equals(ran)
    steps = package.load(path, step=3)
    assert set(ran["id"]) < set(steps.work["id"])
    assert steps.ranges.equals(part.ranges)


def of(work: list[dict], calls: list[dict]) -> list[str]:
    """The names of the work that the step from 100 to 200 has."""
    frames = {
        "ranges": ranges(("ProfilerStep#1", 100, 200), ("named", 110, 120), ("long", 0, 5000)),
        "calls": table("calls", [{"end_ns": row["start_ns"] + 5} | row for row in calls], rank=0, pid=1, tid=1),
        "work": table("work", work, rank=0, pid=1, kind="kernel"),
    }
    part = cut(Tables((Metadata("test", ()),), **frames), Window(steps=(1, 1)))
    assert part.issues["count"].sum() == sum(frame.height - part.frames[name].height for name, frame in frames.items())
    return part.work["name"].cast(pl.String).to_list()


def late(name: str, correlation: int | None, begin: int = 900, **more: int) -> dict:
    return {"name": name, "correlation_id": correlation, "start_ns": begin, "end_ns": begin + 50} | more


def test_what_is_launched_in_a_step_is_of_it_and_nothing_else() -> None:
    calls = [
        {"start_ns": 90, "correlation_id": 1},
        {"start_ns": 98, "correlation_id": 2},
        {"start_ns": 150, "correlation_id": 3},
        {"start_ns": 200, "correlation_id": 4},
    ]
    each = [late(f"of {number}", number) for number in (1, 2, 3, 4, 5)]
    assert of(each, calls) == ["of 2", "of 3"]  # a call that lasts into the step is kept, and so is its work
    ran = [late("before", 1, 120), late("on its own", None, 199), late("after", 4, 200), late("done", 1, 50)]
    assert of(ran, calls) == ["before", "on its own"]
    assert of(each, []) == []
    assert of([], calls) == []


def test_a_number_that_was_used_again_is_of_the_call_before_the_work() -> None:
    calls = [{"start_ns": start, "correlation_id": 7} for start in (20, 150, 600)]
    assert of([late("first", 7, 30), late("second", 7, 300), late("third", 7, 900)], calls) == ["second"]
    assert of([late("another process'", 7, 300, pid=2)], calls) == []


PLACE = {name: places[name] for name in ("rank", "pid")} | {"correlation_id": st.sampled_from([None, 1, 1, 2])}
calls_made = st.lists(st.fixed_dictionaries({**PLACE, "start_ns": maybe_times, "end_ns": maybe_times}), max_size=6)


@property_of(calls_made, calls_made, few=100, many=2000)
def test_a_call_that_is_kept_keeps_all_of_its_work(calls: list[dict], work: list[dict]) -> None:
    frames = {
        "ranges": ranges(("ProfilerStep#1", 4, 8)),
        "calls": table("calls", calls, tid=1),
        "work": table("work", work, kind="kernel"),
    }
    part = cut(Tables((Metadata("test", ()),), **frames), Window(steps=(1, 1)))
    ran = {
        number
        for number, row in enumerate(work)
        if row["start_ns"] is not None
        and row["start_ns"] < 8
        and (row["start_ns"] >= 4 or row["end_ns"] is None or row["end_ns"] > 4)
    }
    kept = set(part.calls["id"])
    matched = twins.match(frames["calls"].to_dicts(), frames["work"].to_dicts())
    assert set(part.work["id"]) == ran | {number for number, (call, _) in enumerate(matched) if call in kept}


def test_work_of_a_range_that_the_tool_names_is_of_its_step() -> None:
    named = [late(f"of {row}", None, named_range_id=row) for row in (0, 1, 2)]
    assert of(named, []) == ["of 0", "of 1"]


def test_idle_and_steps_are_of_the_part_that_was_read(tmp_path: Path) -> None:
    """A range around all of the run is kept whole; what the devices did outside of the part is not there."""
    events = [kineto.op("main", kineto.MAIN, 0, 1000)]
    for number in range(10):
        events += [
            kineto.call("cudaLaunchKernel", kineto.MAIN, 100 * number + 5, 5, number + 1),
            kineto.kernel("k", 100 * number + 20, 60, number + 1),
        ]
    path = kineto.write(tmp_path / "run.json", kineto.document(events))
    part = package.load(path, between=(300_000, 500_000))
    whole = package.load(path)
    assert part.ranges["end_ns"].max() == whole.ranges["end_ns"].max()
    (row,) = part.steps().to_dicts()
    assert (row["time_ns"], row["computing_ns"]) == (200_000, 120_000)
    assert part.idle()["time_ns"].sum() == 80_000
    begin = whole.ranges["start_ns"].min() + 300_000
    gaps = whole.idle(by="gap").filter(pl.col("start_ns").is_between(begin, begin + 200_000))
    assert part.idle()["time_ns"].sum() == pytest.approx(gaps["time_ns"].sum(), abs=20_000)
    (row,) = rows("summary", path, "--between", "300us", "500us")
    assert (row["time_ns"], row["busy_ns"], row["idle_ns"]) == (200_000, 120_000, 80_000)
