"""The Python functions that ops were called in: Python's own traceback, taken on the same line, is the oracle."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from emit.running import forked
from opspan.emit import python_frames

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(python_frames.why_not()), reason=python_frames.why_not())

PROGRAM = """
import sys, threading, traceback
import torch
EXPECTED = []
x = torch.ones(3, requires_grad=True)

def here(value):
    frames = traceback.extract_stack()[:-1]
    EXPECTED.append([f"{frame.filename}({frame.lineno}): {frame.name}" for frame in frames])
    return value

def plain():
    return torch.mul(here(x), 2)

def generated():
    for _ in range(2):
        yield torch.mul(here(x), 3)

class Net(torch.nn.Module):
    def forward(self, value):
        return [torch.mul(here(value), 4) for _ in range(2)][1]

def recursive(depth):
    return recursive(depth - 1) if depth else torch.mul(here(x), 5)

async def waited():
    return torch.mul(here(x), 6)

def größe():
    return torch.mul(here(x), 7)

def run():
    plain(); list(generated()); Net()(x); recursive(60); größe()
    (lambda: torch.mul(here(x), 8))()
    try:
        waited().send(None)
    except StopIteration:
        pass
    exec(compile("torch.mul(here(x), 9)", "<made up>", "exec"))
    thread = threading.Thread(target=plain)
    thread.start()
    thread.join()
"""


def told(tmp_path: Path, code: str) -> Any:
    (tmp_path / "mine.py").write_text(textwrap.dedent(PROGRAM))
    done = forked(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport json, torch, opspan, mine\n"
        + textwrap.dedent(code),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_stacks_are_those_of_python_itself(tmp_path: Path) -> None:
    found, expected = told(
        tmp_path,
        """
        mine.run()
        mine.EXPECTED.clear()
        with opspan.record(stacks=True) as rec:
            mine.run()
            mine.run()
        rows = rec.trace.ranges.filter(name="aten::mul")["stack"].to_list()
        print(json.dumps([[row.split("\\n") for row in rows], mine.EXPECTED]))
        """,
    )
    # The line of `here` and of the op are one; the thread's rows come after those of the main thread.
    assert sorted(found) == sorted(expected)
    assert len(expected) == 2 * 11
    assert any("größe" in frame for stack in found for frame in stack)


def test_backward_has_the_stack_of_its_forward_op_and_all_of_the_events_faces_show_it(tmp_path: Path) -> None:
    told(
        tmp_path,
        """
        from opspan import profiler
        with profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as prof:
            mine.plain().sum().backward()
        [forward] = mine.EXPECTED
        events = prof.events()
        for name in ("aten::mul", "MulBackward0", "autograd::engine::evaluate_function: MulBackward0"):
            found = [event for event in events if event.name == name]
            assert found, name
            for event in found:
                assert event.stack[0] == forward[-1], (name, event.stack)
        assert events[0].stack == forward[::-1]
        [inside] = [event for event in events if event.cpu_parent and event.cpu_parent.name == "MulBackward0"]
        assert inside.stack == forward[::-1]
        text = prof.key_averages(group_by_stack_n=1).table()
        assert "plain" in text and "Source Location" in text
        assert len({row.stack[0] for row in prof.key_averages(group_by_stack_n=1) if row.stack}) > 1
        prof.export_stacks("stacks.txt", "self_cpu_time_total")
        lines = open("stacks.txt").read()
        assert "mine.py(13):_plain " in lines and "_tensor.py" in lines, lines  # AccumulateGrad has no forward op
        print(1)
        """,
    )


@pytest.mark.slow
def test_compiling_while_stacks_are_recorded_works_and_leaves_the_compiler_out(tmp_path: Path) -> None:
    told(
        tmp_path,
        """
        def f(value):
            return (value * 2).sin().sum()
        compiled = torch.compile(f, backend="aot_eager")
        expected = f(mine.x).item()
        with opspan.record(stacks=True, record_shapes=True, memory=True) as rec:
            for _ in range(2):
                out = compiled(mine.x)
                out.backward()
        assert abs(out.item() - expected) < 1e-6
        stacks = rec.trace.ranges["stack"].drop_nulls().unique().to_list()
        assert stacks
        for machinery in ("_dynamo", "_inductor", "_functorch"):
            assert not any(f"/torch/{machinery}/" in stack for stack in stacks), machinery
        print(1)
        """,
    )


@pytest.mark.slow
def test_code_that_comes_and_goes_has_its_own_stack_each_time(tmp_path: Path) -> None:
    found = told(
        tmp_path,
        """
        import gc
        with opspan.record(stacks=True) as rec:
            for number in range(300):
                scope = {"torch": torch, "x": mine.x}
                source = "\\n" * (number % 7) + f"def f{number}():\\n  return torch.mul(x, 2)\\nf{number}()"
                exec(compile(source, f"<{number}>", "exec"), scope)
                del scope
                gc.collect()
        rows = rec.trace.ranges.filter(name="aten::mul")["stack"].to_list()
        print(json.dumps([row.split("\\n")[-1] for row in rows]))
        """,
    )
    assert found == [f"<{number}>({number % 7 + 2}): f{number}" for number in range(300)]


@pytest.mark.parametrize("damage", ["missing", "cut", "of another opspan", "unknown release"])
def test_without_its_library_ops_are_recorded_and_a_warning_says_what_is_missing(tmp_path: Path, damage: str) -> None:
    told(
        tmp_path,
        f"""
        damage = {damage!r}"""
        """
        import warnings
        from pathlib import Path
        from opspan import libraries
        from opspan.emit import labelling, python_frames, sinks
        whole = libraries.frames("cp%d%d" % sys.version_info[:2])
        bad = Path("frames.so")
        if damage == "cut":
            bad.write_bytes(whole.read_bytes()[:5000])
        elif damage == "of another opspan":
            bad.write_bytes(whole.read_bytes())
            sinks.require()
            sinks.ABI += 1
        libraries.frames = lambda release: bad
        if damage == "unknown release":
            python_frames.is_known = lambda: False
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with opspan.record(stacks=True) as rec:
                mine.plain()
        assert any(labelling.NO_STACKS in str(warning.message) for warning in caught), caught
        [row] = rec.trace.ranges.filter(name="aten::mul").rows(named=True)
        assert row.get("stack") is None
        print(1)
        """,
    )
