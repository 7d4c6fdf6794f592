"""opspan run --perf: samples of the real perf beside the capture, and a program that is run as without it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import opspan as package
from builders import perf
from emit.running import environment, opspan

pytestmark = pytest.mark.usefixtures("nothing_to_build")

TRAIN = """
import sys, torch
weights = torch.randn(700, 700)
for _ in range(40):
    torch.relu(weights @ weights)
print("trained")
sys.exit(7)
"""
REFUSED = "#!/bin/sh\necho 'Error:' >&2\necho 'Access to performance monitoring is limited.' >&2\nexit 255\n"
# A perf that samples in the trial, and fails when it is to watch the program.
FAILING = "#!/bin/sh\ncase \"$*\" in *' -p '*) echo 'it failed' >&2; exit 1;; esac\n"


@pytest.fixture
def needs_perf() -> None:
    if (why := perf.why_not()) is not None:
        pytest.skip(why)


def beside_python(folder: Path, script: str | None) -> dict[str, str]:
    """Returns variables with a PATH that has no perf but this script."""
    folder.mkdir()
    if script is not None:
        (folder / "perf").write_text(script)
        (folder / "perf").chmod(0o755)
    return {"PATH": str(folder)}


@pytest.mark.usefixtures("needs_perf")
def test_samples_lie_inside_the_ops_of_their_thread(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN)
    command = ("--perf", "--emit", "nvtx", "-o", "capture", "--", sys.executable, "train.py")
    done = opspan("run", *command, cwd=tmp_path, env={"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})

    assert (done.returncode, done.stdout) == (7, "trained\n")
    assert "perf.txt" in done.stderr.splitlines()[0]
    trace = package.load(tmp_path / "capture")
    assert trace.issues.is_empty()
    products = trace.ranges.filter(pl.col("name").cast(pl.String) == "aten::mm")
    (where,) = products.select("rank", "pid", "tid").unique().rows()
    of_thread = trace.samples.filter(rank=where[0], pid=where[1], tid=where[2])
    inside = of_thread.sort("time_ns").join_asof(
        products.select("start_ns", "end_ns").sort("start_ns"), left_on="time_ns", right_on="start_ns"
    )
    inside = inside.filter(pl.col("time_ns") < pl.col("end_ns"))
    # The weight of a sample of cpu-clock is time, and no thread runs longer than the clock goes.
    took_ns = products.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    assert inside.height > 10
    if set(inside["event"]) == {"cpu-clock"}:
        assert 0 < inside["weight"].sum() < 1.5 * took_ns
    libraries = inside["libraries"].cast(pl.String).str.split(";").list.last()
    assert libraries.str.contains("torch|mkl|blas|unknown|//anon|omp").mean() > 0.5
    assert package.load(tmp_path / "capture", between=(0, 10**6)).samples.height < trace.samples.height


@pytest.mark.usefixtures("needs_perf")
def test_children_are_sampled_and_have_their_own_rows(tmp_path: Path) -> None:
    loop = "import opspan\nwith opspan.annotate('mine'): sum(n * n for n in range(3_000_000))"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {loop!r}]); {loop}"
    opspan("run", "--perf", "-o", "capture", "--", sys.executable, "-c", code, cwd=tmp_path)

    trace = package.load(tmp_path / "capture")
    assert trace.ranges["pid"].n_unique() == 2
    assert set(trace.ranges["pid"]) <= set(trace.samples["pid"])
    (first, _) = sorted((tmp_path / "capture").glob("*.opspan"))
    alone = package.load(first)
    assert alone.samples["pid"].unique().to_list() == alone.processes["pid"].to_list()


@pytest.mark.usefixtures("needs_perf")
@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_it_exits_as_the_command_did(command: str, code: int, tmp_path: Path) -> None:
    assert opspan("run", "--perf", "--", "sh", "-c", command, cwd=tmp_path).returncode == code


@pytest.mark.usefixtures("needs_perf")
def test_a_command_that_is_missing_leaves_nothing(tmp_path: Path) -> None:
    done = opspan("run", "--perf", "--", "no-such-command", cwd=tmp_path)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no command no-such-command" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("needs_perf")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_command(number: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        f"signal.signal({number.value}, lambda *_: sys.exit(40))\nprint('ready', flush=True)\n"
        "while True: time.sleep(0.1)"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "opspan", "run", "--perf", "-o", "capture", "--", sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)

    assert process.returncode == 40
    assert errors.startswith("Wrote "), errors


@pytest.mark.usefixtures("needs_perf")
def test_a_process_that_outlives_the_command_is_not_waited_for(tmp_path: Path) -> None:
    began = time.monotonic()
    done = opspan("run", "--perf", "--", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!", cwd=tmp_path)
    os.kill(int(done.stdout), signal.SIGKILL)

    assert done.returncode == 0
    assert time.monotonic() - began < 50


@pytest.mark.usefixtures("needs_perf")
def test_a_full_disk_harms_samples_alone(tmp_path: Path) -> None:
    code = "sum(n * n for n in range(8_000_000)); print('ran')"
    shell = 'ulimit -f 100; exec "$@"'  # KiB of a file; perf's data needs more
    run = [sys.executable, "-m", "opspan", "run", "--perf", "-o", "capture", "--", sys.executable, "-c", code]
    done = subprocess.run(
        ["bash", "-c", shell, "bash", *run], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )

    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr.startswith(("note: ", "Wrote ")), done.stderr
    assert not (tmp_path / "capture" / ".perf.txt.part").exists()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (None, "`perf` is not on the PATH, so CMD runs without samples: install it"),
        (REFUSED, "does not work here (Access to performance monitoring is limited.), so CMD runs without samples"),
        (FAILING, "wrote no samples (it failed)"),
    ],
)
def test_without_perf_the_command_runs_and_one_sentence_says_why(script: str | None, why: str, tmp_path: Path) -> None:
    variables = beside_python(tmp_path / "bin", script)
    command = ("run", "--perf", "-o", "capture", "--", "/bin/sh", "-c", "echo ran; exit 5")
    done = opspan(*command, cwd=tmp_path, env=variables)

    assert (done.returncode, done.stdout) == (5, "ran\n")
    note, rest = done.stderr.splitlines()
    assert note.startswith("note: ")
    assert why in note
    assert rest.startswith("Captured nothing: ")
    assert not (tmp_path / "capture").exists()


def test_idle_takes_no_samples(tmp_path: Path) -> None:
    done = opspan("run", "--idle", "--perf", "--", "true", cwd=tmp_path)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_text_of_another_clock_or_host_is_an_issue(tmp_path: Path) -> None:
    code = "import opspan\nwith opspan.annotate('mine'): pass"
    opspan("run", "-o", "capture", "--", sys.executable, "-c", code, cwd=tmp_path)
    shutil.copytree(tmp_path / "capture", tmp_path / "other")
    perf.write(tmp_path / "capture" / "perf.txt", perf.samples())
    perf.write(tmp_path / "other" / "perf.txt", [perf.HEADER, *perf.samples()])

    unknown, of_host = (package.load(tmp_path / name) for name in ("capture", "other"))

    assert (unknown.samples.height, of_host.samples.height) == (0, 0)
    assert "an unknown clock" in unknown.issues["message"][0]
    assert f"of the host {perf.HOST}" in of_host.issues["message"][0]
