"""A range that reaches the collectors through NVTX and through ITT is one row; ranges that only look alike stay two."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import capture as build
from builders.capture import Capture

NVTX, ITT = build.NVTX, build.ITT


class Told:
    """A thread's calls as `N+f I+f I- N-`: what each protocol begins and ends, 10 ns apart."""

    def __init__(self, calls: str) -> None:
        self.made = Capture(pid=100)
        thread = self.made.thread(100, "main")
        open_: dict[str, list[tuple[str, int]]] = {"N": [], "I": []}
        closed = []
        for time, call in enumerate(calls.split(), 1):
            stack = open_[call[0]]
            if call[1] == "+":
                stack.append((call[2:], time * 10))
            elif call[1] == "!":
                closed.append((call[0], call[2:], time * 10, None))
            else:
                name, start = stack.pop()
                closed.append((call[0], name, start, time * 10))
        closed += [(side, name, start, 0) for side, stack in open_.items() for name, start in stack]
        for side, name, start, end in sorted(closed, key=lambda each: each[2]):
            source = NVTX if side == "N" else ITT
            if end is None:
                thread.range(name, start, kind=build.MARK, source=source)
            else:
                thread.range(name, start, end, source=source)

    def load(self, folder: Path) -> opspan.Trace:
        path = folder / "a.opspan"
        path.write_bytes(self.made.to_bytes())
        return opspan.load(path)


@pytest.mark.parametrize(
    ("calls", "rows"),
    [
        ("N+f I+f I- N-", ["nvtx f"]),
        ("I+f N+f N- I-", ["nvtx f"]),
        ("N+f I+f N- I-", ["nvtx f"]),  # popped in the order in which they were pushed
        ("I+f N+f I- N-", ["nvtx f"]),
        ("N+f I+f N- I- N+f I+f N- I-", ["nvtx f", "nvtx f"]),
        ("N+f I+f N+f I+f I- N- I- N-", ["nvtx f", "nvtx f"]),  # recursion
        ("N+f I+f N+g N- I+h I- I- N-", ["nvtx f", "nvtx g", "itt h"]),
        ("N!m I!m N!m I!m", ["nvtx m", "nvtx m"]),
        ("N+f I+f", ["nvtx f"]),  # neither has ended
        # No pairs:
        ("N+f N+f N- N- I+x I-", ["nvtx f", "nvtx f", "itt x"]),
        ("I+f I+f I- I- N+x N-", ["itt f", "itt f", "nvtx x"]),
        ("N+f N- I+f I-", ["nvtx f", "itt f"]),  # one after the other
        ("N+f I+g I- N-", ["nvtx f", "itt g"]),
        ("N+f N+g N- I+f I- N-", ["nvtx f", "nvtx g", "itt f"]),  # something of its own comes first
        ("N+f I+f I- N+g N- N-", ["nvtx f", "itt f", "nvtx g"]),  # and after
        ("N+f I+f I-", ["nvtx f", "itt f"]),  # one has ended, the other has not
        ("N+f I!f N-", ["nvtx f", "itt f"]),
    ],
)
def test_one_range_is_one_row(calls: str, rows: list[str], tmp_path: Path) -> None:
    trace = Told(calls).load(tmp_path)
    found = trace.ranges.sort("start_ns").select(pl.format("{} {}", "source", "name")).to_series().to_list()

    assert found == rows
    paired = len([call for call in calls.split() if call[1] in "+!"]) - len(rows)
    issues = trace.issues.filter(code="told_twice")
    assert issues["count"].sum() == paired
    assert trace.ranges["id"].to_list() == list(range(len(rows)))


def test_marks_of_one_name_that_are_far_apart_are_two(tmp_path: Path) -> None:
    made = Capture(pid=100)
    thread = made.thread(100, "main")
    thread.range("m", 10, kind=build.MARK, source=NVTX)
    thread.range("m", 10 + 2_000_000, kind=build.MARK, source=ITT)
    (tmp_path / "a.opspan").write_bytes(made.to_bytes())

    assert opspan.load(tmp_path / "a.opspan").ranges.height == 2


@pytest.mark.parametrize(("seqs", "sources"), [((5, 5), ["nvtx"]), ((5, None), ["nvtx"]), ((5, 6), ["nvtx", "itt"])])
def test_ranges_with_two_sequence_numbers_are_two(
    seqs: tuple[int, int | None], sources: list[str], tmp_path: Path
) -> None:
    made = Capture(pid=100)
    thread = made.thread(100, "main")
    for source, seq, start in zip((NVTX, ITT), seqs, (10, 20), strict=True):
        label = "aten::mm" if seq is None else f"aten::mm, seq = {seq}"
        thread.range(label, start, 50 - start, source=source)
    (tmp_path / "a.opspan").write_bytes(made.to_bytes())

    ranges = opspan.load(tmp_path / "a.opspan").ranges

    assert ranges.select("source", "seq").rows() == list(zip(sources, seqs, strict=False))


def test_threads_keep_apart(tmp_path: Path) -> None:
    made = Capture(pid=100)
    made.thread(100, "main").range("f", 10, 40, source=NVTX)
    made.thread(101, "other").range("f", 20, 30, source=ITT)
    (tmp_path / "a.opspan").write_bytes(made.to_bytes())

    assert opspan.load(tmp_path / "a.opspan").ranges.height == 2


def test_what_only_one_of_them_knew_is_kept_and_links_follow(tmp_path: Path) -> None:
    made = Capture(pid=100)
    thread = made.thread(100, "main")
    outer = thread.range("outer", 10, 100, source=ITT, domain="lib")
    thread.ids(outer, (1, 0, 0), (0, 0, 0))
    thread.range("outer", 11, 99, source=NVTX, domain="lib", category=0)
    inner = thread.range("inner", 20, 30, source=ITT, domain="lib")
    thread.ids(inner, (2, 0, 0), (1, 0, 0))
    thread.attribute(inner, "rank", 3)
    thread.range("last", 50, 60, source=NVTX)
    thread.relation(70, (2, 0, 0), 1, (1, 0, 0))
    (tmp_path / "a.opspan").write_bytes(made.to_bytes())
    trace = opspan.load(tmp_path / "a.opspan")
    rows = {row["name"]: row for row in trace.ranges.iter_rows(named=True)}

    assert {name: row["source"] for name, row in rows.items()} == {"outer": "nvtx", "inner": "itt", "last": "nvtx"}
    assert (rows["outer"]["start_ns"], rows["outer"]["end_ns"]) == (11, 99)
    assert rows["inner"]["parent_id"] == rows["outer"]["id"]
    assert trace.relations.select("range_id", "other_id").row(0) == (rows["inner"]["id"], rows["outer"]["id"])
    assert rows["inner"]["payload_json"] == '{"rank": 3}'


def test_the_fields_of_both_come_together(tmp_path: Path) -> None:
    made = Capture(pid=100)
    thread = made.thread(100, "main")
    thread.range("f", 10, 40, source=NVTX, domain="lib", color=0xFF112233)
    task = thread.range("f", 20, 30, source=ITT, domain="lib")
    thread.attribute(task, "loss", 1.5)
    (tmp_path / "a.opspan").write_bytes(made.to_bytes())
    (row,) = opspan.load(tmp_path / "a.opspan").ranges.iter_rows(named=True)

    assert (row["color"], row["payload_json"]) == (0xFF112233, '{"loss": 1.5}')
