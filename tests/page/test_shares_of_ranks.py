"""Shares in Distributed, against sums over the events of the files: who was waited for, and which collectives took how
much of the time of all."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import opspan
from builders.job import Job
from builders.job_program import rows_of
from builders.training_files import kineto_files, load
from builders.training_plan import Plan, Run
from opspan.views.page import document
from opspan.views.page.distributed import section
from page.browser import Browser
from page.shares import assert_shares, bars_of, paths, percent_of, seen_in, subject_of
from views.test_shares_of_raw_rows import MATCHED_STREAM, work_and_times

RANKS, STEPS = 4, 3
PLAN = Plan(ranks=RANKS, steps=STEPS, layers=2, noise=0.1, slower_ranks={1: 1.3, 2: 1.3})
US = 1000
LATENCY, WAITED_FOR, WAITED = "Total latency", "Others waited for it", "It waited for others"
SAMPLED = [f"kineto/rank{rank}_sampled.json.gz" for rank in (0, 1)]
# All are of NCCL's one kernel: the first on each device sends and receives, the others are all_to_all.
NSYS = """
    SELECT
      'process ' || (globalPid / 0x1000000 & 0xffffff),
      iif(row_number() OVER (PARTITION BY deviceId ORDER BY k.start) = 1, 'SendRecv', 'AllToAll'),
      k.end - k.start
    FROM CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN StringIds ON id = shortName
    WHERE value LIKE 'nccl%'
"""
NVPROF = """
    SELECT 'device ' || deviceId, value, k.end - k.start
    FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL AS k JOIN StringTable AS s ON s._id_ = k.name
    WHERE value LIKE '%nccl%'
