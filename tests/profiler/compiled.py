"""A program that is compiled while torch.profiler and opspan.profiler watch it.

`python compiled.py BACKEND out.json` writes what either of them says of each range, in order, and which function of the
program each range was called in.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import functions
import torch
import torch.profiler

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
    """Returns the events of the first event's thread. The compiler has other threads, which torch does not see."""
    return [event for event in events if event.thread == events[0].thread]


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
    found["functions"] = [functions.of_ours(ours.trace, HERE), functions.of_torch(theirs, HERE)]
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
