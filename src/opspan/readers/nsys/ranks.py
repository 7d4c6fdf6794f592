"""Finds the ranks of the processes of an export.

MPI_RANKS             globalTid, rank: a row for each thread that called MPI_Init
META_DATA_CAPTURE     PROCESS_0:ENVIRONMENT_VARIABLE  RANK="3": a row for the program that nsys started
ncclCommInitRank      {"NCCL communicator ID": ..., "No. of ranks": 8, "Rank": 3}: a range for each process in a group
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from opspan.formats.columns import ints
from opspan.readers.nsys.export import Export, pid_of
from opspan.readers.nsys.target import CAPTURE_FACTS, FACT_COLUMNS
from opspan.tables import Tables, Told
from opspan.tables.processes import active, in_ranks
from opspan.tables.told import VARIABLES, from_environment, told

RANKS = "MPI_RANKS"
VARIABLE = "PROCESS_0:ENVIRONMENT_VARIABLE"
_ASSIGNMENT = r'(?P<name>[A-Z_]+)="?(?P<value>[^"]*)"?'
_NUMBER = ': ?"?([0-9]{1,8})'

_col = pl.col


def split_by_rank(export: Export, trace: Tables) -> Tables:
    """Splits the trace by rank. The environment belongs to the program that nsys started, and that program may have
    started other processes. So the environment gives a rank only if the trace has events of a single process."""
    started = from_environment(_variables(export))
    pids = active(trace)
    is_alone = len(pids) == 1
    ranks = _of_mpi(export) or ({pids[0]: started} if started.rank is not None and is_alone else {})
    ranks = ranks or _of_nccl(trace.ranges)
    run = Told(run=started.run)
    of_pids = {pid: replace(rank, run=run.run) for pid, rank in ranks.items() if pid in pids}
    if is_alone and [rank.rank for rank in of_pids.values()] == [started.rank]:
        of_pids = {pids[0]: started}  # the environment gives the rank and more fields
    return in_ranks(trace, of_pids, run)


def _variables(export: Export) -> Mapping[str, str]:
    """Returns only the variables of launchers, because a user's environment holds secrets."""
    if CAPTURE_FACTS not in export:
        return {}
    frame = export.frame(CAPTURE_FACTS, FACT_COLUMNS).filter(_col("name").str.contains(VARIABLE)).drop_nulls()
    matches = [match for text in frame["value"] if (match := re.fullmatch(_ASSIGNMENT, text))]
    return {match["name"]: match["value"] for match in matches if match["name"] in VARIABLES}


def _of_mpi(export: Export) -> dict[int, Told]:
    if RANKS not in export:
        return {}
    rows = export.frame(RANKS, ints("globalTid rank")).select(pid=pid_of("globalTid"), rank="rank")
    rows = rows.drop_nulls().unique()
    if rows["pid"].is_duplicated().any():
        return {}
    return {pid: told(RANKS, rank) for pid, rank in rows.iter_rows()}


def _of_nccl(ranges: pl.DataFrame) -> dict[int, Told]:
    """Returns the ranks that the processes have in the largest group. Returns nothing if two groups are the largest, or
    if a process that is in any group is not in the largest group exactly once."""
    is_init = ranges["name"].cat.starts_with("ncclCommInitRank")
    if not is_init.any():
        return {}
    payload = _col("payload_json").str
    rows = (
        ranges.filter(is_init)
        .select(
            "pid",
            group=payload.extract('"NCCL communicator ID": ?"?([^",}]+)'),
            size=payload.extract(f'"No. of ranks"{_NUMBER}').cast(pl.Int64),
            rank=payload.extract(f'"Rank"{_NUMBER}').cast(pl.Int64),
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
