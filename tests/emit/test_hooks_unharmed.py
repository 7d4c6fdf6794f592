"""Other code of opspan inside a user's program: its errors stay inside, are counted and reported once."""

from __future__ import annotations

from pathlib import Path

import pytest

from emit.beside_agent import program
from emit.running import forked, python

pytest.importorskip("torch")

SAID = """
import warnings
def said(act):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return [str(one.message) for one in caught]
"""


def test_labels_for_pyroscope_ask_nothing_of_the_programs() -> None:
    pytest.importorskip("pyroscope")
    body = """
asked = []
def foreign(name):
    def answer(self, *_, **__):
        asked.append(name)
        raise KeyError(name)
    return answer
class Tensor(torch.Tensor):
    grad_fn = property(foreign("grad_fn"))
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        asked.append(str(function))
        return super().__torch_function__(function, types, args, kwargs or {})
class Values(dict):
    values = items = __iter__ = foreign("values")
class Several(list):
    __iter__ = __len__ = __getitem__ = foreign("iter")
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        asked.append(str(function))
        return function(*args, **(kwargs or {}))
class Answers(nn.Module):
    def __init__(self): super().__init__(); self.line = nn.Linear(4, 4)
    def forward(self, x, *_):
        y = self.line(x).as_subclass(Tensor)
        endless = []
        endless.append(endless)
        return Values(y=Several([endless, 1, y]))
    def __getattr__(self, name):
        if name == "_orig_mod": raise KeyError(name)
        return super().__getattr__(name)
def run():
    asked.clear()
    with Mode(): found = Answers()(torch.ones(4), range(10**9))
    y = list.__iter__(dict.get(found, "y"))
    loss = [*y][2].sum()
    loss.backward()
    return asked[:]
agent()
alone = run()
with opspan.emit_pyroscope(): inside = run()
print(alone == inside, sorted(set(most["module"])), told)
"""
    assert program(body) == "True ['Answers', 'Answers.line'] set()\n"


def test_an_agent_that_fails_fails_alone() -> None:
    pytest.importorskip("pyroscope")
    body = """
agent(listen=False)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 3
    def __getitem__(self, number): return torch.ones(4)
def train(each):
    torch.manual_seed(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    for x in torch.utils.data.DataLoader(Data()):
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        each()
    return loss
alone = train(lambda: None)
is_broken = False
def fails(add):
    def call(key, value):
        if is_broken: raise RuntimeError("the agent is gone")
        return add(key, value)
    return call
pyroscope.add_thread_tag, pyroscope.remove_thread_tag = fails(add), fails(remove)
def act():
    global is_broken
    with opspan.emit_pyroscope() as session:
        is_broken = True
        print(torch.equal(train(session.step), alone))
        print(len(session._thread_tags._here().around))
        is_broken = False
print(said(act))
"""
    same, open_, said = program(SAID + body).splitlines()
    assert (same, open_) == ("True", "1")
    assert said.count("emit_pyroscope: ") == 1
    for doing in ("modules", "phases", "steps"):
        assert f"inside opspan while labelling {doing}, the first: RuntimeError: the agent is gone" in said


def test_who_counts_steps_fails_alone() -> None:
    body = """
from opspan.emit import step_ends
step_ends.watch_optimizers()
def count(by): raise OSError("no bell")
def act():
    with opspan.record(), step_ends.set_counter(count):
        parameter = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([parameter], lr=0.5)
        for _ in range(2):
            parameter.grad = torch.ones(2)
            optimizer.step()
        print(parameter.tolist())
print(said(act))
"""
    result, said = python("import torch, opspan" + SAID + body).splitlines()
    assert result == "[0.0, 0.0]"
    assert "record: 2 errors inside opspan while counting steps, the first: OSError: no bell" in said


def test_a_dump_that_fails_for_whatever_reason_is_a_warning(tmp_path: Path) -> None:
    body = """
import os, signal, sys
from opspan.emit import dumps
def write(*_): raise ZeroDivisionError("inside")
dumps.write = write
def act():
    with opspan.record(keep="30s", dump_to=sys.argv[1], dump_on="signal") as session:
        torch.ones(2)
        os.kill(os.getpid(), signal.SIGUSR2)
        torch.ones(2)
    print(session.trace.ranges.height, session.dumps)
print(said(act))
"""
    result, said = python("import torch, opspan" + SAID + body, str(tmp_path / "dumps")).splitlines()
    assert result.endswith(" []")
    assert "signal: no dump was written (ZeroDivisionError('inside')): the recording goes on" in said


@pytest.mark.parametrize("loader", ["", "__slots__ = ()"])
def test_importing_torch_goes_well_whatever_waits_for_it(loader: str) -> None:
    """The second kind of loader takes no attributes."""
    body = f"""
import sys, types
from importlib.machinery import ModuleSpec
class Loader:
    {loader or "pass"}
    def create_module(self, spec): return types.ModuleType("torch")
    def exec_module(self, module): module.here = True
class Finder:
    def find_spec(self, name, path=None, target=None): return ModuleSpec(name, Loader()) if name == "torch" else None
sys.meta_path.insert(0, Finder())
from opspan.emit.torch_import import when_torch_is_imported
when_torch_is_imported(lambda: 1 / 0)
import torch
print(torch.here)
"""
    done = forked(body, imported=())
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert done.stderr.startswith("opspan: nothing is labelled in this process: ")
    assert done.stderr.count("\n") == 1
