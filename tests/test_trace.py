"""Trace, what a user holds: analysed once, with its table, its events and its files."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import polars as pl
import pytest

import opspan
from emit.running import opspan as command_line
from opspan.analysis import analysed
from opspan.errors import UsageError
from opspan.tables import Tables
from opspan.trace import Trace
from views import sources


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return sources.nsys(tmp_path / "run.sqlite")


def opspan_prints(*arguments: str | Path) -> str:
    done = command_line(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("by", ["name", "shape", "module", "step", "phase", "stream", "kernel"])
def test_the_table_is_the_commands(path: Path, by: str) -> None:
    printed = opspan_prints("table", path, "--by", by)
    assert printed.startswith(str(opspan.load(path).table(by)))


def test_the_options_of_the_command_are_arguments(path: Path) -> None:
    table = opspan.load(path).table("kernel", op="aten::linear", sort_by="count")
    assert table.rows.filter(kind="kernel")["device_ns"].to_list() == [2 * (111 + 57)]
    with pytest.raises(UsageError, match="no table by 'colour'"):
        opspan.load(path).table("colour")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.json", "out.csv", "out.stacks", "out.table.json"])
def test_an_export_is_the_commands(path: Path, tmp_path: Path, name: str) -> None:
    opspan.load(path).export(str(tmp_path / name))
    (tmp_path / "other").mkdir()
    opspan_prints("export", path, tmp_path / "other" / name)
    assert (tmp_path / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_it_is_analysed_once(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        analysed, "attribute", lambda tables, found=analysed.attribute: asked.append(1) or found(tables)
    )
    trace = opspan.load(path)
    assert not asked
    trace.events().key_averages().table()
    for by in ("name", "module", "kernel"):
        str(trace.table(by))
    for name in ("out.json", "out.csv", "out.sqlite", "out.stacks", "out.parquet"):
        trace.export(tmp_path / name)
    assert trace.coverage.linked
    assert len(asked) == 1


def test_its_own_frames_are_those_of_the_file(path: Path) -> None:
    trace = opspan.load(path)
    before = {name: frame.columns for name, frame in trace.frames.items()}
    trace.table("module")
    assert {name: frame.columns for name, frame in trace.frames.items()} == before
    assert {"parent", "module", "phase"} <= set(trace.analysed.complete.ranges.columns)


def test_other_frames_are_another_trace(path: Path) -> None:
    trace = opspan.load(path)
    trace.table()
    other = trace.replace(ranges=trace.ranges.filter(pl.col("name") != "aten::linear"))
    assert isinstance(other, Trace)
    assert "aten::linear" not in other.table().rows["name"]
    assert "aten::linear" in trace.table().rows["name"]


def test_nothing_of_it_is_kept_when_it_is_let_go(path: Path) -> None:
    trace = opspan.load(path)
    trace.table()
    left = weakref.ref(trace), weakref.ref(trace.analysed)
    gc.disable()  # a circle would wait for it, with millions of rows
    try:
        del trace
        assert [ref() for ref in left] == [None, None]
    finally:
        gc.enable()


def test_two_of_them_merged_and_one_of_tables_are_traces(path: Path, tmp_path: Path) -> None:
    one = opspan.load(path)
    merged = opspan.merge(one, one.replace(work=one.work.clear()))
    assert isinstance(merged, Trace)
    marks = one.ranges["is_mark"].sum()  # a mark has no end, so equal marks cannot be told from copies
    assert merged.ranges.height == one.ranges.height + marks
    assert isinstance(Trace.of(Tables(one.ranks, **one.frames)), Trace)
    assert Trace.of(one) is one
