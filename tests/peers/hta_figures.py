"""Prints the figures of HolisticTraceAnalysis for a trace; for test_hta.py, run by answering.py."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any


def rows(frame: Any) -> list[Any]:
    """In an order of their own: that of the frame may be the file's."""
    found: list[Any] = json.loads(frame.round(6).to_json(orient="values", double_precision=6))
    return sorted(found, key=json.dumps)


def figures(name: str) -> dict[str, Any]:
    from hta.common.call_stack import CallGraph
    from hta.trace_analysis import TraceAnalysis

    path = Path(name)
    with tempfile.TemporaryDirectory() as folder:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt") as file, gzip.open(f"{folder}/rank0.json.gz", "wt") as copy:
            json.dump({**json.load(file), "distributedInfo": {"rank": 0}}, copy)
        analysis = TraceAnalysis(trace_dir=folder)
    trace, words = analysis.t.get_trace(0), analysis.t.symbol_table.sym_table
    has_work = bool((trace["stream"] >= 0).any())
    CallGraph(analysis.t, ranks=[0])
    trace = analysis.t.get_trace(0)
    host = trace[trace["stream"] < 0]
    depths = zip(host["name"], host["depth"], strict=True)
    name_of = {number: words[name] for number, name in zip(trace["index"], trace["name"], strict=True)}
    parents = zip(host["name"], host["parent"], strict=True)
    found: dict[str, Any] = {
        "events": Counter(f"{words[cat]} {words[name]}" for cat, name in zip(trace["cat"], trace["name"], strict=True)),
        "depths": Counter(f"{words[name]} {depth:.0f}" for name, depth in depths),
        "parents": Counter(f"{words[name]} in {name_of.get(parent)}" for name, parent in parents),
    }
    if "input_dims" in trace:
        found["inputs"] = Counter(
            f"{words[name]} {sizes} {types}"
            for name, sizes, types in zip(trace["name"], trace["input_dims"], trace["input_type"], strict=True)
        )
    if has_work:
        found["temporal breakdown"] = rows(analysis.get_temporal_breakdown(visualize=False))
        found["overlap"] = rows(analysis.get_comm_comp_overlap(visualize=False))
        kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
        found["kernel breakdown"] = [rows(kinds), rows(kernels)]
        found["launches"] = rows(analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0])
        found["queue length"] = rows(analysis.get_queue_length_summary(ranks=[0]))
        found["idle time"] = rows(analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0])
        found["memory bandwidth"] = rows(analysis.get_memory_bw_summary(ranks=[0]))
    return found
