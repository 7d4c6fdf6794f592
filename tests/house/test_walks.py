"""The walks of CONTRIBUTING.md, walked: a source, an output and an analysis are the file that it shows and one line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click.testing
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opspan
from house.tree import REPO
from opspan import outputs, sources
from opspan.cli import main
from opspan.errors import ReadError
from opspan.tables import schema

SPANS = "name,thread,start_us,end_us\naten::mm,7,1.5,4\nouter,7,0,10\naten::mm,7,5,6.25\n,,,\n"


def shown(what: str, name: str) -> ModuleType:
    """The file that the page shows, as a module."""
    page = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- {what} -->\n```python\n(.*?)```", page, re.DOTALL)
    assert found
    module = ModuleType(name)
    exec(found[1], vars(module))
    return module


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = shown("a source", "opspan.readers.spans")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sources, "SOURCES", (*sources.SOURCES, sources.Source("spans", "span lists")))
    file = tmp_path / "run.txt"
    file.write_text(SPANS)
    return file


def test_it_is_told_by_its_content_and_read(path: Path) -> None:
    trace = opspan.load(path)

    assert trace.metadata.source == "spans"
    assert trace.ranges["name", "start_ns", "end_ns"].rows() == [
        ("aten::mm", 1500, 4000),
        ("outer", 0, 10000),
        ("aten::mm", 5000, 6250),
    ]
    assert [(issue["code"], issue["count"]) for issue in trace.issues.iter_rows(named=True)] == [("no_time", 1)]


def test_all_that_works_for_a_trace_works_for_it(path: Path) -> None:
    (average,) = (event for event in opspan.load(path).events().key_averages() if event.key == "aten::mm")
    assert (average.count, average.cpu_time_total) == (2, 3.75)

    shown = click.testing.CliRunner().invoke(main, ["table", str(path)], catch_exceptions=False)
    assert "aten::mm" in shown.output
    assert "outer" in shown.output


def test_what_is_wrong_with_it_is_one_error(path: Path) -> None:
    path.write_text(SPANS + '"')
    with pytest.raises(ReadError, match="is a damaged span list"):
        opspan.load(path)


# --- an output


def test_an_output_is_a_file_and_a_line(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = shown("an output", "opspan.views.names")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    line = outputs.Output("names", (".names",), "names of ranges, with how often each is there")
    monkeypatch.setattr(outputs, "OUTPUTS", (*outputs.OUTPUTS, line))
    assert ".names" in outputs.help_lines()

    left_out = opspan.load(path).export(tmp_path / "run.names")
    assert (tmp_path / "run.names").read_text() == "2 aten::mm\n1 outer\n"
    assert left_out == []
    with pytest.raises(opspan.OpspanError, match=r"exists already\. Nothing was written"):
        opspan.load(path).export(tmp_path / "run.names")


# --- an analysis


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 9)), max_size=9))
def test_an_analysis_is_a_function_of_frames(rows: list[tuple[int, int, int]]) -> None:
    work = pl.DataFrame(
        [
            {"kind": "kernel", "rank": 0, "device_id": 0, "stream_id": stream, "start_ns": at, "end_ns": at + took}
            for stream, at, took in rows
        ],
        schema=schema.empty("work").schema,
    )
    found = shown("an analysis", "opspan.analysis.gaps").gaps(work)

    expected = []  # a nanosecond is idle when nothing runs in it, and something did before and will after
    for stream in {stream for stream, _, _ in rows}:
        spans = [(at, at + took) for number, at, took in rows if number == stream]
        inside = range(min(start for start, _ in spans), max(start for start, _ in spans))
        expected += [(stream, ns) for ns in inside if not any(start <= ns < end for start, end in spans)]
    gaps = [
        (row["stream_id"], ns)
        for row in found.iter_rows(named=True)
        for ns in range(row["start_ns"], row["start_ns"] + row["gap_ns"])
    ]
    assert sorted(gaps) == sorted(expected)


# --- a column


@pytest.mark.slow
def test_a_column_is_a_line(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own: all that is made of the tables is made when they are imported."""
    program = f"""
import sqlite3
import polars as pl
from opspan.tables import schema
line = schema.Column("priority", pl.Int64, "Of the stream.")
table = schema.TABLES["work"]
schema.TABLES["work"] = table._replace(columns=(*table.columns, line))
import opspan
work = pl.DataFrame({{"kind": ["kernel"], "name": ["gemm"], "start_ns": [1], "end_ns": [2], "priority": [-5]}})
trace = opspan.Trace((opspan.Metadata("test"),), work=work)
for name in ("x.json", "x.parquet", "x.sqlite"):
    trace.export({str(tmp_path)!r} + "/" + name)
for name in ("x.json", "x.parquet"):
    assert opspan.load({str(tmp_path)!r} + "/" + name).work["priority"].to_list() == [-5], name
assert sqlite3.connect({str(tmp_path)!r} + "/x.sqlite").execute("SELECT priority FROM work").fetchall() == [(-5,)]
"""
    subprocess.run([sys.executable, "-c", program], check=True)
