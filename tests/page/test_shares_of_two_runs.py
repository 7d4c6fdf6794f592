"""Shares in Compare, against sums over the events of both files: what changed, and how much of all it is."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

import opspan
from builders.training_files import load
from builders.training_plan import Plan
from opspan.views.page import document
from opspan.views.page.compare import section
from page.browser import Browser
from page.shares import assert_shares, paths, percent_of, seen_in, subject_of

SLOWER = {"aten::gelu": 3.0, "aten::add": 0.5}
US = 1000
NSYS = """
    SELECT value, w.end - w.start FROM CUPTI_ACTIVITY_KIND_KERNEL AS w JOIN StringIds ON id = shortName
    UNION ALL
    SELECT 'copies and fills', end - start FROM CUPTI_ACTIVITY_KIND_MEMCPY
    UNION ALL
    SELECT 'copies and fills', end - start FROM CUPTI_ACTIVITY_KIND_MEMSET
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[opspan.Trace, opspan.Trace]:
    """The second has more ranks, and more steps."""
    folder = tmp_path_factory.mktemp("runs")
    before = load(folder / "base", Plan(ranks=2, steps=4, layers=2))
    return before, load(folder / "new", Plan(ranks=3, steps=5, layers=2, slower=SLOWER, seed=1))


@pytest.fixture(scope="module")
def real_runs(traces_dir: Path) -> tuple[opspan.Trace, opspan.Trace]:
    files = [traces_dir / f"kineto/compare_{which}.json.gz" for which in ("base", "test")]
    if not all(file.exists() for file in files):
        pytest.skip("compare_base and compare_test are not among the recorded traces")
    before, after = map(opspan.load, files)
    return before, after


class Sums:
    """Sums of a file of torch.profiler, event by event: times of a step, in ns."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.by_op: Counter[str] = Counter()
        self.by_kernel: Counter[str] = Counter()
        self.took: list[list[int]] = []  # for each rank, step by step
        for file in files:
            self._add(json.loads(file.read_bytes())["traceEvents"])
        steps = sum(map(len, self.took))
        for sums in (self.by_op, self.by_kernel):
            for name in sums:
                sums[name] = round(sums[name] / steps)

    def _add(self, events: list[dict[str, Any]]) -> None:
        spans = [one for one in events if one["ph"] == "X"]
        ranges = [one for one in spans if one["cat"] in ("cpu_op", "user_annotation")]
        steps = sorted((one for one in ranges if one["name"].startswith("ProfilerStep#")), key=begin)
        calls = {one["args"]["correlation"]: one for one in spans if one["cat"] == "cuda_runtime"}
        ends: dict[int, int] = {number: end(step) for number, step in enumerate(steps)}
        self.by_op.update(dict.fromkeys({name_of(one) for one in ranges}, 0))
        for work in spans:
            if work["cat"] not in ("kernel", "gpu_memcpy"):
                continue
            call = calls[work["args"]["correlation"]]
            around = [one for one in ranges if one["tid"] == call["tid"] and begin(one) <= begin(call) < end(one)]
            op = max(around, key=begin)
            ns = end(work) - begin(work)
            for number, step in enumerate(steps):
                self.by_op[name_of(op)] += ns * (begin(step) <= begin(op) < end(step))
                if begin(step) <= begin(call) < end(step):
                    self.by_kernel[short(work["name"])] += ns
                    ends[number] = max(ends[number], end(work))
        done = [begin(steps[0]), *(ends[number] for number in range(len(steps)))]
        self.took.append([ends[at] - max(begin(step), done[at]) for at, step in enumerate(steps)])

    @property
    def of_step(self) -> float:
        return fmean(median(took) for took in self.took)


def begin(event: dict[str, Any]) -> int:
    return round(event["ts"] * US)


def end(event: dict[str, Any]) -> int:
    return begin(event) + round(event["dur"] * US)


def short(kernel: str) -> str:
    """Its name without types: `void at::native::f<float>(int)` is `f`."""
    return re.split(r"[<(]", kernel)[0].rpartition("::")[2].strip()


def name_of(event: dict[str, Any]) -> str:
    return re.sub(r"^ProfilerStep#\d+", "ProfilerStep*", event["name"])


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = [one["name"] for one in table["rows"]["columns"]]
    return [dict(zip(names, row, strict=True)) for row in zip(*table["rows"]["values"], strict=True)]


def assert_rows(rows: list[dict[str, Any]], before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Rows of one name, such as those of several modules, together are that name's share."""
    wholes = [sum(side.values()) for side in (before, after)]
    shares: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        shares[row["name"]][0] += row["share_before"]
        shares[row["name"]][1] += row["share_after"]
    assert set(shares) == {*before, *after}
    for name, said in shares.items():
        assert said == pytest.approx([before.get(name, 0) / wholes[0], after.get(name, 0) / wholes[1]], abs=1e-5), name
    assert [sum(side) for side in zip(*shares.values(), strict=True)] == pytest.approx([1, 1])


