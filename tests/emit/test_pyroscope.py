"""emit_pyroscope with the real agent: what arrives at a server, what threads carry, what is left."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

import opspan
from emit.beside_agent import program
from emit.running import opspan as run
from emit.running import python
from opspan.analysis.engine_labels import SERVING_PHASES
from opspan.analysis.phases import PHASES, phases
from opspan.emit import phase_tags
from opspan.emit.pyroscope import step_range
from opspan.labels import PYROSCOPE_RUN
from pyroscope_server import Profile, pushed, serving

pytest.importorskip("torch")
pytest.importorskip("pyroscope")

# Each phase takes a time that is known, whatever the machine.
PHASES_OF_KNOWN_LENGTH = """
import time
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(.06)
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        time.sleep(.04)
        return gradient * 2
class Layer(nn.Module):
    def __init__(self): super().__init__(); self.linear = nn.Linear(4, 4)
    def forward(self, x): return Slow.apply(self.linear(x))
class SlowSGD(torch.optim.SGD):
    def step(self, closure=None):
        time.sleep(.03)
        return super().step(closure)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 30
    def __getitem__(self, number):
        time.sleep(.02)
        return torch.ones(4)
model = Layer()
optimizer = SlowSGD(model.parameters(), lr=.001)
agent(sys.argv[1], oncpu=False, upload_interval=100, listen=False)
with opspan.record(sys.argv[2], modules=True) as rec, opspan.emit_pyroscope({"team": "a"}) as labelled:
    for x in torch.utils.data.DataLoader(Data(), batch_size=1):
        model(x).sum().backward()
        optimizer.step()
        time.sleep(.01)
        labelled.step()
pyroscope.shutdown()
print(labelled.run_id)
"""


@pytest.mark.slow
def test_times_of_labels_are_those_of_a_capture_of_the_same_run(tmp_path: Path) -> None:
    with serving() as server:
        run_id = program(PHASES_OF_KNOWN_LENGTH, server.url, str(tmp_path / "capture")).strip()
        found = [profile for request in server.requests for profile in pushed(request)]
        (capture,) = (tmp_path / "capture").iterdir()
        sent = run("push", capture, "--url", server.url, "--app", "train")
        summary = run("summary", capture)

    assert found
    profile = Profile(found[0].types, [sample for one in found for sample in one.samples], 0)
    ours = Profile(profile.types, [one for one in profile.samples if one[2].get("run_id") == run_id], 0)
    assert found[0].series["service_name"] == "train"
    assert {one[2]["team"] for one in ours.samples} == {"a"}
    sampled = ours.sums("phase")
    recorded: Counter[str] = Counter()
    for phase, self_ns in (
        phases(opspan.load(capture).analysed.complete.ranges).select("phase", "self_ns").drop_nulls().iter_rows()
    ):
        recorded[phase] += self_ns
    assert set(sampled) - {""} == set(recorded) == set(PHASES.categories) - set(SERVING_PHASES)
    whole = sum(sampled[phase] for phase in recorded)
    for phase, ns in recorded.items():
        # 100 samples a second of 5 seconds, fewer where other programs run: 10 % is four deviations of the largest.
        assert sampled[phase] / whole == pytest.approx(ns / recorded.total(), abs=0.1), phase
    modules = ours.sums("module")
    assert modules["Layer"] > 0.9 * (sampled["forward"] + sampled["backward"])
    assert set(ours.sums("step")) <= {"0", "1", "2-3", "4-7", "8-15", "16-31"}
    # And back: the trace says which labels are its own.
    assert f'run_id="{run_id}"' in sent.stdout
    assert f"Pyroscope    run_id {run_id}\n" in summary.stdout


def test_phases_have_the_names_of_a_trace() -> None:
    ours = {phase_tags.FORWARD, phase_tags.BACKWARD, phase_tags.OPTIMIZER, phase_tags.DATA}
    assert ours == set(PHASES.categories) - set(SERVING_PHASES)


def test_what_threads_carry_where() -> None:
    body = """
agent()
seen = []
def see(where): seen.append((where, sorted((k, v) for k, v in labels().items() if k not in ("run_id", "step"))))
class Seen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, where):
        ctx.where = where
        see(where)
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        see("back in " + ctx.where)
        return gradient, None
class Inner(nn.Module):
    def forward(self, x): return Seen.apply(x, "inner")
