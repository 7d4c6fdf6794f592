"""HolisticTraceAnalysis and opspan say the same of what devices did, but where docs/analysis.md says why not.

HTA is given whole nanoseconds (hta_devices_figures.py says how), so that nothing is near: all is equal.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from opspan.analysis.busy import busy_with, devices
from opspan.analysis.idle import gaps
from opspan.analysis.launched import delays, queues
from opspan.analysis.spans import length, union
from opspan.tables import Tables
from opspan.tables.schema import WORK_KIND
from peers.environments import figures_of, python_of

pytestmark = pytest.mark.slow
# Each takes HTA a few seconds. All ran on one device, so that what HTA says of a rank is about that.
FILES = (
    "alexnet_sync_events",
    "b200_eager",
    "bert_h100_foreign_thread_functions",
    "compare_base",
    "compiled_triton",
    "event_sync_multi_stream",
    "mi300_ddp_resnet18",
    "mtia_inference",
    "norm_layers",
    "ns_resolution.pt.trace",
    "rank0_sampled",
    "resnet50_torch1.8.pt.trace",
    "vllm_graph_execution",
)
TYPES = {"computing": "COMPUTATION", "communicating": "COMMUNICATION", "copying": "MEMORY", "filling": "MEMORY"}
# Computation to HTA; to opspan a collective without NCCL, and waits.
OTHERS = {"b200_eager": {"multimem_all_reduce_kernel"}, "mtia_inference": {"event_record", "event_wait"}}
MTIA = "runFunction - job_prep_and_submit_for_execution"
# Calls of which it knows that they launch: for its queues, and for its launches.
QUEUED = {MTIA, "cuLaunchKernel", "hipLaunchKernel", "hipExtModuleLaunchKernel", "hipMemsetAsync", "hipMemcpyAsync"}
QUEUED |= {"hipMemcpyWithStream"}
LAUNCHED = {MTIA, "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync"}
BACK_TO_BACK_NS = 30_000  # as its program here has it
_col = pl.col


@dataclass(frozen=True)
class Both:
    name: str
    hta: dict[str, Any]
    found: Tables  # analysed by opspan

    @property
    def as_hta_sorts_it(self) -> Tables:
        """With work that is what HTA takes its name for."""
        kinds = {"COMPUTATION": "kernel", "COMMUNICATION": "kernel", "MEMORY": "memcpy"}
        work = self.found.work
        types = work.select(type=_col("full_name").cast(pl.String).replace_strict(self.hta["types"], default=None))
        kind = types.select(kind=_col("type").replace_strict(kinds, default=None).cast(WORK_KIND))["kind"]
        name = types.select(name=pl.when(_col("type") == "COMMUNICATION").then(pl.lit("nccl")))["name"]
        return self.found.replace(work=work.with_columns(kind.zip_with(kind.is_not_null(), work["kind"]), name))


@pytest.fixture(scope="module", params=FILES)
def both(request: pytest.FixtureRequest, traces_dir: Path) -> Both:
    python_of("hta")
    path = traces_dir / "kineto" / f"{request.param}.json.gz"
    if not path.exists():
        pytest.skip(f"{request.param} is not among the recorded traces")
    hta = figures_of("hta", path, program="hta_devices")
    return Both(request.param, hta, opspan.load(path).analysed.complete)


def whole(tables: Tables) -> pl.DataFrame:
    """As a step, from the first to the last work: HTA knows of no other time of a device."""
    work = busy_with(tables.work)
    step = work.group_by("rank", "pid").agg(pl.lit("all").alias("step"), _col("start_ns").min(), _col("end_ns").max())
    return step.select("rank", "pid", "step", "start_ns", "end_ns")


def test_what_work_is(both: Both) -> None:
    busy = busy_with(both.found.work).select(_col("full_name", "name").cast(pl.String), "what").unique()
    ours = {row["full_name"]: (row["name"], TYPES[row["what"]]) for row in busy.to_dicts()}
    theirs = both.hta["types"]
    assert ours.keys() <= theirs.keys()
    different = {name: kind for name, kind in theirs.items() if ours.get(name, ("", ""))[1] != kind}
    assert {ours.get(name, (name, ""))[0] for name in different} == OTHERS.get(both.name, set())
    assert set(different.values()) <= {"COMPUTATION"}


def test_where_the_time_went(both: Both) -> None:
    tables = both.as_hta_sorts_it
    (ours,) = devices(tables, whole(tables)).filter(_col("step") == "all").to_dicts()
    assert both.hta["temporal"] == {
        "idle": ours["idle_ns"],
        "compute": ours["computing_ns"],
        "non_compute": ours["exposed_communicating_ns"] + ours["exposed_copying_ns"],
        "kernel": ours["time_ns"],
    }
    # "COMPUTATION overlapping MEMORY" is what both have and no other: opspan's times are sums of such.
    kinds = both.hta["kinds"]

    def any_of(*names: str) -> int:
        return sum(ns for kind, ns in kinds.items() if any(name in kind for name in names))

    assert ours["computing_ns"] == any_of("COMPUTATION")
    assert ours["communicating_ns"] == any_of("COMMUNICATION")
    assert ours["copying_ns"] == any_of("MEMORY")
    assert ours["kernel_ns"] == any_of("COMPUTATION", "COMMUNICATION")
    assert ours["busy_ns"] == sum(kinds.values())
    hidden = ours["communicating_ns"] - ours["exposed_communicating_ns"]
    if ours["communicating_ns"]:
        assert both.hta["overlap_percent"] == pytest.approx(100 * hidden / ours["communicating_ns"], abs=0.0051)
    else:
        assert both.hta["overlap_percent"] is None


def test_waits_are_work_to_hta(both: Both) -> None:
    """torch's waits are work for as long as they waited, and computing kernels if they wait for an event."""
    rows = both.found.work.filter(_col("kind") != "other", _col("stream_id") >= 0)
    busy_ns = union(rows, ()).select(length()).to_series().sum()
    said = both.hta["temporal_with_waits"]
    assert said["kernel"] - said["idle"] == busy_ns
    if both.name in ("alexnet_sync_events", "event_sync_multi_stream"):
        assert busy_ns > both.hta["temporal"]["kernel"] - both.hta["temporal"]["idle"]
        names = _col("full_name").cast(pl.String)
        computing = rows.filter((_col("kind") == "kernel") | (names == "Stream Wait Event"))
        assert said["compute"] == union(computing, ()).select(length()).to_series().sum()


