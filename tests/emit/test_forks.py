"""A fork takes part in the session that it was made in: the session's end and its schedule reach it, and no more."""

from __future__ import annotations

import textwrap
from pathlib import Path

import polars as pl
import pytest

import opspan
from emit.running import python, under_collectors

pytest.importorskip("torch")

SESSIONS = ["emit_nvtx", "emit_itt", "record"]

# Children that do one thing after the other as they are told: `child("expression")` is its value there.
FORKS = textwrap.dedent(
    """
    import os, sys, torch, opspan
    from opspan.emit import changes
    from torch.autograd import profiler
    torchs = torch.nn.Module.__call__.__code__
    model = torch.nn.Linear(2, 2)

    class Child:
        def __init__(self):
            (mine, self.hear), (self.tell, theirs) = os.pipe(), os.pipe()
            self.words, self.answers = os.fdopen(self.hear, "w"), None
            self.pid = os.fork()
            if self.pid:
                os.close(mine); os.close(theirs)
                self.answers = os.fdopen(self.tell)
                return
            os.close(self.tell)
            self.words.close()
            for line in os.fdopen(mine):
                os.write(theirs, (repr(eval(line, globals())) + "\\n").encode())
            os._exit(0)

        def __call__(self, expression):
            self.words.write(expression + "\\n"); self.words.flush()
            return eval(self.answers.readline())

        def end(self):
            self.words.close()
            os.waitpid(self.pid, 0)

    def work(name, times=1):
        for _ in range(times):
            with opspan.annotate(name):
                model(torch.ones(1, 2))
                torch.zeros(2)

    def state():
        return profiler._is_profiler_enabled, int(torch.nn.Module.__call__.__code__ is not torchs), len(changes.active)

    def session(name, **more):
        if name == "record": more["path"] = sys.argv[1]
        return getattr(opspan, name)(modules=True, **more)
    """
)


def run(tmp_path: Path, code: str, name: str = "record") -> tuple[str, pl.DataFrame]:
    """Returns the output of the program, and the ranges that were recorded or that the tool of session `name`
    received."""
    captured = tmp_path / "captured"
    tool = {} if name == "record" else under_collectors(captured)
    folder = tmp_path / "recorded" if name == "record" else captured
    output = python(FORKS + f"NAME = {name!r}\n" + textwrap.dedent(code), str(tmp_path / "recorded"), env=tool)
    ranges = opspan.load(folder).ranges.with_columns(pl.col("name").cast(pl.String))
    source = {"emit_nvtx": "nvtx", "emit_itt": "itt", "record": None}[name]
    return output, ranges if source is None else ranges.filter(pl.col("source") == source)


def count(ranges: pl.DataFrame, pid: int, name: str = "aten::zeros") -> int:
    return ranges.filter((pl.col("pid") == pid) & (pl.col("name") == name)).height


@pytest.mark.parametrize("name", SESSIONS)
def test_the_end_of_a_session_reaches_its_forks_and_theirs(tmp_path: Path, name: str) -> None:
    code = """
        with session(NAME):
            child = Child()
            child("work('in')")
            grandchild = child("[globals().update(grandchild=Child()), grandchild.pid][1]")
            child("grandchild(\\"work('in')\\")")
            within = child("state()")
        child("work('after', 50)")
        child("grandchild(\\"work('after', 50)\\")")
        print([os.getpid(), child.pid, grandchild, within, child("state()"), child("grandchild('state()')")])
        child("grandchild.end()")
        child.end()
    """
    output, ranges = run(tmp_path, code, name)
    _, child, grandchild, within, after, after_there = eval(output)

    for pid in (child, grandchild):
        assert count(ranges, pid) == 1
        assert count(ranges, pid, "Linear") == 1
    assert within == (True, 1, 1)
    assert after == after_there == (False, 0, 0)


def test_user_ranges_of_a_fork_end_with_the_recording(tmp_path: Path) -> None:
    code = """
        with session(NAME):
            child = Child()
            child("work('in', 3)")
        child("work('after', 1000)")
        child("opspan.mark('after')")
        child("[opspan.annotate('after')(len)([]) for _ in range(10)]")
        print(child.pid)
        child.end()
    """
    output, ranges = run(tmp_path, code)

    assert count(ranges, int(output), "in") == 3
    assert not ranges.filter(pl.col("name") == "after").height


