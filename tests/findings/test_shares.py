"""Every share says of what it is, and is that share: computed again by the words of the sentences of recorded files."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import polars as pl
import pytest

import opspan
from opspan import Trace
from opspan.analysis.averages import on_device
from opspan.analysis.busy import KINDS
from opspan.findings import RULES
from opspan.findings.rule import name_totals
from opspan.questions import Options, question

_col = pl.col
PATH = ("computing", "communicating", "copying", "filling", "launch", "queued", "host", "call", "wait", "unknown")
# A sample that takes seconds: with and without steps, devices and labels, of one rank and of several.
FILES = (
    "kineto/alexnet_sync_events.json.gz",
    "kineto/bert_h100_foreign_thread_functions.json.gz",
    "kineto/compare_base.json.gz",
    "kineto/cpu_only.pt.trace.json.gz",
    "kineto/mtia_inference.json.gz",
    "kineto/norm_layers.json.gz",
    "kineto/ns_resolution.pt.trace.json.gz",
    "kineto/rank0_sampled.json.gz",
    "kineto/resnet50_torch1.8.pt.trace.json.gz",
    "kineto/vllm_graph_execution.json.gz",
    "nsys/cudf_2020.sqlite",
    "nsys/dlprof_2022.sqlite",
    "nsys/infer_2gpu.sqlite",
    "nsys/mpi_saxpy_2022.sqlite",
    "nsys/torch_lm_2025.sqlite",
    "nsys/train_fsdp_2gpu.sqlite",
    "nvprof/lm_emit_nvtx.sql",
    "rocpd/matmul_result_large.rpd",
)
# Totals of shares that are not shares of the run's time.
OTHERS = {
    "dominating-kernel": "of the time of all computing kernels",
    "data-loading": "of the steps' time",
    "unlabelled": "of device time",
    "idle": r"(of the recording\)|of that )",
    "exposed-copies busy_share": "of what devices did",
    "unknown-replays": "of device time",
    "no-sizes": "ops have sizes",
    "no-modules": "ops are in a module",
}
of_files = pytest.mark.parametrize("name", FILES)


@lru_cache(maxsize=1)
def _loaded(path: Path) -> Trace:
    return opspan.load(path)


@pytest.fixture
def trace(name: str, traces_dir: Path) -> Trace:
    if not (traces_dir / name).exists():
        pytest.skip(f"{name} is not among the recorded traces")
    return _loaded(traces_dir / name)


def the_run(trace: Trace) -> int:
    """Returns the time of the longest process: from the first work of a device, or without devices from its begin, to
    its end."""
    longest = 0
    frames = (trace.ranges, trace.calls, trace.work.filter(~_col("is_overhead").fill_null(value=False)))
    for rank, pid in set(pl.concat(frame.select("rank", "pid") for frame in frames).unique().iter_rows()):
        own = [frame.filter(_col("rank").eq_missing(rank), _col("pid").eq_missing(pid)) for frame in frames]
        ends = [time for frame in own for name in ("start_ns", "end_ns") for time in frame[name].drop_nulls()]
        first = on_device(own[2])["start_ns"].min()
        longest = max(longest, max(ends) - (min(ends) if first is None else first))
    return longest


def the_steps(trace: Trace) -> int:
    """The steps of the process of which they are longest, each until it was done: and none of it twice."""
    found = trace.analysed.iterations_until_done
    return int(found.group_by("rank", "pid").agg(_col("took_ns").sum())["took_ns"].max() or 0)


@of_files
def test_the_shares_of_findings_are_those_of_what_they_say(trace: Trace) -> None:
    has_steps = the_steps(trace) > 0
    whole, words = (the_steps(trace), "the steps' time") if has_steps else (the_run(trace), "the run")
    for row in question("findings").rows_of(trace.analysed, Options()).iter_rows(named=True):
        figures = {one["name"]: one["value"] for one in row["figures"]}
        if row["share"] is not None:
            assert row["share_of"] == words
            assert row["share"] == pytest.approx(row["at_stake_ns"] / whole)
        for share in (name for name in figures if name.endswith("_share")):
            said = f"{figures[share]:.1%}"
            if of := OTHERS.get(row["id"]) or OTHERS.get(f"{row['id']} {share}"):
                assert re.search(rf"{re.escape(said)} (of [\d,]+ )?{of}", row["sentence"])
            elif share in str(next(rule.sentence for rule in RULES if rule.id == row["id"])):
                ns = figures[share.replace("ns_share", "ns").replace("_share", "_ns")]
                assert figures[share] == pytest.approx(ns / whole)
                assert f"({said} of {words})" in row["sentence"]


@of_files
def test_the_share_of_a_kernel_is_of_all_that_compute(trace: Trace) -> None:
    work = on_device(trace.analysed.complete.work).filter(_col("kind").is_in(["kernel", "graph"]))
    work = work.filter(~_col("name").cast(pl.String).str.contains("(?i)nccl|rccl").fill_null(value=False))
    work = work.with_columns(ns=_col("end_ns") - _col("start_ns"), kernel=pl.coalesce("full_name", "name"))
    sums = work.group_by("kernel").agg(_col("ns").sum(), count=pl.len()).sort("ns", descending=True)
    rows = question("findings").rows_of(trace.analysed, Options()).filter(id="dominating-kernel")
    total = sums["ns"].sum()
    assert rows.height == int(sums.height > 1 and sums["ns"][0] >= total / 2)
    for row in rows.iter_rows(named=True):
        figures = {one["name"]: one["value"] for one in row["figures"]}
        expected = {"ns": sums["ns"][0], "kernel_share": sums["ns"][0] / total, "count": sums["count"][0]}
        assert figures == pytest.approx(expected)


@of_files
def test_parts_add_up_to_their_whole(trace: Trace) -> None:
    found = trace.analysed
    for rows, kinds in (
        (question("steps").rows_of(found, Options()), KINDS),
        (question("idle").rows_of(found, Options()), ("host", "launch", "queued", "unknown")),
        (question("path").rows_of(found, Options()), PATH),
    ):
        some = [_col(f"{kind}_ns") for kind in kinds if f"{kind}_ns" in rows.columns]
        assert rows.select((pl.sum_horizontal(some) == _col("time_ns")).all()).item()
    devices = found.whole_devices
    parts = devices["computing_ns"] + devices["exposed_communicating_ns"] + devices["exposed_copying_ns"]
    assert (parts <= devices["busy_ns"]).all()
    assert (devices["busy_ns"] + devices["idle_ns"] == devices["time_ns"]).all()


def test_a_share_in_a_sentence_says_of_what() -> None:
    for rule in RULES:
        for rest in re.findall(r"\{\w*_share\}(.{0,4})", name_totals(rule.sentence)):
            assert rest.startswith(" of "), rule.id


@of_files
def test_the_busy_time_of_the_summary_adds_up(trace: Trace) -> None:
    lines = [
        line
        for line in question("summary").answer_of(trace.analysed, Options()).notes
        if line.startswith("Device busy")
    ]
    for line in lines:
        assert sum(map(float, re.findall(r"([\d.]+)%", line))) == pytest.approx(100, abs=0.2)
    assert len(lines) == int(on_device(trace.work).height > 0)
