"""Ops that could use tensor cores, and whether they did: a made training says that for each kernel."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from builders.training import GEMM
from builders.training_files import load
from builders.training_plan import Plan
from opspan.analysis.averages import averages
from opspan.analysis.tensor_cores import tensor_cores


@pytest.mark.parametrize("source", ["kineto", "nsys"])
def test_an_op_has_the_time_of_such_kernels_in_it(source: str, tmp_path: Path) -> None:
    found = load(tmp_path / "run", Plan(steps=2), source).analysed.attributed
    names, parents = found.ranges["name"].to_list(), found.ranges["parent"].to_list()
    expected: Counter[str] = Counter()
    for work in found.work.filter(found.work["name"].cast(str) == GEMM).iter_rows(named=True):
        at = work["range"]
        while at is not None:
            expected[names[at]] += work["end_ns"] - work["start_ns"]
            at = parents[at]

    rows = tensor_cores(found.ranges, found.work, ["name"])

    assert expected["aten::addmm"] > 0
    assert {name: ns for name, _, ns in rows.select("name", "is_eligible", "tensor_cores_ns").iter_rows()} == {
        name: expected[name] for name in set(names)
    }


def test_products_in_float32_could_use_them_and_do_not(tmp_path: Path) -> None:
    found = load(tmp_path / "run", Plan(steps=2, fp32=True)).analysed.attributed
    rows = {row["name"]: row for row in tensor_cores(found.ranges, found.work, ["name"]).iter_rows(named=True)}
    assert (rows["aten::addmm"]["is_eligible"], rows["aten::addmm"]["tensor_cores_ns"]) == (True, 0)
    assert not rows["aten::gelu"]["is_eligible"]


def test_groups_are_those_that_were_asked_for(tmp_path: Path) -> None:
    found = load(tmp_path / "run", Plan(ranks=2, steps=2)).analysed.attributed
    rows = tensor_cores(found.ranges, found.work, ["rank", "name", "sizes"])
    groups = averages(found.ranges, found.work, "shape")
    assert rows.select("name", "sizes").unique().height == groups.height
    assert set(rows["rank"]) == {0, 1}
