"""The execution trace of a profile: its ids of ranges are those of the Chrome trace, as with torch.profiler."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

PROFILERS = ("torch.profiler", "opspan.profiler")


def _profile(module: str, folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the nodes of the execution trace and the events of the Chrome trace of a run of four steps."""
    profiler = import_module(module)
    execution, chrome = folder / f"{module}.et.json", folder / f"{module}.json"
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        schedule=profiler.schedule(wait=1, warmup=1, active=2),
        on_trace_ready=lambda profile: profile.export_chrome_trace(str(chrome)),
        execution_trace_observer=profiler.ExecutionTraceObserver().register_callback(str(execution)),
    ) as profile:
        for _ in range(4):
            with profiler.record_function("forward"), profiler.record_function("inner", "its args"):
                torch.ones(3, 3) @ torch.ones(3, 3)
            torch.ones(3).add(1)
            profile.step()
    return json.loads(execution.read_text())["nodes"], json.loads(chrome.read_text())["traceEvents"]


def _ids_of_nodes(nodes: list[dict[str, Any]]) -> list[int]:
    ids = (attribute["value"] for node in nodes for attribute in node["attrs"] if attribute["name"] == "rf_id")
    return sorted(number for number in ids if number)


def _ids_of_events(events: list[dict[str, Any]]) -> list[int]:
    ranges = (event for event in events if event.get("cat") in ("cpu_op", "user_annotation"))
    return sorted(event["args"]["Record function id"] for event in ranges if event["ph"] == "X")


@pytest.mark.parametrize("module", PROFILERS)
def test_each_range_has_the_id_that_the_execution_trace_gives_it(module: str, tmp_path: Path) -> None:
    nodes, events = _profile(module, tmp_path)
    ids = _ids_of_nodes(nodes)
    assert len(ids) > 10
    assert _ids_of_events(events) == ids


def test_both_execution_traces_have_the_same_tree(tmp_path: Path) -> None:
    theirs, ours = (_tree(_profile(module, tmp_path)[0]) for module in PROFILERS)
    assert ours == theirs
    assert {"ProfilerStep#2", "ProfilerStep#3", "forward", "inner"} <= {name for name, _ in ours}


def _tree(nodes: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """Returns each node's name and that of the node around it. (The numbers depend on which memory is used again.)"""
    names = {node["id"]: node["name"] for node in nodes}
    in_order = sorted(nodes, key=lambda node: int(node["id"]))
    return [(node["name"], names.get(node["ctrl_deps"])) for node in in_order]


def test_without_an_execution_trace_no_range_of_torch_begins(tmp_path: Path) -> None:
    from opspan.profiler import profile, record_function

    with profile() as recording:
        with record_function("alone"):
            torch.ones(3)
        torch.ones(3)
    ranges = recording.trace.ranges
    assert ranges.filter(name="alone")["op_id"].to_list() == [None]
    assert ranges.filter(kind="op")["op_id"].null_count() == 0
