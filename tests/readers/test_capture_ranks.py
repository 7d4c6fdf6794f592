"""Ranks of captures, from the environment of their processes: in made files and in those of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import opspan
from builders.capture import Capture
from emit.running import forked
from opspan.capture_files import ENVIRONMENT_AT, ENVIRONMENT_BYTES
from opspan.readers.capture.bytes import HEADER

WORLD = 3
RECORD = """
import opspan, sys
with opspan.record(path=sys.argv[1]):
    with opspan.annotate("work"):
        pass
"""


def environment(rank: int, **more: object) -> dict[str, str]:
    known = {"RANK": rank, "WORLD_SIZE": WORLD, "LOCAL_RANK": 0, "TORCHELASTIC_RUN_ID": "1f2e"} | more
    return {name: str(value) for name, value in known.items()}


def written(folder: Path, pid: int, rank: int | None, name: str = "aten::mm", **more: object) -> Path:
    said = () if rank is None else tuple(f"{key}={value}" for key, value in environment(rank).items())
    made = Capture(pid=pid, environment=said, **more)  # type: ignore[arg-type]
    if name:
        made.thread(pid).torch(name, 1 + pid, 5 + pid)
    return made.write(folder / f"{pid}-1.opspan")


def test_the_place_of_what_it_was_told_is_that_of_the_format() -> None:
    assert HEADER.size == ENVIRONMENT_AT + ENVIRONMENT_BYTES


def test_a_capture_is_the_rank_that_its_process_was_told(tmp_path: Path) -> None:
    trace = opspan.load(written(tmp_path, 100, 2))
    assert trace.ranges["rank"].to_list() == [2]
    told = trace.metadata.told
    assert (told.rank, told.by, told.world_size, told.local_rank, told.run) == (2, "RANK", WORLD, 0, "torchrun 1f2e")


def test_a_folder_of_several_ranks_is_these(tmp_path: Path) -> None:
    """With a launcher that does nothing, a fork that nobody told, and a process of somebody else."""
    for pid, rank in ((100, None), (101, 2), (102, 0), (104, 2)):
        written(tmp_path, pid, rank, "" if rank is None else f"op{pid}", session=(9, pid))
    written(tmp_path, 103, None, "fork", session=(9, 102), forked=True)
    written(tmp_path, 105, None, "other", session=(9, 105))

    trace = opspan.load(tmp_path)

    assert dict(trace.ranges.select("name", "rank").iter_rows()) == {
        "op101": 2,
        "op104": 2,
        "op102": 0,
        "fork": 0,
        "other": 3,
    }
    assert dict(trace.processes.select("pid", "rank").iter_rows()) == {100: 0, 101: 2, 102: 0, 103: 0, 104: 2, 105: 3}
    assert [(rank.rank, rank.rank_by, rank.options["files"]) for rank in trace.ranks] == [
        (0, "RANK", 3),
        (2, "RANK", 2),
        (3, "order", 1),
    ]
    trace.save(tmp_path / "saved")
    assert opspan.load(tmp_path / "saved").ranks == trace.ranks
    trace.export(tmp_path / "run.json")
    again = opspan.load(tmp_path / "run.json")
    assert [(rank.rank, rank.told) for rank in again.ranks] == [(rank.rank, rank.told) for rank in trace.ranks]
    assert again.ranges.select("name", "rank").sort("name").equals(trace.ranges.select("name", "rank").sort("name"))


def test_a_folder_of_one_rank_is_one(tmp_path: Path) -> None:
    for pid, rank in ((100, 1), (101, 1), (102, None)):  # the last says nothing else
        written(tmp_path, pid, rank, session=(9, pid))
    trace = opspan.load(tmp_path)
    assert [rank.rank for rank in trace.ranks] == [1]
    assert trace.ranges["rank"].to_list() == [1, 1, 1]


def test_captures_of_ranks_in_any_order(tmp_path: Path) -> None:
    paths = [written(tmp_path, 100 + rank, rank) for rank in (2, 0, 1)]
    trace = opspan.load(*paths)
    assert dict(trace.ranges.select("pid", "rank").iter_rows()) == {102: 2, 100: 0, 101: 1}
    assert trace.issues.is_empty()
    assert opspan.load(*paths[:2]).issues["message"].to_list() == ["ranks of the run are not here (1): 1 of 3"]


@pytest.mark.parametrize("raw", [b"RANK", b"=", b"\xff=\xff", b"RANK=1\0WORLD_SIZE=\xff", 416 * b"a="])
def test_damage_there_is_no_rank(raw: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, 100, None)
    content = bytearray(path.read_bytes())
    content[ENVIRONMENT_AT : ENVIRONMENT_AT + len(raw)] = raw
    path.write_bytes(content)
    trace = opspan.load(path)
    assert (trace.metadata.rank, trace.metadata.told.rank) == (0, None)


def recorded(folder: Path, **variables: str) -> opspan.Trace:
    command = [sys.executable, "-c", RECORD, str(folder)]
    subprocess.run(command, check=True, env={**os.environ, **variables}, timeout=60)
    return opspan.load(folder)


def test_a_real_process_says_its_rank_and_nothing_else_of_its_environment(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "run", **environment(1), A_SECRET="word", MASTER_ADDR="inner.host")
    assert (trace.metadata.rank, trace.metadata.told.run) == (1, "torchrun 1f2e")
    (file,) = (tmp_path / "run").glob("*.opspan")
    header = file.read_bytes()[:4096]
    assert b"A_SECRET" not in header
    assert b"inner.host" not in header


def test_what_is_too_long_is_left_out(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "run", **environment(1, TORCHELASTIC_RUN_ID=2000 * "x"))
    assert (trace.metadata.rank, trace.metadata.told.run) == (1, None)


def test_a_program_that_joins_its_group_by_itself_says_its_rank(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = """
import opspan, sys, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
with opspan.record(path=sys.argv[1]) as rec:
    pass
dist.destroy_process_group()
"""
    done = forked(program, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "run").glob("*.opspan")
    assert b"TORCH_RANK=0\0TORCH_WORLD_SIZE=1\0\0" in file.read_bytes()[:4096]
