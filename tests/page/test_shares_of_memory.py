"""Shares in Memory: what there was at the peak, against the blocks that the file's own allocations and frees leave."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import opspan
from builders.job import Job
from builders.job_program import rows_of
from builders.training_files import kineto_files
from builders.training_plan import Run
from opspan.views.page import document
from opspan.views.page.memory import section
from page.browser import Browser
from page.shares import assert_shares, bars_of, seen_in, subject_of
from page.test_memory import written

JOB = Job(steps=4, layers=3, leak_bytes=1 << 20)
REAL = [
    "kineto/norm_layers.json.gz",
    "kineto/mi300_ddp_resnet18.json.gz",
    pytest.param("kineto/vllm_graph_capture.json.gz", marks=pytest.mark.slow),
]
US = 1000


def at_peaks(file: Path) -> dict[int | None, tuple[int, Counter[str]]]:
    """Returns for each device, or None for the host, the peak of memory and the ops or ranges that took it.

    Memory from before the begin of the trace is known if it was freed later.
    """
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    events = json.loads(text)["traceEvents"]
    ranges = defaultdict(list)
    for one in events:
        if one["ph"] == "X" and one.get("cat") in ("cpu_op", "user_annotation"):
            ranges[one["tid"]].append((one["ts"], one["ts"] + one["dur"], one["name"]))
    devices = defaultdict(list)
    for one in events:
        if one["name"] == "[memory]":
            devices[None if (device := one["args"]["Device Id"]) < 0 else device].append(one)
    found = {}
    for device, rows in devices.items():
        rows.sort(key=lambda one: one["ts"])
        there = before(rows)
        most, blocks = sum(size for size, _ in there.values()), dict(there)
        for row in rows:
            size, address = row["args"]["Bytes"], row["args"]["Addr"]
            if size < 0:
                there.pop(address, None)
            else:
                around = [one for one in ranges[row["tid"]] if one[0] <= row["ts"] < one[1]]
                there[address] = size, max(around, key=lambda one: (one[0], -one[1]), default=(0, 0, "(in none)"))[2]
            if (held := sum(size for size, _ in there.values())) > most:
                most, blocks = held, dict(there)
        by_op: Counter[str] = Counter()
        for size, name in blocks.values():
            by_op[name] += size
        found[device] = most, by_op
    return found


def before(rows: list[dict[str, Any]]) -> dict[int, tuple[int, str]]:
    """The blocks whose first event gives them back."""
    first: dict[int, int] = {}
    for row in rows:
        first.setdefault(row["args"]["Addr"], row["args"]["Bytes"])
    return {address: (-size, "(in none)") for address, size in first.items() if size < 0}


def places_in(trace: opspan.Trace) -> list[dict[str, Any]]:
    data = section(subject_of(trace)).data
    assert data is not None
    return list(data["places"])


def assert_at_peak(place: dict[str, Any], most: int, by_op: Counter[str]) -> None:
    assert place["peak"]["allocated"] == most == by_op.total()
    for one in place["at_peak"]:
        names, _, sizes = one["rows"]["values"]
        head = one["rows"]["columns"][2]
        assert (head["name"], head["of"]) == ("bytes", most)
        assert sum(sizes) == most
        if one["title"] == "op":
            assert dict(zip(names, sizes, strict=True)) == by_op


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (made,) = kineto_files(tmp_path_factory.mktemp("memory"), Run(JOB, *rows_of(JOB)[:4]))
    return made


def test_what_there_was_at_the_peak_is_what_was_taken_and_not_given_back(file: Path) -> None:
    (place,) = places_in(opspan.load(file))
    (most, by_op) = at_peaks(file)[0]
    assert len(by_op) > 1
    assert_at_peak(place, most, by_op)
    assert [one["title"] for one in place["at_peak"]] == ["op", "module", "phase"]


@pytest.mark.parametrize("name", REAL)
def test_what_there_was_at_the_peaks_of_a_real_file(name: str, traces_dir: Path) -> None:
    if not (traces_dir / name).exists():
        pytest.skip(f"{name} is not among the recorded traces")
    peaks = at_peaks(traces_dir / name)
    for place in places_in(opspan.load(traces_dir / name)):
        device = None if place["title"] == "Host" else int(place["title"].split()[1])
        assert_at_peak(place, *peaks[device])


def test_each_share_of_memory_says_of_what(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "NAMES", ("memory",))
    path = written(tmp_path / "run.json")
    opspan.load(path).report(tmp_path / "page.html")
    peaks = at_peaks(path)
    with browser.open(tmp_path / "page.html") as opened:
        for device, title in ((0, "Device 0 (Some GPU)"), (None, "Host")):
            opened.goto("memory")
            opened.at.get_by_role("combobox", name="Memory of").select_option(title)
            seen = seen_in(opened, "memory")
            assert_shares(seen, "memory")
            assert seen["lines"] == []
            most, by_op = peaks[device]
            assert bars_of(seen, "Memory at the peak by op", "Size", "Taken in") == {
                name: pytest.approx(100 * size / most, abs=0.051) for name, size in by_op.items()
            }
