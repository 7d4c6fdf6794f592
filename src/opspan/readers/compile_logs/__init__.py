"""Reads what torch.compile logged, from files or from marks in a trace. Adds rows to three tables of the trace:
`provenance` (where kernels came from), `compilations` and `graph_breaks`.

    add_to(trace, path) -> the trace with rows from a folder of TORCH_TRACE or TORCH_COMPILE_DEBUG=1, from a log in such
        a folder, or from a JSON file about kernels.
    with_marks_read(trace, marks) -> the trace with rows from the marks that hold torch.compile's log.

This package is not a reader (registry.Reader): it only adds rows to a trace. Code in the files is parsed, never run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from opspan.readers.compile_logs.compiling_rows import CompilingRows
from opspan.readers.compile_logs.folder import read_folder
from opspan.readers.compile_logs.log import CompiledProcess, ProcessLog
from opspan.readers.compile_logs.marks import entries_of, pieces_of
from opspan.tables import Issues, Tables
from opspan.tables.compiled import PROVENANCE
from opspan.tables.metadata import ORDER
from opspan.tables.tables import id_count

__all__ = ["add_to", "with_marks_read"]

_col = pl.col


def add_to(trace: Tables, path: Path) -> Tables:
    """Returns the trace with rows from the path. Uses only processes that belong to a rank of the trace."""
    processes, issues = read_folder(path)
    more = Issues(str(path))
    pids = _pids(trace)
    if not any(process.pid in pids for process in processes):
        pids = {}  # the logs have other pids than the trace, as in a container
    placed = [(process, _ranks_of(process, trace, pids)) for process in processes]
    # If the user's logs have graphs of a rank, the rows from these logs replace the rank's rows in the three tables.
    named = pl.Series([rank for process, ranks in placed if process.graphs for rank in ranks], dtype=pl.Int32)
    is_other = ~_col("rank").is_in(named.implode())
    own = (trace.provenance, trace.compilations, trace.graph_breaks)
    provenance, compilations, graph_breaks = (frame.filter(is_other) for frame in own)
    trace = trace.replace(provenance=provenance, compilations=compilations, graph_breaks=graph_breaks)
    elsewhere = [process for process, ranks in placed if not ranks]
    kernels = sum(len({row["kernel"] for graph in process.graphs for row in graph.rows()}) for process in elsewhere)
    more.add("compiled_elsewhere", kernels)
    more.add("compilations_elsewhere", sum(len(process.compilations) for process in elsewhere))
    with_processes = _with_processes(trace, placed, more)
    if not kernels and with_processes.provenance.height == provenance.height:
        more.add("no_provenance")
    return _with_issues(with_processes, [*issues, more])


def with_marks_read(trace: Tables, marks: pl.DataFrame) -> Tables:
    """Returns the trace with the rows from torch.compile's log in these marks. Removes the marks that hold this log."""
    pieces = pieces_of(marks)
    if pieces.is_empty():
        return trace
    issues = Issues(trace.metadata.paths[0] if trace.metadata.paths else "")
    trace = trace.replace(ranges=trace.ranges.filter(~_col("id").is_in(pieces["id"].implode())))
    placed: list[tuple[CompiledProcess, Sequence[int]]] = []
    for (rank,), of_rank in pieces.group_by("rank", maintain_order=True):
        logs: dict[int, ProcessLog] = {}
        for entry in entries_of(of_rank, issues):
            log = logs.setdefault(entry.pid, ProcessLog(CompiledProcess(entry.pid, None), issues))
            log.add(entry)
        placed += [(log.process, (int(rank),)) for log in logs.values()]
    return _with_issues(_with_processes(trace, placed, issues), [issues])


def _with_processes(trace: Tables, placed: Iterable[tuple[CompiledProcess, Sequence[int]]], issues: Issues) -> Tables:
    """Returns the trace with the rows of the processes. `placed`: each process, and the ranks that get its rows."""
    compiling = CompilingRows(trace)
    frames, next_id = [trace.provenance], id_count(trace.provenance)
    for process, ranks in placed:
        compiling.add(process, ranks)
        issues.add("cached_lines", sum(graph.has_foreign_lines for graph in process.graphs))
        rows = _frame(process)
        if ranks:
            named = rows.filter(_col("known_by") == "name")
            issues.add("only_named", named.select("graph", "kernel").n_unique())
        for rank in ranks if rows.height else ():
            moved = rows.with_columns(_col("id", "graph") + next_id, rank=pl.lit(rank, dtype=pl.Int32))
            frames.append(moved.select(list(PROVENANCE.schema)))
            next_id += rows.height
    return trace.replace(provenance=pl.concat(frames), **compiling.frames())


def _with_issues(trace: Tables, issues: Iterable[Issues]) -> Tables:
    noted = [trace.issues, *(one.frame() for one in issues)]
    return trace.replace(issues=pl.concat(noted, how="diagonal"))


def _frame(process: CompiledProcess) -> pl.DataFrame:
    rows: list[dict[str, object]] = []
    for graph in process.graphs:
        begin = len(rows)
        rows += [{"id": begin + order, "graph": begin, **row} for order, row in enumerate(graph.rows())]
    return pl.DataFrame(rows, schema=PROVENANCE.schema)


def _ranks_of(process: CompiledProcess, trace: Tables, pids: dict[int, set[int]]) -> Sequence[int]:
    """Finds, by rank or pid, the ranks of the trace to which the process belongs. `pids` is empty if the logs have
    other pids than the trace. Then a log that states no rank belongs to all ranks."""
    known = {rank.rank for rank in trace.ranks if rank.rank_by != ORDER}
    if process.rank is not None and process.rank in known:
        return (process.rank,)
    own = pids.get(process.pid, set()) if process.pid is not None else set()
    if len(own) == 1:
        return tuple(own)
    ranks = [rank.rank for rank in trace.ranks]
    if process.rank is None:
        return ranks if not pids or process.pid is None else tuple(own)
    return (process.rank,) if process.rank in ranks else ()


def _pids(trace: Tables) -> dict[int, set[int]]:
    """Returns process id -> the ranks of the trace that have this process."""
    ranks: dict[int, set[int]] = {}
    for rank, pid in _pairs(trace.frames[name] for name in ("ranges", "calls", "work")):
        ranks.setdefault(pid, set()).add(rank)
    return ranks


def _pairs(frames: Iterable[pl.DataFrame]) -> Iterable[tuple[int, int]]:
    pairs = [frame.select("rank", "pid").unique().drop_nulls() for frame in frames]
    return pl.concat(pairs).unique().iter_rows()
