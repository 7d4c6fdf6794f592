"""modules=True in programs of every kind: they compute what they compute alone, and no exception gets out of us."""

from __future__ import annotations

from pathlib import Path

import pytest

from emit.running import forked, python
from emit.test_modules import HEAD

pytest.importorskip("torch")

# Modules that answer attributes, comparisons and the like by code of their own. Each answer is noted, and fails.
FOREIGN = """
asked = []
def foreign(name):
    def answer(self, *_):
        asked.append(name)
        raise KeyError(name)
    return answer
class Meta(type):
    __name__ = property(foreign("__name__"))
class Parts(dict):
    items = values = keys = __iter__ = get = copy = foreign("items")
class Foreign(nn.Module, metaclass=Meta):
    def __init__(self):
        super().__init__()
        self.part = nn.Linear(4, 4)
        parts = Parts()
        dict.update(parts, self._modules)
        self.__dict__["_modules"] = parts
    def forward(self, x): return x * 2
    original_name = _orig_mod = property(foreign("property"))
    __len__ = __bool__ = __eq__ = __hash__ = foreign("special")
class Asked(nn.Module):
    def __init__(self): super().__init__(); self.part = Foreign()
    def forward(self, x): return nn.Module.__call__(self.__dict__["_modules"]["part"], x)
    def __getattr__(self, name): return foreign(name)(self)
"""


def program(body: str) -> list[str]:
    return python(HEAD + body).splitlines()


def test_nothing_of_the_programs_is_asked() -> None:
    body = """
Asked()(x)
asked.clear()
plain = Asked()(x), asked[:]
asked.clear()
with opspan.record(modules=True) as session: Asked()(x)
print(asked == plain[1], seen(session))
"""
    assert program(FOREIGN + body) == ["True [(0, 'Asked', 'Asked'), (1, 'Asked.part', 'Foreign')]"]


# Code inside a call of ours fails: always from now on, or once.
FAILING = """
import warnings
from opspan.emit import modules, module_names, ranges
def failing(where, name, error):
    before = getattr(where, name)
    def fails(*arguments, **more): raise error
    setattr(where, name, fails)
    return lambda: setattr(where, name, before)
def said(act):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return [str(one.message) for one in caught]
"""


@pytest.mark.parametrize(
    "where", ["ranges, 'push'", "ranges, 'pop'", "module_names.Names, 'learn'", "modules, '_stack'"]
)
def test_an_error_of_ours_is_counted_and_said_once(where: str) -> None:
    body = f"""
model = MLP()
expected = model(x)
def act():
    with opspan.record(modules=True) as session:
        mend = failing({where}, KeyError("inside"))
        for _ in range(3): assert torch.equal(model(x), expected)
        mend()
        model(x)
print(said(act))
print(said(lambda: opspan.record().__enter__().__exit__(None, None, None)), around())
with opspan.record(modules=True) as session: model(x)
print(seen(session))
"""
    first, second, third = program(FAILING + body)

    assert first.startswith('["record: ')
    assert "inside opspan while labelling modules, the first: KeyError: 'inside'. The program was not changed" in first
    assert first.count("opspan while") == 1
    assert second == "[] False"
    assert third.count("'MLP.layers.1'") == 1


def test_interrupts_are_the_programs_own() -> None:
    body = """
def act():
    with opspan.record(modules=True) as session:
        mend = failing(ranges, "push", KeyboardInterrupt())
        try: MLP()(x)
        except KeyboardInterrupt: print("interrupted")
        mend()
        MLP()(x)
    print(len(modules._stack()), [name for _, name, _ in seen(session)][:1])
print(said(act))
"""
    assert program(FAILING + body) == ["interrupted", "0 ['MLP']", "[]"]


def test_a_program_is_as_deep_in_calls_as_it_can_be_alone() -> None:
    body = """
import sys, warnings
class Nested(nn.Module):
    def forward(self, levels): return self(levels - 1) if levels else 0
class Link(nn.Module):
    def __init__(self, following): super().__init__(); self.following = following
    def forward(self, x): return x
def deepest(model):
    levels = 0
    while True:
        try: model(levels + 1)
        except RecursionError: return levels
        levels += 1
following = None
for _ in range(1200): following = Link(following)
alone = deepest(Nested())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with opspan.record(modules=True) as session: inside = deepest(Nested())
print(alone == inside >= 200, ["as deep in calls as Python's recursion limit" in str(one.message) for one in caught])
print(session.trace.ranges["end_ns"].null_count(), len(opspan.emit.modules._stack()))
with opspan.record(modules=True) as session:
    link = following
    while link is not None: link = (link(x), link.following)[1]
names = [name for _, name, _ in seen(session)]
print(len(names), names[:3], names[150] == "Link" + 150 * ".following", max(map(len, names)))
"""
    assert program(body) == [
        "True [True]",
        "0 0",
        "1200 ['Link', 'Link.following', 'Link.following.following'] False 1024",
    ]


