"""Ops that opspan's sinks tell opspan's collector directly are one unit each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from builders.capture_units import HAS_COLOR, HAS_FORWARD, HAS_LABEL, INT, ITT, NVTX, Capture, Unit
from collectors.running import NATIVE, Collected

OF_NVTX = HAS_LABEL | HAS_COLOR
USERS = 1 << 63


@pytest.fixture
def capture(collected: Collected, client: Callable[..., Path]) -> Capture:
    out, err = collected.run(client("direct_calls.cpp", "-I", NATIVE))
    assert (out, err) == ("", "")
    return collected.capture()


def test_all_that_is_told_stands_in_the_unit(capture: Capture) -> None:
    of = {unit.name: unit for unit in capture.units()}

    def said(name: str) -> tuple[object, ...]:
        it: Unit = of[name]
        return it.source, it.flags, it.id, it.value, it.category, it.forward_tid, capture.text(it.sizes)

    def parent(name: str) -> int:
        return int(of[name].schema) << 32 | int(of[name].color)

    assert said("plain") == (NVTX, OF_NVTX | INT, 7, 3, 1, 0, None)
    assert said("of forward") == (NVTX, OF_NVTX | HAS_FORWARD, 9, None, 2, 812, None)
    assert said("sized") == (NVTX, OF_NVTX | INT, 11, 5, 1, 0, "[[2], []]")
    assert said("both") == (NVTX, OF_NVTX | HAS_FORWARD | INT, 14, 6, 2, 812, "[[2], []]")
    assert said("far") == (NVTX, OF_NVTX | INT, 1 << 32, 1 << 32, 1, 0, None)
    assert {of[name].color for name in ("plain", "sized", "far")} == {0xFF4C78A8}
    assert of["both"].color == 0xFFF58518

    assert said("task") == (ITT, HAS_LABEL | INT, 8, 4, 0, 0, None)
    assert said("inner task") == (ITT, HAS_LABEL, 10, None, 0, 0, None)
    assert said("task of forward") == (ITT, HAS_LABEL | HAS_FORWARD | INT, 12, 3, 0, 812, None)
    assert said("sized task") == (ITT, HAS_LABEL | INT, 13, 5, 0, 0, "[[2], []]")
    tasks = ("task", "inner task", "task of forward", "sized task", "task of far")
    assert [parent(name) for name in tasks] == [5 | USERS, 8, 10, 0, 1 << 32]

    assert {capture.text(unit.domain) for unit in of.values()} == {"opspan"}


def test_ranges_end_in_their_own_order(capture: Capture) -> None:
    main, _ = capture.threads
    ends = {source: {it.name: it.end_ns for it in capture.threads[main] if it.source == source} for source in (3, 4)}

    assert sorted(ends[NVTX], key=ends[NVTX].__getitem__) == ["of forward", "far", "both", "sized", "plain"]
    inner_first = ["task of far", "sized task", "task of forward", "inner task", "task"]
    assert sorted(ends[ITT], key=ends[ITT].__getitem__) == inner_first
    assert all(unit.end_ns >= unit.start_ns for unit in capture.units())
