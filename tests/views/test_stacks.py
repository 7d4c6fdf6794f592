"""Stacks against a twin that walks up the tree of every range."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import opspan
from opspan.analysis import attribute
from opspan.trace import Trace
from opspan.views import export
from views.sources import capture, nsys


def twin(trace: Trace, weight: str) -> Counter[str]:
    rows = attribute(trace).ranges.to_dicts()
    names = {(one["rank"], one["pid"], one["tid"]): one["name"] for one in trace.threads.to_dicts()}
    processes = {(one["rank"], one["pid"]): one["name"] for one in trace.processes.to_dicts()}
    found: Counter[str] = Counter()
    for row in rows:
        if row["is_mark"] or row["is_async"] or not row[weight]:
            continue
        frames, at = [], row
        while at is not None:
            frames.append(at["name"] or "(no name)")
            at = rows[at["parent"]] if at["parent"] is not None else None
        thread = names.get((row["rank"], row["pid"], row["tid"]))
        process = processes.get((row["rank"], row["pid"])) or "process"
        frames += [f"thread {row['tid']}" + (f" {thread}" if thread else ""), f"{process} {row['pid']}"]
        # Only what Python calls printable stays; a semicolon would be another frame.
        safe = ("".join("_" if char == ";" or not char.isprintable() else char for char in frame) for frame in frames)
        found[";".join(reversed(list(safe)))] += row[weight]
    return found


def read(path: Path) -> Counter[str]:
    lines = [line.rpartition(" ") for line in path.read_text().splitlines()]
    assert len({stack for stack, _, _ in lines}) == len(lines), "a stack stands there twice"
    return Counter({stack: int(count) for stack, _, count in lines})


@pytest.mark.parametrize("make", [nsys, capture])
def test_made_traces(make, tmp_path: Path) -> None:
    trace = opspan.load(make(tmp_path / "source"))
    export(trace, tmp_path / "out.stacks")
    assert read(tmp_path / "out.stacks") == twin(trace, "self_ns")
    export(trace, tmp_path / "out.device.stacks")
    assert read(tmp_path / "out.device.stacks") == twin(trace, "self_device_ns")


@pytest.mark.parametrize("name", ["nsys/dlprof_2022.sqlite", "nsys/torch_lm_2025.sqlite", "nvprof/lm_emit_nvtx.sql"])
def test_real_traces(name: str, traces_dir: Path, tmp_path: Path) -> None:
    trace = opspan.load(traces_dir / name)
    export(trace, tmp_path / "out.stacks")
    assert read(tmp_path / "out.stacks") == twin(trace, "self_ns")
    export(trace, tmp_path / "out.device.stacks")
    assert read(tmp_path / "out.device.stacks") == twin(trace, "self_device_ns")
