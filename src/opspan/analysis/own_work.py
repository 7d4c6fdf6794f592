"""Finds when each step begins its own work, for steps of which only the ends are known.

    own_work(steps, ranges) -> for each of `steps` (rank, pid, tid, start_ns, end_ns, is_first), when its own work
        began.

Such a step begins at the end of the step before, and the first step begins when the process begins. So start-up,
evaluations and checkpoints would count as parts of steps. Most steps have the same *opening*: the names of the first
outermost ranges of a step on its thread. If a step has other ranges first, its own work begins at the opening. After
the opening there must be about as many ranges as in other steps. If the opening comes several times with as many ranges
after it, the last one counts. The time before the own work does not belong to the step in two cases:

- The step is the first step of a process or a session. Then this time is start-up.
- No backward begins in this time, and this time is more than logging: it has a range that the program named, or it has
  at least half as many ranges as a step.

In all other cases, such as logging, this time belongs to the step. If a step does not have the opening, all of its time
belongs to the step. Ranges must be nested (`nest`) first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.program_ranges import of_program
from opspan.analysis.spans import PROCESS, THREAD, apart, only, within
from opspan.row_numbers import ROW_NUMBER

_col = pl.col
_OPENING = 16  # maximum number of names in an opening
# A step may lack the first names of the opening, because in other steps these may come from the end of the loop before.
# At least this many of the opening's last names must come in order.
_LEAST = 4
_AS_MUCH = 0.9  # from the opening on, a step must have at least this share of the usual number of ranges
_MANY = 0.5  # ranges before the opening are more than logging if they are at least this share of the usual number


def own_work(steps: pl.DataFrame, ranges: pl.DataFrame) -> pl.Series:
    if steps.height < 3:
        return steps["start_ns"]
    rows = _outermost(steps, ranges)
    order = steps.with_row_index("stretch")
    begins = [_own_begins(of_thread, rows) for of_thread in apart(order, THREAD).values()]
    places = pl.concat(begins)
    cut = places.filter(_is_other(places, rows, ranges, order) | steps["is_first"].gather(places["stretch"]))
    return steps["start_ns"].scatter(cut["stretch"], cut["own_ns"]) if cut.height else steps["start_ns"]


def _outermost(steps: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns the outermost ranges of each step on the step's thread, in order of time. `stretch` is the row of the
    step, and `is_own` says whether the program named the range."""
    pairs = within(ranges.select(*THREAD, "start_ns"), "start_ns", steps, THREAD)
    row, stretch = pairs["row"], pairs["stretch"]
    around, until = ranges["parent"].gather(row), steps["end_ns"].gather(stretch)
    # A range that contains several steps, such as an epoch, is not a part of a step, but the ranges in it are.
    is_inside = (ranges["start_ns"].gather(around) >= steps["start_ns"].gather(stretch)) & (
        ranges["end_ns"].gather(around) <= until
    )
    is_part = ~is_inside.fill_null(value=False) & (ranges["end_ns"].gather(row) <= until).fill_null(value=False)
    rows = ranges.select("name", "kind", "start_ns", "is_async", "is_mark")[row.filter(is_part)]
    rows = rows.with_columns(stretch.filter(is_part))
    rows = only(rows, ~_col("is_mark").fill_null(value=False) & ~_col("is_async").fill_null(value=False))
    return rows.select("stretch", _col("name").to_physical(), "start_ns", is_own=of_program(rows))


def _own_begins(steps: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the steps of a thread that have other ranges before the opening. Columns: stretch (the row of the step),
    own_ns (the start of the opening), at (how many ranges come before the opening), usual (how many ranges a step
    usually has)."""
    rows = rows.filter(_col("stretch").is_in(steps["stretch"].implode()))
    openings = rows.group_by("stretch", maintain_order=True).agg(opening=_col("name").head(_OPENING), many=pl.len())
    openings = openings.with_columns(key=_col("opening").cast(pl.List(pl.String)).list.join(","))
    begins = pl.DataFrame(schema={"stretch": ROW_NUMBER, "own_ns": pl.Int64, "at": pl.Int64, "usual": pl.Int64})
    if not openings.height:
        return begins
    common = openings.group_by("key", maintain_order=True).len().sort("len", descending=True, maintain_order=True)
    if common["len"][0] * 2 < openings.height or common["len"][0] < 2:
        return begins
    usual = openings.filter(_col("key") == common["key"][0])
    opening, many = usual["opening"][0].to_list(), float(usual["many"].median())  # type: ignore[arg-type]  # of counts
    if len(opening) < 2:  # one name alone may come anywhere in a step
        return begins
    odd = openings.filter(_col("key") != common["key"][0]).select("stretch", "many")
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
        begins = pl.concat([begins, last.select(begins.columns)])
        left = left.join(last, on="stretch", how="anti", maintain_order="left")
    return begins.filter(_col("at") > 0)


def _is_other(places: pl.DataFrame, rows: pl.DataFrame, ranges: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Returns, for each row of `places`, whether the ranges before the opening are not a part of the step."""
    before = rows.join(places, on="stretch").filter(_col("start_ns") < _col("own_ns"))
    own = before.group_by("stretch").agg(_col("is_own").any())
    facts = places.join(own, on="stretch", how="left", maintain_order="left")
    spans = steps[places["stretch"]].with_columns(end_ns=places["own_ns"])
    backward = ranges.filter(_col("kind").is_in(["backward", "engine"])).select(*PROCESS, "start_ns")
    with_backward = within(backward, "start_ns", spans, PROCESS)["stretch"].unique()
    is_else = facts["is_own"].fill_null(value=False) | (facts["at"] >= _MANY * facts["usual"])
    return is_else & ~pl.int_range(places.height, dtype=ROW_NUMBER, eager=True).is_in(with_backward.implode())