def test_idle_time_of_streams(both: Both) -> None:
    """opspan's gaps are those of devices: here each stream is one."""
    tables = both.as_hta_sorts_it
    work = tables.work.with_columns(device_id=_col("stream_id").rank("dense").cast(pl.Int32))
    used = busy_with(work, "stream_id")
    begins = used.group_by("device_id").agg(_col("stream_id").first(), first_ns=_col("start_ns").min())
    found = gaps(tables.replace(work=work)).join(begins, on="device_id")
    # Before the first work of a stream and after its last, it is not idle to HTA.
    found = found.filter(_col("start_ns") > _col("first_ns"), _col("next").is_not_null())
    why = pl.when(_col("host_ns") > 0).then(pl.lit("host_wait")).when(length() < BACK_TO_BACK_NS)
    found = found.with_columns(why=why.then(pl.lit("kernel_wait")).otherwise(pl.lit("other")), ns=length())
    parts = found.select(late=_col("host_ns") + _col("launch_ns"), rest=_col("queued_ns") + _col("unknown_ns"), ns="ns")
    assert parts.filter(pl.max_horizontal("late", "rest") != _col("ns")).is_empty()
    assert found.select(pl.min_horizontal("host_ns", "launch_ns", "queued_ns", "unknown_ns")).to_series().ge(0).all()
    ours: Counter[tuple[int, str]] = Counter()
    for stream, reason, ns in found.select("stream_id", "why", "ns").iter_rows():
        ours[stream, reason] += ns
    # If work begins before earlier work of its stream ends, HTA subtracts the time of both from idle time.
    used = used.sort("stream_id", "start_ns").with_columns(before=_col("end_ns").shift(1).over("stream_id"))
    for stream, ns in used.select("stream_id", _col("start_ns") - _col("before")).drop_nulls().iter_rows():
        ours[stream, "kernel_wait"] += min(ns, 0)
    assert {(stream, reason): ns for stream, reason, ns in both.hta["idle"] if ns} == {
        key: ns for key, ns in ours.items() if ns
    }


def test_queues(both: Both) -> None:
    tables = both.as_hta_sorts_it
    calls, work = tables.calls, tables.work
    is_known = calls["name"].cast(pl.String).is_in(QUEUED | LAUNCHED).gather(work["call"])
    found = queues(calls, work.with_columns(call=pl.when(is_known).then("call")))
    shift = both.hta["first_ns"] - whole(tables)["start_ns"].item()
    ours = found.select("stream_id", _col("time_ns") + shift, "queued").rows()
    last = {(stream, time): queued for stream, time, queued in both.hta["queues"]}
    theirs, before = [], dict.fromkeys({stream for stream, _ in last}, 0)
    for (stream, time), queued in last.items():  # it also has times at which nothing changed
        if queued != before[stream]:
            theirs.append((stream, time, queued))
        before[stream] = queued
    assert sorted(ours) == sorted(theirs)


def test_launches(both: Both) -> None:
    tables = both.as_hta_sorts_it
    calls, work = tables.calls, tables.work
    found = delays(calls, work)
    call = calls.select("name", "correlation_id", called_ns=length())[found["call"]]
    each = pl.concat([found, call, work.select(took_ns=length())[found["work"]]], how="horizontal")
    each = each.filter(_col("name").cast(pl.String).is_in(LAUNCHED))
    delay = _col("delay_ns").clip(lower_bound=0)  # one that began before its call returned has no delay to HTA
    ours = each.select("correlation_id", "called_ns", "took_ns", delay).rows()
    assert sorted(ours) == sorted(map(tuple, both.hta["launches"]))
    is_cuda = both.found.calls["name"].cast(pl.String).str.starts_with("cudaLaunchKernel").any()
    assert bool(ours) == is_cuda or both.name == "mtia_inference"
    short = [correlation for correlation, called, took, _ in both.hta["launches"] if took < called]
    assert sorted(short) == sorted(each.filter("is_short")["correlation_id"])
