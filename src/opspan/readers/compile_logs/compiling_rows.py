"""Adds the compilations and graph breaks of processes to the tables `compilations` and `graph_breaks` of a trace."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from opspan.readers.compile_logs.compilations import Row
from opspan.readers.compile_logs.log import CompiledProcess
from opspan.tables import Tables
from opspan.tables.compiled import COMPILATIONS, GRAPH_BREAKS
from opspan.tables.tables import id_count


class CompilingRows:
    """The rows of several processes. If two logs of a process have the same entry, it counts once for each rank."""

    def __init__(self, trace: Tables) -> None:
        self._trace = trace
        self._rows: dict[str, dict[tuple[int, int | None, bytes], Row]] = {
            COMPILATIONS.name: {},
            GRAPH_BREAKS.name: {},
        }

    def add(self, process: CompiledProcess, ranks: Collection[int]) -> None:
        of_process = {COMPILATIONS.name: process.compilations, GRAPH_BREAKS.name: process.graph_breaks}
        for rank in ranks:
            for table, rows in of_process.items():
                known = self._rows[table]
                for digest, row in rows.items():
                    known.setdefault((rank, process.pid, digest), {"rank": rank, **row})

    def frames(self) -> dict[str, pl.DataFrame]:
        """Returns both tables: the trace's rows, followed by the added rows."""
        frames = {}
        for table in (COMPILATIONS, GRAPH_BREAKS):
            before = self._trace.frames[table.name]
            first = id_count(before)
            rows = [{"id": first + number, **row} for number, row in enumerate(self._rows[table.name].values())]
            frames[table.name] = pl.concat([before, pl.DataFrame(rows, schema=table.schema)])
        return frames
