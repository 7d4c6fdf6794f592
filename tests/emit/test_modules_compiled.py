"""modules=True where torch traces, compiles, scripts or exports: it does what it does without a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from emit.running import forked, python
from emit.test_modules import HEAD
from opspan.emit.compiled import has_old_compiler

pytest.importorskip("torch")

HEAD += """
class Hooked(MLP):
    def __init__(self):
        super().__init__()
        self.head.register_forward_hook(lambda module, inputs, output: output * 2)
class Own(MLP):
    def __call__(self, *args, **kwargs): return super().__call__(*args, **kwargs)
class Outer(nn.Module):
    def __init__(self, kind): super().__init__(); self.inner = kind()
    def forward(self, x): return self.inner(x) + 1
models = [MLP(), Hooked(), Outer(Own), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0))]
"""


def program(body: str) -> list[str]:
    return python(HEAD + body).splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    "session",
    [
        "opspan.record(modules=True)",
        "opspan.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_modules=True)",
    ],
)
def test_strict_export_is_what_it_is_alone(session: str) -> None:
    body = f"""
import opspan.profiler
def exported(model): return torch.export.export(model, (x,), strict=True)
for model in models:
    alone = exported(model)
    with {session}: inside = exported(model)
    print(alone.graph_module.code == inside.graph_module.code, torch.equal(inside.module()(x), model(x)))
"""
    assert program("import torch._dynamo\n" + body) == ["True True"] * 4


@pytest.mark.slow
def test_compiling_is_what_it_is_alone_and_happens_once() -> None:
    body = """
from torch._dynamo.utils import counters
for model in models:
    found = []
    for inside_first in (False, True):
        torch._dynamo.reset()
        counters.clear()
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        for number in range(10):  # more often than torch recompiles
            with opspan.record(modules=number % 2 == inside_first): result = compiled(x)
        found.append((torch.equal(result, model(x)), dict(counters["graph_break"]), counters["stats"]["unique_graphs"]))
    print(found)
"""
    # A class with its own __call__ makes Dynamo guard torch's code: it compiles once with ours and once without. Older
    # releases do not guard it.
    graphs = [1, 1, 1 if has_old_compiler() else 2, 1]
    assert program(body) == [str([(True, {}, count)] * 2) for count in graphs]


@pytest.mark.slow
def test_a_model_that_breaks_its_graph_breaks_it_as_often() -> None:
    body = """
from torch._dynamo.utils import counters
class Breaks(MLP):
    def forward(self, x):
        y = self.layers(x)
        torch._dynamo.graph_break()
        return self.head(y)
def broken(modules):
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(Outer(Breaks), backend="aot_eager")
    with opspan.record(modules=modules):
        for _ in range(3): compiled(x)
    return sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"]
print(broken(False) == broken(True), broken(True)[1] > 1)
model = MLP()
model.compile(backend="aot_eager", fullgraph=True)
with opspan.record(modules=True) as session: model(x)
print(seen(session)[0])
"""
    done = forked(HEAD + body)  # torch warns of what it does itself after a break
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True True", "(0, 'MLP', 'MLP')"]


def test_fx_that_is_first_imported_in_a_session_is_what_it_is_else() -> None:
    body = """
import sys
for name in [name for name in sys.modules if name.startswith("torch.fx")]: del sys.modules[name]
with opspan.record(modules=True) as session:
    import torch.fx._symbolic_trace as fx
    model = MLP()
    traced = fx.symbolic_trace(model)
    expected, result = model(x), traced(x)
print(torch.equal(expected, result), fx._orig_module_call is nn.Module.__call__, around())
print(fx.symbolic_trace(model).code == traced.code, ("MLP.layers.0", "Linear") in {row[1:] for row in seen(session)})
"""
    done = forked(HEAD + body)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True True False", "True True"]


def test_scripted_and_traced_modules(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\n"
        "class Inner(torch.nn.Module):\n"
        "    def __init__(self): super().__init__(); self.line = torch.nn.Linear(4, 4)\n"
        "    def forward(self, x): return self.line(x)\n"
    )
    body = """
import sys, warnings
for category in DeprecationWarning, FutureWarning: warnings.simplefilter("ignore", category)  # of torch.jit itself
sys.path.insert(0, ".")
from model import Inner
model = Inner()
alone = torch.jit.script(model), torch.jit.trace(model, x)
with opspan.record(modules=True) as session:
    inside = torch.jit.script(model), torch.jit.trace(model, x)
    for one in inside: one(x)
print([a.code == b.code for a, b in zip(alone, inside)])
print(seen(session)[-2:])
"""
    assert python(HEAD + body, cwd=tmp_path).splitlines() == [
        "[True, True]",
        "[(0, 'Inner', 'Inner'), (0, 'Inner', 'Inner')]",
    ]
