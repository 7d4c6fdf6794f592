"""Other tools show the Python tracks of opspan's Chrome traces as those of torch.profiler's own: the TensorBoard
plugin its Module view, HolisticTraceAnalysis the calls around each op, and Perfetto the tracks."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from emit.running import told
from peers.environments import figures_of, python_of
from views.perfetto_seen import rows_of

pytestmark = pytest.mark.slow
PROGRAM = """
import sys, torch
from opspan import profiler

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
        self.head = torch.nn.Linear(16, 4)

    def forward(self, x):
        with torch.profiler.record_function("body"):
            x = self.body(x)
        return self.head(x)

net, x = Net(), torch.randn(3, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

def train():
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()

train()
asked = {
    "activities": [torch.profiler.ProfilerActivity.CPU],
    "record_shapes": True,
    "schedule": torch.profiler.schedule(wait=1, warmup=1, active=3),
}
for profile, path, more in (
    (torch.profiler.profile, sys.argv[1], {"with_stack": True, "with_modules": True}),
    (profiler.profile, sys.argv[2], {"python": True}),
):
    with profile(**asked, **more) as prof:
        for _ in range(5):
            train()
            prof.step()
    prof.export_chrome_trace(path)
print("null")
"""
MODULES = ["Net_0", "Sequential_0", "Linear_0", "ReLU_0", "Linear_1", "Linear_2"]
PARENTS = """select s.name, p.name, s.category from slice s join slice p on p.id = s.parent_id"""
DROPPED = """select value from stats where name = 'slice_drop_overlapping_complete_event'"""
SHOWN = """select name, count(*) from slice where category = 'user_annotation' group by name order by name"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns the traces of a program by torch.profiler and by opspan, with the Python tracks of both."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("tracks")
    told(PROGRAM, folder / "theirs.json", folder / "ours.json")
    return folder / "theirs.json", folder / "ours.json"


def test_the_module_view(files: tuple[Path, Path]) -> None:
    python_of("tb_plugin")
    theirs, ours = (figures_of("tb_plugin", path) for path in files)
    assert list(ours["modules"]) == MODULES
    assert counts(ours) == counts(theirs)
    assert counts(ours)["Linear_0"] == (3, 3)
    assert ours["module_tree"] == theirs["module_tree"]
    assert ours["tree"] == theirs["tree"]


def counts(figures: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Returns how often each module was called, and how many operators it called."""
    return {name: (said["occurences"], said["operators"]) for name, said in figures["modules"].items()}


def test_the_calls_around_ops(files: tuple[Path, Path]) -> None:
    python_of("hta")
    theirs, ours = (figures_of("hta", path, HTA_DISABLE_NS_ROUNDING="1") for path in files)
    assert of_torch(ours["depths"]) == of_torch(theirs["depths"])
    parents, their_parents = of_torch(ours["parents"]), of_torch(theirs["parents"])
    # In torch's trace, the range overlaps the function that begins it, and HTA takes that function for the parent.
    (misread,) = their_parents.keys() - parents.keys()
    assert misread.startswith("nn.Module: Sequential_0 in profiler.py(")
    their_parents["nn.Module: Sequential_0 in body"] = their_parents.pop(misread)
    assert parents == their_parents
    assert parents["aten::linear in linear"] == 6  # it leaves out the last step


def of_torch(counted: dict[str, int]) -> dict[str, int]:
    """Keeps ops and modules, with short names."""
    kept: Counter[str] = Counter()
    for text, count in counted.items():
        if text.startswith(("aten::", "nn.Module: ")):
            kept[short(text)] += count
    return dict(kept)


def short(name: str) -> str:
    """Drops the folder of a function's file, which torch writes from the program's folder on. Keeps only the name of a
    function in C: torch writes the address of the object that it is called on."""
    return re.sub(r"\S*/", "", re.sub(r"<built-in \w+ (\w+).*>", r"\1", name))


def test_perfetto_shows_each_call_in_its_caller(files: tuple[Path, Path]) -> None:
    python_of("trace_processor")
    (theirs, their_drops, _), (ours, our_drops, shown) = (rows_of(path, PARENTS, DROPPED, SHOWN) for path in files)

    def parents(rows: list[list[str]]) -> Counter[tuple[str, str]]:
        return Counter((name, short(parent)) for name, parent, _ in rows if name.startswith("nn.Module: "))

    # It drops annotations of torch's, which overlap the functions that begin and end them.
    assert their_drops[0][0] > 0
    (around,) = parents(theirs).keys() - parents(ours).keys()
    assert around[0] == "nn.Module: Sequential_0"
    assert around[1].endswith("forward"), "the caller of the range"
    expected = parents(theirs)
    expected["nn.Module: Sequential_0", "body"] = expected.pop(around)
    assert parents(ours) == expected
    assert len(expected) == len(MODULES)
    assert our_drops == [[0]]
    names = ("Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad", "ProfilerStep#2", "body")
    assert set(names) <= {name for name, _ in shown}
