"""Which ranks the processes of an export are of.

MPI_RANKS             globalTid, rank: of each thread that called MPI_Init
META_DATA_CAPTURE     PROCESS_0:ENVIRONMENT_VARIABLE  RANK="3": of the program that nsys started
ncclCommInitRank      {"NCCL communicator ID": ..., "No. of ranks": 8, "Rank": 3}: of each process in a group
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from opspan.readers.nsys import tables
from opspan.readers.nsys.export import Export, pid_of
from opspan.readers.nsys.target import CAPTURE_FACTS, FACT_COLUMNS
from opspan.tables import Tables, Told
from opspan.tables.processes import active, in_ranks
from opspan.tables.told import VARIABLES, from_environment, told

RANKS = "MPI_RANKS"
VARIABLE = "PROCESS_0:ENVIRONMENT_VARIABLE"
_SAID = r'(?P<name>[A-Z_]+)="?(?P<value>[^"]*)"?'
_NUMBER = ': ?"?([0-9]{1,8})'

_col = pl.col


def in_its_ranks(export: Export, trace: Tables) -> Tables:
    """The environment is that of the program that nsys started, which may have started others: it says the rank of a
    process only where one alone did anything."""
    started = from_environment(_variables(export))
    pids = active(trace)
    is_alone = len(pids) == 1
    found = _of_mpi(export) or ({pids[0]: started} if started.rank is not None and is_alone else {})
    found = found or _of_nccl(trace.ranges)
    run = Told(run=started.run)
    told = {pid: replace(one, run=run.run) for pid, one in found.items() if pid in pids}
    if is_alone and [one.rank for one in told.values()] == [started.rank]:
        told = {pids[0]: started}  # which says more
    return in_ranks(trace, told, run)


def _variables(export: Export) -> Mapping[str, str]:
    """Returns the variables of launchers alone: a user's environment holds secrets."""
    if CAPTURE_FACTS not in export:
        return {}
    frame = export.frame(CAPTURE_FACTS, FACT_COLUMNS).filter(_col("name").str.contains(VARIABLE)).drop_nulls()
    said = [match for text in frame["value"] if (match := re.fullmatch(_SAID, text))]
    return {match["name"]: match["value"] for match in said if match["name"] in VARIABLES}


def _of_mpi(export: Export) -> dict[int, Told]:
    if RANKS not in export:
        return {}
    rows = export.frame(RANKS, tables.ints("globalTid rank")).select(pid=pid_of("globalTid"), rank="rank")
    rows = rows.drop_nulls().unique()
    if rows["pid"].is_duplicated().any():
        return {}
    return {pid: told(RANKS, rank) for pid, rank in rows.iter_rows()}


def _of_nccl(ranges: pl.DataFrame) -> dict[int, Told]:
    """The largest group, if all processes that are in any are in this one, each once."""
    is_init = ranges["name"].cat.starts_with("ncclCommInitRank")
    if not is_init.any():
        return {}
    said = _col("payload_json").str
    rows = (
        ranges.filter(is_init)
        .select(
            "pid",
            group=said.extract('"NCCL communicator ID": ?"?([^",}]+)'),
            size=said.extract(f'"No. of ranks"{_NUMBER}').cast(pl.Int64),
            rank=said.extract(f'"Rank"{_NUMBER}').cast(pl.Int64),
        )
        .drop_nulls()
        .unique()
        .sort("size", "group", descending=[True, False])
    )
    if not rows.height:
        return {}
    largest = rows.filter(_col("group") == rows["group"][0])
    is_whole = largest["pid"].n_unique() == rows["pid"].n_unique() and not largest["pid"].is_duplicated().any()
    others = rows.filter(_col("size") == rows["size"][0])["group"].n_unique()
    if not is_whole or others > 1:
        return {}
    by = f"NCCL communicator {rows['group'][0]}"
    return {pid: told(by, rank, size) for pid, size, rank in largest.select("pid", "size", "rank").iter_rows()}
