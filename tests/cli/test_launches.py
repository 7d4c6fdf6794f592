"""opspan launches: the calls that launched, how late their work began, and the queues of streams."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest

import opspan as package
from builders import kineto
from cli.answers import rows
from emit.running import opspan
from opspan.questions import BY

US = 1000


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kernels launched in one op, the second of them shorter than its call, and one outside of all ops."""
    events = [
        kineto.op("aten::mm", kineto.MAIN, 0, 40),
        kineto.call("cudaLaunchKernel", kineto.MAIN, 5, 5, 1),
        kineto.call("cudaLaunchKernel", kineto.MAIN, 20, 8, 2),
        kineto.call("cudaLaunchKernel", kineto.MAIN, 60, 5, 3),
        kineto.kernel("slow", 30, 25, 1),
        kineto.kernel("quick", 58, 2, 2),
        kineto.kernel("slow", 63, 10, 3),
    ]
    return kineto.write(tmp_path_factory.mktemp("launches") / "run.json", kineto.document(events))


def test_by_op(launched: Path) -> None:
    found = {row.pop("op"): row for row in rows("launches", launched)}
    assert found["aten::mm"] == {
        "launches": 2,
        "short_launches": 1,
        "call_ns": 13 * US,
        "work_ns": 27 * US,
        "delay_ns": 25 * US,  # the mean of 20 and 30
        "longest_delay_ns": 30 * US,
        "ahead_ns": 31_500,  # the mean of 25 and 38
    }
    assert found[None]["delay_ns"] == -2 * US
    printed = opspan("launches", launched).stdout
    assert "-2.000us" in printed
    assert "33.3% of 3 launches took longer than what they launched" in printed


def test_by_stream_the_queue(launched: Path) -> None:
    (row,) = rows("launches", launched, "--by", "stream")
    # One from 5 on, two from 20, one from 30, none from 58; again one from 60 to 63.
    assert row["longest_queue"] == 2
    assert row["mean_queue"] == pytest.approx((15 + 2 * 10 + 28 + 3) / 58)


@pytest.mark.parametrize("by", BY["launches"][:-1])
def test_sums_are_the_same_whatever_they_are_by(by: str, launched: Path) -> None:
    found = package.load(launched).launches(by)
    assert found["launches"].sum() == 3
    assert found["work_ns"].sum() == 37 * US


def test_without_devices_a_sentence_says_so(tmp_path: Path) -> None:
    path = kineto.write(tmp_path / "run.json", kineto.document([kineto.op("aten::mm", kineto.MAIN, 0, 40)]))
    assert "No work of devices in this trace has a launch call" in opspan("launches", path).stdout
    assert "Nothing was copied" in opspan("launches", path, "--by", "copy").stdout


def test_against_the_files_own_rows(traces_dir: Path) -> None:
    path = traces_dir / "nsys" / "train_fsdp_2gpu.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as file:
        kernels = file.execute(
            "SELECT s.value, r.start, r.end, k.start, k.end FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId AND "
            "r.globalTid / 0x1000000 = k.globalPid / 0x1000000 JOIN StringIds s ON s.id = k.shortName"
        ).fetchall()
    expected = defaultdict(list)
    for name, begin, end, began, done in kernels:
        expected[name].append((began - end, done - began, end - begin > done - began))
    found = {row["kernel"]: row for row in rows("launches", path, "--by", "kernel") if row["kernel"] in expected}
    assert len(found) == len(expected) > 5
    for name, those in expected.items():
        row = found[name]
        assert row["launches"] == len(those)
        assert row["work_ns"] == sum(ns for _, ns, _ in those)
        assert row["delay_ns"] == pytest.approx(median(delay for delay, _, _ in those), abs=1)
        assert row["short_launches"] == sum(is_short for *_, is_short in those)


def test_json_says_what_it_is(launched: Path) -> None:
    document = json.loads(opspan("launches", launched, "--by", "copy", "--format", "json").stdout)
    assert (document["answer"], document["rows"]) == ("launches", [])
