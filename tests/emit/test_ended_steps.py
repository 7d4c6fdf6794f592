"""step() of a session without a schedule: each call ends a step, and the program does not notice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import opspan as package
from emit.running import opspan, python, under_collectors

pytest.importorskip("torch")

LOADER = """
    import time, torch, opspan
    class Data(torch.utils.data.Dataset):
        def __len__(self): return 160
        def __getitem__(self, _): time.sleep(0.002); return torch.ones(8)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters())
    with opspan.{session} as session:
        for batch in torch.utils.data.DataLoader(Data(), batch_size=16):
            optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step(); session.step()
"""


@pytest.mark.parametrize("session", ["record('run')", "emit_nvtx()", "emit_itt()"])
@pytest.mark.parametrize("form", ["", "labels='torch'", "labels='text'"])
def test_each_call_is_a_step(session: str, form: str, tmp_path: Path) -> None:
    if form and "record" in session:
        pytest.skip("a recording has one form")
    code = LOADER.format(session=session.replace("()", f"({form})"))
    python(code, env={} if "record" in session else under_collectors(tmp_path / "run"), cwd=tmp_path)
    trace = package.load(tmp_path / "run")
    steps = trace.steps()
    assert steps.select("step", "how").rows() == [(f"ProfilerStep#{number}", "step") for number in range(10)]
    # Each waits for its 16 samples of 2 ms.
    assert (steps["loading_ns"] >= 32_000_000).all()
    assert set(trace.table("step").rows["step"].drop_nulls()) == set(steps["step"])
    assert package.load(tmp_path / "run", step=3).steps()["step"].to_list() == ["ProfilerStep#3"]


def test_the_summary_says_them(tmp_path: Path) -> None:
    python(LOADER.format(session="record('run')"), cwd=tmp_path)
    said = opspan("summary", tmp_path / "run").stdout
    assert re.search(r"^Steps        median \S+, mean \S+, 10 steps \(ProfilerStep\)", said, re.MULTILINE)


def test_a_session_that_is_told_of_no_step_marks_none() -> None:
    code = """
        import torch, opspan
        with opspan.record() as session: torch.ones(2)
        print(session.trace.ranges["is_mark"].any(), session.trace.steps()["step"].to_list())
    """
    assert python(code) == "False [None]\n"


def test_any_thread_may_say_it_inside_of_any_range() -> None:
    code = """
        import threading, torch, opspan
        with opspan.record() as session:
            for _ in range(3):
                with opspan.annotate("batch"):
                    torch.ones(2)
                    thread = threading.Thread(target=session.step)
                    thread.start(); thread.join()
        ranges = session.trace.ranges
        print(ranges.filter(ranges["name"] == "batch").height, session.trace.steps()["step"].to_list())
    """
    assert python(code) == "3 ['ProfilerStep#0', 'ProfilerStep#1', 'ProfilerStep#2']\n"


def test_in_compiled_code_it_is_nothing_and_breaks_no_graph() -> None:
    code = """
        import torch, opspan
        with opspan.record() as session:
            def step(x):
                session.step()
                return x + 1
            print(torch.compile(step, backend="eager", fullgraph=True)(torch.ones(2)).tolist())
    """
    assert python(code) == "[2.0, 2.0]\n"


def test_a_fork_says_nothing() -> None:
    code = """
        import os, torch, opspan
        with opspan.record() as session:
            if (child := os.fork()) == 0:
                session.step()
                os._exit(0)
            os.waitpid(child, 0)
            torch.ones(2)
            session.step()
        print(session.trace.ranges["is_mark"].sum())
    """
    assert python(code) == "1\n"


def test_a_mark_that_fails_is_no_exception(tmp_path: Path) -> None:
    code = """
        import torch, opspan
        from opspan.emit import ranges
        def fails(*_): raise ValueError("no")
        ranges.mark = fails
        with opspan.record() as session:
            for _ in range(3): session.step()
        print("done")
    """
    assert python(code) == "done\n"
