"""Columns about samples in the table by name, against a twin that looks at one sample after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import opspan
import twins
from analysis.frames import table
from cli.answers import rows as printed
from emit.running import opspan as command
from opspan.questions import Options
from opspan.text_columns import Layout
from opspan.trace import Trace
from opspan.views.fields import SAMPLED
from opspan.views.table import table_of

PLACE = {"rank": 0, "pid": 1}
RANGES = [("step", 0, 100, "user"), ("mm", 10, 50, "op"), ("mm", 20, 40, "user"), ("add", 60, 90, "op")]
RANGES += [(f"ProfilerStep#{number}", 100 + 10 * number, 110 + 10 * number, "user") for number in range(2)]


def trace_of(events: list[tuple[str | None, int]], count: int = 400, seed: int = 0) -> Trace:
    """A trace with random samples of the events, which have these weights."""
    random = Random(seed)
    rows = [
        {"start_ns": start, "end_ns": end, "name": name, "kind": kind, "tid": 1} for name, start, end, kind in RANGES
    ]
    samples = []
    for event, weight in events * count:
        samples.append(
            {"tid": random.choice((1, 1, 2)), "time_ns": random.randrange(130), "event": event, "weight": weight}
        )
    frames = {"ranges": table("ranges", rows, **PLACE), "samples": table("samples", samples, **PLACE)}
    return Trace((opspan.Metadata(source="test", paths=()),), **frames)


def expected(trace: Trace, event: str | None) -> Counter[tuple[str, int]]:
    """The samples of the event in each row of the table. The first row of a name is that of its first range."""
    ranges, places = trace.analysed.attributed.ranges.to_dicts(), Counter()
    samples = [row for row in trace.samples.to_dicts() if row["event"] == event]
    kinds: dict[str, list[str]] = {}
    for row in ranges:
        name = "ProfilerStep*" if row["name"].startswith("ProfilerStep") else row["name"]
        kinds.setdefault(name, [])
        if row["kind"] not in kinds[name]:
            kinds[name].append(row["kind"])
    for number in twins.innermost(ranges, samples):
        if number is not None:
            name = ranges[number]["name"]
            name = "ProfilerStep*" if name.startswith("ProfilerStep") else name
            places[name, kinds[name].index(ranges[number]["kind"])] += 1
    return places


def found(rows: list[dict[str, Any]], column: str) -> dict[tuple[str, int], Any]:
    seen: Counter[str] = Counter()
    values = {}
    for row in rows:
        values[row["name"], seen[row["name"]]] = row[column]
        seen[row["name"]] += 1
    return values


def in_order(trace: Trace) -> list[dict[str, Any]]:
    """The rows in the order of their first ranges."""
    order = {name: number for number, (name, *_) in enumerate(RANGES)} | {"ProfilerStep*": len(RANGES)}
    rows = trace.table("name").rows.to_dicts()
    # Of the two rows of `mm`, the op takes 40 ns, and the range inside it 20 ns.
    return sorted(rows, key=lambda row: (order[row["name"]], -row["cpu_ns"]))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("event", "weight"), [(None, 1), ("cpu-clock", 250_000), ("INST_RETIRED.ANY", 5)])
def test_each_sample_counts_for_its_innermost_range(event: str | None, weight: int, seed: int) -> None:
    trace = trace_of([(event, weight)], seed=seed)
    rows, counts = in_order(trace), expected(trace, event)
    assert found(rows, "samples") == dict(counts)
    assert sum(counts.values()) < trace.samples.height
    times = {key: count * weight if event == "cpu-clock" else None for key, count in counts.items()}
    assert found(rows, "sampled_cpu_ns") == times
    text, _ = table_of(trace.analysed, Options()).printer.text(-1, Layout())
    assert ("Sampled CPU" in text) == (event == "cpu-clock")
    assert ("  Samples" in text) == (event != "cpu-clock")
    assert "IPC" not in text


def test_instructions_by_cycle_need_enough_samples_of_both_events() -> None:
    events = [("cycles", 1000), ("instructions", 2500)]
    trace = trace_of(events)
    rows = in_order(trace)
    cycles, instructions = (expected(trace, name) for name, _ in events)
    assert found(rows, "samples") == dict(cycles)
    assert found(rows, "ipc") == pytest.approx({key: 2.5 * instructions[key] / cycles[key] for key in cycles})
    few = trace_of(events, count=20)
    assert few.table("name").rows["ipc"].null_count() == len(rows)
    assert "IPC" in str(trace.table("name"))
    assert "IPC" not in str(few.table("name"))


SLOTS = [("CPU_CLK_UNHALTED.THREAD", 1000), ("UOPS_RETIRED.RETIRE_SLOTS", 2400), ("IDQ_UOPS_NOT_DELIVERED.CORE", 800)]


@pytest.mark.parametrize(
    ("name", "width"), [("broadwell_server", 4), ("icelake", 5), ("alderlake", None), (None, None)]
)
def test_shares_of_slots_need_the_microarchitecture(name: str | None, width: int | None) -> None:
    trace = trace_of(SLOTS)
    ranks = [replace(rank, options={"microarchitecture": name} if name else {}) for rank in trace.ranks]
    trace = Trace(tuple(ranks), **trace.frames)
    rows = in_order(trace)
    cycles, retired, lacking = (expected(trace, event) for event, _ in SLOTS)
    for column, counts, weight in (("retiring", retired, 2.4), ("front_end_bound", lacking, 0.8)):
        shares = {key: weight * counts[key] / (width * cycles[key]) if width else None for key in cycles}
        assert found(rows, column) == (pytest.approx(shares) if width else shares)
        title = column.capitalize().replace("Front_end", "Front-end").replace("_", " ")
        assert (title in str(trace.table("name"))) == bool(width)
    (of_functions,) = trace.sampled_functions("op").filter(op="add")["retiring"]
    assert of_functions == found(rows, "retiring")["add", 0]


def test_the_slots_of_ranks_on_different_processors_are_unknown(tmp_path: Path) -> None:
    files = []
    for number, name in enumerate(("broadwell_server", "broadwell_server", "icelake")):
        trace = trace_of(SLOTS)
        ranks = tuple(replace(rank, options={"microarchitecture": name}) for rank in trace.ranks)
        files.append(tmp_path / f"{number}.opspan")
        Trace(ranks, **trace.frames).save(files[-1])
    for paths, is_known in ((files[:2], True), (files, False)):
        for verb, more in (("functions", ["--by", "op"]), ("table", [])):
            shown = [row["retiring"] for row in printed(verb, *paths, *more)]
            assert any(value is not None for value in shown) == is_known


def test_tables_without_samples_and_by_other_groupings_have_no_such_columns() -> None:
    trace = trace_of([(None, 1)])
    without = trace.replace(samples=trace.samples.clear())
    outside = trace.replace(samples=trace.samples.with_columns(time_ns=pl.col("time_ns") + 1000))
    assert outside.table("name").rows.equals(without.table("name").rows)
    assert str(outside.table("name")) == str(without.table("name"))
    assert not set(SAMPLED) & set(without.table("name").rows.columns)
    assert not set(SAMPLED) & set(trace.table("shape").rows.columns)
    assert trace.table("name").rows.drop(SAMPLED).equals(without.table("name").rows)


def test_they_are_dropped_first_and_can_be_sorted_by() -> None:
    trace = trace_of([("cycles", 1000), ("instructions", 2500), ("cpu-clock", 7)])
    _, notes = table_of(trace.analysed, Options()).printer.text(-1, Layout(90))
    assert notes == ["Hidden to fit 90 columns: Sampled CPU, IPC; --wide shows them"]
    counts = trace.table("name", sort_by="samples").rows["samples"].to_list()
    assert counts == sorted(counts, reverse=True)


def test_a_metric_of_a_report_with_the_same_name_stays() -> None:
    trace = trace_of([(None, 1)]).with_metrics(pl.DataFrame({"Task Type": ["add"], "samples": [40.0]}))
    rows = trace.table("name").rows
    assert rows.filter(name="add")["samples (report)"].to_list() == [40.0]
    assert rows["samples"].sum() == sum(expected(trace, None).values())


def test_the_samples_of_a_real_file_and_of_two(traces_dir: Path, tmp_path: Path) -> None:
    path = traces_dir / "nsys/torch_lm_2025.sqlite"
    in_ranges = {row["op"]: row["samples"] for row in printed("functions", path, "--by", "op") if row["op"]}
    rows = printed("table", path, "--kernels")
    assert {row["name"]: row["samples"] for row in rows if row["samples"]} == in_ranges
    assert all(row["samples"] is None for row in rows if row["device"] != "cpu")
    other = tmp_path / "other.sqlite"
    other.write_bytes(path.read_bytes())
    both = printed("table", path, other)
    assert sum(row["samples"] for row in both) == 2 * sum(in_ranges.values())
    assert "Samples" in command("table", path, other).stdout
    assert "Sampled CPU" not in command("table", path).stdout
