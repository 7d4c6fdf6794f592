"""The data of a flame graph: no time is lost, however few frames are drawn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders.training_files import load
from builders.training_plan import Plan
from opspan.analysis.call_tree import call_tree
from opspan.views.page import flame as flames
from opspan.views.page.flame import flame
from views.sources import nsys

TREE = pl.DataFrame(
    {
        "parent": pl.Series([None, 0, 0, 1, 1, None, 4], dtype=pl.UInt32),
        "name": ["root", "a", "b", "c", "d", "other", "e"],
        "kind": ["step", "module", "module", "forward", "backward", "other", "forward"],
        "cpu_ns": [10, 5, 30, 50, 1, 2, 1],
        "device_ns": [0, 0, 0, 7, 0, 0, 0],
    }
)


def frames(data: dict[str, Any]) -> list[tuple[str, str, int | None]]:
    columns = data["frames"]
    return [
        (data["names"][name], data["kinds"][kind], parent)
        for name, kind, parent in zip(columns["name"], columns["kind"], columns["parent"], strict=True)
    ]


def test_a_small_tree_is_whole() -> None:
    data = flame(TREE)
    assert frames(data) == list(TREE.select("name", "kind", "parent").iter_rows())
    assert data["own"] == {"device_ns": TREE["device_ns"].to_list(), "cpu_ns": TREE["cpu_ns"].to_list()}
    assert data["notes"] == []


def test_small_frames_are_one_in_each_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flames, "MOST_FRAMES", 3)
    data = flame(TREE)
    assert frames(data)[:3] == [("root", "step", None), ("a", "module", 0), ("c", "forward", 1)]
    rest = {parent: (name, data["own"]["cpu_ns"][3 + at]) for at, (name, _, parent) in enumerate(frames(data)[3:])}
    assert rest == {0: ("1 small frames", 30), 1: ("2 small frames", 2), None: ("1 small frames", 2)}
    assert {kind for _, kind, _ in frames(data)[3:]} == {"rest"}
    assert data["notes"] == ["4 small frames are drawn together, as one in each frame that they are in"]


@pytest.mark.parametrize("most", [5, 50, 4_000])
def test_every_frame_keeps_its_total(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flames, "MOST_FRAMES", most)
    tree = call_tree(load(tmp_path / "run", Plan(steps=2)).analysed.complete)
    data = flame(tree)
    for measure in ("cpu_ns", "device_ns"):
        assert sum(data["own"][measure]) == tree[measure].sum()
    assert len(frames(data)) <= 2 * most + 1
    assert all(parent is None or parent < at for at, (*_, parent) in enumerate(frames(data)[:most]))
    assert Counter(parent for _, kind, parent in frames(data) if kind == "rest").total() <= most + 1


def test_what_has_no_time_at_all_has_no_frames(tmp_path: Path) -> None:
    found = opspan.load(nsys(tmp_path / "run.sqlite")).analysed.complete
    marks = found.replace(ranges=found.ranges.filter("is_mark"))
    assert flame(call_tree(marks))["own"] == {}
