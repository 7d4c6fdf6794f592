"""opspan attach: a process that runs records when it is asked, and computes what it would have computed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import opspan as package
from cli.listening import TRAIN, losses_alone, running, started, until
from emit.running import environment, opspan
from opspan.app import attaching, processes

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_to_build")

# The optimizer steps twice in each step, to show that the program's own steps count.
OWN_STEPS = """
from opspan.emit.schedule import ProfilerAction
opspan.listen()
with opspan.record(folder / "own", schedule=lambda step: ProfilerAction.NONE) as own:
    ready()
    while goes_on():
        for _ in range(2):
            model(torch.randn(8, 16)).sum().backward()
            optimizer.step()
        own.step()
        rest()
"""
TWO_OPTIMIZERS = """
other = torch.optim.SGD(model.parameters(), lr=0.1)
opspan.listen()
ready()
while goes_on():
    model(torch.randn(8, 16)).sum().backward()
    optimizer.step()
    other.step()
    rest()
"""
NO_STEPS = """
opspan.listen()
ready()
while goes_on():
    torch.ones(3).add(1)
    rest()
"""
ENDS = """
opspan.listen()
ready()
while not list(folder.glob("out/*.opspan")):
    torch.ones(3).add(1)
until = time.monotonic() + 0.5  # labels come after the file
while time.monotonic() < until:
    torch.ones(3).mul(2)
