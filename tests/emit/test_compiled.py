"""Our ranges inside code that torch.compile, torch.export and TorchScript make: as if they were torch's own."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

from emit.running import forked_file, opspan, python, run, under_collectors
from tiers import RELEASE, before_release

pytest.importorskip("torch")

PROGRAM = Path(__file__).parent.parent / "programs" / "annotated.py"
# Some of the ways to annotate, for tests in which all of them would take too long.
SOME = [
    "only=with everything",
    "only=mark",
    "only=shared",
    "only=a method",
    "only=nvtx push",
    "only=itt range",
    "compiled",
]


@cache
def takes_shared_ranges() -> bool:
    """Can this torch compile code that enters a range which was there before, be it torch's own? Some can not."""
    body = """
import torch
shared = torch.profiler.record_function("shared")
def work(x):
    with shared: return x * 2
try:
    print(torch.compile(work, backend="eager", fullgraph=True)(torch.ones(2)).sum() > 0)
except torch._dynamo.exc.Unsupported:
    print(False)
"""
    return "True" in python(body)


def differences(printed: str) -> list[str]:
    """Returns the differences that the program printed before its last line; there are none if all is well."""
    *found, last = [line for line in printed.splitlines() if line]
    passed, of = map(int, last.split(" of "))
    assert passed == of or found
    return found


@pytest.mark.slow
@pytest.mark.parametrize("calls", [SOME, pytest.param([], id="all", marks=RELEASE)])
def test_each_public_call_leaves_the_graphs_as_they_are_in_a_fresh_process(calls: list[str]) -> None:
    done = forked_file(PROGRAM, *calls)  # each call in a fork of that

    assert differences(done.stdout) == []


@pytest.mark.slow
@pytest.mark.parametrize("order", before_release([["later", "used"], ["later"]], kept=1))
def test_it_does_not_matter_that_opspan_was_there_before_torch(order: list[str]) -> None:
    assert differences(run([sys.executable, PROGRAM, *order, *SOME]).stdout) == []


@pytest.mark.slow
def test_with_a_tool_it_is_the_same(tmp_path: Path) -> None:
    done = forked_file(PROGRAM, *SOME, env=under_collectors(tmp_path / "captured"))

    assert differences(done.stdout) == []


@pytest.mark.slow
@pytest.mark.parametrize("emit", [["--emit", "nvtx", "--modules"], pytest.param([], marks=RELEASE)])
def test_under_opspan_run_it_is_the_same(emit: list[str], tmp_path: Path) -> None:
    done = opspan("run", "-o", tmp_path / "captured", *emit, "--", sys.executable, PROGRAM, *SOME)

    assert differences(done.stdout) == []


@pytest.mark.slow
def test_under_opspan_exec_it_is_the_same() -> None:
    done = opspan("exec", PROGRAM, *SOME)

    assert differences(done.stdout) == []


@pytest.mark.slow
def test_in_a_session_it_is_the_same_and_what_runs_eagerly_is_recorded() -> None:
    body = """
import torch, opspan
graphs = []
def backend(graph, _inputs):
    graphs.append(graph.code)
    return graph.forward
shared = opspan.annotate("shared")
@opspan.annotate
def decorated(x): return x + 1
def work(x):
    with opspan.annotate("block"), shared: x = decorated(x)
    opspan.mark("moment")
    opspan.nvtx.range_push("pushed")
    opspan.nvtx.range_pop()
    return x
def inner(x): return x + 1
def bare(x):
    x = inner(x)
    return x
compiled = torch.compile(work, backend=backend, fullgraph=True)
with opspan.record(modules=True) as session:
    with opspan.annotate("around"): compiled(torch.ones(2))
compiled(torch.ones(2))
with opspan.record() as second: compiled(torch.ones(2))
with opspan.annotate("around"): compiled(torch.ones(2))
made = len(graphs)
torch.compile(bare, backend=backend)(torch.ones(2))
print(made, graphs[0] == graphs[-1])
known = ["block", "shared", "decorated", "moment", "pushed", "around"]
for trace in (session.trace, second.trace): print([name for name in trace.ranges["name"] if name in known])
"""
    if not takes_shared_ranges():
        body = body.replace(", shared: x", ": x")
    assert python(body).splitlines() == ["1 True", "['around']", "[]"]


