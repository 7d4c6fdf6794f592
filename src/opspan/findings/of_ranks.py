"""Reduces each rank to small data frames, so that rules can compare ranks that were analysed one by one.

rank_parts(run) -> the Parts of one rank
RunOfRanks(parts) -> a Run over all ranks, with only the properties that rules need to compare ranks
"""

from __future__ import annotations

from functools import cached_property

import polars as pl

from opspan.analysis.over_ranks import matched
from opspan.analysis.parts import COLLECTIVES, Part, Parts
from opspan.analysis.spans import PROCESS, sum_by
from opspan.findings.run import Run

_col = pl.col
_FACTS = ("exposed_ns", "before_ns", "backward_ns", "held_ns")
_NAMES = ("op", "module", "phase", "step")
_TIMES = ("start_ns", "end_ns")


def rank_parts(run: Run) -> Parts:
    own = run.analysis.own_collectives.with_row_index("at")
    exposed = run.add_exposed(own).select("at", *_FACTS, _col(_NAMES).cast(pl.String))
    ranks = pl.DataFrame({"rank": [one.rank for one in run.trace.ranks]}, schema={"rank": pl.Int32})
    return {
        COLLECTIVES: Part(own.join(exposed, on="at", how="left", maintain_order="left").drop("at"), times=_TIMES),
        "saves": Part(run.savings, PROCESS),
        "processes": Part(run.devices_used, PROCESS, {"devices": "most"}),
        "ranks": Part(ranks, ("rank",)),
        "times": Part(sum_by(run.times, PROCESS, time_ns=_col("time_ns").sum()), PROCESS),
        "steps": Part(pl.DataFrame({"steps": [run.steps.height]}), ()),
    }


class RunOfRanks(Run):
    def __init__(self, parts: Parts) -> None:
        rows = {name: part.rows for name, part in parts.items()}
        self.times, self.devices_used, self.savings = rows["times"], rows["processes"], rows["saves"]
        # Rules that compare ranks use only the number of steps, so the content of the rows does not matter.
        self.steps = pl.DataFrame({"step": pl.int_range(rows["steps"]["steps"][0], eager=True)})
        self._own_collectives = rows[COLLECTIVES]

    @property
    def knows_waits(self) -> bool:
        return False

    @cached_property
    def collectives(self) -> pl.DataFrame:
        rows = self._own_collectives
        return rows.hstack(matched(rows)).filter(_col("exposed_ns").is_not_null())
