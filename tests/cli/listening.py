"""Programs that listen while a test asks them to record."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from emit.running import environment, forked

# The begin and the end of a program that goes on until it is told to stop, and then prints what it has computed.
HEAD = """
import json, os, pathlib, sys, time, torch, opspan
torch.set_num_threads(1)
torch.manual_seed(0)
folder = pathlib.Path(sys.argv[1])
most = int(sys.argv[2])
losses = []
parent = os.getppid()
def goes_on():
    return len(losses) < most and os.getppid() == parent and not (folder / "stop").exists()
def rest():  # leaves the processor to who asks; nobody does where it runs alone
    if most == sys.maxsize: time.sleep(0.003)
def ready():
    (folder / "new").write_text(str(os.getpid()))
    (folder / "new").rename(folder / "pid")
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(), torch.nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters())
"""
TRAIN = """
if most == sys.maxsize:
    opspan.listen()
    ready()
while goes_on():
    loss = model(torch.randn(8, 16)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item().hex())
    rest()
"""
TAIL = """
(folder / "losses").write_text(json.dumps(losses))
"""


class Program:
    """One that runs, until `stop`. `losses` is there then."""

    def __init__(self, code: str, folder: Path) -> None:
        self.folder = folder
        self.losses: list[str] = []
        self.said = ""
        self._code = HEAD + textwrap.dedent(code) + TAIL
        self._done: subprocess.CompletedProcess[str] | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self) -> None:
        """Until it has said that it is ready."""
        until(lambda: (self.folder / "pid").exists() or self._done is not None)
        assert self._done is None, self._done
        self.pid = int((self.folder / "pid").read_text())

    def _run(self) -> None:
        self._done = forked(self._code, self.folder, str(sys.maxsize), strict=True)

    def stop(self, status: int = 0) -> None:
        (self.folder / "stop").touch()
        self._thread.join()
        assert self._done is not None
        self.said = self._done.stderr
        assert self._done.returncode == status, self._done.stderr
        if status == 0:
            self.losses = json.loads((self.folder / "losses").read_text())


@contextlib.contextmanager
def running(code: str, folder: Path) -> Iterator[Program]:
    folder.mkdir()
    program = Program(code, folder)
    try:  # one that is not ready in time is stopped, too: those of other tests wait for it
        program.wait()
        yield program
    finally:
        if program._thread.is_alive():
            program.stop(0)


def losses_alone(code: str, folder: Path, count: int) -> list[str]:
    """Returns the losses of the same program when nobody listens."""
    folder.mkdir()
    done = forked(HEAD + textwrap.dedent(code) + TAIL, folder, str(count), strict=True)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads((folder / "losses").read_text())
    return found


def until(is_so: Callable[[], Any], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def started(*arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
    """A verb that runs beside the test."""
    command = [sys.executable, "-m", "opspan", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=environment(), cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
    )
