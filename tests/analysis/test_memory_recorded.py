"""Memory in use, in recorded runs: against torch.profiler, the file's own events and what allocators said."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

import opspan
from analysis.test_memory_use import WHERE, of_ops
from emit import running
from profiler import training


def test_self_memory_of_every_op_is_torchs_which_watched_the_same_run() -> None:
    pytest.importorskip("torch")
    ours, theirs, tops = running.told(
        training.HEAD
        + """
from opspan.analysis.memory_use import peaks
train()
asked = dict(activities=CPU, profile_memory=True)
with torch.profiler.profile(**asked) as theirs, profiler.profile(**asked) as ours:
    train()
    kept = torch.ones(1000)
found = ours.trace.analysed
mine = {row["name"]: row["self_size_increase"] for row in found.memory_by_op.to_dicts() if row["name"]}
torchs = {event.key: event.self_cpu_memory_usage for event in theirs.key_averages() if event.key != "[memory]"}
top, = found.memory_peaks.to_dicts()
blocks = found.memory_at_peak
assert set(blocks["peak_bytes"]) == {top["allocated_bytes"]} == {blocks["bytes"].sum()}
print(json.dumps([mine, torchs, [top["allocated_bytes"], found.memory_curve["allocated_bytes"].max()]]))
"""
    )
    changed = {name: size for name, size in theirs.items() if size}
    assert {name: size for name, size in ours.items() if size} == changed
    assert len(changed) > 5
    assert set(ours) <= set(theirs)
    assert tops[0] == tops[1] >= 4000


def test_ops_of_a_recorded_file_have_the_memory_that_its_events_say(traces_dir: Path) -> None:
    path = traces_dir / "kineto" / "resnet50_memory_without_category.pt.trace.json.gz"
    found = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    expected: dict[tuple, list[int]] = defaultdict(lambda: [0] * 6)
    stacks = {tid: stacks_of(spans) for tid, spans in by_thread(found).items()}
    changes = [event for event in found if event["name"] == "[memory]"]
    for event in changes:
        starts, open_then = stacks[int(event["tid"])]
        names = open_then[bisect_right(starts, Decimal(event["ts"])) - 1] or (None,)
        size, device = event["args"]["Bytes"], event["args"]["Device Id"]
        change = [size, 1, size] if size > 0 else [size, 0, 0]
        for name in set(names):
            sums = expected[name, None if device < 0 else device]
            for place, by in enumerate(change):
                sums[place] += by
                sums[3 + place] += by * (name == names[-1])
    ours = {key: list(figures[1:]) for key, figures in of_ops(opspan.load(path).analysed.memory_by_op).items()}
    assert ours == expected
    assert len(ours) > 40
    assert sum(figures[4] for figures in ours.values()) == sum(event["args"]["Bytes"] > 0 for event in changes) > 6000


def by_thread(found: list[dict]) -> dict[int, list[tuple]]:
    spans: dict[int, list[tuple]] = defaultdict(list)
    for event in found:
        if event["ph"] == "X" and event["cat"] == "Operator":
            start = Decimal(event["ts"])
            spans[int(event["tid"])].append((start, start + Decimal(event["dur"]), event["name"]))
    return spans


def stacks_of(spans: list[tuple]) -> tuple[list, list[tuple]]:
    """The moments when something begins or ends, and the names of what is open from then on, the outermost first."""
    spans = sorted((span for span in spans if span[0] < span[1]), key=lambda span: (span[0], -span[1]))
    moments = sorted({time for span in spans for time in span[:2]})
    starts, names = [Decimal("-Infinity")], [()]
    stack: list[tuple] = []
    at = 0
    for moment in moments:
        stack = [span for span in stack if span[1] > moment]
        while at < len(spans) and spans[at][0] == moment:
            stack.append(spans[at])
            at += 1
        starts.append(moment)
        names.append(tuple(name for _, _, name in stack))
    return starts, names


@pytest.mark.parametrize("name", ["norm_layers", "bert_h100_foreign_thread_functions", "mi300_ddp_resnet18"])
def test_the_curve_of_a_recorded_file_is_what_its_allocators_said_but_for_what_stayed(
    traces_dir: Path, name: str
) -> None:
    found = opspan.load(traces_dir / "kineto" / f"{name}.json.gz").analysed
    after = found.memory_curve.drop_nulls("row")
    stayed = (after["total_bytes"] - after["allocated_bytes"]).alias("stayed")
    of_each = after.with_columns(stayed).group_by(WHERE).agg(pl.col("stayed").unique(), pl.len())
    assert of_each["stayed"].list.len().to_list() == [1] * of_each.height
    assert of_each["len"].sum() == found.tables.memory.height >= 200
    top = after.group_by(WHERE).agg(pl.col("total_bytes").max())
    assert found.memory_peaks.sort(WHERE)["total_bytes"].to_list() == top.sort(WHERE)["total_bytes"].to_list()
    blocks = found.memory_at_peak.group_by(WHERE).agg(pl.col("bytes").sum(), pl.col("peak_bytes").first())
    assert blocks["bytes"].to_list() == blocks["peak_bytes"].to_list() != []