@pytest.mark.slow
def test_a_graph_break_inside_a_range_breaks_there_and_no_more() -> None:
    body = """
import torch, opspan
from torch.profiler import record_function
def counted(work):
    torch._dynamo.reset()
    graphs = []
    def backend(graph, _inputs):
        graphs.append(graph.code)
        return graph.forward
    result = torch.compile(work, backend=backend)(torch.ones(2))
    return graphs, result.tolist()
def ours(x):
    with opspan.annotate("a"):
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1
def torchs(x):
    with record_function("a"):
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1
@opspan.annotate
def decorated(x):
    x = x * 2
    torch._dynamo.graph_break()
    return x + 1
def bare(x):
    x = x * 2
    torch._dynamo.graph_break()
    return x + 1
print(counted(ours) == counted(torchs), counted(decorated) == counted(bare))
"""
    assert python(body) == "True True\n"


@pytest.mark.slow
def test_when_torch_is_told_to_keep_its_ranges_ours_are_kept() -> None:
    torch_config = pytest.importorskip("torch._dynamo.config")
    if not hasattr(torch_config, "capture_profiler_record_function"):
        pytest.skip("this torch keeps none")
    body = """
import torch, opspan
shared = opspan.annotate("shared")
def work(x):
    with opspan.annotate("block"): x = x + 1
    with shared: return x * 2
with torch._dynamo.config.patch(capture_profiler_record_function=True), opspan.record() as session:
    torch.compile(work, backend="eager", fullgraph=True)(torch.ones(2))
print([name for name in session.trace.ranges["name"] if name in ("block", "shared")])
"""
    expected = ["block", "shared"]
    if not takes_shared_ranges():
        body, expected = body.replace("with shared: return", "return"), ["block"]
    assert python(body) == f"{expected}\n"


@pytest.mark.slow
def test_torchscript_compiles_what_it_compiles_of_torchs(tmp_path: Path) -> None:
    body = """
import sys, warnings, torch, opspan
warnings.simplefilter("ignore")  # TorchScript is deprecated, and still in people's programs
@opspan.annotate
def decorated(x): return x + 1
def work(x):
    with opspan.annotate("a", color="red", payload=3), opspan.record_function("b", "args"):
        return decorated(x) * 2
class Model(torch.nn.Module):
    def forward(self, x):
        with opspan.annotate("a"): return decorated(x) * 2
x = torch.ones(1)
torch.jit.save(torch.jit.script(work), sys.argv[1])
with opspan.record() as session: print(torch.jit.load(sys.argv[1])(x), torch.jit.script(Model())(x))
print(session.trace.ranges.filter(kind="user")["name"].to_list())
traced = torch.jit.trace(work, x)
print(traced(x), "annotate" in str(traced.graph), "profiler" in str(traced.graph))
"""
    program = tmp_path / "program.py"  # TorchScript reads its source
    program.write_text(body)

    done = forked_file(program, tmp_path / "saved.pt")

    assert done.stdout.splitlines() == [
        "tensor([4.]) tensor([4.])",
        "['a', 'b', 'a']",
        "tensor([4.]) False True",
    ], done.stderr


@pytest.mark.slow
def test_a_recording_that_is_entered_in_compiled_code_is_ignored_as_torchs_is_and_says_so() -> None:
    if version("torch").startswith("2.4."):
        pytest.skip("the Dynamo of 2.4 does not compile it")
    body = """
import torch, opspan
def work(x):
    with opspan.record() as session: return x * 2, session
result, session = torch.compile(work, backend="eager", fullgraph=True)(torch.ones(2))
try: session.trace
except RuntimeError as error: print(result, error)
with opspan.record() as session: pass
print(session.trace.ranges.height)
"""
    first, second = python(body).splitlines()
    assert first.startswith("tensor([2., 2.]) nothing was recorded: ")
    assert second == "0"
