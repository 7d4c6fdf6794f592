"""A program that is compiled while torch.profiler and opspan.profiler watch it.

`python compiled.py BACKEND out.json` writes what either of them says of each range, in order: without stacks in
torch's, for which torch's own list is, and with them, for which it is the tree below that list. In 2.13 the list cannot
be made then: names of functions that the compiler has thrown away are read after they are gone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.profiler
from torch._C._profiler import RecordScope, _EventType

HERE = Path(__file__).name
ASKED: dict[str, Any] = {"activities": [torch.profiler.ProfilerActivity.CPU], "record_shapes": True}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.broken(torch.relu(self.one(x)))
        return self.two(hidden).sin().sum()

    def broken(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * 2 if hidden.sum() > 1e9 else hidden  # the graph ends here, and goes on


def steps(backend: str) -> None:
    model = torch.compile(Net(), backend=backend)
    for _ in range(2):
        model(torch.ones(3, 8)).backward()


def in_order(events: Any) -> list[Any]:
    return sorted(events, key=lambda event: (event.time_range.start, -event.time_range.end))


def rows(events: Any) -> list[Any]:
    return [
        [event.name, event.cpu_parent and event.cpu_parent.name, event.sequence_nr, event.input_shapes]
        for event in in_order(events)
    ]


def of_one_thread(events: Any) -> list[Any]:
    """Of the thread that the first is on: the compiler has others, which torch does not see."""
    return [event for event in events if event.thread == events[0].thread]


def functions_of_torch(prof: Any) -> list[Any]:
    """Each range's name, and the function of this file that it was called in; None for what runs in a backward."""
    found, left = [], list(prof.profiler.kineto_results.experimental_event_tree())
    while left:
        event = left.pop()
        left.extend(event.children)
        if event.typed[0] == _EventType.TorchOp:
            found.append((event.start_time_ns, -event.end_time_ns, event.name, function_around(event)))
    return [[name, function] for *_, name, function in sorted(found, key=lambda row: row[:2])]


def function_around(event: Any) -> str | None:
    function = None
    while event is not None:
        kind, fields = event.typed
        if kind == _EventType.TorchOp:
            if fields.scope == RecordScope.BACKWARD_FUNCTION or "evaluate_function" in event.name:
                return None
        elif kind == _EventType.PyCall and function is None and fields.callsite.file_name.endswith(HERE):
            function = fields.callsite.function_name
        event = event.parent
    return function


def functions_of_ours(trace: Any) -> list[Any]:
    ranges = trace.analysed.complete.ranges
    ranges = ranges.sort("start_ns", -ranges["end_ns"])
    ranges = ranges.filter(tid=ranges["tid"][0])  # of the thread that torch sees
    named = ranges.select("name", "stack", "phase").cast(str).rows()
    return [[name, None if phase == "backward" else function_in(stack or "")] for name, stack, phase in named]


def function_in(stack: str) -> str | None:
    return next((line.rpartition(": ")[2] for line in stack.split("\n")[::-1] if HERE in line), None)


def main(backend: str, out: str) -> None:
    from opspan import profiler

    torch.manual_seed(0)
    torch.set_num_threads(1)
    with torch.profiler.profile(**ASKED) as theirs, profiler.profile(**ASKED, with_stack=True) as ours:
        steps(backend)
    found = {
        "rows": [rows(of_one_thread(ours.events())), rows(theirs.events())],
        "stacks": ours.trace.ranges["stack"].drop_nulls().unique().to_list(),
    }
    torch._dynamo.reset()
    with torch.profiler.profile(**ASKED, with_stack=True) as theirs, profiler.profile(**ASKED, with_stack=True) as ours:
        steps(backend)
    found["functions"] = [functions_of_ours(ours.trace), functions_of_torch(theirs)]
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
