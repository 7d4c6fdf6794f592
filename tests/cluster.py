"""A real cluster of dask on this machine: a scheduler and workers, each a process. Files called *slow* take a while to
read there, files called *stuck* take for ever, and files called *deadly* kill who reads them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PRELOADED = """
import os, signal, time
from pathlib import Path
from opspan.many import task

read = getattr(task.open_files, "before", task.open_files)  # this is loaded twice

def opened(file, reading):
    with open({log!r}, "a") as log:
        log.write(f"{{os.getpid()}} {{Path(file).name}}\\n")
    if "deadly" in file:
        os.kill(os.getpid(), signal.SIGKILL)
    if "slow" in file:
        time.sleep(0.3)
    if "stuck" in file:
        time.sleep(300)
    return read(file, reading)

opened.before = read
task.open_files = opened
"""


# Nobody reads what dask measures of itself; fifty times a second that is as much work as the tests'.
UNMEASURED = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
}


class Cluster:
    def __init__(self, folder: Path, worker_options: tuple[str, ...], environment: dict[str, str]) -> None:
        self.folder = folder
        self.log = folder / "read"
        self.log.touch()
        self._options = worker_options
        self._environment = environment
        self.processes: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        (folder / "preloaded.py").write_text(PRELOADED.format(log=str(self.log)))
        self._begin("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-show")
        _until(lambda: _listens(port), self)

    def worker(self, name: str) -> subprocess.Popen[bytes]:
        """Begun, and known to the scheduler."""
        done = self._begin(
            *("worker", self.address, "--name", name, "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1"),
            *("--local-directory", str(self.folder), "--preload", str(self.folder / "preloaded.py"), *self._options),
        )
        log = self.folder / f"{len(self.processes) - 1}.log"
        _until(lambda: b"Registered to:" in log.read_bytes(), self)
        return done

    def _begin(self, kind: str, *options: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            command = [sys.executable, "-m", "dask", kind, *options]
            environment = {**os.environ, **UNMEASURED, **self._environment}
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.folder))
        return self.processes[-1]

    def read(self) -> list[tuple[int, str]]:
        """Returns which process began to read which file, in this order."""
        lines = [line.split(maxsplit=1) for line in self.log.read_text().splitlines()]
        return [(int(pid), name) for pid, name in lines]

    def said(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


def _listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def _until(is_true: Any, cluster: Cluster) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        if time.monotonic() > deadline or any(one.poll() is not None for one in cluster.processes):
            raise AssertionError(cluster.said())
        time.sleep(0.02)


@contextmanager
def cluster(folder: Path, workers: int = 2, *options: str, **environment: str) -> Iterator[Cluster]:
    found = Cluster(folder, options, environment)
    try:
        for number in range(workers):
            found.worker(f"worker-{number}")
        yield found
    finally:
        for process in found.processes:  # told to end, they would take seconds to part from each other
            process.kill()
        for process in found.processes:
            process.wait()
