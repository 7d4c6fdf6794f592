"""profile(python=True): the Python tracks of a program, against torch.profiler's with_stack."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import opspan
from emit.python_tracks import named
from opspan.profiler import profile


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


NET, X = Net(), torch.ones(2, 4)


def step() -> None:
    NET(X).sum().backward()


def tracks(path: Path) -> list[tuple[int, str, int | None]]:
    """Returns the depth, the name and the module's number of each Python function below the first `step`."""
    events = json.loads(path.read_bytes())["traceEvents"]
    calls = [event for event in events if event.get("cat") == "python_function"]
    depths: dict[int, int] = {}
    found = []
    for event in sorted(calls, key=lambda event: event["args"]["Python id"]):
        args, name = event["args"], event["name"]
        if args.get("Python parent id") in depths:
            depths[args["Python id"]] = depths[args["Python parent id"]] + 1
        elif name.endswith("): step") and not depths:
            depths[args["Python id"]] = 0
        if args["Python id"] in depths:
            is_c = name.startswith("<built-in")
            short = name.split()[2] if is_c else name.rpartition("/")[2]
            found.append((depths[args["Python id"]], short.rstrip(">"), args.get("Python module id")))
    return found


def test_chrome_traces_have_torchs_python_tracks(tmp_path: Path) -> None:
    with torch.profiler.profile(with_stack=True):
        step()  # in the first profile of a process, torch 2.9 sees calls inside `typing` that are not made later
    with torch.profiler.profile(with_stack=True) as theirs:
        step()
    with profile(python=True) as ours:
        step()
    theirs.export_chrome_trace(str(tmp_path / "theirs.json"))
    ours.export_chrome_trace(tmp_path / "ours.json")
    assert tracks(tmp_path / "ours.json") == tracks(tmp_path / "theirs.json")
    assert ("nn.Module: Linear_1", 1) in [call[1:] for call in tracks(tmp_path / "ours.json")]
    again = opspan.load(tmp_path / "ours.json")
    assert again.functions.drop("payload_json").equals(ours.trace.functions.drop("payload_json"))


def test_functions_are_events_as_in_torch() -> None:
    step()
    with profile(python=True) as prof:
        step()
    with profile() as plain:
        step()
    events = prof.events()
    assert {event.name for event in events if event.is_python_function} == set(prof.trace.functions["name"])
    names = [event.name for event in events if not event.is_python_function]
    assert names == [event.name for event in plain.events()]
    assert [row.key for row in prof.key_averages()] == [row.key for row in plain.key_averages()]


def test_cycles_of_a_profile() -> None:
    found = []
    with profile(
        python=True,
        schedule=opspan.profiler.schedule(wait=1, warmup=0, active=1, repeat=2),
        on_trace_ready=lambda prof: found.append([call[1] for call in named(prof.trace.functions)].count("step")),
    ) as prof:
        for _ in range(5):
            step()
            prof.step()
    assert found == [1, 1]


def test_torchs_profiler_beside_it(tmp_path: Path) -> None:
    with torch.profiler.profile(with_stack=True) as theirs, profile() as ours:
        step()
    with profile(python=True) as again, torch.profiler.profile() as plain:
        step()
    theirs.export_chrome_trace(str(tmp_path / "theirs.json"))
    assert [call[1].endswith("): step") for call in tracks(tmp_path / "theirs.json")].count(True) == 1
    assert len(again.trace.functions) > 20
    assert [event.name for event in ours.events()]
    assert [event.name for event in plain.events()]


def test_nothing_is_kept_alive() -> None:
    space: dict[str, Any] = {}
    with opspan.record(python=True):
        net = Net()
        net(X)
        gone = weakref.ref(net)
        del net
        gc.collect()
        assert gone() is None, "while it records"
        exec("def made(): return 1", space)  # a function that only this test has
        space["made"]()
    code = weakref.ref(space["made"].__code__)
    space.clear()
    gc.collect()
    assert code() is None, "after it has recorded"


def test_modules_with_the_same_address() -> None:
    """Modules of a class have different numbers, though a later one may have the memory of an earlier one."""
    with opspan.record(python=True) as recording:
        for _ in range(5):
            Net()(X)
    names = [call[1] for call in named(recording.trace.functions)]
    assert [f"nn.Module: Net_{number}" for number in range(5)] == [name for name in names if "Module: Net" in name]


def test_compiled_programs_give_the_same(recwarn: pytest.WarningsRecorder) -> None:
    compiled = torch.compile(NET, backend="eager")
    expected = NET(X)
    with profile(python=True) as prof:
        assert torch.equal(compiled(X), expected)
    assert prof.trace.functions.height
    torch.compiler.reset()