"""
REAL = {"nsys/train_fsdp_2gpu.sqlite": NSYS, "nvprof/nccl_4gpu.nvvp": NVPROF}
WORDS = {"AllReduce": "all_reduce", "Broadcast": "broadcast", "SendRecv": "send_recv", "AllToAll": "all_to_all"}


class Span(NamedTuple):
    start: int
    end: int
    name: str

    @property
    def ns(self) -> int:
        return self.end - self.start


def events_in(file: Path, *categories: str) -> list[tuple[dict[str, Any], Span]]:
    """Returns the args and the time of each event, in the order of their begins."""
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    found = []
    for one in json.loads(text)["traceEvents"]:
        if one["ph"] == "X" and one.get("cat") in categories:
            start = round(one["ts"] * US)
            found.append((one["args"], Span(start, start + round(one["dur"] * US), one["name"])))
    return sorted(found, key=lambda one: one[1])


def spans_in(file: Path, *categories: str, stream: int | None = None) -> list[Span]:
    events = events_in(file, *categories)
    return [span for said, span in events if stream is None or said["stream"] == stream]


def collectives_in(file: Path, stream: int | None = None) -> list[Span]:
    return [one for one in spans_in(file, "kernel", stream=stream) if one.name.startswith("nccl")]


def nth_with_nth(ranks: Iterable[list[Span]]) -> list[dict[int, Span]]:
    return [dict(enumerate(together)) for together in zip(*ranks, strict=True)]


def pairs_in(file: Path, rank: int) -> dict[tuple[int, int], list[Span]]:
    """Returns the times in which the rank sent and received, by source and target."""
    found: dict[tuple[int, int], list[Span]] = defaultdict(list)
    for said, span in events_in(file, "kernel"):
        if said.get("Collective name") == "send":
            found[rank, said["Dst Rank"]].append(span)
        if said.get("Collective name") == "recv":
            found[said["Src Rank"], rank].append(span)
    return found


class Waiting:
    """`matched`: of each collective what it was on each rank."""

    def __init__(self, matched: Iterable[dict[int, Span]]) -> None:
        self.waited, self.waited_for, self.last, self.took = Counter[int](), Counter[int](), Counter[int](), 0
        self.matched = list(matched)
        for together in self.matched:
            shortest = min(one.ns for one in together.values())
            late = max((one.start, rank) for rank, one in together.items() if one.ns == shortest)[1]
            self.last[late] += 1
            self.took += sum(one.ns for one in together.values())
            for rank, one in together.items():
                self.waited[rank] += one.ns - shortest
                self.waited_for[late] += one.ns - shortest

    def share(self) -> float:
        return 100 * self.waited.total() / self.took

    def bars(self, of: Counter[int], places: Iterable[str]) -> dict[str, Any]:
        return {place: pytest.approx(100 * of[rank] / of.total(), abs=0.051) for rank, place in enumerate(places)}

    def assert_rows(self, rows: dict[str, Any]) -> None:
        ranks = range(len(rows["values"][0]))
        assert column(rows, "waited_for_ns") == [self.waited_for[rank] for rank in ranks]
        assert column(rows, "waiting_ns") == [self.waited[rank] for rank in ranks]
        assert column(rows, "last") == [self.last[rank] for rank in ranks]
        assert total_of(rows, "waited_for_ns") == total_of(rows, "waiting_ns") == self.waited.total()

    def assert_said(self, said: list[str]) -> None:
        (late, ns), *_ = self.waited_for.most_common()
        of = sum(late in together for together in self.matched)
        assert said[0] == f"Of the time of the collectives that matched {self.share():.1f}% was waiting for others"
        assert f"ank {late} came last to {self.last[late]:,} of its {of:,} collectives" in said[1]
        assert said[1].endswith(f"for it: {100 * ns / self.waited_for.total():.1f}% of all waiting")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> opspan.Trace:
    return load(tmp_path_factory.mktemp("ranks") / "made", PLAN)


def shown(trace: opspan.Trace) -> dict[str, Any]:
    data = section(subject_of(trace)).data
    assert data is not None
    return data


def column(rows: dict[str, Any], name: str) -> list[Any]:
    return list(rows["values"][[one["name"] for one in rows["columns"]].index(name)])


def total_of(rows: dict[str, Any], name: str) -> int:
    """The whole of which the bars of a column are shares."""
    return int(next(one["of"] for one in rows["columns"] if one["name"] == name))


def length_of(spans: Iterable[Span], begin: int, end: int) -> int:
    """The time in which any of them is on."""
    at, ns = begin, 0
    for one in sorted(spans):
        start, stop = max(one.start, at), min(one.end, end)
        if stop > start:
            ns, at = ns + stop - start, stop
    return ns


def test_waiting_is_that_of_the_events(ranks: opspan.Trace) -> None:
    data = shown(ranks)
    waiting = Waiting(nth_with_nth(map(collectives_in, paths(ranks))))

    waiting.assert_said(data["said"])
    waiting.assert_rows(data["ranks"]["rows"])


def test_waiting_in_a_pipeline_is_that_of_pairs(tmp_path: Path) -> None:
    """The n-th that a rank sends to another is the n-th that this one receives from it."""
    job = Job(ranks=4, pipeline=True, micro=4, steps=3, noise=0.1)
    files = kineto_files(tmp_path, Run(job, *rows_of(job)[:4]))
    sides: dict[tuple[int, int, int], dict[int, Span]] = defaultdict(dict)
    for rank, file in enumerate(files):
        for pair, spans in pairs_in(file, rank).items():
            for nth, span in enumerate(spans):
                sides[(*pair, nth)][rank] = span
    assert all(len(one) == 2 for one in sides.values())
    waiting = Waiting(sides.values())

    data = shown(opspan.load(*files))

    waiting.assert_said(data["said"])
    waiting.assert_rows(data["ranks"]["rows"])


def test_where_the_time_of_each_rank_went_is_the_time_of_its_events(ranks: opspan.Trace) -> None:
    load = shown(ranks)["load"]
    times = {one["name"]: one["ns"] for one in load["kinds"]}
    rows = list(zip(load["place"], load["step"], strict=True))
    assert len(rows) == RANKS * (1 + STEPS)
    for rank, file in enumerate(paths(ranks)):
        every = spans_in(file, "cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy")
        steps = [one for one in every if one.name.startswith("ProfilerStep#")]
        kernels = spans_in(file, "kernel")
        computing = [one for one in kernels if not one.name.startswith("nccl")]
        whole = Span(min(one.start for one in every), max(one.end for one in every), "")
        for step, (begin, end, _) in enumerate([whole, *steps]):
            row = rows.index((rank, step))
            alone, both, together = (length_of(some, begin, end) for some in (computing, collectives_in(file), kernels))
            overlapping = alone + both - together
            said = {name: ns[row] for name, ns in times.items()}
            assert said == {
                "computing": alone - overlapping,
                "overlapping": overlapping,
                "communicating": both - overlapping,
                "other": end - begin - together,
            }


def test_each_share_of_distributed_says_of_what(
    browser: Browser, ranks: opspan.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "NAMES", ("distributed",))
    ranks.report(tmp_path / "page.html")
    waiting = Waiting(nth_with_nth(map(collectives_in, paths(ranks))))
    places = [f"rank {rank}" for rank in range(RANKS)]
    with browser.open(tmp_path / "page.html") as opened:
        seen = seen_in(opened, "distributed")
        assert_shares(seen, "distributed")
        assert bars_of(seen, "Who came last", WAITED_FOR, "Where") == waiting.bars(waiting.waited_for, places)
        assert bars_of(seen, "Who came last", WAITED, "Where") == waiting.bars(waiting.waited, places)
        (line,) = seen["lines"]
        waiting.assert_said(re.split(r"(?<=[a-z])\. ", line.removesuffix(".")))
        for by in ("group", "size", "op"):
            opened.at.get_by_role("combobox", name="By").select_option(by)
            seen = seen_in(opened, "distributed")
            assert_shares(seen, f"distributed by {by}")
            (table,) = (one for one in seen["tables"] if one["name"] == f"Collectives by {by}")
            shares = [percent_of(row[LATENCY]["title"]) for row in table["rows"]]
            assert sum(shares) == pytest.approx(100, abs=0.051 * len(shares))


@pytest.mark.parametrize("name", REAL)
def test_latency_of_real_files_is_that_of_their_kernels(
    name: str, browser: Browser, traces_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (traces_dir / name).exists():
        pytest.skip(f"{name} is not among the recorded traces")
    sums: dict[str, Counter[str]] = {"everywhere": Counter()}
    with closing(sqlite3.connect(f"file:{traces_dir / name}?mode=ro", uri=True)) as file:
        for place, kernel, ns in file.execute(REAL[name]):
            kind = next(kind for word, kind in WORDS.items() if word in kernel)
            for of in ("everywhere", place):
                sums.setdefault(of, Counter())[kind] += ns
    trace = opspan.load(traces_dir / name)

    parts = next(one for one in shown(trace)["tables"] if one["by"] == "kind")["parts"]
    assert {one["of"] for one in parts} == set(sums)
    for one in parts:
        by_kind = sums[one["of"]]
        assert dict(zip(*(column(one["rows"], name) for name in ("kind", "time_ns")), strict=True)) == by_kind
        assert total_of(one["rows"], "time_ns") == by_kind.total()

    monkeypatch.setattr(document, "NAMES", ("distributed",))
    trace.report(tmp_path / "page.html")
    with browser.open(tmp_path / "page.html") as opened:
        for of, by_kind in sums.items():
            opened.at.get_by_role("combobox", name="On").select_option("all ranks" if of == "everywhere" else of)
            seen = seen_in(opened, "distributed")
            assert_shares(seen, name)
            bars = bars_of(seen, "Collectives by kind", LATENCY, "Collective")
            assert bars == {kind: pytest.approx(100 * ns / by_kind.total(), abs=0.051) for kind, ns in by_kind.items()}
            assert all("%" not in line or " of all waiting" in line for line in seen["lines"])


def test_where_the_time_of_a_real_file_went(traces_dir: Path) -> None:
    name = "nsys/train_fsdp_2gpu.sqlite"
    if not (traces_dir / name).exists():
        pytest.skip(f"{name} is not among the recorded traces")
    _, times = work_and_times(traces_dir / name, name)
    query = """
        SELECT globalPid / 0x1000000, start, end, value
        FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName
    """
    kernels: dict[int, list[Span]] = {pid: [] for pid in times}
    with closing(sqlite3.connect(f"file:{traces_dir / name}?mode=ro", uri=True)) as file:
        for pid, *span in file.execute(query):
            kernels[pid].append(Span(*span))
    load = shown(opspan.load(traces_dir / name))["load"]
    said = {one["name"]: one["ns"] for one in load["kinds"]}
    for pid, (begin, end) in times.items():
        place = load["places"].index(f"process {pid & 0xFFFFFF}")
        row = list(zip(load["place"], load["step"], strict=True)).index((place, 0))
        nccl = [one for one in kernels[pid] if one.name.startswith("nccl")]
        computing = [one for one in kernels[pid] if not one.name.startswith("nccl")]
        together = length_of(kernels[pid], begin, end)
        assert said["other"][row] == end - begin - together
        assert said["communicating"][row] == together - length_of(computing, begin, end)
        assert said["computing"][row] == together - length_of(nccl, begin, end)
        assert sum(ns[row] for ns in said.values()) == end - begin


def test_waiting_of_real_ranks_is_that_of_what_matched(traces_dir: Path) -> None:
    if not all((traces_dir / name).exists() for name in SAMPLED):
        pytest.skip("the sampled ranks are not among the recorded traces")
    files = [traces_dir / name for name in SAMPLED]
    waiting = Waiting(nth_with_nth(collectives_in(file, MATCHED_STREAM) for file in files))

    data = shown(opspan.load(*files))

    waiting.assert_said(data["said"])
    waiting.assert_rows(data["ranks"]["rows"])
