"""Matches collectives over ranks: which rows are one collective, how long it took, and which rank waited for which.
A *place* is a device of a process, or a process if devices are unknown.

    matched(rows) -> a row for each of `rows`, in order:
        number (Int64): position of the row, in order of time and from 0, among the rows of the same group, kind and
            place; null if its start is unknown.
        match (Int64): equal for all rows of one collective; null if no other row belongs to it.
        ranks (Int64): how many rows belong to the collective.
        transfer_ns (Int64): the shortest time of its rows: the rank that comes last does not wait.
        waiting_ns (Int64): the row's own time minus transfer_ns.
        is_last (Boolean): whether the row came last: it has the shortest time. If several rows have the shortest time,
            the row among them that began last came last.
        unmatched (String): why the row has no match:
            alone: no other place has a row of its group.
            peers unknown: a send or a receive whose other side is unknown.
            groups unknown: there are several groups, and the trace does not show the group of each row.
            counts differ: places have different numbers of rows, and it is not clear which rows belong together.
            at other times: the rows that would match do not overlap in time.
            unknown: its start or its kind is unknown.

`rows` come from `collectives`. Rows of one group are matched in one of three ways:

- By torch's sequence number, if all rows of the group have one. Sends and receives are not matched by it, because each
  rank counts its own.
- In order, if all places have the same number of rows of each kind and size. The n-th rows of each kind and size belong
  together. A kind is ignored if any place lacks it.
- By shifting. Files may begin and end at different times, so each place is compared with the place that has the most
  rows. The two places' sequences of kinds and sizes are shifted so that they agree where they overlap, and overlap as
  much as possible. If several shifts agree, the clocks decide.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from opspan.analysis.collective_names import TOGETHER
from opspan.analysis.spans import DEVICE
from opspan.tables.cycles import COLUMN

_col = pl.col
_SIDES = ("send", "recv", "send_recv")
# In collectives of these kinds, `bytes` is the same on all ranks.
_EQUAL = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
_MOST_SHIFTS = 4096
_MOST_APART = 0.1
# The clocks decide for a shift only if it makes the ends of collectives agree this many times better than other shifts.
_NEARER = 3


def matched(rows: pl.DataFrame, *, trusts_clocks: bool = True) -> pl.DataFrame:
    """Returns the matches. `trusts_clocks` tells whether times of different places may be compared."""
    if COLUMN in rows.columns:
        return _match_in_cycles(rows, trusts_clocks)
    keyed = _add_keys(rows)
    matches = pl.concat([_by_seq(keyed), *_by_order(keyed, trusts_clocks)])
    keyed = keyed.join(matches, on="row", how="left", maintain_order="left")
    keyed = keyed.with_columns(match=pl.when(pl.len().over("match") > 1).then("match"))
    keyed = keyed.with_columns(is_apart=_is_apart())
    keyed = _with_times(keyed.with_columns(match=pl.when(~_col("is_apart")).then("match")))
    keyed = keyed.with_columns(unmatched=pl.when(_col("match").is_null()).then(_why()))
    return keyed.select("number", "match", "ranks", "transfer_ns", "waiting_ns", "is_last", "unmatched")


def _match_in_cycles(rows: pl.DataFrame, trusts_clocks: bool) -> pl.DataFrame:
    """Matches each cycle of the profiler's schedule separately, because rows are counted from 0 again in each cycle,
    and ranks do not wait for each other across cycles."""
    at = rows.select(COLUMN).with_row_index("row")
    parts, first = [], 0
    for some in at.partition_by(COLUMN, maintain_order=True):
        one = matched(rows[some["row"]].drop(COLUMN), trusts_clocks=trusts_clocks)
        highest = one["match"].max()
        parts.append(one.with_columns(_col("match") + first, row=some["row"]))
        first += highest + 1 if isinstance(highest, int) else 0
    if not parts:
        return matched(rows.drop(COLUMN), trusts_clocks=trusts_clocks)
    return pl.concat(parts).sort("row").drop("row")


def _add_keys(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds columns of numbers. `place` is the row's place. `key` stands for its group, and `what` for its kind: rows
    can match only if `key` and `what` are equal. `size` is -1 if it is unknown or may differ between ranks."""
    is_side = _col("kind").is_in(_SIDES)
    rows = rows.with_row_index("row").with_columns(
        place=pl.struct(DEVICE).rank("dense").cast(pl.Int64),
        source=pl.when(_col("kind") == "send").then(pl.coalesce("source", "own_rank")).otherwise("source"),
        target=pl.when(_col("kind") == "recv").then(pl.coalesce("target", "own_rank")).otherwise("target"),
        is_side=is_side.fill_null(value=False),
    )
    is_known = _col("start_ns").is_not_null() & _col("kind").is_not_null()
    is_pair = (_col("source") != _col("target")).fill_null(value=False)
    # The stream tells groups without a name apart, because a program creates its streams in the same order on all
    # ranks.
    stream = _col("stream_id").rank("dense").over("place", _col("group").is_null())
    key = pl.struct(
        "group",
        "members",
        "is_side",
        stream=pl.when(_col("group").is_null()).then(stream.fill_null(0)),
        source=pl.when("is_side").then("source"),
        target=pl.when("is_side").then("target"),
    )
    what = pl.when("is_side").then(pl.lit("send and recv")).otherwise("kind")
    size = pl.when(_col("kind").is_in(_EQUAL)).then("bytes").fill_null(-1)
    # If places use different numbers of streams, it is unknown which streams of two places belong together.
    streams = stream.max().over("place", _col("group").is_null())
    is_one_group = _col("group").is_not_null() | (
        streams.max().over(_col("group").is_null()) == streams.min().over(_col("group").is_null())
    ).fill_null(value=True)
    rows = rows.with_columns(
        can=is_known & (~_col("is_side") | is_pair) & is_one_group,
        is_one_group=is_one_group,
        key=key.rank("dense").cast(pl.Int64),
        what=what.rank("dense").fill_null(0).cast(pl.Int64),
        size=size,
    )
    rows = rows.sort("start_ns", "row", nulls_last=True)
    nth = pl.int_range(pl.len(), dtype=pl.Int64).over("key", "kind", "place")
    return rows.with_columns(number=pl.when(_col("start_ns").is_not_null()).then(nth)).sort("row")


