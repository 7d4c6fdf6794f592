"""Idle time that findings state of recorded files without steps: computed again from the files' own rows, to the
nanosecond. Each gap, each wait and each launch is looked at by itself (recorded_rows.py)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from statistics import mean

import pytest

from findings.recorded_rows import (
    ASYNC_COPY,
    COPY,
    ON_DEVICE,
    PAGEABLE,
    SYNCHRONISE,
    Call,
    Gap,
    Rows,
    after_waits,
    gaps_of,
    held,
    pace_of,
    rows_of,
)
from findings.test_recorded import said

_PACES = 10
# What findings state, and what of late time they leave to others. Least that a rule speaks of: a share of the run.
LEAST = {"late-host": 0.1, "launch-bound": 0.1, "queued": 0.1, "synchronise": 0.02, "blocking-copies": 0.02}
FILES = (
    "kineto/alexnet_sync_events.json.gz",
    "kineto/b200_eager.json.gz",
    "kineto/event_sync_multi_stream.json.gz",
    "kineto/norm_layers.json.gz",
    "kineto/vllm_graph_capture.json.gz",
    "nsys/cudf_2020.sqlite",
    "nsys/dlprof_2022.sqlite",
    "nsys/mpi_saxpy_2022.sqlite",
    "nsys/nvfuser_2024.sqlite",
    "nsys/nvfuser_2025.sqlite",
    "nsys/profiler_overhead_ends.sqlite",
    "nsys/pyprof_2024.sqlite",
    "nsys/torch_lm_2025.sqlite",
    "nsys/train_fsdp_2gpu.sqlite",
    "nvprof/cpu_faults.prof",
    "nvprof/lm_emit_nvtx.sql",
    "nvprof/nccl_4gpu.nvvp",
    "rocpd/matmul_result_large.rpd",
    "rocpd/torch_autograd.rpd",
)


def waits_of(rows: Rows, gaps: Iterable[Gap]) -> dict[str, list[Call]]:
    """The waits of threads that launch, from the first work on; copies wait whose call says so, or that have pageable
    memory at one end."""
    launching = {(one.pid, one.tid) for one in gaps}
    first = {pid: min(one.begin for one in rows.work if one.pid == pid) for pid in {one.pid for one in rows.work}}
    pageable = {one.call for one in rows.work if PAGEABLE in one.sides}
    on_device = {one.call for one in rows.work if set(one.sides) == {ON_DEVICE}}
    found: dict[str, list[Call]] = {"synchronise": [], "blocking-copies": []}
    for one in rows.calls:
        if (one.pid, one.tid) in launching and one.end > first[one.pid]:
            own = one._replace(begin=max(one.begin, first[one.pid]))
            if re.search(SYNCHRONISE, one.name):
                found["synchronise"].append(own)
            elif (re.search(COPY, one.name) and one.id not in on_device) or (
                re.search(ASYNC_COPY, one.name) and one.id in pageable
            ):
                found["blocking-copies"].append(own)
    return found


def expected(path: Path) -> dict[str, float]:
    """The idle time of each rule: for the process that has most of it, the mean of its devices."""
    rows = rows_of(path)
    gaps = held(gaps_of(rows), rows)
    waits = waits_of(rows, gaps)
    for rule in sorted(waits, key=lambda rule: -sum(one.end - one.begin for one in waits[rule])):
        gaps = after_waits(gaps, waits[rule], rule)
    paces = {pid: pace_of(rows, pid) for pid in {one.pid for one in gaps}}
    sums: dict[tuple[str, int, int], int] = {}
    for one in gaps:
        rule = one.why
        if rule == "late":
            apart, work = paces[one.pid]
            is_bound = apart > work and one.end - one.begin <= _PACES * apart
            rule = "launch-bound" if is_bound else "late-host"
        sums[rule, one.pid, one.device] = sums.get((rule, one.pid, one.device), 0) + one.ns
    places = {(one.pid, one.device) for one in rows.work}
    return {
        rule: max(
            mean(sums.get((rule, *place), 0) for place in places if place[0] == pid)
            for pid in {pid for pid, _ in places}
        )
        for rule in LEAST
    }


@pytest.mark.parametrize("name", FILES)
def test_idle_time_of_each_cause(name: str, traces_dir: Path) -> None:
    found = {rule: one.evidence.at_stake_ns for rule, one in said(traces_dir, name).items()}
    ns = expected(traces_dir / name)
    stated = [rule for rule in LEAST if rule in found]
    assert {rule: found[rule] for rule in stated} == {rule: int(ns[rule]) for rule in stated}
