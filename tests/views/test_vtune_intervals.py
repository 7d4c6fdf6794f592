"""VTune's interval import: what is written, and that it is read back as it was."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import vtune
from opspan import load
from opspan.errors import NotReadable, UsageError
from opspan.tables import Metadata
from opspan.trace import Trace
from opspan.views.registry import output_for

RANGES = pl.DataFrame(
    {
        "pid": [7, 7, 7, None, 7],
        "tid": [7, 8, None, 9, 7],
        "start_ns": [30, 10, 20, 40, 50],
        "end_ns": [35, 60, 70, 45, None],
        "name": ["aten::mm", 'say "a, b"\nagain', "frame", "nowhere", "open"],
        "text": ["aten::mm, seq = 3", None, None, None, None],
        "is_async": [False, False, True, False, False],
        "is_mark": [False, False, False, False, False],
    }
)
UTC_NS = 1_603_249_159_000_000_678
COLUMNS = ("start_ns", "end_ns", "name", "seq", "pid", "tid", "is_async")


def trace_of(clock: str | None, origin_utc_ns: int | None, host: str | None = None) -> Trace:
    rank = Metadata("capture", clock=clock, origin_utc_ns=origin_utc_ns, host=host)
    return Trace((rank,), ranges=RANGES.with_row_index("id"))


def written(trace: Trace, folder: Path, name: str = "out-hostname-node7.csv") -> tuple[Path, list[str]]:
    return folder / name, trace.export(folder / name, overwrite=True)


def test_on_the_monotonic_clock_of_the_kernel(tmp_path: Path) -> None:
    path, _ = written(trace_of("CLOCK_MONOTONIC_RAW", UTC_NS), tmp_path)
    assert path.read_text() == (
        "name,start_tsc.CLOCK_MONOTONIC_RAW,end_tsc,pid,tid\n"
        '"say ""a, b"" again",10,60,7,8\n'
        "frame,20,70,7,\n"
        '"aten::mm, seq = 3",30,35,7,7\n'
        "nowhere,40,45,,\n"
    )


@pytest.mark.parametrize("clock", [None, "CLOCK_MONOTONIC"])
def test_else_in_utc(tmp_path: Path, clock: str | None) -> None:
    path, _ = written(trace_of(clock, UTC_NS), tmp_path)
    first = path.read_text().splitlines()[2]
    assert path.read_text().startswith("name,start_tsc.UTC,end_tsc,pid,tid\n")
    assert first == "frame,2020-10-21 02:59:19.000000698,2020-10-21 02:59:19.000000748,7,"


def test_without_utc_it_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs UTC times"):
        written(trace_of(None, None), tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("clock", ["CLOCK_MONOTONIC_RAW", None])
def test_it_is_read_back(tmp_path: Path, clock: str | None) -> None:
    path, _ = written(trace_of(clock, UTC_NS), tmp_path)

    back = opspan.load(path)

    zero_ns = 0 if clock else (back.origin_utc_ns or 0) - UTC_NS
    found = back.ranges.with_columns(pl.col("start_ns", "end_ns") + zero_ns)
    assert found.select(COLUMNS).rows() == [
        (10, 60, 'say "a, b" again', None, 7, 8, False),
        (20, 70, "frame", None, 7, None, True),
        (30, 35, "aten::mm", 3, 7, 7, False),
        (40, 45, "nowhere", None, None, None, True),
    ]
    assert (back.metadata.source, back.metadata.host, back.metadata.clock) == ("vtune", "node7", clock)
    assert back.issues.is_empty()


def test_a_result_of_vtunes_comes_back_as_it_was(tmp_path: Path) -> None:
    trace = opspan.load(vtune.run(tmp_path / "r000hs", "2020"))
    path, _ = written(trace, tmp_path)
    again, _ = written(opspan.load(path), tmp_path, "again-hostname-node7.csv")
    assert again.read_bytes() == path.read_bytes()


def test_what_has_no_place_is_said(tmp_path: Path) -> None:
    trace = trace_of(None, UTC_NS, host="node8")
    marked = trace.ranges.with_columns(is_mark=pl.col("name") == "frame")
    _, said = written(trace.replace(ranges=marked), tmp_path)
    assert said[:2] == [
        "1 marks are not in it: an interval has an end",
        "1 range without a start or an end: not in it",
    ]
    assert "of host node8, the name says node7" in said[2]


@pytest.mark.parametrize("name", ["out-hostname-a.csv", "OUT-HOSTNAME-A.CSV", "x-hostname-a.b.csv"])
def test_the_name_says_it(name: str) -> None:
    assert output_for(Path(name)).name == "vtune_intervals"


@pytest.mark.parametrize("name", ["out.csv", "-hostname-.csv", "out-hostname-a.sqlite"])
def test_other_names_mean_something_else(name: str) -> None:
    assert output_for(Path(name)).name != "vtune_intervals"


class TestForeign:
    """Files that others wrote for VTune."""

    def file(self, tmp_path: Path, text: str) -> Path:
        path = tmp_path / "phases-hostname-octagon53.csv"
        path.write_text(text)
        return path

    def test_short_fractions_and_frames(self, tmp_path: Path) -> None:
        text = (
            "name,start_tsc.UTC,end_tsc,pid,tid\n"
            "Frame1,2013-08-28 01:02:03.0004,2013-08-28 01:02:03.0005,,\n"
            "Task,2013-08-28 01:02:03.0004,2013-08-28 01:02:03.0006,1234,1235\n"
        )
        found = opspan.load(self.file(tmp_path, text))
        assert found.ranges.select(COLUMNS).rows() == [
            (0, 100_000, "Frame1", None, None, None, True),
            (0, 200_000, "Task", None, 1234, 1235, False),
        ]
        assert found.metadata.host == "octagon53"
        assert found.origin_utc_ns == 1_377_651_723_000_400_000

    @pytest.mark.parametrize("clock", ["QPC", "RDTSC", "TSC"])
    def test_ticks_of_unknown_length_are_refused(self, tmp_path: Path, clock: str) -> None:
        path = self.file(tmp_path, f"name,start_tsc.{clock},end_tsc,pid,tid\nf,2,30,,\n")
        with pytest.raises(NotReadable, match=f"ticks of {clock}"):
            opspan.load(path)

    def test_cells_that_are_no_times_are_counted(self, tmp_path: Path) -> None:
        text = "name,start_tsc.CLOCK_MONOTONIC_RAW,end_tsc,pid,tid\na,1,2,3,4\nb,x,2,3,4\nc,5,6,y,4\n"
        found = load(self.file(tmp_path, text))
        assert found.ranges.select("name", "pid").rows() == [("a", 3), ("c", None)]
        counted = dict(found.issues.select(pl.col("code").cast(pl.String), "count").rows())
        assert counted == {"odd_cells": 2, "no_time": 1}

    def test_a_header_by_itself_is_an_empty_trace(self, tmp_path: Path) -> None:
        found = load(self.file(tmp_path, "name,start_tsc.UTC,end_tsc,pid,tid\n"))
        assert found.ranges.is_empty()


def test_ranks_of_several_files_are_on_the_first_ones_clock(tmp_path: Path) -> None:
    one = trace_of("CLOCK_MONOTONIC_RAW", UTC_NS)
    ranks = (*one.ranks, dataclasses.replace(one.metadata, host="node9"))
    path, _ = written(Trace(ranks, ranges=one.ranges), tmp_path)
    assert opspan.load(path).ranges.height == 4