def test_tracebacks_are_those_of_the_program_alone() -> None:
    body = """
import traceback
class Raising(nn.Module):
    def forward(self, x): return 1 / 0
def text():
    try: nn.Sequential(Raising())(x)
    except ZeroDivisionError: return traceback.format_exc()
alone = text()
with opspan.record(modules=True): inside = text()
print(alone == inside, "_wrapped_call_impl" in inside)
"""
    assert program(body) == ["True True"]


def test_a_program_may_put_a_call_of_its_own_in_place_before_and_meanwhile() -> None:
    body = """
called = []
def patch():
    before = nn.Module.__call__
    def patched(self, *args, **kwargs):
        called.append(type(self).__name__)
        return before(self, *args, **kwargs)
    nn.Module.__call__ = patched
    def undo(): nn.Module.__call__ = before
    return undo
torchs_call = nn.Module.__call__
undo_first = patch()
with opspan.record(modules=True) as before: MLP()(x)
with opspan.record(modules=True) as between:
    undo_second = patch()
    MLP()(x)
MLP()(x)
undo_second(); undo_first()
print(seen(before) == seen(between), len(called), nn.Module.__call__ is torchs_call, torchs_call.__code__ is torchs)

class Own(MLP):
    def __call__(self, *args, **kwargs): return super().__call__(*args, **kwargs)
class Direct(MLP):
    __call__ = nn.Module.__call__
with opspan.record(modules=True) as session: Own()(x=x), Direct()(x)
print([row for row in seen(session) if row[0] == 0])
"""
    assert program(body) == ["True 25 True True", "[(0, 'Own', 'Own'), (0, 'Direct', 'Direct')]"]


def test_other_code_in_place_of_ours_stays() -> None:
    body = """
from opspan.emit import module_calls
session = opspan.record(modules=True).__enter__()
ours = nn.Module.__call__.__code__
nn.Module.__call__.__code__ = torchs.replace()
session.__exit__(None, None, None)
nn.Module.__call__.__code__ = ours  # as who has put it back
MLP()(x)
print(around())
with opspan.record(modules=True) as session: MLP()(x)
print(len(seen(session)), around())
"""
    assert program(body) == ["True", "5 False"]


def test_a_torch_that_calls_modules_in_another_way_gets_no_labels_and_a_warning() -> None:
    body = """
import warnings
def other(self, *args, **kwargs): return self._call_impl(*args, **kwargs)
nn.Module._wrapped_call_impl = nn.Module.__call__ = other
code = other.__code__
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with opspan.record(modules=True) as session: MLP()(x)
print(seen(session), other.__code__ is code, [str(one.message) for one in caught])
"""
    (said,) = program(body)
    assert said.startswith("[] True ['modules get no labels: this torch calls them in another way")


def test_a_session_that_ends_in_a_call_of_another_thread_lets_it_end_by_itself() -> None:
    body = """
inside, go = threading.Event(), threading.Event()
class Waits(nn.Module):
    def __init__(self): super().__init__(); self.part = MLP()
    def forward(self, x):
        self.part(x)
        inside.set(); go.wait()
        return self.part(x)
with opspan.record(modules=True) as first:
    thread = threading.Thread(target=Waits(), args=(x,)); thread.start(); inside.wait()
with opspan.record(modules=True) as second:
    go.set(); thread.join()
    MLP()(x)
named = lambda session: session.trace.ranges.filter(kind="module")["name"].to_list()
print(named(first)[:2], len(named(first)), named(second)[::5], len(named(second)))
"""
    assert program(body) == ["['Waits', 'Waits.part'] 6 ['Waits.part', 'MLP'] 10"]


def test_sessions_inside_each_other_and_torchs_own_hooks() -> None:
    body = """
heard = []
handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: heard.append(1))
model = MLP()
with opspan.record(modules=True) as outer:
    with opspan.record(modules=True) as inner: model(x)
    model(x)
    print(around())
handle.remove()
print(len(seen(outer)), len(seen(inner)), len(heard), around())
"""
    assert program(body) == ["True", "10 5 10 False"]


@pytest.mark.slow
def test_distributed_wrappers(tmp_path: Path) -> None:
    body = f"""
import torch.distributed as dist
from torch.nn.parallel import DataParallel, DistributedDataParallel
dist.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)
model = MLP()
expected = model(x)
with opspan.record(modules=True) as session:
    result = DistributedDataParallel(model)(x)
    result.sum().backward()
    DataParallel(model)(x)
dist.destroy_process_group()
print(torch.equal(result, expected), [row[1:] for row in seen(session)][:3])
"""
    done = forked(HEAD + body)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if not line.startswith("[Gloo] ")] == [
        "True [('DistributedDataParallel', 'DistributedDataParallel'), "
        "('DistributedDataParallel.module', 'MLP'), ('DistributedDataParallel.module.layers', 'Sequential')]"
    ]
