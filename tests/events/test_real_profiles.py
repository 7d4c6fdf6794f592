"""Events that torch.profiler recorded, taken over attribute by attribute: our classes print what torch's print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", "2.13", reason="the face is that of torch 2.13 and later: older profilers list less")

import torch
from torch.profiler import profile, record_function, schedule

from events.pairs import CAN_LEAVE_PYTHON_OUT, SORT_KEYS, attributes, files_of, torchs_averages
from opspan import events as ours


def mlp() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with record_function('a "quoted" range\\'):
            loss = model(torch.randn(4, 8)).sum()
        loss.backward()
        optimizer.step()


def lists_of_tensors() -> None:
    parts = [torch.randn(2, 3, requires_grad=True) for _ in range(3)]
    torch.autograd.grad(torch.cat(parts).pow(2).sum(), parts, create_graph=True)


def futures() -> None:
    @torch.jit.script
    def wait(x: torch.Tensor) -> torch.Tensor:
        future = torch.jit.fork(torch.relu, x)
        return torch.jit.wait(future)

    wait(torch.randn(3))


def convolution() -> None:
    torch.nn.functional.conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3))


PROGRAMS = [mlp, lists_of_tensors, futures, convolution]
SWITCHES = [
    {},
    {"record_shapes": True},
    {"record_shapes": True, "profile_memory": True},  # not with flops: torch cannot print events of memory then
    {"record_shapes": True, "with_flops": True},
    {"with_stack": True},
    {"with_stack": True, "with_modules": True, "with_flops": True},
]

# The last: whether Python's functions count. They always do where torch has no such choice.
GROUPINGS = [
    (by_shapes, stack_n, by_overload, python)
    for by_shapes, stack_n, by_overload in [(False, 0, False), (True, 0, False), (False, 3, False), (True, 2, True)]
    for python in ([False, True] if CAN_LEAVE_PYTHON_OUT else [True])
]


def torchs_events(program: Any, switches: dict[str, bool]) -> Any:
    """torch.profiler's own list. Seen once: it could not decode a name of its own. Then that of another run."""
    with profile(**switches) as recorded:
        program()
    try:
        return recorded.events()
    except UnicodeDecodeError:
        with profile(**switches) as again:
            program()
        return again.events()


def taken_over(theirs: Any) -> ours.EventList:
    """Our list with the values of torch's."""
    made: dict[int, ours.FunctionEvent] = {}
    for event in theirs:
        span = event.time_range
        mine = made[id(event)] = ours.FunctionEvent(event.id, event.name, event.thread, span.start, span.end)
        for name, value in vars(event).items():
            if name == "device_type":
                mine.device_type = ours.DeviceType.of(value)
            elif name == "kernels":
                mine.kernels = [ours.Kernel(*kernel) for kernel in value]
            elif name not in ("time_range", "cpu_parent", "cpu_children", "event_metadata", "_event_metadata"):
                setattr(mine, name, value)
    for event in theirs:
        mine = made[id(event)]
        mine.cpu_parent = made.get(id(event.cpu_parent))
        mine.cpu_children = [made[id(child)] for child in event.cpu_children]
    events = ours.EventList(
        [made[id(event)] for event in theirs],
        use_device=theirs._use_device,
        profile_memory=theirs._profile_memory,
        with_flops=theirs._with_flops,
    )
    events._tree_built = True
    return events


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")  # as of torch 2.15
@pytest.mark.filterwarnings("ignore:with_modules is deprecated:FutureWarning")  # as of torch 2.15; still there
@pytest.mark.parametrize("switches", SWITCHES, ids=lambda switches: "+".join(switches) or "plain")
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_profile_prints_as_it_did(program: Any, switches: dict[str, bool], tmp_path: Path) -> None:
    theirs = torchs_events(program, switches)
    mine = taken_over(theirs)

    assert len(mine) > 3
    assert str(mine) == str(theirs)
    assert repr(mine) == repr(theirs)
    assert attributes(mine.total_average()) == attributes(theirs.total_average())
    assert files_of(mine, tmp_path)[1:] == files_of(theirs, tmp_path)[1:]
    for key in SORT_KEYS:
        assert mine.table(sort_by=key, row_limit=7) == theirs.table(sort_by=key, row_limit=7)
        for grouping in GROUPINGS:
            averages, expected = mine.key_averages(*grouping), torchs_averages(theirs, grouping)
            assert averages.table(sort_by=key, top_level_events_only=True) == expected.table(
                sort_by=key, top_level_events_only=True
            )
            assert averages.table(sort_by=key) == expected.table(sort_by=key)


def test_the_tree_is_torchs(tmp_path: Path) -> None:
    with profile() as recorded:
        mlp()
    theirs = recorded.events()
    mine = taken_over(theirs)
    for event in mine:
        event.cpu_parent, event.cpu_children = None, []

    mine._build_tree()

    assert [attributes(event) for event in mine] == [attributes(event) for event in theirs]


def test_a_chrome_trace_with_hostile_names_is_json(tmp_path: Path) -> None:
    import json

    with profile() as recorded:
        mlp()
    mine = taken_over(recorded.events())
    mine.export_chrome_trace(tmp_path / "trace.json")

    written = json.loads((tmp_path / "trace.json").read_text())

    assert [event["name"] for event in written if event["ph"] == "X"] == [event.trace_name for event in mine]


def test_steps_are_averaged_as_one() -> None:
    with profile(schedule=schedule(wait=0, warmup=1, active=3, repeat=1), record_shapes=True) as recorded:
        for _ in range(4):
            torch.ones(3)
            recorded.step()
    theirs = recorded.events()
    mine = taken_over(theirs)

    assert any(event.name == "ProfilerStep*" for event in mine)
    assert mine.key_averages().table() == theirs.key_averages().table()
