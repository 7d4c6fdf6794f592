"""Where each step's own work begins, of steps of which only the ends are known.

    own_work(steps, ranges) -> for each of `steps` (rank, pid, tid, start_ns, end_ns, is_first) when its own work began

Such a step reaches back to the end of the step before, and the first one to the begin of the process: start-up,
evaluations and checkpoints would be counted with it. What is done in the step itself is told by how most steps begin:
the names of the first ranges on the step's thread, those that lie in no other of the same step. A step that begins in
another way begins at the last place from which on these names come and as much follows as in the other steps. What is
before that place is not the step's

- in a first step, of a process or a session: it is start-up
- in others if it holds a range that the program named itself, or half as many ranges as a step or more, and in neither
  case a backward: what else is done there now and then, such as logging, belongs to the step

A step that has no such place keeps all of its time. Ranges must be nested (`nest`) first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.program_ranges import of_program
from opspan.analysis.spans import PROCESS, apart, only, within

_col = pl.col
_THREAD = (*PROCESS, "tid")
_OPENING = 16  # names that tell how steps begin
_LEAST = 4  # of these must come in order; what ends the loop may come before the first step's as well
_AS_MUCH = 0.9  # of the ranges of a usual step
_MANY = 0.5


def own_work(steps: pl.DataFrame, ranges: pl.DataFrame) -> pl.Series:
    if steps.height < 3:
        return steps["start_ns"]
    rows = _outermost(steps, ranges)
    order = steps.with_row_index("stretch")
    begins = [_own_begins(of_thread, rows) for of_thread in apart(order, _THREAD).values()]
    found = pl.concat(begins)
    cut = found.filter(_is_other(found, rows, ranges, order) | steps["is_first"].gather(found["stretch"]))
    return steps["start_ns"].scatter(cut["stretch"], cut["own_ns"]) if cut.height else steps["start_ns"]


def _outermost(steps: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """stretch (which of the steps), name, start_ns, is_own (the program's) of the ranges on the steps' threads that lie
    in a step and in no other range of it, in order."""
    pairs = within(ranges.select(*_THREAD, "start_ns"), "start_ns", steps, _THREAD)
    row, stretch = pairs["row"], pairs["stretch"]
    around, until = ranges["parent"].gather(row), steps["end_ns"].gather(stretch)
    # A range that a step shares with others, such as an epoch, is none of its parts; what is in that is.
    is_inside = (ranges["start_ns"].gather(around) >= steps["start_ns"].gather(stretch)) & (
        ranges["end_ns"].gather(around) <= until
    )
    is_part = ~is_inside.fill_null(value=False) & (ranges["end_ns"].gather(row) <= until).fill_null(value=False)
    rows = ranges.select("name", "kind", "start_ns", "is_async", "is_mark")[row.filter(is_part)]
    rows = rows.with_columns(stretch.filter(is_part))
    rows = only(rows, ~_col("is_mark").fill_null(value=False) & ~_col("is_async").fill_null(value=False))
    return rows.select("stretch", _col("name").to_physical(), "start_ns", is_own=of_program(rows))


def _own_begins(steps: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """stretch, own_ns, at (the place among its ranges), usual (how many ranges a step has), of those steps of a thread
    that begin with something else."""
    rows = rows.filter(_col("stretch").is_in(steps["stretch"].implode()))
    each = rows.group_by("stretch", maintain_order=True).agg(opening=_col("name").head(_OPENING), many=pl.len())
    each = each.with_columns(key=_col("opening").cast(pl.List(pl.String)).list.join(","))
    found = pl.DataFrame(schema={"stretch": pl.UInt32, "own_ns": pl.Int64, "at": pl.Int64, "usual": pl.Int64})
    if not each.height:
        return found
    common = each.group_by("key", maintain_order=True).len().sort("len", descending=True, maintain_order=True)
    if common["len"][0] * 2 < each.height or common["len"][0] < 2:
        return found
    usual = each.filter(_col("key") == common["key"][0])
    opening, many = usual["opening"][0].to_list(), float(usual["many"].median())  # type: ignore[arg-type]  # of counts
    if len(opening) < 2:  # one name tells nothing
        return found
    odd = each.filter(_col("key") != common["key"][0]).select("stretch", "many")
    left = rows.join(odd, on="stretch", maintain_order="left")
    left = left.with_columns(at=pl.int_range(pl.len(), dtype=pl.Int64).over("stretch"))
    for skipped in range(max(len(opening) - _LEAST, 0) + 1):
        if not left.height:
            break
        names = opening[skipped:]
        comes = pl.all_horizontal(_col("name").shift(-n).over("stretch") == name for n, name in enumerate(names))
        is_enough = _col("many") - _col("at") >= _AS_MUCH * many - skipped
        places = left.filter(comes.fill_null(value=False) & is_enough)
        last = places.unique("stretch", keep="last", maintain_order=True)
        last = last.select("stretch", "at", own_ns="start_ns", usual=pl.lit(round(many), dtype=pl.Int64))
        found = pl.concat([found, last.select(found.columns)])
        left = left.join(last, on="stretch", how="anti", maintain_order="left")
    return found.filter(_col("at") > 0)


def _is_other(found: pl.DataFrame, rows: pl.DataFrame, ranges: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """For each step whether what is before its own work is something else that the program does."""
    before = rows.join(found, on="stretch").filter(_col("start_ns") < _col("own_ns"))
    own = before.group_by("stretch").agg(_col("is_own").any())
    facts = found.join(own, on="stretch", how="left", maintain_order="left")
    spans = steps[found["stretch"]].with_columns(end_ns=found["own_ns"])
    backward = ranges.filter(_col("kind").is_in(["backward", "engine"])).select(*PROCESS, "start_ns")
    with_backward = within(backward, "start_ns", spans, PROCESS)["stretch"].unique()
    is_else = facts["is_own"].fill_null(value=False) | (facts["at"] >= _MANY * facts["usual"])
    return is_else & ~pl.int_range(found.height, dtype=pl.UInt32, eager=True).is_in(with_backward.implode())
