"""modules=True: what nn.Module calls look like, and that nothing is left of what was put around them."""

from __future__ import annotations

import pytest

from emit.running import python
from opspan.emit.compiled import has_old_compiler

pytest.importorskip("torch")

# seen(session): the modules of a recording, each as (depth among modules, name, class)
HEAD = """
import threading, torch, opspan
from torch import nn

class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.head = nn.Linear(4, 2)
    def forward(self, x): return self.head(self.layers(x))

def seen(session):
    rows = session.trace.ranges.filter(kind="module").sort("start_ns")
    found, open_ends = [], []
    for name, class_name, start, end in rows.select("name", "class_name", "start_ns", "end_ns").iter_rows():
        while open_ends and open_ends[-1] <= start: open_ends.pop()
        found.append((len(open_ends), name, class_name))
        open_ends.append(end)
    return found

torchs = nn.Module.__call__.__code__
around = lambda: nn.Module.__call__.__code__ is not torchs
x = torch.randn(3, 4)
"""
TREE = """[(0, 'MLP', 'MLP'), (1, 'MLP.layers', 'Sequential'), (2, 'MLP.layers.0', 'Linear'), \
(2, 'MLP.layers.1', 'ReLU'), (1, 'MLP.head', 'Linear')]"""


def program(body: str) -> list[str]:
    return python(HEAD + body).splitlines()


def test_names_are_qualified_from_the_outermost_module() -> None:
    body = """
with opspan.record(modules=True) as session: MLP()(x)
print(seen(session))
print(around())
"""
    assert program(body) == [TREE, "False"]


def test_without_modules_there_are_none() -> None:
    body = """
with opspan.record() as session:
    MLP()(x)
    print(around())
print(seen(session))
"""
    assert program(body) == ["False", "[]"]


def test_of_two_sessions_the_last_one_takes_away_what_is_around_calls() -> None:
    body = """
from opspan.emit import modules
modules.start(1)
with opspan.record(modules=True): pass
print(around())
modules.stop(1)
print(around())
"""
    assert program(body) == ["True", "False"]


def test_an_exception_in_a_forward_ends_the_ranges_it_passes() -> None:
    body = """
class Raising(nn.Module):
    def __init__(self, error):
        super().__init__()
        self.inner = MLP()
        self.error = error
    def forward(self, x):
        self.inner(x)
        raise self.error

with opspan.record(modules=True) as session:
    for error in (ValueError(), KeyboardInterrupt()):
        try: Raising(error)(x)
        except BaseException: pass
    MLP()(x)
    with opspan.annotate("after"): pass
names = [(depth, name) for depth, name, _ in seen(session) if name in ("Raising", "Raising.inner", "MLP")]
print(names[:3])
print(all(end is not None for end in session.trace.ranges["end_ns"]))
"""
    first, closed = program(body)

    assert first == "[(0, 'Raising'), (1, 'Raising.inner'), (0, 'Raising')]"
    assert closed == "True"


def test_a_module_called_by_itself_keeps_the_name_it_has_in_its_model() -> None:
    # As in a checkpoint, which calls a part of the model again in the backward pass.
    body = """
model = MLP()
with opspan.record(modules=True) as session:
    model(x)
    model.head(x)
    nn.Linear(4, 1)(x)
print(seen(session)[-2:])
"""
    assert program(body) == ["[(0, 'MLP.head', 'Linear'), (0, 'Linear', 'Linear')]"]


def test_a_part_that_is_added_while_the_model_runs_gets_its_name() -> None:
    body = """
class Growing(nn.Module):
    def forward(self, x):
        if not hasattr(self, "late"): self.late = nn.Linear(4, 4)
        return self.late(x)

with opspan.record(modules=True) as session: Growing()(x)
print(seen(session))
"""
    assert program(body) == ["[(0, 'Growing', 'Growing'), (1, 'Growing.late', 'Linear')]"]


def test_every_thread_has_a_stack_of_its_own() -> None:
    body = """
model = MLP()
with opspan.record(modules=True) as session:
    threads = [threading.Thread(target=lambda: [model(x) for _ in range(50)]) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
rows = session.trace.ranges.filter(kind="module")
print(rows.height, rows["tid"].n_unique(), rows["end_ns"].null_count())
"""
    assert program(body) == ["1000 4 0"]


def test_a_session_that_ends_inside_a_call_leaves_the_next_one_alone() -> None:
    body = """
class Ending(nn.Module):
    def forward(self, x):
        first.__exit__(None, None, None)
        return x

first = opspan.record(modules=True)
first.__enter__()
Ending()(x)
with opspan.record(modules=True) as session: MLP()(x)
print(seen(session))
"""
    assert program(body) == [TREE]


@pytest.mark.slow
def test_compiled_it_is_one_range_with_the_same_result_no_graph_break_and_no_endless_recompiling() -> None:
    body = """
from torch._dynamo.utils import counters
model = MLP()
expected = model(x)
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
for _ in range(12):  # more often than torch recompiles
    with opspan.record(modules=True) as session: result = compiled(x)
    compiled(x)
print(torch.equal(result, expected), dict(counters["graph_break"]), counters["stats"]["unique_graphs"])
print(seen(session))
"""
    first, ranges = program(body)

    assert first == "True {} 1"  # inside of a session as outside
    # This backend runs the graph it made as a module, eagerly. Older releases run our hook for the model instead.
    inner = "MLP" if has_old_compiler() else "GraphModule"
    assert ranges == f"[(0, 'MLP', 'OptimizedModule'), (1, '{inner}', '{inner}')]"


def test_modules_are_told_apart_by_what_they_are_and_not_by_what_they_equal() -> None:
    body = """
class Equal(nn.Module):  # and so without a hash
    def __eq__(self, other): return isinstance(other, Equal)
    def forward(self, x): return x * 2
class Hashed(Equal):
    def __hash__(self): return 1
class Raising(nn.Module):
    def __eq__(self, other): raise RuntimeError("not to be asked")
    def __hash__(self): raise RuntimeError("not to be asked")
    def forward(self, x): return x * 2
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = Equal(), Equal(), Hashed(), Hashed()
        self.e = Raising()
        self.again = self.a
        self.original_name = "no scripted module"
        self.nothing = None
    def forward(self, x): return self.again(self.e(self.d(self.c(self.b(self.a(x))))))
import copy
model = Model()
with opspan.record(modules=True) as session:
    model(x)
    copy.deepcopy(model).b(x)
print([name for _, name, _ in seen(session)])
print(seen(session)[0])
"""
    inside = ", ".join(f"'Model.{name}'" for name in "abcdea")
    assert program(body) == [f"['Model', {inside}, 'Equal']", "(0, 'Model', 'Model')"]


def test_a_module_that_is_gone_leaves_its_name_to_nobody() -> None:
    body = """
from opspan.emit import modules
class Other(nn.Module):
    def forward(self, x): return x
with opspan.record(modules=True) as session:
    for number in range(200):
        (nn.Identity() if number % 2 else Other())(x)
    kept = len(modules._names._found._entries)
names = [name for _, name, _ in seen(session)]
print(names == ["Other", "Identity"] * 100, kept <= 1)
"""
    assert program(body) == ["True True"]
