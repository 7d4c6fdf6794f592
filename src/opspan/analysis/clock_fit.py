"""Finds the shift that makes calls nest in the ranges of their thread.

    nesting_shift(calls, ranges, most_ns) -> ns to add to the times of all calls.

While a thread is in a call, it cannot start or end a range. A range crosses a call if one end of the range is inside
the call, and the other end is outside. That shows that the clocks of ranges and calls differ. Tools convert the times
of calls from a counter of the processor, sometimes with an error of one microsecond, or of 20 microseconds on a busy
machine. This error is longer than the time from the start of an op to its launch. The shift is 0 if no range crosses a
call. It is also 0 if more than a tenth of the crossings would remain, because then the cause is not the clocks.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import length, within

_col = pl.col
_THREAD = ("pid", "tid")
_SHORTEST = 1_000  # ns; shorter calls are not used
_LEFT = 0.1  # if more than this share of the crossings would remain, the shift is 0


def nesting_shift(calls: pl.DataFrame, ranges: pl.DataFrame, most_ns: int) -> int:
    """Returns the shift, at most `most_ns` in each direction, that leaves the fewest crossings of ranges and calls.
    Returns 0 if too many crossings remain. If several shifts are equally good, compares the two that are nearest to 0,
    one in each direction. Returns the one with more calls inside ranges, or the one nearer
    to 0 if these numbers are equal."""
    calls, ranges = (rows.select(*_THREAD, "start_ns", "end_ns").drop_nulls() for rows in (calls, ranges))
    calls = _one_after_another(calls)
    near = calls.with_columns(start_ns=_col("start_ns") - most_ns, end_ns=_col("end_ns") + most_ns)
    crossings = pl.concat(_crossings(calls, ranges, near, time) for time in ("start_ns", "end_ns"))
    if not crossings.height or not crossings.select(((_col("since") < 0) & (_col("until") > 0)).any()).item():
        return 0
    # A call that is moved by exactly `since` or `until` touches the start or end of the range, but the range does not
    # cross it.
    moves = pl.concat([crossings["since"], crossings["until"], pl.Series([0])]).unique()
    moves = moves.filter(moves.is_between(-most_ns, most_ns))
    begun = crossings["since"].sort().search_sorted(moves, side="left").cast(pl.Int64)
    ended = crossings["until"].sort().search_sorted(moves, side="right").cast(pl.Int64)
    counts = pl.DataFrame({"move": moves, "crossed": begun - ended, "far": moves.abs()})
    fewest = counts.filter(_col("crossed") == _col("crossed").min()).sort("far")
    if fewest["crossed"][0] > _LEFT * counts.filter(_col("move") == 0)["crossed"][0]:
        return 0
    sides = [fewest.filter(side).head(1) for side in (_col("move") <= 0, _col("move") > 0)]
    moves_by_rank = [(-_inside(calls, ranges, move), far, move) for side in sides for move, _, far in side.iter_rows()]
    return int(min(moves_by_rank)[-1])


def _one_after_another(calls: pl.DataFrame) -> pl.DataFrame:
    """Returns the calls that begin after all earlier calls of their thread have ended. Very short calls are left out
    first, so that few of the remaining calls are close to each other."""
    calls = calls.filter(length() >= _SHORTEST).sort(*_THREAD, "start_ns")
    done = _col("end_ns").cum_max().shift(1).over(_THREAD)
    return calls.filter((_col("start_ns") >= done).fill_null(value=True))


def _inside(calls: pl.DataFrame, ranges: pl.DataFrame, move: int) -> int:
    """Returns how many calls lie in a range after all calls are moved by `move` ns."""
    moved = calls.with_columns(_col("start_ns", "end_ns") + move)
    pairs = within(moved, "start_ns", ranges, _THREAD)
    ends = moved["end_ns"].gather(pairs["row"]) <= ranges["end_ns"].gather(pairs["stretch"])
    return pairs["row"].filter(ends).n_unique()


def _crossings(calls: pl.DataFrame, ranges: pl.DataFrame, near: pl.DataFrame, time: str) -> pl.DataFrame:
    """Returns the bounds `since` and `until` for each pair of a call and a range whose `time` (start_ns or end_ns) is
    near the call. The range crosses the call if the call is moved by more than `since` and less than `until`."""
    pairs = within(ranges, time, near, _THREAD)
    call, one = calls[pairs["stretch"]], ranges[pairs["row"]]
    rows = one.select("start_ns", "end_ns", called=call["start_ns"], returned=call["end_ns"])
    if time == "start_ns":
        until = pl.min_horizontal(_col("start_ns") - _col("called"), _col("end_ns") - _col("returned"))
        moves = rows.select(since=_col("start_ns") - _col("returned"), until=until)
        return moves.filter(_col("until") > _col("since"))
    since = pl.max_horizontal(_col("start_ns") - _col("called"), _col("end_ns") - _col("returned"))
    return rows.select(since=since, until=_col("end_ns") - _col("called")).filter(_col("until") > _col("since"))
