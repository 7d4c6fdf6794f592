"""The function of a program that each of its ops was called in, as torch.profiler and as opspan.profiler say.

torch's own list is of no use here: in 2.13 the stacks of ops are empty in it, and while a program compiles it cannot be
made at all. The tree below that list has them.
"""

from __future__ import annotations

from typing import Any

from torch._C._profiler import RecordScope, _EventType


def of_torch(prof: Any, file: str) -> list[Any]:
    """Each range's name, and the innermost function of this file around it; None for what runs in a backward."""
    found, left = [], list(prof.profiler.kineto_results.experimental_event_tree())
    while left:
        event = left.pop()
        left.extend(event.children)
        if event.typed[0] == _EventType.TorchOp:
            found.append((event.start_time_ns, -event.end_time_ns, event.name, _around(event, file)))
    return [[name, function] for *_, name, function in sorted(found, key=lambda row: row[:2])]


def _around(event: Any, file: str) -> str | None:
    function = None
    while event is not None:
        kind, fields = event.typed
        if kind == _EventType.TorchOp:
            if fields.scope == RecordScope.BACKWARD_FUNCTION or "evaluate_function" in event.name:
                return None
        elif kind == _EventType.PyCall and function is None and fields.callsite.file_name.endswith(file):
            function = fields.callsite.function_name
        event = event.parent
    return function


def of_ours(trace: Any, file: str) -> list[Any]:
    ranges = trace.analysed.complete.ranges
    ranges = ranges.sort("start_ns", -ranges["end_ns"])
    ranges = ranges.filter(tid=ranges["tid"][0])  # the thread that torch sees
    named = ranges.select("name", "stack", "phase").cast(str).rows()
    return [[name, None if phase == "backward" else _innermost(stack or "", file)] for name, stack, phase in named]


def _innermost(stack: str, file: str) -> str | None:
    return next((line.rpartition(": ")[2] for line in stack.split("\n")[::-1] if file in line), None)
