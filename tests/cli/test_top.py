"""opspan top: tables of what a running process does now, on a terminal and in a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from cli.listening import TRAIN, losses_alone, running, until
from emit.running import environment, opspan
from opspan import Metadata, Trace
from opspan.app.top_rows import Row, snapshot_of, sort_rows

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_to_build")

ROW = re.compile(r" *([\d.]+[a-z]+) +([\d.]+) +([\d.]+[a-z]+) +([\d,]+)  (.+)")


def made() -> Trace:
    """A module A with A.b inside, an op in each, and a step around both."""
    ranges = pl.DataFrame(
        {
            "id": [0, 1, 2, 3, 4],
            "name": ["A", "A.b", "aten::mm", "aten::add", "ProfilerStep#0"],
            "kind": ["module", "module", "op", "op", "step"],
            "start_ns": [0, 10, 20, 60, 0],
            "end_ns": [100, 50, 40, 90, 200],
            "pid": [1] * 5,
            "tid": [1, 1, 1, 1, 2],
            "stack": [None, None, "/me.py(1): a\n/me.py(9): b\n/x/torch/nn.py(3): c", "/me.py(1): a", None],
        }
    )
    return Trace((Metadata("mine"),), ranges=ranges)


def test_rows_of_lines_are_a_programs_own_lines() -> None:
    shown = snapshot_of(made(), "lines")

    assert sorted(shown.rows, key=lambda row: row.name) == [
        Row("/me.py(1): a", 1, 30, 50),
        Row("/me.py(9): b", 1, 20, 20),
    ]
    assert [row.name[-1] for row in sort_rows(shown, by_total=False)] == ["a", "b"]


def test_a_module_has_in_total_what_the_modules_inside_it_have() -> None:
    rows = {row.name: row for row in snapshot_of(made(), "modules").rows}

    assert rows["A.b"].total_ns == rows["A.b"].self_ns == 40
    assert (rows["A"].self_ns, rows["A"].total_ns) == (60, 100)


def test_rows_of_ops_and_the_time_of_steps() -> None:
    shown = snapshot_of(made(), "ops")

    assert {row.name: (row.self_ns, row.total_ns) for row in shown.rows if row.name.startswith("aten")} == {
        "aten::mm": (20, 20),
        "aten::add": (30, 30),
    }
    assert (shown.steps, shown.step_ns, shown.is_device) == (1, 200.0, False)


@pytest.mark.slow
def test_in_a_pipe_it_prints_a_table_for_each_recording_and_the_job_computes_the_same(tmp_path: Path) -> None:
    said = {}
    with running(TRAIN, tmp_path / "job") as job:
        for by in ("ops", "modules", "lines"):
            done = opspan(
                "top", str(job.pid), "--by", by, "--every", "0.3", "--count", "2", env={"TMPDIR": str(tmp_path)}
            )
            assert (done.returncode, done.stderr) == (0, "")
            said[by] = done.stdout
        job.stop()

    assert job.losses == losses_alone(TRAIN, tmp_path / "alone", len(job.losses))
    for by, name in (("ops", "aten::addmm"), ("modules", "Sequential.0"), ("lines", "<string>")):
        tables = said[by].strip().split("\n\n")
        assert len(tables) == 2
        for table in tables:
            title, _, *rows = table.splitlines()
            assert re.fullmatch(rf"opspan top: process {job.pid}, {by} by self, \d+ steps of [\d.]+ms", title)
            assert all(ROW.fullmatch(row) for row in rows), rows
            assert any(name in row for row in rows)
    assert not list(tmp_path.glob("opspan-top*"))


def until_the_job_ends(tmp_path: Path, *options: str) -> tuple[int, int, str]:
    """The job's process, and the exit code and errors of a top whose job ends after its first screen."""
    with running(TRAIN, tmp_path / "job") as job:
        command = [sys.executable, "-m", "opspan", "top", str(job.pid), "--every", "0.2", *options]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe, text=True) as top:
            assert top.stdout is not None
            assert top.stderr is not None
            assert top.stdout.readline().startswith("opspan top: ")
            (job.folder / "stop").touch()
            top.stdout.read()
            said = top.stderr.read()
    return job.pid, top.returncode, said