"""


def names(folder: Path) -> list[str]:
    return [str(name) for name in package.load(folder).ranges["name"].to_list()]


def test_whole_steps_are_recorded_and_nothing_else(tmp_path: Path) -> None:
    with running(TRAIN, tmp_path / "job") as job:
        done = opspan("attach", str(job.pid), "--steps", "2", "-o", "out", cwd=tmp_path)

    size = sum(file.stat().st_size for file in (tmp_path / "out").iterdir())
    assert done.stdout == f"Wrote {tmp_path / 'out'} (1 process, 2 steps, {size:,} bytes)\nNext: opspan summary out\n"
    assert (done.stderr, done.returncode) == ("", 0)
    found = names(tmp_path / "out")
    assert [name for name in found if name.startswith("ProfilerStep")] == ["ProfilerStep#0", "ProfilerStep#1"]
    assert found.count("aten::addmm") == 4
    assert found.count("Optimizer.step#Adam.step") == 2
    assert not package.load(tmp_path / "out").issues.height


@pytest.mark.slow
def test_it_computes_the_same_however_often_it_is_asked(tmp_path: Path) -> None:
    with running(TRAIN, tmp_path / "job") as job:
        for number, more in enumerate(
            (
                ["--steps", "1"],
                ["--steps", "2", "--shapes", "--stacks"],
                ["--seconds", "0.3", "--memory"],
                ["--steps", "2", "--modules", "--memory"],
                ["--seconds", "0.3", "--modules"],
            )
        ):
            done = opspan("attach", str(job.pid), "-o", f"out{number}", *more, cwd=tmp_path)
            assert (done.stderr, done.returncode) == ("", 0)
        job.stop()

    assert job.said == ""
    assert len(job.losses) > 10
    assert job.losses == losses_alone(TRAIN, tmp_path / "alone", len(job.losses))
    assert any("/listening.py" not in name and "Sequential" in name for name in names(tmp_path / "out3"))
    assert package.load(tmp_path / "out2").memory.height > 0
    assert package.load(tmp_path / "out1").ranges["stack"].drop_nulls().len() > 0


def test_without_a_folder_it_takes_the_first_free_number_here(tmp_path: Path) -> None:
    with running(TRAIN, tmp_path / "job") as job:
        opspan("attach", str(job.pid), "--seconds", "0.3", cwd=tmp_path)

    assert "aten::addmm" in names(tmp_path / "opspan-capture-1")


def test_two_who_ask_at_once_get_an_answer_each(tmp_path: Path) -> None:
    with running(TRAIN, tmp_path / "job") as job:
        asking = [started("attach", str(job.pid), "--seconds", "1", "-o", f"out{n}", cwd=tmp_path) for n in range(2)]
        said = [asked.communicate(timeout=300) for asked in asking]

    assert [asked.returncode for asked in asking] == [0, 0], said
    for number in range(2):
        assert "aten::addmm" in names(tmp_path / f"out{number}")


@pytest.mark.parametrize(("program", "optimizers"), [(OWN_STEPS, 2), (TWO_OPTIMIZERS, 1)], ids=["own", "two"])
def test_a_step_is_what_the_program_says_else_what_one_optimizer_does(
    tmp_path: Path, program: str, optimizers: int
) -> None:
    with running(program, tmp_path / "job") as job:
        done = opspan("attach", str(job.pid), "--steps", "3", "-o", "out", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    found = names(tmp_path / "out")
    assert found.count("Optimizer.step#Adam.step") == 3 * optimizers
    assert sum(name.startswith("ProfilerStep") for name in found) == 3


def test_where_no_step_comes_one_sentence_says_so_and_nothing_is_left(tmp_path: Path) -> None:
    with running(NO_STEPS, tmp_path / "job") as job:
        steps = opspan("attach", str(job.pid), "--steps", "1", "--seconds", "0.2", "-o", "out", cwd=tmp_path)
        seconds = opspan("attach", str(job.pid), "--seconds", "0.2", "-o", "two", cwd=tmp_path)

    assert (steps.returncode, steps.stdout) == (2, "")
    assert re.fullmatch(
        rf"error: process {job.pid}: nothing was recorded: no step began in 0\.[0-9] s, .* --seconds 5 .*\n",
        steps.stderr,
    )
    assert not (tmp_path / "out").exists()
    assert seconds.returncode == 0
    assert "aten::add" in names(tmp_path / "two")


def test_too_few_steps_are_kept_and_counted(tmp_path: Path) -> None:
    with running(TRAIN.replace("rest()", "time.sleep(0.1)"), tmp_path / "job") as job:
        done = opspan("attach", str(job.pid), "--steps", "100", "--seconds", "0.7", "-o", "out", cwd=tmp_path)

    assert done.returncode == 0
    said = re.fullmatch(r"note: ended after (\d+\.\d) s with (\d+) whole steps\n", done.stderr)
    assert said is not None, done.stderr
    assert float(said[1]) >= 0.7
    assert 1 <= int(said[2]) <= (float(said[1]) + 0.05) / 0.1  # a step takes a tenth of a second, or more
    assert "aten::addmm" in names(tmp_path / "out")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_whoever_goes_leaves_a_whole_recording_and_a_job_that_can_be_asked_again(
    tmp_path: Path, how: signal.Signals
) -> None:
    with running(TRAIN, tmp_path / "job") as job:
        asking = started("attach", str(job.pid), "--seconds", "1000", "-o", "out", cwd=tmp_path)
        until(lambda: list(tmp_path.glob("out/*.opspan")))
        time.sleep(0.1)
        asking.send_signal(how)
        out, err = asking.communicate(timeout=300)
        again = opspan("attach", str(job.pid), "--steps", "1", "-o", "again", cwd=tmp_path)

    if how == signal.SIGINT:
        assert asking.returncode == 0, err
        assert out.startswith("Wrote ")
    assert again.returncode == 0, again.stderr
    assert "aten::addmm" in names(tmp_path / "out")
    assert "aten::addmm" in names(tmp_path / "again")


def test_a_job_that_ends_meanwhile_is_said_and_leaves_what_it_has_recorded(tmp_path: Path) -> None:
    with running(ENDS, tmp_path / "job") as job:
        done = opspan("attach", str(job.pid), "--seconds", "100", "-o", "job/out", cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr == (
        f"error: process {job.pid} ended before 100 s were recorded: what was recorded until then is kept\n"
    )
    assert done.stdout.startswith(f"Wrote {tmp_path / 'job' / 'out'} (1 process, ")
    assert "aten::mul" in names(tmp_path / "job" / "out")


@pytest.mark.parametrize("step", ["optimizer.step()", "pass"])
def test_a_job_that_ends_before_all_steps_is_said(tmp_path: Path, step: str) -> None:
    with running(TRAIN.replace("optimizer.step()", step), tmp_path / "job") as job:
        asking = started("attach", str(job.pid), "--steps", "100000", "-o", "out", cwd=tmp_path)
        until(lambda: list(tmp_path.glob("out/*.opspan")))
        time.sleep(0.5)
        job.stop()
        out, err = asking.communicate(timeout=300)

    assert asking.returncode == 2
    if step == "pass":
        assert err.startswith(f"error: process {job.pid}: it ended meanwhile: nothing was recorded: no step began in ")
        assert (out, (tmp_path / "out").exists()) == ("", False)
    else:
        ended = (
            f"error: process {job.pid} ended before 100000 steps were recorded: what was recorded until then is kept"
        )
        assert err.splitlines()[-1] == ended
        assert re.search(r"\(1 process, \d+ steps, ", out), out
        assert "aten::addmm" in names(tmp_path / "out")


def test_a_job_that_is_killed_meanwhile_is_said(tmp_path: Path) -> None:
    with running(TRAIN, tmp_path / "job") as job:
        asking = started("attach", str(job.pid), "--seconds", "1000", "-o", "out", cwd=tmp_path)
        until(lambda: list(tmp_path.glob("out/*.opspan")))
        time.sleep(0.1)
        os.kill(job.pid, signal.SIGKILL)
        out, err = asking.communicate(timeout=300)
        job.stop(-signal.SIGKILL)

    assert asking.returncode == 2
    assert err == f"error: process {job.pid}: it ended while it was recorded\n"
    assert out.startswith(f"Wrote {tmp_path / 'out'}")
    assert "aten::addmm" in names(tmp_path / "out")


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    with running(TRAIN, tmp_path / "job") as job:
        done = opspan("attach", str(job.pid), "-o", "out", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: out is not empty")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("pid", "said"),
    [(2**22 + 1, "there is no process 4194305"), (None, "process \\d+ does not listen: .*opspan run --idle.*")],
    ids=["gone", "does-not-listen"],
)
def test_whom_nobody_can_ask_is_said_in_a_sentence(tmp_path: Path, pid: int | None, said: str) -> None:
    done = opspan("attach", str(pid or os.getpid()), "-o", "out", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(f"error: {said}\n", done.stderr)
    assert not (tmp_path / "out").exists()


def test_who_has_the_socket_of_its_parent_is_not_asked() -> None:
    """As one that was forked a moment ago, and has not closed it yet."""
    program = """
import subprocess, sys, opspan
from opspan.emit import listening
opspan.listen()
descriptor = listening._listener._socket.fileno()
with subprocess.Popen([sys.executable, "-c", "input()"], stdin=sys.stdin, pass_fds=[descriptor]) as child:
    print(child.pid, flush=True)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True) as job:
        assert job.stdout is not None
        child = int(job.stdout.readline())
        assert processes.listens_at(child) == processes.listens_at(job.pid) is not None
        assert attaching.listening(job.pid) == [job.pid]
        job.communicate("\n", timeout=60)
    assert job.returncode == 0
