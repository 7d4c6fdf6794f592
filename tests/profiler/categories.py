"""Programs whose memory torch.profiler and opspan.profiler sort into categories, in the same run.

`python categories.py out.json` writes, for each program and each time that memory was taken, in order: the bytes,
torch's category, opspan's. torch's may change while the memory lives: it is the one that it was taken with.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity
from torch.profiler._memory_profiler import Action, MemoryProfileTimeline, TensorKey

from programs import PROGRAMS

TRAINING: dict[str, Callable[[], object]] = {}  # steps of models that were there before
Row = tuple[int, str, str]


def training(function: Callable[[], Callable[[], object]]) -> None:
    TRAINING[function.__name__] = function()


def steps(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, backwards: int = 1) -> None:
    for _ in range(2):
        for _ in range(backwards):
            functional.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.int64)).backward()
        optimizer.step()
        optimizer.zero_grad()


@training
def momentum() -> Callable[[], object]:
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 4)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return lambda: steps(model, optimizer, torch.randn(8, 16))


@training
def accumulated() -> Callable[[], object]:
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
    return lambda: steps(model, torch.optim.AdamW(model.parameters()), torch.randn(8, 16), backwards=3)


@training
def images() -> Callable[[], object]:
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(648, 4))
    optimizer = torch.optim.Adam(model.parameters())
    return lambda: steps(model, optimizer, torch.randn(4, 3, 20, 20))


@training
def stepped_in_hooks() -> Callable[[], object]:
    model = torch.nn.Linear(16, 4)

    def step(parameter: torch.Tensor) -> None:
        with torch.no_grad():
            parameter.sub_(parameter.grad)
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    return lambda: functional.cross_entropy(model(torch.randn(8, 16)), torch.zeros(8, dtype=torch.int64)).backward()


def watched(run: Callable[[], object]) -> list[Row]:
    from opspan import profiler

    run()
    asked = {"activities": [ProfilerActivity.CPU], "record_shapes": True, "profile_memory": True}
    with torch.profiler.profile(**asked, with_stack=True) as theirs, profiler.profile(**asked) as ours:
        run()
    memory = ours.trace.memory
    memory = memory.with_columns(ours.trace.analysed.memory_categories.cast(str).fill_null("unknown"))
    taken = memory.filter(event="alloc").sort("time_ns").select("bytes", "category").rows()
    timeline = MemoryProfileTimeline(theirs._memory_profile())
    known = []
    for time_ns, action, (key, version), size in sorted(timeline.timeline, key=lambda row: row[0]):
        if action is Action.CREATE:
            category = timeline.categories.get(key, version) if isinstance(key, TensorKey) else None
            known.append((time_ns, size, "unknown" if category is None else category.name.lower()))
    assert [size for _, size, _ in known] == [size for size, _ in taken]
    return [(size, torchs, mine) for (size, mine), (_, _, torchs) in zip(taken, known, strict=True)]


def main(out: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = {name: watched(run) for name, run in {**PROGRAMS, **TRAINING}.items()}
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