def _is_apart() -> pl.Expr:
    """Returns, for each row, whether its match cannot be trusted: its group has no name, and of all rows with its key,
    more than one in ten have a wrong match. So these rows belong to several groups. A match is wrong if one of
    its rows ended before another one began, on two devices of the same rank."""
    at = ("match", "rank")
    is_over = _col("end_ns").min().over(at) < _col("start_ns").max().over(at)
    can_tell = _col("group").is_null() & _col("kind").is_in(TOGETHER) & _col("match").is_not_null()
    share = (is_over & can_tell).mean().over("key")
    return (share > _MOST_APART).fill_null(value=False) & _col("group").is_null()


def _by_seq(rows: pl.DataFrame) -> pl.DataFrame:
    """Matches rows by torch's sequence number, in groups whose rows all have one."""
    same = pl.struct("key", "what", "seq").rank("dense").cast(pl.Int64)
    return rows.filter("can").filter(_is_counted()).select("row", match=same * 2)


def _is_counted() -> pl.Expr:
    is_once = pl.struct("key", "place", "seq").is_unique()
    return (_col("seq").is_not_null() & is_once & ~_col("is_side")).all().over("key")


def _by_order(rows: pl.DataFrame, trusts_clocks: bool) -> list[pl.DataFrame]:
    rest = rows.filter("can").filter(~_is_counted()).filter(_col("place").n_unique().over("key") > 1)
    if not rest.height:
        return []
    # A place may not have recorded some kinds at all, so only kinds that all places have must agree.
    everywhere = _col("place").n_unique().over("key", "what") == _col("place").n_unique().over("key")
    rest = rest.filter(everywhere)
    one = ("key", "what", "size")
    counts = rest.group_by(*one, "place").len().group_by(one).agg(places=pl.len(), is_equal=_col("len").n_unique() == 1)
    places = rest.group_by("key").agg(of=_col("place").n_unique())
    is_equal = (_col("is_equal") & (_col("places") == _col("of"))).all()
    equal = counts.join(places, on="key").group_by("key").agg(is_equal=is_equal)
    rest = rest.join(equal, on="key", maintain_order="left")
    nth = pl.int_range(pl.len(), dtype=pl.Int64).over(*one, "place", order_by=["start_ns", "row"])
    alike = rest.filter("is_equal").with_columns(nth=nth)
    matches = [alike.select("row", match=pl.struct(*one, "nth").rank("dense").cast(pl.Int64) * 2 + 1)]
    base = 2 * rows.height + 2
    for (key,), some in rest.filter(~_col("is_equal")).partition_by("key", as_dict=True).items():
        matches.append(_lay_along(some, base + 2 * int(str(key)) * rows.height, trusts_clocks))
    return matches


