"""Files that one process wrote one after the other are cycles of one rank: an answer is the sum of what each file says
by itself, nothing is looked up across files, and the time between two is nobody's."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import opspan
from builders import cycles
from builders.cycles import two_cycles, two_ranks
from builders.training import run
from builders.training_files import kineto_files
from builders.training_plan import Plan
from emit.running import forked, python
from opspan.errors import UsageError
from opspan.tables.schema import ADDED, IN_CYCLES
from read_once import ReadOnce

# Answers that are sums: by what their rows are, and figures that add up.
SUMS = {
    ("idle", "op"): ("time_ns", "gaps", "host_ns", "launch_ns", "queued_ns", "unknown_ns"),
    ("idle", "device"): ("time_ns", "gaps"),
    ("idle", "stream"): ("time_ns", "gaps", "elsewhere_ns"),
    ("launches", "op"): ("launches", "short_launches", "call_ns", "work_ns"),
    ("launches", "stream"): ("launches", "work_ns"),
    ("launches", "copy"): ("count", "bytes", "ns"),
    ("waits", "op"): ("count", "wait_ns", "busy_ns"),
    ("path", "op"): ("time_ns", "pieces", "launch_ns", "queued_ns"),
    ("path", "kind"): ("time_ns",),
    ("memory_use", "op"): ("calls", "allocation_bytes", "size_increase_bytes"),
    ("flops", "op"): ("count", "time_ns"),
    ("flops", "run"): ("count", "time_ns"),
    ("table", "name"): ("count", "cpu_ns", "self_cpu_ns", "device_ns", "self_device_ns"),
    ("table", "shape"): ("count", "cpu_ns", "self_device_ns"),
    ("table", "module"): ("count", "self_cpu_ns", "self_device_ns"),
    ("table", "phase"): ("self_cpu_ns", "self_device_ns"),
    ("table", "kernel"): ("count", "device_ns"),
    ("table", "stream"): ("count", "device_ns"),
}
KEYS = (
    "rank",
    "pid",
    "device_id",
    "stream_id",
    "op",
    "name",
    "sizes",
    "kind",
    "module",
    "phase",
    "copy_from",
    "copy_to",
)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two cycles of one process."""
    return two_cycles(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two ranks of two cycles: rank 0 and its cycles, then rank 1."""
    return two_ranks(tmp_path_factory.mktemp("several"))


class Answering(NamedTuple):
    """Read once for all that is asked of them."""

    alone: list[opspan.Trace]
    together: opspan.Trace
    of_many: opspan.Ranks


def answering(alone: list[opspan.Trace], files: list[Path]) -> Answering:
    return Answering(alone, opspan.load(*files), opspan.load_many(*files, executor=ReadOnce()))


@pytest.fixture(scope="module")
def of_one(one: list[Path]) -> Answering:
    """Alone: each file."""
    return answering([opspan.load(file) for file in one], one)


@pytest.fixture(scope="module")
def of_several(several: list[Path]) -> Answering:
    """Alone: the first cycles of both ranks, then the second ones."""
    return answering([opspan.load(*several[at::2]) for at in (0, 1)], several)


def rows_of(trace: Any, verb: str, by: str) -> pl.DataFrame:
    found = getattr(trace, verb)(by)
    return found.rows if verb == "table" else found


def summed(frames: list[pl.DataFrame], figures: tuple[str, ...]) -> dict[tuple[object, ...], dict[str, float]]:
    """By plain addition, in Python: by what a row is called, its figures."""
    found: dict[tuple[object, ...], dict[str, float]] = {}
    for frame in frames:
        keys = [name for name in KEYS if name in frame.columns]
        for row in frame.iter_rows(named=True):
            own = found.setdefault(tuple(str(row[name]) for name in keys), dict.fromkeys(figures, 0))
            for name in figures:
                own[name] += row[name] or 0
    return found


@pytest.mark.parametrize(("verb", "by"), SUMS)
def test_an_answer_is_the_sum_of_what_each_file_says(of_one: Answering, verb: str, by: str) -> None:
    figures = SUMS[verb, by]
    expected = summed([rows_of(each, verb, by) for each in of_one.alone], figures)

    assert expected
    for found in (rows_of(each, verb, by) for each in (of_one.together, of_one.of_many)):
        assert summed([found], figures) == expected
        assert found.height == len(expected)  # one row each


@pytest.mark.parametrize(("verb", "by"), SUMS)
def test_of_several_ranks_too(of_several: Answering, verb: str, by: str) -> None:
    figures = SUMS[verb, by]
    expected = summed([rows_of(each, verb, by) for each in of_several.alone], figures)

    for found in (of_several.together, of_several.of_many):
        assert summed([rows_of(found, verb, by)], figures) == expected


def test_averages_are_of_the_calls_of_all_cycles(one: list[Path]) -> None:
    counts = {"aten::mm": (2, 75_000.0)}  # the mean of 60 and 90 us

    for table in (opspan.load(*one).table(), opspan.load_many(*one, processes=1).table()):
        rows = {row["name"]: row for row in table.rows.iter_rows(named=True)}
        assert {name: (rows[name]["count"], rows[name]["average_cpu_ns"]) for name in counts} == counts
    (average,) = [each for each in opspan.load(*one).events().key_averages() if each.key == "aten::mm"]
    assert (average.count, average.cpu_time) == (2, 75.0)


def test_what_was_found_refers_to_rows_of_the_same_file(one: list[Path]) -> None:
    found = opspan.load(*one).analysed.complete
    targets = {"parent": "ranges", "forward": "ranges", "range": "ranges", "launch_range": "ranges", "call": "calls"}
    targets["function"] = "functions"

    seen = set()
    for table, columns in ADDED.items():
        frame = found.frames[table]
        for column in columns & set(targets):
            rows = frame.select("cycle", column).drop_nulls(column)
            assert (found.frames[targets[column]]["cycle"].gather(rows[column]) == rows["cycle"]).all(), column
            seen |= {column} if rows.height else set()
    assert seen == set(targets)
    assert {name for name, frame in found.frames.items() if "cycle" in frame.columns} == set(IN_CYCLES)


def test_a_number_that_both_files_use_is_attributed_in_each(one: list[Path]) -> None:
    trace = opspan.load(*one).analysed
    alone = [opspan.load(file).analysed for file in one]

    assert trace.coverage.work_in_range.count == sum(each.coverage.work_in_range.count for each in alone) > 0
    assert trace.coverage.linked == sum(each.coverage.linked for each in alone) > 0


def test_time_between_cycles_is_nobodys(one: list[Path]) -> None:
    alone = [opspan.load(file) for file in one]
    whole = sum(each.duration_ns() or 0 for each in alone)

    trace = opspan.load(*one)
    summary = [trace.analysed.whole_breakdown["time_ns"], trace.analysed.whole_devices["time_ns"]]

    assert trace.duration_ns() == whole < cycles.APART_US * 1000
    assert [each.to_list() for each in summary] == [[whole], [whole]]
    assert opspan.load_many(*one, processes=1).summary()["time_ns"].item() == whole
    assert trace.analysed.gaps.select(pl.col("end_ns") - pl.col("start_ns")).to_series().max() < whole


def test_steps_go_on_and_each_is_as_it_was(one: list[Path]) -> None:
    alone = pl.concat([opspan.load(file).steps() for file in one]).drop("start_ns", "end_ns")

    for found in (opspan.load(*one).steps(), opspan.load_many(*one, processes=1).steps()):
        assert found["step"].to_list() == ["ProfilerStep#7", "ProfilerStep#11"]
        assert found.drop("start_ns", "end_ns").equals(alone)


def test_the_order_of_the_files_does_not_matter(several: list[Path]) -> None:
    ranks = [opspan.load(*(several[at] for at in order)).ranks for order in ((0, 1, 2, 3), (3, 0, 2, 1))]

    for found in ranks:
        by_number = sorted(found, key=lambda rank: rank.rank)
        assert [rank.paths for rank in by_number] == [tuple(map(str, several[at : at + 2])) for at in (0, 2)]
        assert [[one.cycle for one in rank.cycles] for rank in found] == [[1, 2], [1, 2]]


@pytest.mark.parametrize("by", ["op", "shape", "module", "phase", "kernel", "place"])
def test_a_run_of_cycles_does_not_differ_from_itself(of_several: Answering, several: list[Path], by: str) -> None:
    trace, ranks = of_several.together, of_several.of_many

    for rows in (trace.compare(trace, by), ranks.compare(trace, by), trace.compare(opspan.load(*several[::-1]), by)):
        assert rows.height
        assert rows["change_ns"].to_list() == [0] * rows.height


def test_one_cycle_of_each_rank(several: list[Path]) -> None:
    expected = opspan.load(*several[1::2])

    trace = opspan.load(*several, cycle=2)
    many = opspan.load_many(*several, cycle=2, processes=1)

    assert [rank.paths for rank in trace.ranks] == [rank.paths for rank in expected.ranks]
    assert trace.table().rows.equals(expected.table().rows)
    assert many.table().rows.sort("name", "rank").equals(expected.table().rows.sort("name", "rank"))
    assert len(many.ranks) == 2
    assert not any(rank.cycles for rank in trace.ranks)


def test_a_cycle_that_is_not_there(one: list[Path]) -> None:
    with pytest.raises(UsageError, match="no cycle 3: the files are of cycles 1, 2"):
        opspan.load(*one, cycle=3)
    with pytest.raises(UsageError, match="no cycle 3"):
        opspan.load_many(*one, cycle=3, processes=1).steps()
    with pytest.raises(UsageError, match="no cycle 2: no process wrote several"):
        opspan.load(one[0], cycle=2)
    assert opspan.load(one[0], cycle=1).ranges.equals(opspan.load(one[0]).ranges)


def test_a_step_is_in_one_of_the_cycles(one: list[Path]) -> None:
    expected = opspan.load(one[1], step=11)

    for found in (opspan.load(*one, step=11), opspan.load_many(*one, step=11, processes=1)):
        assert found.steps().equals(expected.steps())
    for load in (opspan.load, opspan.load_many):
        with pytest.raises(UsageError, match="there is no step 99"):
            load(*one, step=99).steps()


def test_a_step_that_a_rank_has_not_is_an_error_still(several: list[Path]) -> None:
    with pytest.raises(UsageError, match="there is no step 11"):
        opspan.load(several[1], several[2], step=11)  # the second cycle of rank 0 and the first of rank 1


def test_cycles_are_saved_and_loaded(one: list[Path], tmp_path: Path) -> None:
    trace = opspan.load(*one)
    trace.save(tmp_path / "saved")

    again = opspan.load(tmp_path / "saved")

    assert again.ranks == trace.ranks
    assert again.idle().equals(trace.idle())
    assert opspan.load(tmp_path / "saved", cycle=2).table().rows.equals(opspan.load(*one, cycle=2).table().rows)


def test_several_cycles_are_merged_with_nothing(one: list[Path]) -> None:
    with pytest.raises(UsageError, match="2 cycles; expected one of them"):
        opspan.merge(opspan.load(*one), opspan.load(one[0]))


def test_a_rank_opens_with_all_of_its_cycles(several: list[Path]) -> None:
    found = opspan.load_many(*several, processes=1).open(1)

    assert found.table().rows.equals(opspan.load(*several[2:]).table().rows)


def test_devices_and_threads_are_there_once(one: list[Path]) -> None:
    trace, alone = opspan.load(*one), opspan.load(one[0])

    for table in ("devices", "threads", "processes"):
        assert trace.frames[table].equals(alone.frames[table])


# --- several ranks that wait for each other


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two ranks, of which one is slow, in two cycles that are alike: their collectives have the same numbers."""
    first = kineto_files(tmp_path_factory.mktemp("trained"), run(Plan(ranks=2, steps=3, straggler=(1, 1.5))))
    return [*first, *(_again(file) for file in first)]


def _again(file: Path) -> Path:
    document = json.loads(file.read_text())
    for event in document["traceEvents"]:
        event["ts"] += 10_000_000
        if step := re.fullmatch(r"ProfilerStep#(\d+)", event["name"]):
            event["name"] = f"ProfilerStep#{int(step[1]) + 10}"
    again = file.with_name(f"{file.stem}_again.json")
    again.write_text(json.dumps(document))
    return again


@pytest.fixture(scope="module")
def of_trained(trained: list[Path]) -> Answering:
    """Alone: the first cycles of both ranks."""
    return answering([opspan.load(*trained[:2])], trained)


@pytest.mark.parametrize("by", ["kind", "rank", "group", "size", "op"])
def test_collectives_match_in_their_cycle_alone(of_trained: Answering, by: str) -> None:
    alone = of_trained.alone[0].comm(by)
    sums = [name for name in ("count", "matched", "time_ns", "transfer_ns", "waiting_ns", "last") if name in alone]

    for found in (of_trained.together.comm(by), of_trained.of_many.comm(by)):
        assert found.select(sums).equals(alone.select(pl.col(sums) * 2))
        assert found.height == alone.height


def test_each_collective_has_the_ranks_of_its_cycle(trained: list[Path]) -> None:
    rows = opspan.load(*trained).analysed.collectives

    groups = rows.group_by("match").agg(pl.col("cycle").n_unique(), pl.col("rank").n_unique(), pl.len().alias("rows"))
    assert groups.drop("match").unique().rows() == [(1, 2, 2)]


def test_findings_cost_what_they_cost_in_both_cycles(of_trained: Answering) -> None:
    alone = of_trained.alone[0].findings().select("id", "at_stake_ns", "share", "ranks")
    expected = alone.with_columns(pl.col("at_stake_ns") * 2)

    assert "straggler" in alone["id"].to_list()
    for found in (of_trained.together, of_trained.of_many):
        assert found.findings().select(expected.columns).equals(expected)


# --- elsewhere


def test_a_chrome_trace_keeps_the_cycles(several: list[Path], tmp_path: Path) -> None:
    trace = opspan.load(*several)
    trace.export(tmp_path / "cycles.json")

    again = opspan.load(tmp_path / "cycles.json")

    assert [len(rank.cycles) for rank in again.ranks] == [2, 2]
    for table in ("ranges", "calls", "work", "functions", "memory"):
        assert again.frames[table]["cycle"].equals(trace.frames[table]["cycle"]), table
    assert again.idle().equals(trace.idle())
    assert again.table().rows.equals(trace.table().rows)


def test_captures_of_one_process_are_cycles_alone_and_in_a_folder(tmp_path: Path) -> None:
    session = """
import opspan, sys, torch
for name in sys.argv[1:]:
    with opspan.record(name):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
"""
    both, apart = tmp_path / "both", [tmp_path / "first", tmp_path / "second"]
    python(session, *map(str, apart))
    both.mkdir()
    for folder in apart:
        for file in folder.iterdir():
            shutil.copy(file, both)

    for trace in (opspan.load(both), opspan.load(*apart)):
        assert [len(rank.cycles) for rank in trace.ranks] == [2]
        assert trace.table(op="aten::mm").rows["count"].to_list() == [2]
        assert trace.issues.is_empty()
        assert trace.duration_ns() == sum(opspan.load(folder).duration_ns() or 0 for folder in apart)
    assert opspan.load(both, cycle=2).ranges.height == opspan.load(apart[1]).ranges.height


def test_torch_s_own_files(tmp_path: Path) -> None:
    """Averages are those of torch itself: of the files' own durations."""
    program = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
step = schedule(wait=1, warmup=1, active=2, repeat=2)
write = tensorboard_trace_handler(sys.argv[1])
with profile(activities=[ProfilerActivity.CPU], schedule=step, on_trace_ready=write) as p:
    for _ in range(10):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
        p.step()
"""
    assert forked(program, tmp_path).returncode == 0
    files = sorted(tmp_path.iterdir())
    times = [
        event["dur"]
        for file in files
        for event in json.loads(file.read_text())["traceEvents"]
        if event.get("name") == "aten::mm" and event.get("ph") == "X"
    ]

    trace = opspan.load(*files)

    assert [rank.cycles[1].paths for rank in trace.ranks] == [(str(files[1]),)]
    row = trace.table(op="aten::mm").rows.row(0, named=True)
    assert (row["count"], len(files)) == (len(times), 2) == (4, 2)
    assert row["average_cpu_ns"] == pytest.approx(1000 * sum(times) / len(times), abs=1)
    assert trace.steps()["step"].to_list() == [f"ProfilerStep#{number}" for number in (2, 3, 6, 7)]
    assert trace.issues.is_empty()
