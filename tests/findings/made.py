"""Runs that are made by hand for the rules: steps of equal length, and rows in each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from analysis.frames import table
from opspan.analysis import Analysis
from opspan.findings import Finding, findings
from opspan.tables import Metadata, Tables
from opspan.tables.metadata import Told

STEP = 1000  # ns
MAIN = 1


class Made:
    """A run of steps ProfilerStep#0, ProfilerStep#1, ..., one after the other from time 0 on.

    Times count from the begin of a step. Rows are added to each step, or to those in `steps`, and to each rank, unless
    a rank is given.
    """

    def __init__(self, steps: int = 10, longer: dict[int, int] | None = None, ranks: Sequence[int] = (0,)) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.ranks = ranks
        self.options: dict[str, Any] = {}  # of the first rank
        self.world_size: int | None = None
        self.begins, now = [], 0
        for step in range(steps):
            self.begins.append(now)
            self.range(f"ProfilerStep#{step}", 0, STEP + (longer or {}).get(step, 0), steps=[step], kind="step")
            now += STEP + (longer or {}).get(step, 0)

    def add(self, to: str, at: int, length: int, steps: Iterable[int] | None, /, **more: Any) -> Made:
        for step in range(len(self.begins)) if steps is None else steps:
            begin = at + (self.begins[step] if self.begins else 0)
            for rank in self.ranks:
                row = {"rank": rank, "pid": 1, "start_ns": begin, "end_ns": begin + length, "time_ns": begin, **more}
                if isinstance(number := row.get("correlation_id"), int):
                    row["correlation_id"] = number * 1000 + step
                if isinstance(number := row.get("seq"), int):
                    row["seq"] = number * 1000 + step
                self.rows.setdefault(to, []).append(row)
        return self

    def range(self, name: str | None, at: int, length: int, steps: Iterable[int] | None = None, **more: Any) -> Made:
        flags = {"is_async": False, "is_mark": False, "tid": MAIN, "kind": "op"}
        return self.add("ranges", at, length, steps, **{"name": name, **flags, **more})

    def call(self, name: str, at: int, length: int, steps: Iterable[int] | None = None, **more: Any) -> Made:
        return self.add("calls", at, length, steps, **{"name": name, "tid": MAIN, "api": "cuda_runtime", **more})

    def work(self, name: str | None, at: int, length: int, steps: Iterable[int] | None = None, **more: Any) -> Made:
        return self.add("work", at, length, steps, **{"name": name, "kind": "kernel", "device_id": 0, **more})

    def launch(
        self,
        called: int,
        name: str | None,
        at: int,
        length: int,
        steps: Sequence[int] | None = None,
        tid: int = MAIN,
        **more: Any,
    ) -> Made:
        """Work, and the call that launched it, of 10 ns."""
        number = len(self.rows.get("calls", [])) + 1
        self.call("cudaLaunchKernel", called, 10, steps, tid=tid, correlation_id=number)
        return self.work(name, at, length, steps, correlation_id=number, **more)

    def device(self, **more: Any) -> Made:
        self.rows.setdefault("devices", []).extend({"rank": rank, "device_id": 0, **more} for rank in self.ranks)
        return self

    def sample(
        self, stack: str | None, at: int, count: int = 1, steps: Iterable[int] | None = None, **more: Any
    ) -> Made:
        """In each step, `count` samples at the same time."""
        for _ in range(count):
            self.add("samples", at, 0, steps, **{"tid": MAIN, "weight": 1, "stack": stack, **more})
        return self

    def memory(self, **more: Any) -> Made:
        return self.add("memory", 0, 0, [0], **{"device_id": 0, "time_ns": 0, "event": "alloc", "address": 1, **more})

    def tables(self) -> Tables:
        told = Told(world_size=self.world_size)
        options = (self.options, *({} for _ in self.ranks[1:]))
        metadata = tuple(Metadata(source="kineto", paths=(), options=stated, told=told) for stated in options)
        return Tables(metadata, **{name: table(name, rows) for name, rows in self.rows.items()})

    def analysed(self) -> Analysis:
        return Analysis(self.tables())

    def findings(self) -> dict[str, Finding]:
        return {finding.rule.id: finding for finding in findings(self.analysed())}


@dataclass(frozen=True)
class Case:
    """A run that a rule reports, with its finding, and similar runs that it does not report, by the reason."""

    id: str
    fires: Callable[[], Made]
    at_stake_ns: int | None
    share: float | None
    figures: dict[str, float]
    silent: dict[str, Callable[[], Made]]
    ops: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    ranges: Sequence[tuple[int, int]] = ()
    words: dict[str, str] = field(default_factory=dict)


def each(at: int, length: int, steps: Iterable[int] = range(10)) -> list[tuple[int, int]]:
    """The time range in each step."""
    return [(STEP * step + at, STEP * step + at + length) for step in steps]


FIRST = tuple(f"ProfilerStep#{step}" for step in range(3))


def check_fires(case: Case) -> None:
    finding = case.fires().findings()[case.id]
    found = finding.evidence
    said = (found.at_stake_ns, finding.share)
    assert said == (case.at_stake_ns, case.share), (
        said,
        finding.rule.id,
        finding.share,
        found.at_stake_ns,
        found.figures,
        type(said[0]),
    )
    assert found.figures == case.figures
    assert (found.ops, found.modules, found.steps) == (case.ops, case.modules, case.steps)
    assert found.ranges.select("start_ns", "end_ns").rows() == list(case.ranges)
    assert found.words == case.words


def check_silent(case: Case, why: str) -> None:
    assert case.id not in case.silent[why]().findings()


def case_tests(cases: Sequence[Case]) -> tuple[Callable[[Case], None], Callable[[Case, str], None]]:
    """Returns the tests that a file of rules has for its cases: a rule fires, and is silent on similar runs."""

    @pytest.mark.parametrize("case", cases, ids=lambda case: case.id)
    def test_it_fires(case: Case) -> None:
        check_fires(case)

    @pytest.mark.parametrize(("case", "why"), [(case, why) for case in cases for why in case.silent])
    def test_it_is_silent(case: Case, why: str) -> None:
        check_silent(case, why)

    return test_it_fires, test_it_is_silent
