"""An empty result says what the trace has instead, for any trace and any question."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

import opspan
from emit.running import opspan as command
from opspan import outputs
from opspan.questions import BY, Options
from opspan.tables import Metadata, schema
from opspan.trace import Trace
from opspan.views.answer import as_text
from opspan.views.table import table_of


def rows(table: str, count: int, **values: object) -> pl.DataFrame:
    columns = schema.TABLES[table].columns
    times = {"start_ns": 10, "end_ns": 20, "time_ns": 10, "rank": 0, "pid": 7, "tid": 7, "name": "thing", "value": 1.0}
    given = {column.name: times[column.name] for column in columns if column.name in times} | values
    return pl.DataFrame([given] * count).with_columns(
        pl.int_range(count).alias(name) for name in ("id",) if any(column.name == name for column in columns)
    )


def trace_of(**frames: pl.DataFrame) -> Trace:
    metadata = Metadata("vtune", ("/some/run dir",), origin_utc_ns=0, clock="CLOCK_MONOTONIC_RAW")
    return Trace((metadata,), **frames)


KINDS: dict[str, tuple[dict[str, pl.DataFrame], str]] = {
    "nothing": ({}, "The trace is empty"),
    "samples": ({"samples": rows("samples", 1200, stack="main;f")}, "The trace holds 1,200 samples"),
    "counters": ({"counters": rows("counters", 1)}, "The trace holds 1 value of counters"),
    "memory": ({"memory": rows("memory", 3, event="alloc")}, "The trace holds 3 events of memory"),
    "calls": ({"calls": rows("calls", 12)}, "The trace holds 12 calls"),
    "functions": ({"functions": rows("functions", 2)}, "The trace holds 2 Python functions"),
    "marks": ({"ranges": rows("ranges", 4, is_mark=True, domain="X")}, "The trace holds 4 marks in domain X"),
    "regions": (
        {"ranges": rows("ranges", 57, is_async=True, domain="X")},
        "The trace holds 57 ranges in domain X",
    ),
    "ranges": ({"ranges": rows("ranges", 2)}, "The trace holds 2 ranges"),
    "kernels": (
        {"work": rows("work", 4340, kind="kernel"), "calls": rows("calls", 12)},
        "The trace holds 4,340 kernels, 12 calls",
    ),
    "waits": ({"work": rows("work", 2, kind="sync")}, "The trace holds 2 waits"),
}
OUTPUTS = (*("x" + suffix for view in outputs.OUTPUTS for suffix in view.suffixes), "x-hostname-box.csv")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("by", BY["table"])
def test_a_table_without_rows_says_what_there_is_and_the_option_for_it(kind: str, by: str) -> None:
    frames, holds = KINDS[kind]
    trace = trace_of(**frames).analysed
    table = table_of(trace, Options(by))
    if table.rows.height:
        return

    text = as_text(table, -1)

    assert text.startswith("Nothing to show: there are no ")
    assert holds in text
    assert len(text.splitlines()) == 1
    assert ("try" in text) == (kind != "nothing")
    if option := re.search(r"try --by (\w+)", text):
        assert table_of(trace, Options(option[1])).rows.height
    elif kind != "nothing":
        assert "`opspan export '/some/run dir' out.sqlite`" in text


def test_every_table_that_has_rows_is_found(kind: str) -> None:
    trace = trace_of(**KINDS[kind][0])
    has_rows = {by for by in BY["table"] if table_of(trace.analysed, Options(by)).rows.height}
    assert bool(has_rows) == (kind in ("regions", "ranges", "kernels"))


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_file_without_anything_says_what_there_is(kind: str, name: str, tmp_path: Path) -> None:
    frames, holds = KINDS[kind]
    trace = trace_of(**frames)
    said = " ".join(trace.export(tmp_path / name))

    if name.endswith((".sqlite", ".db", ".parquet", ".html")):
        return  # have all of it, or sections that say what they lack
    on_a_timeline = ("ranges", "marks", "regions", "kernels", "calls", "functions", "waits", "counters")
    shown = {
        "x.json": on_a_timeline,
        "x.perfetto-trace": (*on_a_timeline, "memory"),
        "x.pftrace": (*on_a_timeline, "memory"),
        "x.table.json": ("ranges", "regions", "kernels"),
        "x.csv": ("ranges", "marks", "regions"),
        "x-hostname-box.csv": ("ranges", "regions"),
        "x.stacks": ("ranges", "functions"),
        "x.device.stacks": ("kernels",),
        "x.svg": ("ranges", "functions", "kernels"),
        "x.pb": ("ranges", "functions", "kernels"),
        "x.speedscope.json": ("ranges", "regions", "functions", "kernels"),
        "x.xlsx": ("ranges", "regions", "marks", "memory", "calls", "kernels", "waits"),
    }[name.removesuffix(".gz")]
    assert (holds in said) == (kind not in shown), said
    if kind not in shown and kind != "nothing":
        assert re.search(r"\.(sqlite|stacks|json)|--by kernel", said), said


def test_only_what_a_table_is_by_may_be_missing() -> None:
    trace = trace_of(**KINDS["ranges"][0])
    notes = {by: table_of(trace.analysed, Options(by)).notes for by in BY["table"]}
    assert {by: note[0].split(":")[0] for by, note in notes.items() if note} == {
        "shape": "No op has shapes",
        "module": "No range is in a module",
        "step": "No range is in a step",
        "stack": "No op has a stack",
        "function": "No op has a function",
        "line": "No op has a line of the program",
        "source-op": "No range is an op, and no kernel was compiled by torch",
        "stream": "Nothing to show",
        "kernel": "Nothing to show",
    }


@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_on_the_command_line_in_every_form(form: str, tmp_path: Path) -> None:
    trace_of(**KINDS["kernels"][0]).save(tmp_path / "saved")
    done = command("table", tmp_path / "saved", "--by", "phase", "--format", form)
    assert done.returncode == 0, done.stderr
    said = "Nothing to show: there are no ranges. The trace holds 4,340 kernels, 12 calls; try --by kernel\n"
    assert (done.stdout if form == "text" else done.stderr).startswith(said)


def test_what_was_written_is_counted_as_what_it_is(tmp_path: Path) -> None:
    trace_of(**KINDS["kernels"][0]).save(tmp_path / "saved")
    done = command("export", tmp_path / "saved", tmp_path / "out.json")
    assert done.stdout.endswith("out.json (4,340 kernels, 12 calls, 0 issues)\n")
    assert opspan.load(tmp_path / "saved").work.height == 4340