def test_it_ends_with_the_job(tmp_path: Path) -> None:
    pid, code, said = until_the_job_ends(tmp_path)
    assert said == f"process {pid} has ended\n"
    assert code == 0


def test_whom_nobody_can_ask_is_an_error() -> None:
    done = opspan("top", "4194305")

    assert (done.returncode, done.stdout, done.stderr) == (2, "", "error: there is no process 4194305\n")


def test_fewer_recordings_than_were_asked_for_are_an_error(tmp_path: Path) -> None:
    pid, code, said = until_the_job_ends(tmp_path, "--count", "100000")
    assert code == 2
    assert re.fullmatch(rf"error: process {pid} ended after \d+ of 100000 recordings\n", said), said


@pytest.mark.slow
def test_a_program_that_it_starts_writes_to_a_file(tmp_path: Path) -> None:
    code = (
        "import torch, time, sys; print('said'); end = time.time() + 3\nwhile time.time() < end: torch.ones(2).add(1)"
    )
    done = opspan("top", "--every", "0.2", "--", sys.executable, "-c", code, cwd=tmp_path)
    none = opspan("top", "--", sys.executable, "-c", "print('no torch')", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "aten::add" in done.stdout
    pid = re.fullmatch(rf"process (\d+) has ended\nProcess \1 writes to {tmp_path}/opspan-top-1.log\n", done.stderr)
    assert pid is not None, done.stderr
    assert (tmp_path / "opspan-top-1.log").read_text() == "said\n"
    assert none.returncode == 2
    assert "1 Python process ran, and none imported torch" in none.stderr


class Terminal:
    def __init__(self, *arguments: str, columns: int) -> None:
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 20, columns, 0, 0))
        self._follower = follower
        self.mode = termios.tcgetattr(follower)
        files = {"stdin": follower, "stdout": follower, "stderr": follower}
        env = environment({"TERM": "xterm"})
        self.process = subprocess.Popen([sys.executable, "-m", "opspan", *arguments], env=env, **files)
        self.shown = ""

    def until(self, text: str) -> None:
        def comes() -> bool:
            with contextlib.suppress(BlockingIOError):
                self.shown += os.read(self._leader, 65_536).decode(errors="replace")
            return text in self.shown

        os.set_blocking(self._leader, False)
        until(comes)

    def press(self, key: str) -> None:
        self.shown = ""
        os.write(self._leader, key.encode())

    def end(self) -> int:
        """The exit code; the terminal is as it was."""
        self.until("\x1b[?1049l")
        self.until("\x1b[?25h")
        code = self.process.wait(300)
        assert termios.tcgetattr(self._follower) == self.mode
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._leader)
        os.close(self._follower)


@contextlib.contextmanager
def terminal(*arguments: str, columns: int = 100) -> Iterator[Terminal]:
    opened = Terminal(*arguments, columns=columns)
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.slow
def test_on_a_terminal_keys_change_what_is_shown_and_q_ends_it(tmp_path: Path) -> None:
    with running(TRAIN, tmp_path / "job") as job, terminal("top", str(job.pid), "--every", "0.2") as shown:
        shown.until("\x1b[?1049h")  # another screen than the one with the user's own lines
        shown.until("aten::addmm")
        shown.press("m")
        shown.until("Sequential.0")
        shown.press("s")
        shown.until("modules by total")
        shown.press(" ")
        shown.until("paused")
        shown.press("q")
        assert shown.end() == 0
        time.sleep(0.1)
        assert opspan("top", str(job.pid), "--every", "0.1", "--count", "1").returncode == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.slow
def test_a_signal_leaves_the_terminal_as_it_was(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with running(TRAIN, tmp_path / "job") as job, terminal("top", str(job.pid), "--every", "0.2") as shown:
        shown.until("aten::addmm")
        shown.process.send_signal(number)
        assert shown.end() == code


@pytest.mark.slow
def test_the_end_of_the_job_ends_it_and_is_said(tmp_path: Path) -> None:
    with (
        running(TRAIN, tmp_path / "job") as job,
        terminal("top", str(job.pid), "--every", "0.2", columns=40) as shown,
    ):
        shown.until("aten::")  # the rest of the name has no room
        (job.folder / "stop").touch()
        assert shown.end() == 0
        assert f"process {job.pid} has ended" in shown.shown
