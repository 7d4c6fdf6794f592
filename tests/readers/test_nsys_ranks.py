"""Ranks of the processes in an nsys export: from MPI's table, the environment, NCCL's groups, or no sign at all."""

from __future__ import annotations

from pathlib import Path

import opspan
from builders import nsys

A, B = 11, 13


def export(path: Path, pids: tuple[int, ...], tables: nsys.Tables) -> opspan.Trace:
    ranges = [
        {"start": pid, "end": pid + 5, "eventType": nsys.PUSH_POP, "text": f"of {pid}", "globalTid": nsys.tid(pid)}
        for pid in pids
    ]
    given = {"NVTX_EVENTS": [*ranges, *tables.get("NVTX_EVENTS", [])]}
    names = nsys.strings("x")
    return opspan.load(nsys.export(path, {"StringIds": names, **tables, **given}))


def ranks(trace: opspan.Trace) -> dict[int, int]:
    return dict(trace.ranges.select("pid", "rank").unique().iter_rows())


def mpi(*pairs: tuple[int, int]) -> nsys.Tables:
    return {"MPI_RANKS": [{"globalTid": nsys.tid(pid), "rank": rank} for pid, rank in pairs]}


def started(*variables: str) -> nsys.Tables:
    name = "PROCESS_0:ENVIRONMENT_VARIABLE"
    return {"META_DATA_CAPTURE": [{"name": name, "value": variable} for variable in ("HOME=/root", *variables)]}


def group(pid: int, which: int, size: int, rank: int) -> dict[str, object]:
    said = f'{{"NCCL communicator ID": {which}, "No. of ranks": {size}, "Rank": {rank}, "CUDA device": 0}}'
    times = {"start": 50 + rank, "end": 60 + rank, "eventType": nsys.PUSH_POP, "globalTid": nsys.tid(pid)}
    return {**times, "text": "ncclCommInitRank", "jsonText": said}


def test_mpi_says_which_rank_a_process_is(tmp_path: Path) -> None:
    trace = export(tmp_path / "a.sqlite", (A, B), mpi((A, 1), (B, 0)))
    assert ranks(trace) == {A: 1, B: 0}
    assert [(rank.rank, rank.rank_by) for rank in trace.ranks] == [(0, "MPI_RANKS"), (1, "MPI_RANKS")]
    assert trace.issues.is_empty()


def test_one_process_is_what_its_environment_says(tmp_path: Path) -> None:
    said = started('RANK="3"', "WORLD_SIZE=8", 'LOCAL_RANK="1"', "TORCHELASTIC_RUN_ID=77")
    trace = export(tmp_path / "a.sqlite", (A,), said)
    assert ranks(trace) == {A: 3}
    told = trace.metadata.told
    assert (told.by, told.world_size, told.local_rank, told.run) == ("RANK", 8, 1, "torchrun 77")
    assert "HOME" not in str(trace.ranks)
    # It says more than MPI's table, unless that says something else.
    both = export(tmp_path / "b.sqlite", (A,), {**said, **mpi((A, 3))})
    assert both.metadata.told.world_size == 8
    other = export(tmp_path / "c.sqlite", (A,), {**said, **mpi((A, 2))})
    assert ranks(other) == {A: 2}


def test_the_environment_of_a_launcher_is_that_of_no_rank(tmp_path: Path) -> None:
    trace = export(tmp_path / "a.sqlite", (A, B), started("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=9"))
    assert ranks(trace) == {A: 0, B: 0}
    assert trace.metadata.told.run == "Slurm 9."


def test_nccl_says_it_where_all_are_in_one_group(tmp_path: Path) -> None:
    trace = export(tmp_path / "a.sqlite", (A, B), {"NVTX_EVENTS": [group(A, 5, 2, 1), group(B, 5, 2, 0)]})
    assert ranks(trace) == {A: 1, B: 0}
    assert trace.metadata.told.world_size == 2
    # Smaller groups inside of it say nothing new.
    events = [group(A, 5, 2, 1), group(B, 5, 2, 0), group(A, 6, 1, 0)]
    assert ranks(export(tmp_path / "b.sqlite", (A, B), {"NVTX_EVENTS": events})) == {A: 1, B: 0}


def test_groups_that_not_all_are_in_say_nothing(tmp_path: Path) -> None:
    two = [group(A, 5, 2, 0), group(B, 6, 2, 0)]
    assert ranks(export(tmp_path / "a.sqlite", (A, B), {"NVTX_EVENTS": two})) == {A: 0, B: 0}
    one_process = [group(A, 5, 2, 0), group(A, 5, 2, 1)]
    assert ranks(export(tmp_path / "b.sqlite", (A,), {"NVTX_EVENTS": one_process})) == {A: 0}


def test_files_of_ranks_in_groups_of_their_own_are_in_the_order_given(tmp_path: Path) -> None:
    paths = []
    for pid, which in ((A, 5), (B, 6)):
        path = tmp_path / f"{which}.sqlite"
        export(path, (pid,), {"NVTX_EVENTS": [group(pid, which, 8, 3)]})
        paths.append(path)
    assert ranks(opspan.load(*paths)) == {A: 0, B: 1}


def test_without_a_sign_they_are_processes_of_one(tmp_path: Path) -> None:
    trace = export(tmp_path / "a.sqlite", (A, B), {})
    assert (ranks(trace), len(trace.ranks)) == ({A: 0, B: 0}, 1)


def test_damage_is_no_rank(tmp_path: Path) -> None:
    twice = mpi((A, 0), (A, 1), (B, -1))
    assert ranks(export(tmp_path / "a.sqlite", (A, B), twice)) == {A: 0, B: 0}
    huge = mpi((A, 2**40), (B, 1))
    assert set(ranks(export(tmp_path / "b.sqlite", (A, B), huge)).values()) <= {0, 1}


def test_two_processes_of_a_real_run_without_a_sign_stay_one_rank(traces_dir: Path) -> None:
    trace = opspan.load(traces_dir / "nsys/train_fsdp_2gpu.sqlite")
    assert trace.work["pid"].n_unique() == 2
    assert [rank.rank for rank in trace.ranks] == [0]


def test_a_real_environment_of_one_process_alone(traces_dir: Path) -> None:
    """RANK=0, WORLD_SIZE=1: one that is alone may be anything."""
    trace = opspan.load(traces_dir / "nsys/nvfuser_2024.sqlite")
    assert (trace.metadata.rank_by, trace.metadata.told.rank) == ("order", None)
    assert (trace.metadata.told.run or "").startswith(("port ", "Slurm "))


def test_a_row_without_a_thread_gets_none_from_the_others(tmp_path: Path) -> None:
    row = {"start": 1, "end": 9, "eventType": nsys.PUSH_POP}
    rows = [{**row, "text": "a", "globalTid": nsys.tid(A)}, {**row, "text": "b", "globalTid": None}]
    trace = opspan.load(nsys.export(tmp_path / "x.sqlite", {"NVTX_EVENTS": rows, "StringIds": nsys.strings("x")}))
    assert trace.ranges.select("name", "pid", "tid").rows() == [("a", A, A), ("b", None, None)]
