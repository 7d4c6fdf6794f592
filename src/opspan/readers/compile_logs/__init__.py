"""Reads what torch.compile wrote, and adds it to a trace: about its kernels as the table `provenance`, about compiling
as the tables `compilations` and `graph_breaks`.

    add_to(trace, path) -> the trace with the tables. The path is a folder of TORCH_TRACE or of TORCH_COMPILE_DEBUG=1, a
        log in it, or a JSON of artifacts.

This is no reader of traces: it has no times. All texts in these files are data: nothing of them is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from opspan.readers.compile_logs.compiling_rows import CompilingRows
from opspan.readers.compile_logs.folder import read_folder
from opspan.readers.compile_logs.log import CompiledProcess
from opspan.tables import Issues, Tables
from opspan.tables.compiled import PROVENANCE
from opspan.tables.metadata import ORDER
from opspan.tables.tables import id_count

__all__ = ["add_to"]

_col = pl.col


def add_to(trace: Tables, path: Path) -> Tables:
    """Returns the trace with what the compiler wrote about its ranks. A process is found by its rank or its number."""
    compiling = CompilingRows(trace)
    processes, issues = read_folder(path)
    next_id = id_count(trace.provenance)
    frames, more = [trace.provenance], Issues(str(path))
    pids = _pids(trace)
    elsewhere = 0
    for process in processes:
        rows = _frame(process)
        has_rows = rows.height or process.compilations or process.graph_breaks
        ranks = _ranks_of(process, trace, pids) if has_rows else ()
        compiling.add(process, ranks)
        if not ranks:
            elsewhere += rows["kernel"].n_unique()
        for rank in ranks if rows.height else ():
            moved = rows.with_columns(_col("id", "graph") + next_id, rank=pl.lit(rank, dtype=pl.Int32))
            frames.append(moved.select(list(PROVENANCE.schema)))
            next_id += rows.height
    more.add("compiled_elsewhere", elsewhere)
    more.add("compilations_elsewhere", compiling.elsewhere)
    if not elsewhere and len(frames) == 1:
        more.add("no_provenance")
    noted = [trace.issues, *(one.frame() for one in (*issues, more))]
    return trace.replace(provenance=pl.concat(frames), **compiling.frames(), issues=pl.concat(noted, how="diagonal"))


def _frame(process: CompiledProcess) -> pl.DataFrame:
    rows: list[dict[str, object]] = []
    for graph in process.graphs:
        begin = len(rows)
        rows += [{"id": begin + order, "graph": begin, **row} for order, row in enumerate(graph.rows())]
    return pl.DataFrame(rows, schema=PROVENANCE.schema)


def _ranks_of(process: CompiledProcess, trace: Tables, pids: dict[int, set[int]]) -> Sequence[int]:
    """Returns the ranks of the trace that are the process. A log of an unknown process is about all ranks."""
    known = {rank.rank for rank in trace.ranks if rank.rank_by != ORDER}
    if process.rank is not None and process.rank in known:
        return (process.rank,)
    own = pids.get(process.pid, set()) if process.pid is not None else set()
    if len(own) == 1:
        return tuple(own)
    ranks = [rank.rank for rank in trace.ranks]
    if process.rank is None:
        return ranks
    return (process.rank,) if process.rank in ranks else ()


def _pids(trace: Tables) -> dict[int, set[int]]:
    """Returns for each process id the ranks that it has in the trace."""
    ranks: dict[int, set[int]] = {}
    for rank, pid in _pairs(trace.frames[name] for name in ("ranges", "calls", "work")):
        ranks.setdefault(pid, set()).add(rank)
    return ranks


def _pairs(frames: Iterable[pl.DataFrame]) -> Iterable[tuple[int, int]]:
    pairs = [frame.select("rank", "pid").unique().drop_nulls() for frame in frames]
    return pl.concat(pairs).unique().iter_rows()
