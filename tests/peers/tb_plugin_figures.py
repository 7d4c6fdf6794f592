"""Prints the figures of the TensorBoard plugin of torch.profiler for a trace; for test_tb_plugin.py, run by
answering.py.

It is given names of events that it knows, as old torch wrote them.
Times are in microseconds from the first event on: those since 1970 have more digits than its numbers.
"""

from __future__ import annotations

import gzip
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

CALLS = ("_runtime", "_driver")
OF_COSTS = ("computing", "copying", "filling", "communicating", "calling", "loading", "ops", "other", "time")


def read(path: Path) -> dict[str, Any]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as file:
        document = json.load(file, parse_float=Decimal, strict=False)
    if isinstance(document, list):  # the oldest form, which the plugin itself does not read any more
        document = {"traceEvents": document}
    events = [event for event in document["traceEvents"] if event.get("ph") != "M" and event.get("name") != "Record"]
    spans = [event for event in events if event.get("ph") == "X"]
    zero = min(Decimal(event["ts"]) for event in spans)
    for event in events:
        event["ts"] = float(Decimal(event["ts"]) - zero)
        if "dur" in event:
            event["dur"] = float(event["dur"])
        if str(event.get("cat")).endswith(CALLS):
            event["cat"] = "Runtime"
        if event.get("cat") == "user_annotation" and str(event["name"]).startswith("enumerate(DataLoader)#"):
            event["cat"] = "Operator"
    found: dict[str, Any] = json.loads(json.dumps({**document, "traceEvents": events}, default=float))
    return found


def figures(name: str) -> dict[str, Any]:
    from torch_tb_profiler.profiler import data, event_parser
    from torch_tb_profiler.profiler.module_op import aggegate_module_view

    sys.setrecursionlimit(20_000)
    parsers = []

    class Kept(event_parser.EventParser):  # type: ignore[misc]  # its steps are not kept
        def __init__(self) -> None:
            super().__init__()
            parsers.append(self)

    data.EventParser = Kept
    document = read(Path(name))
    profile = data.RunProfileData.from_json("worker", None, document)
    (parser,) = parsers
    gpus = profile.gpu_metrics_parser
    kernels = [event for event in profile.events if event.type == "Kernel"]
    known = kernels or [event for event in profile.events if event.type == "Operator"]
    found: dict[str, Any] = {
        "first_us": min(event.ts for event in known),
        "steps": [[name, *times] for name, times in zip(profile.steps_names, parser.steps, strict=True)],
        "costs": [dict(zip(OF_COSTS, costs.costs, strict=True)) for costs in profile.steps_costs],
        "costs_by_kernel_names": by_kernel_names(parser, profile.events),
        "overlap": [vars(costs) for costs in profile.comm_overlap_costs],
        "gpus": {
            gpu: {
                "utilisation": gpus.gpu_utilization[gpu],
                "sm_efficiency": gpus.avg_approximated_sm_efficiency_per_device[gpu],
                "occupancy": gpus.avg_occupancy_per_device[gpu],
                "tensor_cores": profile.tc_ratio[gpu],
            }
            for gpu in gpus.gpu_ids
        },
        "operators": {op.name: operator(op) for op in profile.op_list_groupby_name},
        "kernels": {} if profile.kernel_stat is None else json.loads(profile.kernel_stat.to_json(orient="index")),
        "stacks": {name: sorted(map(stack, ops)) for name, ops in profile.stack_lists_group_by_name.items()},
        "modules": modules(aggegate_module_view(profile.tid2tree, profile.events) or []),
        "module_tree": module_tree(aggegate_module_view(profile.tid2tree, profile.events) or []),
        "tree": [tree(root) for root in profile.tid2tree.values()],
    }
    if profile.memory_snapshot:
        found["memory"] = profile.memory_snapshot.get_memory_statistics(profile.tid2tree)
        peaks = profile.memory_snapshot.get_peak_memory()
        found["peaks"] = [[int(kind), device, peak] for (kind, device), peak in peaks.items() if kind is not None]
    return found


def by_kernel_names(parser: Any, events: list[Any]) -> list[dict[str, float]]:
    """Its costs of steps, with collectives told by the names of kernels instead of those of ops around them."""
    from torch_tb_profiler.profiler.event_parser import ProfileRole
    from torch_tb_profiler.profiler.overall_parser import OverallParser
    from torch_tb_profiler.profiler.range_utils import merge_ranges

    roles = [list(ranges) for ranges in parser.role_ranges]
    kernels = [(event.ts, event.ts + event.duration, event.name) for event in events if event.type == "Kernel"]
    ops = [event for event in events if event.type == "Operator" and not event.name.startswith("enumerate(DataL")]
    for role, wanted in ((ProfileRole.Kernel, False), (ProfileRole.Communication, True)):
        chosen = [(start, end) for start, end, name in kernels if ("nccl" in name.lower()) == wanted]
        roles[role] = merge_ranges(chosen)
    roles[ProfileRole.CpuOp] = merge_ranges([(event.ts, event.ts + event.duration) for event in ops])
    overall = OverallParser()
    overall.aggregate(parser.steps, roles)
    return [dict(zip(OF_COSTS, costs.costs, strict=True)) for costs in overall.steps_costs]


def operator(op: Any) -> dict[str, Any]:
    names = "calls host_duration self_host_duration device_duration self_device_duration tc_eligible tc_self_duration"
    return {name: getattr(op, name) for name in [*names.split(), "tc_total_duration"]}


def stack(op: Any) -> list[Any]:
    (called,) = op.callstacks
    return [called, op.calls, *(round(value, 3) for value in (op.host_duration, op.device_duration))]


def tree(node: Any) -> list[Any]:
    """Its tree of steps, modules and operators, as names with the names inside."""
    return [node.name, [tree(child) for child in node.children]]


def module_tree(stats: list[Any]) -> list[Any]:
    """The rows of its Module view, as names with the names inside."""
    return [[one.name, module_tree(one.children)] for one in stats]


def modules(stats: list[Any]) -> dict[str, dict[str, Any]]:
    """Flat, by name and number: nn.Module's own count."""
    found = {}
    for one in stats:
        kept = {key: value for key, value in one._asdict().items() if key not in ("name", "id", "children")}
        found[f"{one.name}_{one.id}" if not one.name.endswith(f"_{one.id}") else one.name] = kept
        found.update(modules(one.children))
    return found
