"""Every source goes every way: analysis, events, each view, each table. None has a special case for a vendor."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import opspan
from opspan.analysis import analyse
from opspan.analysis.averages import BY, averages
from opspan.analysis.busy import KINDS, devices
from opspan.errors import UsageError
from opspan.trace import Trace
from readers.samples import samples
from views.there_and_back import assert_same, there_and_back

SAMPLES = samples()
OUTPUTS = ("x.json", "x.json.gz", "x.table.json", "x.sqlite", "x.parquet", "x.csv", "x-hostname-box.csv", "x.stacks")


@pytest.fixture(scope="module", params=SAMPLES)
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return opspan.load(SAMPLES[request.param](tmp_path_factory.mktemp("source")))


@pytest.fixture(scope="module", params=samples(with_ranges=True))
def with_ranges(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return opspan.load(SAMPLES[request.param](tmp_path_factory.mktemp("source")))


def test_ops_backward_and_work_find_each_other(trace: Trace) -> None:
    analysed = analyse(trace)
    assert analysed.coverage.linked >= 1 or not analysed.coverage.backward
    if analysed.work.height:
        assert analysed.work["range"].count() >= 1
        assert analysed.coverage.work_with_call.count >= 1


@pytest.mark.slow
@pytest.mark.parametrize("by", BY)
def test_averages_add_up(with_ranges: Trace, by: str) -> None:
    analysed = analyse(with_ranges)
    found = averages(analysed.ranges, analysed.work, by)
    if "self_device_ns" in found.columns:
        assert found["self_device_ns"].sum() == analysed.ranges.filter(~pl.col("is_mark"))["self_device_ns"].sum()
    assert found["count"].sum() > 0 or by in ("stream", "kernel")


def test_every_row_is_of_the_rank_that_the_file_is(trace: Trace) -> None:
    ranks = {one.rank for one in trace.analysed.tables.ranks}
    frames = {name: frame for name, frame in trace.frames.items() if "rank" in frame.columns and name != "issues"}
    assert {name: set(frame["rank"]) - ranks for name, frame in frames.items()} == {name: set() for name in frames}


def test_steps_and_devices_add_up(with_ranges: Trace) -> None:
    rows = with_ranges.steps()
    assert rows.height >= 1
    assert (rows.select(pl.sum_horizontal(f"{kind}_ns" for kind in KINDS)).to_series() == rows["time_ns"]).all()
    found = with_ranges.analysed
    used = devices(found.complete, found.iterations)
    assert (used["busy_ns"] + used["idle_ns"] == used["time_ns"]).all()
    assert (used["idle_ns"] >= 0).all()
    assert (used["busy_ns"] >= used["kernel_ns"]).all()


def test_events_say_what_the_columns_do(with_ranges: Trace) -> None:
    events = with_ranges.events()
    assert len(events.table().splitlines()) > 5
    assert sum(average.count for average in events.key_averages()) == len(events)


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTPUTS)
def test_every_view_is_written(trace: Trace, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out" / name
    out.parent.mkdir()
    if "hostname" in name and trace.metadata.clock is None and trace.origin_utc_ns is None:
        with pytest.raises(UsageError, match="VTune needs UTC times, and this trace has none"):
            trace.export(out)
        assert not list(out.parent.iterdir())
        return
    trace.export(out)
    assert out.exists()


@pytest.mark.slow
def test_a_chrome_trace_is_the_way_there_and_back(trace: Trace, tmp_path: Path) -> None:
    assert_same(trace, there_and_back(trace, tmp_path))


@pytest.mark.slow
def test_ranks_side_by_side_and_saved(trace: Trace, tmp_path: Path) -> None:
    paths = [Path(path) for path in trace.metadata.paths]
    both = opspan.load(paths[0], paths[0])
    assert both.ranges.height == 2 * trace.ranges.height
    assert both.ranges["id"].n_unique() == both.ranges.height
    both.save(tmp_path / "saved")
    again = opspan.load(tmp_path / "saved")
    for table, frame in both.frames.items():
        assert frame.equals(again.frames[table]), table