def test_ranges_that_a_fork_has_begun_still_end(tmp_path: Path) -> None:
    code = """
        with session(NAME):
            child = Child()
            child("[globals().update(long=opspan.annotate('long')), long.__enter__()] and 0")
        child("torch.ones(2).tolist()")
        child("long.__exit__()")
        child("torch.ones(2).tolist()")
        print(child.pid, child("state()"))
        child.end()
    """
    output, ranges = run(tmp_path, code)

    (row,) = ranges.filter(pl.col("name") == "long").iter_rows(named=True)
    assert row["end_ns"] is not None
    assert output.strip().endswith("(False, 0, 0)")
    assert not ranges.filter(pl.col("name") == "aten::ones").height


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("forked_in", [0, 1, 2])
def test_a_schedule_turns_forks_on_and_off(tmp_path: Path, name: str, forked_in: int) -> None:
    code = f"""
        with session(NAME, schedule=opspan.schedule(wait=1, warmup=0, active=1, repeat=2)) as s:
            for step in range(5):
                if step == {forked_in}: child = Child()
                if step >= {forked_in}: child(f"work('step {{step}}', 5)")
                work(f"step {{step}}")
                s.step()
        child("work('after', 5)")
        print(child.pid, child("state()"))
        child.end()
    """
    output, ranges = run(tmp_path, code, name)
    pid, state = output.split(maxsplit=1)

    active = [step for step in (1, 3) if step >= forked_in]
    assert count(ranges, int(pid)) == count(ranges, int(pid), "Linear") == 5 * len(active)
    assert eval(state) == (False, 0, 0)
    if name == "record":  # elsewhere a user's ranges reach the tool whenever there is one
        steps = ranges.filter((pl.col("pid") == int(pid)) & pl.col("name").str.starts_with("step"))
        assert set(steps["name"]) == {f"step {step}" for step in active}


def test_a_fork_does_not_step_its_parents_schedule(tmp_path: Path) -> None:
    code = """
        with session(NAME, schedule=opspan.schedule(wait=1, warmup=0, active=1)) as s:
            child = Child()
            child("s.step()")
            child("work('in')")
            work("in")
        print(child.pid)
        child.end()
    """
    python(FORKS + "NAME = 'record'\n" + textwrap.dedent(code), str(tmp_path / "recorded"))
    assert not opspan.load(tmp_path / "recorded").ranges.height


@pytest.mark.parametrize("name", SESSIONS)
def test_a_fork_can_have_its_own_session_in_place_of_the_parents(tmp_path: Path, name: str) -> None:
    code = """
        def own(times):
            with session(NAME, **({"add": True} if NAME == "record" else {})) as mine:
                work("own", times)
                on = state()[2]
            return on, mine.stats.ranges
        with session(NAME) as s:
            child = Child()
            child("work('inherited')")
            on, own_ranges = child("own(3)")
            child("work('between')")
            child("own(2)")
            within = child("state()")
            work("parent")
        print([os.getpid(), child.pid, on, own_ranges > 0, within])
        child.end()
    """
    output, ranges = run(tmp_path, code, name)
    parent, child, *rest = eval(output)

    assert rest == [1, True, (False, 0, 0)]
    assert count(ranges, parent) == 1
    assert count(ranges, child) == 1 + 3 + 2


@pytest.mark.slow
def test_the_files_of_a_forks_own_recording_are_apart(tmp_path: Path) -> None:
    code = f"""
        def own():
            with opspan.record({str(tmp_path / "own")!r}) as mine: work("own")
            return mine.trace.ranges["name"].to_list().count("own"), set(mine.trace.processes["pid"])
        with session(NAME) as s:
            child = Child()
            child("work('inherited')")
            print(child("own()") == (1, {{child.pid}}))
            work("parent")
        names = s.trace.ranges["name"].to_list()
        print(names.count("own"), names.count("inherited"), names.count("parent"), s.trace.issues.height)
        child.end()
    """
    output, _ = run(tmp_path, code)

    assert output.splitlines() == ["True", "0 1 1 0"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSIONS)
def test_a_fork_that_leaves_the_session_leaves_it_for_itself(tmp_path: Path, name: str) -> None:
    code = """
        try:
            with session(NAME) as s:
                if not (child := os.fork()):
                    work("child")
                    sys.exit(3)
                os.waitpid(child, 0)
                work("parent")
        except SystemExit:
            work("child, after")
            print(state())
            raise
        print([os.getpid(), child])
    """
    output, ranges = run(tmp_path, code, name)
    left, pids = output.splitlines()

    parent, child = eval(pids)
    assert eval(left) == (False, 0, 0)
    assert count(ranges, parent) == count(ranges, child) == 1


