"""The tree of a flame graph: against a walk up from every range."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st

import opspan
from builders.training_files import load
from builders.training_plan import Plan
from opspan.analysis.call_tree import call_tree
from opspan.analysis.stacks import totals, with_functions
from opspan.tables import Tables
from opspan.trace import Trace
from properties import property_of
from views.sources import capture, nsys

Path_ = tuple[tuple[str | None, str], ...]


def paths(nodes: list[dict[str, Any]]) -> Counter[tuple[Path_, str]]:
    """The time of each path from a root, by walking up."""
    found: Counter[tuple[Path_, str]] = Counter()
    for node in nodes:
        path, at = [], node
        while True:
            path.append((at["name"], at["kind"]))
            if at["parent"] is None:
                break
            at = nodes[at["parent"]]
        for measure in ("cpu_ns", "device_ns"):
            found[tuple(reversed(path)), measure] += node[measure]
    return +found  # without what has no time


def expected(trace: Tables) -> Counter[tuple[Path_, str]]:
    count = trace.functions.height
    rows = (with_functions(trace) if count else trace.ranges).to_dicts()
    further = trace.ranges.select("phase", "self_device_ns").to_dicts()
    nodes = []
    for number, row in enumerate(rows):
        is_function = number < count
        own = {} if is_function else further[number - count]
        kind = "function" if is_function else row["kind"] if row["kind"] in ("module", "step") else own["phase"]
        name = row["name"]
        out = row["is_mark"] or row["is_async"]
        nodes.append(
            {
                "name": "ProfilerStep*" if name and name.startswith("ProfilerStep#") else name,
                "kind": kind or "other",
                "parent": row["parent"],
                "cpu_ns": 0 if out else row["self_ns"] or 0,
                "device_ns": 0 if out else own.get("self_device_ns", 0),
            }
        )
    return paths(nodes)


def check(trace: Trace) -> None:
    complete = trace.analysed.complete
    tree = call_tree(complete)
    assert (tree["parent"].fill_null(0) <= pl.Series(range(tree.height))).all()
    assert tree.select("parent", "name", "kind").is_duplicated().sum() == 0
    assert paths(tree.to_dicts()) == expected(complete)


@pytest.mark.parametrize("source", ["kineto", "nsys"])
def test_paths_of_a_training_have_their_own_times(source: str, tmp_path: Path) -> None:
    check(load(tmp_path / "run", Plan(ranks=2, steps=2), source))


def test_marks_and_async_ranges_are_left_out(tmp_path: Path) -> None:
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))
    check(trace)
    assert not {"here", "overlapping"} & set(call_tree(trace.analysed.complete)["name"])


def test_a_capture(tmp_path: Path) -> None:
    check(opspan.load(capture(tmp_path / "run.opspan")))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["norm_layers.json.gz", "mi300_ddp_resnet18.json.gz"])
def test_ranges_lie_in_functions_of_python(traces_dir: Path, name: str) -> None:
    check(opspan.load(traces_dir / "kineto" / name))


@property_of(st.lists(st.tuples(st.none() | st.integers(0, 30), st.integers(0, 100)), max_size=30), few=50, many=300)
def test_totals_are_those_of_a_walk(rows: list[tuple[int | None, int]]) -> None:
    # A parent stands before what is in it.
    parents = [None if not at or parent is None else parent % at for at, (parent, _) in enumerate(rows)]
    sums = [own for _, own in rows]
    for at in reversed(range(len(rows))):
        parent = parents[at]
        if parent is not None:
            sums[parent] += sums[at]
    own = pl.Series([own for _, own in rows], dtype=pl.Int64)
    assert totals(pl.Series(parents, dtype=pl.UInt32), own).to_list() == sums
