"""Prints the figures of HolisticTraceAnalysis for devices; for test_hta_figures.py, run by answering.py.

It is given times in whole nanoseconds from the first event on, where it would have microseconds since 1970: no figure
is rounded. Steps have names that it does not know, for it leaves out what was launched in the last one and outside of
all; and ops have no argument `stream`, which would make them work of a device.
"""

from __future__ import annotations

import gzip
import json
import math
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

US = 1000
BACK_TO_BACK_NS = 30 * US  # its own default, 30, in its unit
WORK = ("kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset", "cuda_sync", "mtia_ccp_events")


def read(path: Path) -> list[dict[str, Any]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as file:
        document = json.load(file, parse_float=Decimal, strict=False)
    events = document["traceEvents"] if isinstance(document, dict) else document
    spans = [event for event in events if event.get("ph") == "X" and "dur" in event and "cat" in event]
    zero = min(Decimal(event["ts"]) for event in spans)
    for event in spans:
        start, end = Decimal(event["ts"]) - zero, Decimal(event["ts"]) - zero + Decimal(event["dur"])
        event["ts"], event["dur"] = int(start * US), int(end * US) - int(start * US)
        event["name"] = str(event["name"]).replace("ProfilerStep", "Step")
        if str(event["cat"]).lower() not in WORK and isinstance(event.get("args"), dict):
            event["args"].pop("stream", None)
    return spans


def figures(name: str) -> dict[str, Any]:
    from hta.trace_analysis import TraceAnalysis

    with tempfile.TemporaryDirectory() as folder:
        with gzip.open(f"{folder}/rank0.json.gz", "wt", compresslevel=1) as copy:
            json.dump({"distributedInfo": {"rank": 0}, "traceEvents": read(Path(name))}, copy, default=float)
        analysis = TraceAnalysis(trace_dir=folder)
    trace, words = analysis.t.traces[0], analysis.t.symbol_table.sym_table
    with_waits = temporal(analysis)
    is_wait = trace["cat"] == analysis.t.symbol_table.sym_index.get("cuda_sync", -1)
    analysis.t.traces[0] = trace = trace[~is_wait].copy()
    work = trace[trace["stream"] >= 0]
    kinds, _ = analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
    queues = analysis.get_queue_length_time_series(ranks=[0]).get(0)
    launches = analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False, include_memory_events=True)[0]
    waits = analysis.get_idle_time_breakdown(ranks=[0], visualize=False, consecutive_kernel_delay=BACK_TO_BACK_NS)[0]
    overlap = float(analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0])
    return {
        "first_ns": int(work["ts"].min()),
        "types": types({words[name] for name in work["name"]}),
        "temporal": temporal(analysis),
        "temporal_with_waits": with_waits,
        "kinds": dict(zip(kinds["kernel_type"], map(int, kinds["sum"]), strict=True)),
        "overlap_percent": None if math.isnan(overlap) else overlap,
        "queues": [] if queues is None else whole(queues[["stream", "ts", "queue_length"]]),
        "launches": whole(launches[["correlation", "cpu_duration", "gpu_duration", "launch_delay"]]),
        "idle": [
            [int(stream), why, int(ns)]
            for stream, why, ns in waits[["stream", "idle_category", "idle_time"]].itertuples(index=False)
        ],
    }


def types(names: set[str]) -> dict[str, str]:
    from hta.utils.utils import get_kernel_type

    return {name: get_kernel_type(name) for name in names}


def temporal(analysis: Any) -> dict[str, int]:
    (row,) = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
    return {name: int(row[f"{name}_time(us)"]) for name in ("idle", "compute", "non_compute", "kernel")}


def whole(frame: Any) -> list[list[int]]:
    return [list(map(int, row)) for row in frame.itertuples(index=False)]
