"""The modules that ops run in: torch.profiler says them of scripted models, opspan of eager ones, in the same form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emit import running

pytest.importorskip("torch")

MODEL = """
import torch

class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 3)
    def forward(self, x):
        return self.line(x).neg()

class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = Inner()
        self.several = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Sequential(Inner()))
        self.layers = torch.nn.ModuleList([Inner(), Inner()])
    def forward(self, x):
        x = self.several(self.one(x))
        for layer in self.layers:
            x = layer(x)
        return x.sum()
"""
HEAD = """
import json, sys, warnings
import torch
import torch.profiler
from opspan import profiler
sys.path.insert(0, ".")
from model import Outer  # of a file, because torch reads the source of what it scripts
CPU = [torch.profiler.ProfilerActivity.CPU]
model, x = Outer(), torch.ones(2, 3)
"""


def told(code: str, folder: Path) -> Any:
    (folder / "model.py").write_text(MODEL)
    return running.told(HEAD + code, cwd=folder)


@pytest.mark.slow
def test_ops_of_an_eager_model_are_in_the_modules_that_torch_says_of_the_scripted_one(tmp_path: Path) -> None:
    ours, theirs, of_events = told(
        """
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    scripted = torch.jit.script(model)
def rows(prof, name):
    prof.export_chrome_trace(name)
    return [
        [event["name"], event["args"].get("Module Hierarchy")]
        for event in sorted(json.load(open(name))["traceEvents"], key=lambda event: event.get("ts", 0))
        if event.get("cat") == "cpu_op" and event["name"].startswith("aten::")
    ]
with torch.no_grad():
    for _ in range(3):
        scripted(x)
    with torch.profiler.profile(activities=CPU, with_modules=True) as theirs:
        scripted(x)
    with profiler.profile(activities=CPU, with_modules=True) as ours:
        model(x)
of_events = [[event.name, event.module_hierarchy] for event in ours.events() if event.name.startswith("aten::")]
listed = {"aten::neg", "aten::linear", "aten::addmm", "aten::t"}  # no child has the name of its parent: none is folded
print(json.dumps([rows(ours, "a.json"), rows(theirs, "b.json"), [row for row in of_events if row[0] in listed]]))
""",
        tmp_path,
    )
    assert ours == theirs
    assert len({hierarchy for _, hierarchy in theirs}) == 10
    listed = {name for name, _ in of_events}
    assert of_events == [row for row in theirs if row[0] in listed]


def test_backward_is_in_the_modules_of_forward_and_what_is_in_none_says_nothing(tmp_path: Path) -> None:
    of_backward, outside, by_module = told(
        """
with profiler.profile(activities=CPU, with_modules=True) as prof:
    model(x).backward()
    torch.ones(2)
events = prof.events()
of_backward = sorted({event.module_hierarchy for event in events if event.name == "NegBackward0"})
outside = [event.module_hierarchy for event in events if event.name == "aten::ones"]
print(json.dumps([of_backward, outside, prof.trace.table(by="module").rows["module"].drop_nulls().to_list()]))
""",
        tmp_path,
    )
    assert of_backward == [
        "TOP(Outer)::forward.0(Inner)::forward.",
        "TOP(Outer)::forward.1(Inner)::forward.",
        "TOP(Outer)::forward.one(Inner)::forward.",
        "TOP(Outer)::forward.several(Sequential)::forward.1(Sequential)::forward.0(Inner)::forward.",
    ]
    assert set(outside) == {""}
    assert {"Outer", "Outer.layers.0.line", "Outer.several.1.0"} <= set(by_module)


def test_without_modules_there_are_none(tmp_path: Path) -> None:
    hierarchies = told(
        """
with profiler.profile(activities=CPU) as prof:
    model(x)
print(json.dumps([event.module_hierarchy for event in prof.events()]))
""",
        tmp_path,
    )
    assert set(hierarchies) == {""}
