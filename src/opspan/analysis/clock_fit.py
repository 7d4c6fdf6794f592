"""By how much calls have to be moved so that they lie in ranges of their thread as code lies in code.

    nested_by(calls, ranges) -> ns: to add to the times of all calls

A thread that is in a call begins and ends no range: a range's begin or end inside of a call says that the clocks of the
two are apart. Tools convert the times of calls from a counter of the processor, and are wrong by a microsecond now and
then, on a busy machine by 20, which is more than lies between an op's begin and that of its launch. Where nothing is
known to be wrong nothing is moved. Nor is it where more than a tenth of what is crossed would stay so: then something
else than the clocks is wrong.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import length, within

_col = pl.col
_THREAD = ("pid", "tid")
_SHORTEST = 1_000  # ns
_LEFT = 0.1  # of what is crossed without a move


def nested_by(calls: pl.DataFrame, ranges: pl.DataFrame, most_ns: int) -> int:
    """Returns the move, up to `most_ns`, with which the fewest calls have a range's begin or end inside, if those are
    hardly any; of several the one with which most calls lie in a range, and of these the least."""
    calls, ranges = (rows.select(*_THREAD, "start_ns", "end_ns").drop_nulls() for rows in (calls, ranges))
    calls = _one_after_another(calls)
    near = calls.with_columns(start_ns=_col("start_ns") - most_ns, end_ns=_col("end_ns") + most_ns)
    crossings = pl.concat(_crossings(calls, ranges, near, time) for time in ("start_ns", "end_ns"))
    if not crossings.height or not crossings.select(((_col("since") < 0) & (_col("until") > 0)).any()).item():
        return 0
    # At a move that is equal to `since` or `until` the call touches the range, and crosses it no more.
    moves = pl.concat([crossings["since"], crossings["until"], pl.Series([0])]).unique()
    moves = moves.filter(moves.is_between(-most_ns, most_ns))
    begun = crossings["since"].sort().search_sorted(moves, side="left").cast(pl.Int64)
    ended = crossings["until"].sort().search_sorted(moves, side="right").cast(pl.Int64)
    counts = pl.DataFrame({"move": moves, "crossed": begun - ended, "far": moves.abs()})
    fewest = counts.filter(_col("crossed") == _col("crossed").min()).sort("far")
    if fewest["crossed"][0] > _LEFT * counts.filter(_col("move") == 0)["crossed"][0]:
        return 0
    sides = [fewest.filter(side).head(1) for side in (_col("move") <= 0, _col("move") > 0)]
    found = [(-_inside(calls, ranges, move), far, move) for side in sides for move, _, far in side.iter_rows()]
    return int(min(found)[-1])


def _one_after_another(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that begin when all earlier ones of their thread are done. None is shorter than calls of a driver are,
    so few are near one another."""
    calls = calls.filter(length() >= _SHORTEST).sort(*_THREAD, "start_ns")
    done = _col("end_ns").cum_max().shift(1).over(_THREAD)
    return calls.filter((_col("start_ns") >= done).fill_null(value=True))


def _inside(calls: pl.DataFrame, ranges: pl.DataFrame, move: int) -> int:
    """How many calls lie in a range when all are moved."""
    moved = calls.with_columns(_col("start_ns", "end_ns") + move)
    pairs = within(moved, "start_ns", ranges, _THREAD)
    ends = moved["end_ns"].gather(pairs["row"]) <= ranges["end_ns"].gather(pairs["stretch"])
    return pairs["row"].filter(ends).n_unique()


def _crossings(calls: pl.DataFrame, ranges: pl.DataFrame, near: pl.DataFrame, time: str) -> pl.DataFrame:
    """Returns, for each begin or end of a range near a call, between which moves of the call it would lie inside, with
    the range's other end outside."""
    pairs = within(ranges, time, near, _THREAD)
    call, one = calls[pairs["stretch"]], ranges[pairs["row"]]
    rows = one.select("start_ns", "end_ns", called=call["start_ns"], returned=call["end_ns"])
    if time == "start_ns":
        until = pl.min_horizontal(_col("start_ns") - _col("called"), _col("end_ns") - _col("returned"))
        found = rows.select(since=_col("start_ns") - _col("returned"), until=until)
        return found.filter(_col("until") > _col("since"))
    since = pl.max_horizontal(_col("start_ns") - _col("called"), _col("end_ns") - _col("returned"))
    return rows.select(since=since, until=_col("end_ns") - _col("called")).filter(_col("until") > _col("since"))
