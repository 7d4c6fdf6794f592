"""Files that one process wrote one after the other are cycles of one rank: an answer is the sum of what each file says
by itself, nothing is looked up across files, and the time between two is nobody's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from opspan.errors import UsageError
from opspan.tables.schema import FOUND, IN_CYCLES
from tests.builders import cycles
from tests.builders.cycles import two_cycles, two_ranks
from tests.read_once import ReadOnce

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
KEYS = ("rank", "pid", "device_id", "stream_id", "op", "name", "sizes", "kind", "module", "phase", "copy_from", "copy_to")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two cycles of one process."""
    return two_cycles(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two ranks of two cycles: rank 0 and its cycles, then rank 1."""
    return two_ranks(tmp_path_factory.mktemp("several"))


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
def test_an_answer_is_the_sum_of_what_each_file_says(one: list[Path], verb: str, by: str) -> None:
    figures = SUMS[verb, by]
    expected = summed([rows_of(opspan.load(file), verb, by) for file in one], figures)

    together = rows_of(opspan.load(*one), verb, by)
    of_many = rows_of(opspan.load_many(*one, executor=ReadOnce()), verb, by)

    assert expected
    for found in (together, of_many):
        assert summed([found], figures) == expected
        assert found.height == len(expected)  # one row each


@pytest.mark.parametrize(("verb", "by"), SUMS)
def test_of_several_ranks_too(several: list[Path], verb: str, by: str) -> None:
    figures = SUMS[verb, by]
    of_ranks = [opspan.load(*several[at::2]) for at in (0, 1)]  # the first cycles of both ranks, then the second ones
    expected = summed([rows_of(each, verb, by) for each in of_ranks], figures)

    for found in (opspan.load(*several), opspan.load_many(*several, executor=ReadOnce())):
        assert summed([rows_of(found, verb, by)], figures) == expected


def test_averages_are_of_the_calls_of_all_cycles(one: list[Path]) -> None:
    counts = {"aten::mm": (2, 75_000.0)}  # of 60 and 90 us

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
    for table, columns in FOUND.items():
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
def test_a_run_of_cycles_does_not_differ_from_itself(several: list[Path], by: str) -> None:
    trace, ranks = opspan.load(*several), opspan.load_many(*several, processes=1)

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
        opspan.load(several[1], several[2], step=11)  # of rank 0 the second cycle, of rank 1 the first alone


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


def test_findings_are_those_of_the_files(one: list[Path]) -> None:
    alone = [opspan.load(file).findings() for file in one]
    costs = {id_: sum(each.filter(id=id_)["at_stake_ns"].sum() for each in alone) for id_ in alone[0]["id"]}

    for found in (opspan.load(*one).findings(), opspan.load_many(*one, processes=1).findings()):
        assert found.columns == alone[0].columns
        assert set(found["id"]) == set(costs)
        assert dict(found.select("id", "at_stake_ns").iter_rows()) == {id_: ns or None for id_, ns in costs.items()} or (
            sum(found["at_stake_ns"].drop_nulls()) == pytest.approx(sum(costs.values()), rel=0.01)
        )
        assert found["ranks"].to_list() == [[0]] * found.height
