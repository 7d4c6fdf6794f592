"""Files read by the workers of a real cluster on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

import opspan
from builders import kineto
from cluster import Cluster, cluster
from loopback import served, whole
from opspan import dask
from opspan.errors import ClusterError, MissingPackage, UsageError
from read_once import ReadOnce

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Workers without a nanny: nobody begins them again."""
    with cluster(tmp_path_factory.mktemp("cluster"), 2, "--no-nanny") as found:
        yield found


def ranks_in(folder: Path, count: int, name: str = "rank{}.json.gz") -> list[Path]:
    folder.mkdir(exist_ok=True)
    return [kineto.write(folder / name.format(rank), indent=1) for rank in range(count)]


def test_answers_are_those_of_this_machine(two: Cluster, tmp_path: Path) -> None:
    ranks_in(tmp_path / "run", 6)
    (tmp_path / "run" / "rank99.json.gz").write_bytes(b"damaged")
    here = opspan.load_many(tmp_path / "run", executor=ReadOnce())
    there = opspan.load_many(tmp_path / "run", dask=two.address)

    for name in ("idle", "comm", "findings"):
        assert_frame_equal(getattr(there, name)(), getattr(here, name)())
    assert_frame_equal(there.table().rows, here.table().rows)
    assert there.issues["code"].to_list() == here.issues["code"].to_list()
    assert there.ranks == here.ranks
    assert len({pid for pid, _ in two.read()}) == 2  # both of them


def test_workers_fetch_addresses(two: Cluster, tmp_path: Path) -> None:
    files = ranks_in(tmp_path, 2)
    with served() as web:
        addresses = [web.give(f"/{file.name}", whole(file.read_bytes())) for file in files]
        rows = opspan.load_many(*addresses, dask=two.address).idle()
        assert sum(web.counts.values()) == 2

    assert_frame_equal(rows, opspan.load_many(*files, processes=1).idle())


def test_a_verb_asks_the_cluster(two: Cluster, tmp_path: Path) -> None:
    ranks_in(tmp_path / "run", 6)

    def said(*more: str) -> list[object]:
        command = [sys.executable, "-m", "opspan", "idle", "run", "--format", "json", *more]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        found: list[object] = json.loads(done.stdout)["rows"]
        return found

    before = len(two.read())
    assert said("--dask", two.address) == said()
    assert len(two.read()) - before == 6


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    files = ranks_in(tmp_path / "run", 6, "slow{}.json.gz")
    with cluster(tmp_path, 2, "--no-nanny") as found:
        victim = found.processes[1]

        def kill() -> None:
            while victim.pid not in {pid for pid, _ in found.read()}:
                time.sleep(0.01)
            victim.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        there = opspan.load_many(*files, dask=found.address).idle()
        killer.join()

        of_victim = [name for pid, name in found.read() if pid == victim.pid]
        by_other = {name for pid, name in found.read() if pid != victim.pid}

    assert of_victim, "it had begun"
    assert of_victim[-1] in by_other, "what it was at was read by the other"
    assert_frame_equal(there, opspan.load_many(*files, processes=1).idle())


def test_a_file_that_kills_every_worker_is_an_issue(tmp_path: Path) -> None:
    ranks_in(tmp_path / "run", 6)
    deadly = kineto.write(tmp_path / "run" / "deadly.json.gz", indent=1)
    with cluster(tmp_path, 2, "--nanny", DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0") as found:
        there = opspan.load_many(tmp_path / "run", dask=found.address)
        rows = there.idle()
        deaths = sum(name == deadly.name for _, name in found.read())

    deadly.unlink()
    assert_frame_equal(rows, opspan.load_many(tmp_path / "run", processes=1).idle())
    assert len(there.ranks) == 6
    (message,) = there.issues.filter(code="unreadable_file")["message"]
    assert f"{deadly} could not be read: Attempted to run task" in message
    assert deaths == 2  # one more than allowed, twice: with others, and alone


def test_without_any_worker_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "ABANDONED_S", 1.0)
    monkeypatch.setattr(dask, "PATIENCE_S", 2.0)
    kineto.write(tmp_path / "deadly.json.gz", indent=1)
    with cluster(tmp_path, 1, "--no-nanny") as found:
        with pytest.raises(ClusterError, match=r"no worker is left, for 1 s; start it again"):
            opspan.load_many(tmp_path / "deadly.json.gz", dask=found.address).idle()
        with pytest.raises(ClusterError, match=f"has no worker; start some: dask worker {found.address}"):
            opspan.load_many(tmp_path / "deadly.json.gz", dask=found.address).idle()


def test_a_scheduler_that_ends_is_said_in_one_line(tmp_path: Path) -> None:
    ranks_in(tmp_path / "run", 12, "slow{}.json.gz")
    with cluster(tmp_path, 1, "--no-nanny") as found:
        command = [sys.executable, "-m", "opspan", "idle", str(tmp_path / "run"), "--dask", found.address]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while len(found.read()) < 2:
            time.sleep(0.02)
        found.processes[0].kill()
        said = running.communicate(timeout=90)

    assert running.returncode == 2
    assert said == ("", f"error: {found.address}: its scheduler ended, or took the work back; start it again\n")


def test_a_path_that_a_worker_does_not_see(two: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here,) = ranks_in(tmp_path, 1)
    seen = opspan.load_many(here, dask=two.address)
    here.rename(tmp_path / "elsewhere")
    with pytest.raises(ClusterError, match=rf"the worker tcp://.* does not see {here} \(No such file or directory\)"):
        seen.idle()

    here.write_bytes(b"of another machine")
    with pytest.raises(ClusterError, match=rf"has another {here}, of 18 bytes and not .*: use a folder that all"):
        seen.idle()


def test_workers_need_the_same_opspan(two: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "VERSION", "7.0")

    with pytest.raises(ClusterError, match=r"need opspan 7\.0, which is running here: tcp://.* has 0\.1\.0"):
        opspan.load_many(*ranks_in(tmp_path, 1), dask=two.address).idle()


def test_no_scheduler_is_said_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "PATIENCE_S", 0.5)
    files = ranks_in(tmp_path, 1)
    with socket.socket() as silent:  # it takes connections, and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        taken = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(ClusterError, match="no scheduler of dask answers at"):
            opspan.load_many(*files, dask=taken).idle()
    with pytest.raises(ClusterError, match="no scheduler of dask answers at"):
        opspan.load_many(*files, dask=taken).idle()

    assert time.monotonic() - began < 60


@pytest.mark.parametrize("address", ["", "localhost", "8786", "inproc://x", "/tmp/file", "tcp://"])
def test_what_is_no_address_of_a_scheduler(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected such as tcp://"):
        opspan.load_many(*ranks_in(tmp_path, 1), dask=address).idle()


def test_who_reads_is_said_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected one of dask, executor and processes"):
        opspan.load_many(*ranks_in(tmp_path, 1), dask="tcp://127.0.0.1:1", processes=2)


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)

    with pytest.raises(MissingPackage, match=r"pip install 'opspan\[dask\]'"):
        opspan.load_many(*ranks_in(tmp_path, 1), dask="tcp://127.0.0.1:1").idle()


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    ranks_in(tmp_path / "run", 1)
    ranks_in(tmp_path / "run", 1, "stuck{}.json.gz")
    with cluster(tmp_path, 1, "--no-nanny") as found:
        command = [sys.executable, "-m", "opspan", "idle", str(tmp_path / "run"), "--dask", found.address]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while len(found.read()) < 2:
            time.sleep(0.02)
        os.kill(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=30)
        found.processes[1].kill()

    assert running.returncode == 130
    assert "Traceback" not in said
