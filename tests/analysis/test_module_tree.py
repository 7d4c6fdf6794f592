"""Modules as a tree: against the database's own sums, which SQLite makes, and against what the names say."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest

import opspan
from analysis.frames import ranges, table
from builders.training_files import load
from builders.training_plan import Plan
from opspan.analysis import analyse
from opspan.analysis.module_tree import module_frames, module_tree
from opspan.tables import Metadata
from opspan.trace import Trace
from views.sources import capture

_SQL = "SELECT module, coalesce(phase, 'other'), sum(self_ns), sum(self_device_ns) FROM ranges GROUP BY module, phase"
_MODULE = {"kind": "module"}


def of_database(trace: Trace, folder: Path) -> list[tuple[str | None, str, int, int]]:
    trace.export(folder / "run.db")
    with sqlite3.connect(folder / "run.db") as database:
        return [(module, phase, cpu or 0, device or 0) for module, phase, cpu, device in database.execute(_SQL)]


def check_against_sql(trace: Trace, folder: Path) -> None:
    rows = of_database(trace, folder)
    tree = module_tree(trace.analysed.complete)
    assert tree["module"].n_unique() == tree.height
    assert {module for module, *_ in rows} <= set(tree["module"])
    for row in tree.iter_rows(named=True):
        name = row["module"]
        inside = [one for one in rows if one[0] == name or (name and one[0] and one[0].startswith(f"{name}."))]
        assert (row["cpu_ns"], row["device_ns"]) == (sum(one[2] for one in inside), sum(one[3] for one in inside))
        own = [one for one in inside if one[0] == name]
        assert (row["self_cpu_ns"], row["self_device_ns"]) == (sum(one[2] for one in own), sum(one[3] for one in own))
        for phase in ("forward", "backward", "optimizer", "data", "other"):
            assert row[f"{phase}_cpu_ns"] == sum(one[2] for one in inside if one[1] == phase)
            assert row[f"{phase}_device_ns"] == sum(one[3] for one in inside if one[1] == phase)


@pytest.mark.parametrize("source", ["kineto", "nsys"])
def test_a_module_has_the_time_of_all_modules_in_it_as_sqlite_sums_it(source: str, tmp_path: Path) -> None:
    check_against_sql(load(tmp_path / "run", Plan(ranks=2, steps=2), source), tmp_path)


def test_the_backward_of_a_capture_is_in_the_module_of_its_forward(tmp_path: Path) -> None:
    trace = opspan.load(capture(tmp_path / "run.opspan"))
    check_against_sql(trace, tmp_path)
    rows = {row["module"]: row for row in module_tree(trace.analysed.complete).iter_rows(named=True)}
    assert rows["Net"]["count"] is None
    assert rows["Net.layer"]["count"] == 1
    assert (rows["Net"]["forward_cpu_ns"], rows["Net"]["backward_cpu_ns"]) == (3_900, 1_500)


@pytest.mark.slow
def test_a_recorded_run_too(traces_dir: Path, tmp_path: Path) -> None:
    check_against_sql(opspan.load(traces_dir / "kineto" / "mi300_ddp_resnet18.json.gz"), tmp_path)


def test_a_module_stands_after_the_one_that_it_is_in() -> None:
    made = ranges(
        {"name": "net.blocks.1.fc", "start_ns": 10, "end_ns": 20, **_MODULE, "class_name": "Linear"},
        {"name": "net", "start_ns": 0, "end_ns": 50, **_MODULE},
        {"name": "aten::relu", "start_ns": 60, "end_ns": 70},
    )
    trace = analyse(Trace([Metadata("x")], ranges=made))
    tree = module_tree(trace)
    assert tree["module"].to_list() == ["net", "net.blocks", "net.blocks.1", "net.blocks.1.fc", None]
    assert tree["parent"].to_list() == [None, 0, 1, 2, None]
    assert tree["count"].to_list() == [1, None, None, 1, None]
    assert tree["class_name"].to_list() == [None, None, None, "Linear", None]
    assert tree["cpu_ns"].to_list() == [50, 10, 10, 10, 10]
    assert tree["self_cpu_ns"].to_list() == [40, 0, 0, 10, 10]
    # In a flame graph the modules' own calls are the modules, and what is left are their ops.
    frames = module_frames(trace, tree)
    assert frames["cpu_ns"].to_list() == [40, 0, 0, 10, 0, 10]
    assert frames.slice(tree.height).select("name", "parent").rows() == [("aten::relu", 4)]


def test_frames_are_the_tree_and_the_ops_in_it(tmp_path: Path) -> None:
    found = load(tmp_path / "run", Plan(steps=2)).analysed.complete
    tree = module_tree(found)
    frames = module_frames(found, tree)
    assert frames["name"].head(tree.height).equals(tree["name"])
    assert frames["device_ns"].sum() == tree["self_device_ns"].sum() > 0
    of_ops = frames.slice(tree.height)
    own = of_ops.group_by("parent").agg(pl.col("cpu_ns").sum()).sort("parent")
    assert own["cpu_ns"].to_list() == [tree["self_cpu_ns"][row] for row in own["parent"].to_list()]
    assert set(of_ops["kind"]) <= {"forward", "backward", "optimizer", "data", "other"}


def test_a_trace_without_modules_has_all_in_none() -> None:
    tree = module_tree(analyse(Trace([Metadata("x")], ranges=ranges(("aten::relu", 0, 7)))))
    assert tree.select("module", "name", "cpu_ns").rows() == [(None, "(in no module)", 7)]


def test_a_trace_without_ranges_has_none() -> None:
    assert module_tree(analyse(Trace([Metadata("x")], ranges=table("ranges", [])))).height == 0