def test_shares_by_op_and_kernel_are_those_of_the_events(runs: tuple[opspan.Trace, opspan.Trace]) -> None:
    data = section(subject_of(runs[1], runs[0])).data
    assert data is not None
    before, after = (Sums(paths(run)) for run in runs)
    tables = {one["by"]: rows_of(one) for one in data["tables"]}

    for by, of in (("op", "by_op"), ("shape", "by_op"), ("place", "by_op"), ("kernel", "by_kernel")):
        assert_rows(tables[by], getattr(before, of), getattr(after, of))
    for by in ("module", "phase"):
        for side in ("before", "after"):
            assert sum(row[f"share_{side}"] for row in tables[by]) == pytest.approx(1)
    for row in tables["op"]:
        was, now = before.by_op[row["name"]], after.by_op[row["name"]]
        assert row["change"] == (pytest.approx((now - was) / was, abs=1e-4) if was else None), row["name"]
    steps = [[fmean(times) for times in zip(*one.took, strict=True)] for one in (before, after)]
    changes = [(now - was) / was for was, now in zip(*steps, strict=False)]
    assert [row["change"] for row in tables["step"]] == pytest.approx(changes, abs=1e-5)
    assert percent_of(data["said"]) == pytest.approx(100 * (after.of_step / before.of_step - 1), abs=0.051)


@pytest.mark.parametrize("source", ["simulated", "torch.profiler"])
def test_each_share_of_compare_says_of_what(
    source: str, browser: Browser, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "NAMES", ("compare",))
    before, after = request.getfixturevalue("runs" if source == "simulated" else "real_runs")
    after.report(tmp_path / "page.html", against=before)
    data = section(subject_of(after, before)).data
    assert data is not None
    with browser.open(tmp_path / "page.html") as opened:
        seen = seen_in(opened, "compare")
        assert len(seen["lines"]) == 1
        assert re.search(r"before, .+ after, [-+][0-9.]+% of before;", seen["lines"][0])
        for table in data["tables"]:
            opened.at.get_by_role("combobox", name="By").select_option(table["title"])
            seen = seen_in(opened, "compare")
            assert_shares(seen, f"compare by {table['title']}")
            (shown,) = seen["tables"]
            known = {"Change %": "change", "Share before": "share_before", "Share after": "share_after"}
            expected = ["Change %"] if table["by"] == "step" else list(known)
            assert shown["shares"] == expected
            for cells, row in zip(shown["rows"], rows_of(table), strict=False):
                for title in expected:
                    said, share = cells[title]["text"], row[known[title]]
                    assert (percent_of(said) if said else None) == (
                        None if share is None else pytest.approx(100 * share, abs=0.051)
                    ), (title, row)


def kernels_in(file: Path) -> dict[str, int]:
    sums: Counter[str] = Counter()
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as opened:
        for name, ns in opened.execute(NSYS):
            sums[name] += ns
    return sums


def test_shares_of_kernels_of_real_files(traces_dir: Path) -> None:
    files = [traces_dir / "nsys" / f"{name}.sqlite" for name in ("infer_2gpu", "train_fsdp_2gpu")]
    if not all(file.exists() for file in files):
        pytest.skip("infer_2gpu and train_fsdp_2gpu are not among the recorded traces")
    before, after = map(opspan.load, files)

    data = section(subject_of(after, before)).data

    assert data is not None
    rows = rows_of(next(one for one in data["tables"] if one["by"] == "kernel"))
    sums = [kernels_in(file) for file in files]
    for row in rows:
        row["name"] = row["name"] if row["kind"] == "kernel" else "copies and fills"
    assert_rows(rows, *sums)