def test_a_forks_trace_does_not_take_the_recording_away(tmp_path: Path) -> None:
    code = """
        with opspan.record() as s:
            child = Child()
            child("work('child')")
            work("parent")
            child("s.__exit__()")
            seen = child("s.trace.ranges['name'].to_list().count('child')")
        names = s.trace.ranges["name"].to_list()
        print(seen, names.count("child"), names.count("parent"))
        child.end()
    """
    assert python(FORKS + textwrap.dedent(code), env={"TMPDIR": str(tmp_path)}) == "1 1 1\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_fork_whose_parent_died_in_the_session_stops_within_some_thousand_ranges(tmp_path: Path, how: str) -> None:
    code = f"""
        (start, started), (said, say) = os.pipe(), os.pipe()
        if not os.fork():
            session(NAME).__enter__()
            if not os.fork():
                os.read(start, 1)
                work("orphaned", 20000)
                os.write(say, repr(state()).encode())
                os._exit(0)
            {how}
        os.wait()
        os.write(started, b"x")
        print(os.read(said, 100).decode())
    """
    output, ranges = run(tmp_path, code)

    assert eval(output) == (False, 0, 0)
    assert 0 < ranges.filter(pl.col("name") == "orphaned").height < 10_000


@pytest.mark.slow
def test_persistent_workers_stop_with_the_session_and_are_no_issue(tmp_path: Path) -> None:
    code = """
        from torch.utils.data import DataLoader, Dataset
        class Data(Dataset):
            def __len__(self): return 16
            def __getitem__(self, index): return torch.full((3,), float(index)).square()
        loader = DataLoader(
            Data(), batch_size=2, num_workers=2, persistent_workers=True, multiprocessing_context="fork"
        )
        with session(NAME) as s:
            for _ in loader: pass
        before = s.trace
        for _ in range(4):
            for _ in loader: pass
        after = opspan.load(sys.argv[1])
        squares = [(trace.ranges["name"] == "aten::square").sum() for trace in (before, after)]
        print(squares, before.ranges.height == after.ranges.height, before.issues.height, after.issues.height)
        print(len(before.processes))
    """
    output, _ = run(tmp_path, code)

    assert output.splitlines() == ["[16, 16] True 0 0", "3"]


@pytest.mark.slow
def test_workers_that_are_killed_are_one_row_at_most(tmp_path: Path) -> None:
    code = """
        with session(NAME) as s:
            children = [Child() for _ in range(3)]
            for child in children:
                child("work('in')")
                os.kill(child.pid, 9)
        print((s.trace.issues["code"] == "not_closed").sum())
    """
    output, ranges = run(tmp_path, code)

    assert output == "0\n"
    assert (ranges["name"] == "in").sum() == 3


def test_a_killed_program_with_its_forks_is_one_row_that_counts_them(tmp_path: Path) -> None:
    code = """
        if not os.fork():
            session(NAME).__enter__()
            work("in")
            if not (child := os.fork()):
                work("in")
                os._exit(0)
            os.waitpid(child, 0)
            os.kill(os.getpid(), 9)
        os.wait()
    """
    run(tmp_path, code)

    issues = opspan.load(tmp_path / "recorded").issues
    assert issues.filter(pl.col("code") == "not_closed")["count"].to_list() == [2]


@pytest.mark.slow
def test_spawned_workers_are_not_part_of_it(tmp_path: Path) -> None:
    code = """
        import subprocess
        other = "import torch, opspan\\nwith opspan.record() as r: torch.ones(2)\\nprint(r.trace.ranges.height)"
        with session(NAME) as s:
            print(subprocess.run([sys.executable, "-c", other], capture_output=True, text=True).stdout.strip())
            work("in")
        print(s.trace.processes.height)
    """
    output, _ = run(tmp_path, code)

    assert output.splitlines() == ["3", "1"]


def test_what_exec_started_is_every_forks_own(tmp_path: Path) -> None:
    code = """
        from opspan.app import launch
        launch.start(launch.Emit("nvtx"))
        child = Child()
        child("work('in')")
        changes.active[0].__exit__()
        work("after")
        child("work('still')")
        with opspan.emit_nvtx():
            child("work('still')")
        print([os.getpid(), child.pid])
        child.end()
    """
    output, ranges = run(tmp_path, code, "emit_nvtx")
    parent, child = eval(output)

    assert (count(ranges, parent), count(ranges, child)) == (0, 3)
