"""Stretches of time: how long they are, and what they cover together.

    difference(start, end) -> an expression: from the one time to the other, negative if `end` is earlier
    length(start, end)     -> the same, at least 0
    covered(spans, start_ns, end_ns) -> for each stretch, how much of it `spans` cover: stretches that do not overlap
    union(rows, by) -> *by, start_ns, end_ns: the same time, in stretches that do not touch, in order
    within(rows, time, spans, by) -> row, stretch: which rows of `rows` lie in which rows of `spans`
    time_in(rows, spans, by) -> for each of `spans`, how much of it `rows` cover together

What is longer than 292 years becomes the largest number; where a time is null, so is what is computed from it.
Rows with no begin, no end or no length cover nothing. `by`: columns that tell one row of time from another (a device, a
process); nulls are a value like any other. What several sets have in common is a difference of what they cover
together: utilisation, overlaps and breakdowns are found without a look at each moment.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from opspan.analysis.nest import is_one

_col = pl.col
_START, _END = _col("start_ns"), _col("end_ns")
PROCESS = ("rank", "pid")  # whose time it is, mostly
DEVICE = (*PROCESS, "device_id")
LEAST, MOST = -(2**63), 2**63 - 1


def difference(start: pl.Expr = _START, end: pl.Expr = _END) -> pl.Expr:
    return bounded(end.cast(pl.Int128) - start.cast(pl.Int128))


def length(start: pl.Expr = _START, end: pl.Expr = _END) -> pl.Expr:
    return difference(start, end).clip(lower_bound=0)


def bounded(number: pl.Expr) -> pl.Expr:
    """Int128 as Int64: what is too large as the largest number, what is too small as the smallest."""
    return number.clip(LEAST, MOST).cast(pl.Int64)


def union(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    return pl.concat([_with_key(_union(some), by, key, rows) for key, some in apart(rows, by).items()])


def time_in(rows: pl.DataFrame, spans: pl.DataFrame, by: Sequence[str]) -> pl.Series:
    each = spans.select(*by, "start_ns", "end_ns").with_row_index("number").partition_by(by, as_dict=True)
    parts = apart(rows, by)
    found = [pl.DataFrame(schema={"number": pl.UInt32, "ns": pl.Int64})]
    for key, some in each.items():
        whole = _union(parts[key]) if key in parts else rows.clear().select("start_ns", "end_ns")
        found.append(some.select("number", ns=covered(whole, some["start_ns"], some["end_ns"])))
    return pl.concat(found).sort("number")["ns"]


def apart(rows: pl.DataFrame, by: Sequence[str]) -> dict[tuple[object, ...], pl.DataFrame]:
    """By what tells them apart: the time of one device, say, is sorted and summed by itself. At least one is there."""
    if not rows.height:
        return {(None,) * len(by): rows}
    if all(is_one(rows, _col(name)) for name in by):
        return {rows.select(by).row(0) if by else (): rows}
    return rows.partition_by(by, as_dict=True)


def _with_key(found: pl.DataFrame, by: Sequence[str], key: tuple[object, ...], like: pl.DataFrame) -> pl.DataFrame:
    columns = (pl.lit(value, dtype=like.schema[name]).alias(name) for name, value in zip(by, key, strict=True))
    return found.select(*columns, pl.all())


def _union(spans: pl.DataFrame) -> pl.DataFrame:
    spans = spans.select("start_ns", "end_ns").filter(_END > _START).sort("start_ns")
    is_first = (_END.cum_max().shift(1) < _START).fill_null(value=True)
    # The last end of a stretch is that of all before the next one begins.
    begins = spans.select("start_ns", until=_END.cum_max(), is_first=is_first)
    is_last = begins["is_first"].shift(-1, fill_value=True)
    return pl.DataFrame(
        {"start_ns": begins["start_ns"].filter(begins["is_first"]), "end_ns": begins["until"].filter(is_last)}
    )


def within(rows: pl.DataFrame, time: str, spans: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Pairs of row numbers, those of a stretch in order of `time`; where stretches overlap, a row is in several."""
    parts = []
    at = rows.select(*by, time, row=pl.int_range(pl.len(), dtype=pl.UInt32)).drop_nulls(time)
    stretches = spans.select(*by, "start_ns", "end_ns", stretch=pl.int_range(pl.len(), dtype=pl.UInt32))
    asked = stretches.partition_by(by, as_dict=True)
    for key, some in at.partition_by(by, as_dict=True).items():
        if (those := asked.get(key)) is None:
            continue
        some = some.sort(time, maintain_order=True)
        first = some[time].search_sorted(those["start_ns"], side="left")
        past = some[time].search_sorted(those["end_ns"], side="left")
        pairs = those.select("stretch", place=pl.int_ranges(first, pl.max_horizontal(first, past))).explode("place")
        pairs = pairs.drop_nulls("place")
        parts.append(pl.DataFrame({"row": some["row"].gather(pairs["place"]), "stretch": pairs["stretch"]}))
    return pl.concat([pl.DataFrame(schema={"row": pl.UInt32, "stretch": pl.UInt32}), *parts])


def covered(spans: pl.DataFrame, start_ns: pl.Series, end_ns: pl.Series) -> pl.Series:
    """`spans`: start_ns, end_ns, as `union` gives them."""
    part = _covered_until(spans, end_ns) - _covered_until(spans, start_ns)
    return part.to_frame("covered").select(bounded(_col("covered").clip(lower_bound=0)))["covered"]


def _covered_until(spans: pl.DataFrame, times: pl.Series) -> pl.Series:
    """For each time how much is covered before it."""
    begins, ends = spans["start_ns"], spans["end_ns"].cast(pl.Int128)
    begun = begins.search_sorted(times.fill_null(0), side="right")
    of_begun = pl.concat([pl.Series([0], dtype=pl.Int128), (ends - begins.cast(pl.Int128)).cum_sum()])
    last_end = pl.concat([pl.Series([LEAST], dtype=pl.Int128), ends])
    after = (last_end.gather(begun) - times.cast(pl.Int128)).clip(lower_bound=0)
    return of_begun.gather(begun) - after
