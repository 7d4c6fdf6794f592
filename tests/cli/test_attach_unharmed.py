"""Jobs of every kind that are recorded while they run: compiled ones, with workers, of several ranks, with signals."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import opspan as package
from cli.listening import TRAIN, losses_alone, running, until
from emit.running import environment, opspan
from opspan.app import attaching

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_to_build")

# How often Dynamo compiled is among what is compared: a guard on what a recording changes would show there.
COMPILED = (
    """
import warnings
warnings.simplefilter("ignore")  # torch compiles with what it warns of itself
from torch._dynamo.utils import counters
model = torch.compile(model, backend="aot_eager")
@torch.compile(backend="eager")
def step():
    optimizer.step()
"""
    + TRAIN.replace("optimizer.step()", "step()")
    .replace("most == sys.maxsize", "False")
    .replace("while goes_on():", "asked = most == sys.maxsize\nif asked: opspan.listen()\nwhile goes_on():")
    .replace(
        "    rest()",
        """
    if asked and len(losses) == 5:
        ready()
        before = counters["frames"]["total"]
    rest()
""",
    )
    + """
if asked:
    assert counters["frames"]["total"] == before
"""
)
WORKERS = TRAIN.replace(
    "while goes_on():",
    """
class Batches(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, index):
        return torch.full((16,), index / 64)
loader = torch.utils.data.DataLoader(Batches(), batch_size=8, num_workers=2, generator=torch.Generator().manual_seed(1))
def batches():
    while True:
        yield from loader
batch = batches()
while goes_on():
""",
).replace("torch.randn(8, 16)", "next(batch)")

# Modules that answer attributes by code of their own, and deeper in calls than opspan's own code could follow.
WRAPPED = (
    """
class Wrapper(torch.nn.Module):
    def __init__(self, wrapped):
        super().__init__()
        self.wrapped = wrapped
    def forward(self, x): return self.wrapped(x)
    def __getattr__(self, name): return self.__dict__["_modules"][name]
class Nested(torch.nn.Module):
    def forward(self, x, levels=200): return self(x, levels - 1) if levels else x
model = torch.nn.Sequential(Wrapper(model), Nested())
"""
    + TRAIN
)


@pytest.mark.parametrize("program", [COMPILED, WORKERS, WRAPPED], ids=["compiled", "workers", "wrapped"])
@pytest.mark.slow
def test_it_computes_the_same(tmp_path: Path, program: str) -> None:
    with running(program, tmp_path / "job") as job:
        for number in range(3):
            done = opspan("attach", str(job.pid), "--steps", "3", "--modules", "-o", f"out{number}", cwd=tmp_path)
            assert (done.stderr, done.returncode) == ("", 0)
        done = opspan("top", str(job.pid), "--by", "modules", "--every", "0.3", "--count", "1")
        assert (done.stderr, done.returncode) == ("", 0)
        assert attaching.listening(job.pid) == [job.pid]  # and no worker, which is a fork
        job.stop()

    assert job.losses == losses_alone(program, tmp_path / "alone", len(job.losses))
    for number in range(3):
        ranges = package.load(tmp_path / f"out{number}").ranges
        assert ranges["name"].cast(str).str.starts_with("ProfilerStep").sum() == 3


IDLE = """
import os, pathlib, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pathlib.Path(f"ready-{os.getpid()}").touch()
parent = os.getppid()
while not os.path.exists("stop") and os.getppid() == parent:
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.005)
"""
RANKS = f"""
import subprocess, sys
ranks = [subprocess.Popen([sys.executable, "-c", {IDLE!r}]) for _ in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
"""


def idle(folder: Path, *command: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-m", "opspan", "run", "--idle", "--", *command],
        env=environment(),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )


@pytest.mark.slow
def test_all_ranks_of_a_job_are_recorded_at_once(tmp_path: Path) -> None:
    job = idle(tmp_path, sys.executable, "-c", RANKS)
    try:
        until(lambda: len(list(tmp_path.glob("ready-*"))) == 2 or job.poll() is not None)
        done = opspan("attach", "--children", str(job.pid), "--steps", "2", "-o", "out", cwd=tmp_path)
        alone = opspan("attach", str(job.pid), "--steps", "2", "-o", "alone", cwd=tmp_path)
    finally:
        (tmp_path / "stop").touch()
        out, err = job.communicate(timeout=300)

    assert (job.returncode, out, err) == (0, "", "")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Wrote {tmp_path / 'out'} (2 processes, 2 steps, ")
    ranges = package.load(tmp_path / "out").ranges
    pids = {int(path.name.removeprefix("ready-")) for path in tmp_path.glob("ready-*")}
    steps = ranges.filter(ranges["name"].cast(str).str.starts_with("ProfilerStep"))
    assert sorted(steps["pid"].to_list()) == sorted([*pids, *pids])
    # The launcher of the ranks imports no torch, so it does not listen, and costs nothing.
    assert (alone.returncode, alone.stdout) == (2, "")
    assert alone.stderr.startswith(f"error: process {job.pid} does not listen: ")


def test_run_idle_is_the_program_itself(tmp_path: Path) -> None:
    code = "import os, signal, threading; print(os.getpid(), threading.active_count(), flush=True); signal.pause()"
    with idle(tmp_path, sys.executable, "-c", code) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == f"{job.pid} 1\n"
        job.send_signal(signal.SIGUSR1)
        assert job.wait(300) == -signal.SIGUSR1


@pytest.mark.parametrize("options", [["-o", "out"], ["--emit", "nvtx"], ["--modules"]])
def test_run_idle_records_nothing_and_says_so(tmp_path: Path, options: list[str]) -> None:
    done = opspan("run", "--idle", *options, "--", "true", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --idle captures nothing")
    assert not list(tmp_path.iterdir())


def test_run_idle_of_nothing_is_an_error(tmp_path: Path) -> None:
    done = opspan("run", "--idle", "--", "no-such-command", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (
        2,
        "error: there is no command no-such-command: looked for it on the PATH\n",
    )


def test_a_signal_that_the_program_waits_for_reaches_nobody_else(tmp_path: Path) -> None:
    code = """
import opspan, os, signal
opspan.listen()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.kill(os.getpid(), signal.SIGTERM)
print(signal.sigtimedwait({signal.SIGTERM}, 30).si_signo == signal.SIGTERM)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=300)

    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


def test_a_variable_makes_a_program_ready_that_imports_opspan(tmp_path: Path) -> None:
    code = "import opspan, threading; print([thread.name for thread in threading.enumerate()])"
    said = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(more), timeout=300)
        for more in ({"OPSPAN_LISTEN": "1"}, {"OPSPAN_LISTEN": "0"}, {})
    ]

    assert [done.stdout for done in said] == ["['MainThread', 'opspan']\n", *["['MainThread']\n"] * 2]