class Outer(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = Inner(), Inner()
    def forward(self, x): return self.b(Seen.apply(self.a(Seen.apply(x, "before")), "between"))
class See(torch.optim.SGD):
    def step(self, closure=None): see("step"); return super().step()
x = torch.ones(3, requires_grad=True)
with opspan.emit_pyroscope() as session:
    see("outside")
    Seen.apply(Outer()(x), "loss").sum().backward()
    See([x], lr=.1).step()
    for _ in range(5): session.step()
    print(labels()["step"], labels()["run_id"] == session.run_id)
see("after")
for one in seen: print(one)
print(told)
"""
    outer, a, b = ({"module": f"Outer{part}"} for part in ("", ".a", ".b"))
    forward, backward = {"phase": "forward"}, {"phase": "backward"}
    said = program(body).splitlines()
    assert said[0] == "4-7 True"
    assert said[1:] == [
        str((where, sorted(labels.items())))
        for where, labels in [
            ("outside", {}),
            ("before", forward | outer),
            ("inner", forward | a),
            ("between", forward | outer),
            ("inner", forward | b),
            ("loss", {}),
            ("back in loss", backward),
            ("back in inner", backward | b),
            ("back in between", backward | outer),
            ("back in inner", backward | a),
            ("back in before", backward | outer),
            ("step", {"phase": "optimizer"}),
            ("after", {}),
        ]
    ] + ["set()"]


def test_backward_on_a_device_is_labelled_on_autograds_thread() -> None:
    # torch's own stand-in for a device: the autograd engine gives it a thread, as it does one of CUDA.
    backend = pytest.importorskip("torch.utils.backend_registration")
    if not hasattr(backend, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch has no device that is written in Python")
    body = """
from torch.utils import _pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
_setup_privateuseone_for_python_backend("pretend")
class Pretend(torch.Tensor):
    @staticmethod
    def __new__(cls, real):
        made = torch.Tensor._make_wrapper_subclass(cls, real.shape, dtype=real.dtype, device="pretend:0")
        made.real_one = real
        return made
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        bare = lambda one: one.real_one if isinstance(one, Pretend) else one
        kwargs = {key: value for key, value in (kwargs or {}).items() if key != "device"}
        out = function(*_pytree.tree_map(bare, args), **_pytree.tree_map(bare, kwargs))
        return _pytree.tree_map(lambda one: Pretend(one) if isinstance(one, torch.Tensor) else one, out)
class Double(nn.Module):
    def forward(self, x): return x @ x
agent()
x = Pretend(torch.eye(2)).requires_grad_()
with opspan.emit_pyroscope(by=("phase", "module")):
    y = Double()(x)
    found = []
    y.grad_fn.register_prehook(lambda _: found.append((threading.get_ident(), labels())))
    y.sum().backward()
    others = {one for one in told if one[0] != threading.get_ident()}
print(found[0][0] != threading.get_ident(), sorted(found[0][1]), found[0][1]["phase"], found[0][1]["module"])
print(others, told)
"""
    assert program(body).splitlines() == ["True ['module', 'phase', 'run_id'] backward Double", "set() set()"]


def test_nothing_is_left_by_what_goes_wrong_inside() -> None:
    body = """
agent()
torchs = nn.Module.__call__.__code__
class Fails(nn.Module):
    def __init__(self, error): super().__init__(); self.error = error; self.part = nn.Linear(4, 4)
    def forward(self, x):
        self.part(x)
        raise self.error
class FailingSGD(torch.optim.SGD):
    def step(self, closure=None): raise ValueError("step")
x = torch.ones(4)
inside, go = threading.Event(), threading.Event()
class Waits(nn.Module):
    def forward(self, x): inside.set(); go.wait(); return x
def thread(error):
    try: Fails(error)(x)
    except BaseException: pass
with opspan.emit_pyroscope():
    depth = len(labels())
    try: Fails(ValueError())(x)
    except ValueError: pass
    assert len(labels()) == depth, labels()
    Net()(x)
    assert len(labels()) == depth, labels()
    parameter = nn.Parameter(torch.ones(1))
    try: FailingSGD([parameter], lr=1).step()
    except ValueError: pass
    assert labels()["phase"] == "optimizer"
    class Sees(nn.Module):
        def forward(self, x): print(labels()["phase"]); return x
    Sees()(x)
    assert "phase" not in labels(), labels()
    for error in (ValueError(), KeyboardInterrupt()):
        ended = threading.Thread(target=thread, args=(error,)); ended.start(); ended.join()
    assert {one[0] for one in told} == {threading.get_ident()}
    other = threading.Thread(target=Waits(), args=(x,)); other.start(); inside.wait()
    try: Fails(KeyboardInterrupt())(x)
    except KeyboardInterrupt: pass
    assert len(labels()) == depth, labels()
print(len({one[0] for one in told}))
go.set(); other.join()
print(told)
with opspan.emit_pyroscope(): pass
print(told, nn.Module.__call__.__code__ is not torchs)
print(torch.autograd._engine_run_backward.__module__, torch.utils.data.dataloader._BaseDataLoaderIter.__next__.__name__)
from torch.optim import optimizer
print(optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)
"""
    assert program(body).splitlines() == [
        "forward",
        "1",
        "set()",
        "set() False",
        "torch.autograd.graph __next__",
        "OrderedDict() OrderedDict()",
    ]


def test_labels_have_a_bound_and_it_is_said() -> None:
    body = """
import warnings
agent()
model = nn.Sequential(*[nn.Identity() for _ in range(150)])
deep = nn.Identity()
for _ in range(9): deep = nn.Sequential(deep)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    with opspan.emit_pyroscope():
        deep(torch.ones(1))
        for _ in range(3): model(torch.ones(1))
print(len(set(most["module"])), "other" in most["module"], max(most["module"], key=len)[:40])
print([str(one.message) for one in said])
"""
    counted, said = program(body).splitlines()
    assert counted == "101 True Sequential.0.0.0"
    assert "more than 100 values of module; those past these are labelled 'other'" in said


def test_beside_other_sessions() -> None:
    body = """
agent()
with opspan.emit_pyroscope() as outer, opspan.record(modules=True) as rec:
    outer.step()
    try:
        with opspan.emit_pyroscope(): pass
    except opspan.errors.AlreadyActive as error: print(error)
    Net()(torch.ones(4))
with opspan.emit_pyroscope(enabled=False) as off: off.step()
names = rec.trace.ranges
print(names.filter(kind="module").height, names.filter(is_mark=True)["name"].to_list() == [sys.argv[1] + outer.run_id])
print(told)
"""
    assert program(body, PYROSCOPE_RUN).splitlines() == [
        "emit_pyroscope is already active in this process: one at a time, for all threads",
        "4 True",
        "set()",
    ]


def test_without_an_agent_that_runs_it_says_so_once_and_does_nothing() -> None:
    body = """
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for _ in range(2):
        with opspan.emit_pyroscope() as session: Net()(torch.ones(4)).sum().backward(); session.step()
print(json.dumps([str(one.message) for one in said if "CUDA initialization" not in str(one.message)]))
"""
    (said,) = json.loads(program(body))
    assert said.startswith(
        "emit_pyroscope labels nothing: no pyroscope-io agent runs in this process. Start one before"
    )


def test_without_the_agents_package_it_says_how_to_get_it() -> None:
    body = """
import torch, sys, opspan
sys.modules["pyroscope"] = None
try:
    with opspan.emit_pyroscope(): pass
except opspan.errors.MissingPackage as error: print(error)
"""
    assert python(body) == ("emit_pyroscope labels the threads of pyroscope-io: pip install 'opspan[pyroscope]'\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"by": ("phase", "op")}, "'op' is none of phase, module, step"),
        ({"tags": {"a b": "c"}}, "'a b' cannot be the name of a label"),
        ({"tags": {"run_id": "c"}}, "'run_id' cannot be the name of a label"),
        ({"tags": {"__name__": "c"}}, "'__name__' cannot be the name of a label"),
        ({"tags": {"a": 3}}, "the value of a must be printable text of 1 to 200 characters, not 3"),
        ({"tags": {"a": "b\x1b"}}, "the value of a must be printable"),
        ({"tags": {f"a{number}": "b" for number in range(11)}}, "up to 10 tags, not 11"),
    ],
)
def test_bad_options(options: dict[str, object], said: str) -> None:
    with pytest.raises(opspan.errors.UsageError, match=re.escape(said)):
        opspan.emit_pyroscope(**options)  # type: ignore[arg-type]


def test_steps_are_few_labels() -> None:
    assert [step_range(step) for step in (0, 1, 2, 3, 4, 7, 8, 1000)] == "0 1 2-3 2-3 4-7 4-7 8-15 512-1023".split()
    assert len({step_range(step) for step in range(100_000)}) == 18
