"""Forward beside backward: against the database's own join, which SQLite makes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import opspan
from builders.training_files import load
from builders.training_plan import Plan
from opspan.analysis.backward import pairs
from opspan.trace import Trace
from views.sources import capture, nsys

_SQL = """\
SELECT forward_name, sizes, backward_name, count(*), sum(forward_cpu_ns), sum(backward_cpu_ns), sum(backward_device_ns)
FROM backward_of_forward
WHERE link = 'linked'
GROUP BY forward_name, sizes, backward_name"""


def check(trace: Trace, folder: Path) -> int:
    trace.export(folder / "run.db")
    with sqlite3.connect(folder / "run.db") as database:
        expected = list(database.execute(_SQL))
    rows = pairs(trace.analysed.attributed.ranges)
    assert sorted(rows.rows(), key=str) == sorted(expected, key=str)
    assert rows["backward_device_ns"].is_sorted(descending=True)
    return rows.height


@pytest.mark.parametrize("make", [nsys, capture])
def test_pairs_of_small_sources(make, tmp_path: Path) -> None:
    assert check(opspan.load(make(tmp_path / ("run.sqlite" if make is nsys else "run.opspan"))), tmp_path) == 1


def test_pairs_of_a_training(tmp_path: Path) -> None:
    assert check(load(tmp_path / "run", Plan(ranks=2, steps=2)), tmp_path) >= 4


def test_a_trace_without_backward_has_none(tmp_path: Path) -> None:
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))
    forward = Trace(trace.ranks, ranges=trace.ranges.filter(trace.ranges["kind"] == "op"))
    assert pairs(forward.analysed.attributed.ranges).height == 0