def _lay_along(rows: pl.DataFrame, base: int, trusts_clocks: bool) -> pl.DataFrame:
    """Matches each place with the place that has the most rows, by shifting. All `rows` have the same `key`."""
    parts = {place: some.sort("start_ns", "row") for (place,), some in rows.partition_by("place", as_dict=True).items()}
    longest = max(parts.values(), key=lambda some: (some.height, -int(some["place"][0])))
    matches = [longest.select("row", match=pl.int_range(pl.len(), dtype=pl.Int64) + base)]
    for some in parts.values():
        if some is longest:
            continue
        shift = offset(_columns(longest), _columns(some), trusts_clocks=trusts_clocks)
        if shift is not None:
            at = pl.int_range(pl.len(), dtype=pl.Int64) + shift
            laid = some.select("row", match=pl.when(at.is_between(0, longest.height - 1)).then(at + base))
            matches.append(laid.drop_nulls("match"))
    return pl.concat(matches)


def _columns(rows: pl.DataFrame) -> tuple[pl.Series, pl.Series, pl.Series]:
    return rows["what"], rows["size"], rows.select(pl.coalesce("end_ns", "start_ns")).to_series()


def offset(long: Any, short: Any, *, trusts_clocks: bool = True) -> int | None:
    """Returns the position in `long` that matches the first row of `short`. It is negative if `short` begins before
    `long`, and None if it is unknown. `long` and `short` each have the columns what, size and end."""
    (what, size, end), (other_what, other_size, other_end) = long, short
    many, few = len(what), len(other_what)
    least = (few + 1) // 2
    # Longer overlaps come first: at the first shifts, all of `short` lies within `long`. At later shifts, less and less
    # of `short` does.
    inside = range(many - few + 1)
    beyond = [shift for out in range(1, few - least + 1) for shift in (-out, many - few + out)]
    agreeing: list[int] = []
    overlap = 0
    for shift in [*inside, *beyond][:_MOST_SHIFTS]:
        begin, until = max(0, -shift), min(few, many - shift)
        if agreeing and until - begin < overlap:
            break
        mine, its = slice(begin, until), slice(begin + shift, until + shift)
        if _agree(what[its], size[its], other_what[mine], other_size[mine]):
            agreeing.append(shift)
            overlap = until - begin
    if len(agreeing) < 2:
        return agreeing[0] if agreeing else None
    if not trusts_clocks:
        return None
    apart = sorted((_apart(end, other_end, shift), shift) for shift in agreeing)
    return apart[0][1] if apart[0][0] * _NEARER < apart[1][0] else None


def _agree(what: pl.Series, size: pl.Series, other_what: pl.Series, other_size: pl.Series) -> bool:
    if not what.head(64).equals(other_what.head(64)) or not what.equals(other_what):
        return False
    return bool(((size == other_size) | (size < 0) | (other_size < 0)).all())


def _apart(end: pl.Series, other_end: pl.Series, shift: int) -> float:
    """Returns the median difference between the ends of rows that would match. It is small if they do match, because
    all ranks end a collective at about the same time."""
    begin, until = max(0, -shift), min(len(other_end), len(end) - shift)
    ends, others = end.slice(begin + shift, until - begin), other_end.slice(begin, until - begin)
    return float((ends.cast(pl.Float64) - others).abs().median())  # type: ignore[arg-type]  # a number


def _with_times(rows: pl.DataFrame) -> pl.DataFrame:
    is_matched = _col("match").is_not_null()
    # The rank that came last did not wait, so its row has the shortest time. If several rows have it, the row
    # among them that began last came last.
    shortest = _col("time_ns").min().over("match")
    is_shortest = (_col("time_ns") == shortest).fill_null(value=False)
    rows = rows.with_columns(is_shortest=is_shortest, order=pl.struct("start_ns", "row").rank("ordinal"))
    last = pl.when("is_shortest").then("order").max().over("match")
    is_known = is_matched & shortest.is_not_null()
    return rows.with_columns(
        ranks=pl.when(is_matched).then(pl.len().over("match")).cast(pl.Int64),
        transfer_ns=pl.when(is_matched).then(shortest),
        waiting_ns=pl.when(is_matched).then(_col("time_ns") - shortest),
        is_last=pl.when(is_known).then(_col("is_shortest") & (_col("order") == last)),
    )


def _why() -> pl.Expr:
    reasons = {
        "unknown": _col("start_ns").is_null() | _col("kind").is_null(),
        "groups unknown": ~_col("is_one_group"),
        "peers unknown": ~_col("can"),
        "alone": _col("place").filter(_col("can")).n_unique().over("key") == 1,
        "at other times": _col("is_apart"),
    }
    first = (pl.when(is_so).then(pl.lit(reason)) for reason, is_so in reasons.items())
    return pl.coalesce(*first, pl.lit("counts differ"))
