"""An op inside another is told in its own functions of Python, also where those are not the other's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import opspan
from opspan.emit import python_frames

pytest.importorskip("torch")

PROGRAM = """
import sys, torch, opspan
from functools import partial
from torch.autograd.profiler import record_function

x = torch.ones(4, 4, requires_grad=True)
enter, leave = torch.autograd._record_function_with_args_enter, torch.autograd._record_function_with_args_exit

def call(f):
    return f()

# As in_between, so that its frames lie where those of that one lie: a range that outlives its function.
def begins(what):
    return call(what)

def product():
    return torch.nn.functional.linear(x, x)

def in_between(what):
    return call(what)

@torch.library.custom_op("opspan_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return added(x)

def added(x):
    return x.add(x)

class Mine(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.exp()
    @staticmethod
    def backward(context, gradient):
        return slope(gradient)

def slope(gradient):
    return gradient.cos()

def generate():
    for each in (x.sin, x.tan):
        yield call(each)

def main():
    with record_function("a block"):
        product()
        in_between(x.relu)
    guard = begins(partial(enter, "not one of torch's", x))
    in_between(x.relu)
    call(x.sigmoid)
    leave(guard)
    guard = enter("a line before", x)
    x.tanh()
    leave(guard)
    twice(x.detach())
    list(generate())
    loss = Mine.apply(x).sum()
    loss.backward()

twice(x.detach())  # what it makes once is made
with opspan.record(sys.argv[1], stacks=True):
    main()
"""

EXPECTED = {
    "aten::linear": ["main", "product"],
    "aten::mm": ["main", "product"],
    "aten::relu": ["main", "in_between", "call"],
    "aten::clamp_min": ["main", "in_between", "call"],
    "aten::sigmoid": ["main", "call"],
    "aten::tanh": ["main"],
    "aten::add": ["added"],
    "aten::sin": ["main", "generate", "call"],
    "aten::tan": ["main", "generate", "call"],
    "aten::exp": ["main", "forward"],
    "aten::cos": ["slope"],
}


@pytest.mark.skipif(bool(python_frames.why_not()), reason=python_frames.why_not())
def test_every_op_is_in_its_own_functions(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    subprocess.run([sys.executable, program, tmp_path / "run"], check=True, timeout=300)

    ranges = opspan.load(tmp_path / "run").ranges
    mine = {"main", "product", "in_between", "call", "added", "generate", "forward", "slope"}
    lines = PROGRAM.splitlines()
    for name, expected in EXPECTED.items():
        for stack in ranges.filter(name=name)["stack"].cast(str):
            frames = [line.rpartition("): ")[::2] for line in stack.split("\n")]
            found = [function for _, function in frames if function in mine]
            assert found[-len(expected) :] == expected, (name, stack)
            # Every line of the program's own calls what comes next.
            for (place, function), following in zip(frames, [*(of for _, of in frames[1:]), None], strict=True):
                file, _, number = place.rpartition("(")
                if file == str(program) and following in mine - {"forward"}:
                    code = lines[int(number) - 1]
                    assert f"{following}(" in code or "twice" in code or "backward" in code, (function, code, stack)
    assert set(EXPECTED) <= set(ranges["name"].cast(str))
    at = next(number for number, line in enumerate(lines, 1) if "x.tanh()" in line)
    assert ranges.filter(name="aten::tanh")["stack"].cast(str)[0].endswith(f"({at}): main")
