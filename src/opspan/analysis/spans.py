"""Stretches of time: how long they are, and as sets: what they cover together, and what is on at each moment.

    difference(start, end) -> an expression: from the one time to the other, negative if `end` is earlier
    length(start, end)     -> the same, at least 0
    covered(spans, start_ns, end_ns) -> for each stretch, how much of it `spans` cover: stretches that do not overlap
    union(rows, by) -> *by, start_ns, end_ns: the same time, in stretches that do not touch, in order
    within(rows, time, spans, by) -> row, stretch: which rows of `rows` lie in which rows of `spans`
    layers(spans, by) -> *by, start_ns, end_ns and a Boolean for each of `spans`: the time that any of them covers, in
        stretches in which none of them changes

What is longer than 292 years becomes the largest number; where a time is null, so is what is computed from it.
Rows with no begin, no end or no length cover nothing. `by`: columns that tell one row of time from another (a device, a
process); nulls are a value like any other. Sums over `layers` are what utilisation, overlap and breakdowns are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

_col = pl.col
_START, _END = _col("start_ns"), _col("end_ns")
LEAST, MOST = -(2**63), 2**63 - 1


def difference(start: pl.Expr = _START, end: pl.Expr = _END) -> pl.Expr:
    return bounded(end.cast(pl.Int128) - start.cast(pl.Int128))


def length(start: pl.Expr = _START, end: pl.Expr = _END) -> pl.Expr:
    return difference(start, end).clip(lower_bound=0)


def bounded(number: pl.Expr) -> pl.Expr:
    """Int128 as Int64: what is too large as the largest number, what is too small as the smallest."""
    return number.clip(LEAST, MOST).cast(pl.Int64)


def union(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    spans = rows.select(*by, "start_ns", "end_ns").filter(_col("end_ns") > _col("start_ns"))
    spans = spans.sort(*by, "start_ns")
    until = _col("end_ns").cum_max().shift(1)
    group = spans.select(*by, until=until.over(by) if by else until)["until"]
    is_first = spans["start_ns"] > group
    number = is_first.fill_null(value=True).cum_sum().alias("number")
    return (
        spans.group_by(number, maintain_order=True)
        .agg(*(_col(name).first() for name in (*by, "start_ns")), _col("end_ns").max())
        .drop("number")
    )


def layers(spans: Mapping[str, pl.DataFrame], by: Sequence[str], cuts: pl.DataFrame | None = None) -> pl.DataFrame:
    """`cuts`: *by, time_ns; a stretch ends at each of them, too."""
    changes = []
    for number, rows in enumerate(spans.values()):
        covered = union(rows, by)
        for time, change in (("start_ns", 1), ("end_ns", -1)):
            changes.append(covered.select(*by, time_ns=time, layer=pl.lit(number), change=pl.lit(change)))
    if cuts is not None:
        changes.append(cuts.select(*by, "time_ns", layer=pl.lit(-1), change=pl.lit(0)).drop_nulls("time_ns"))
    all_changes = pl.concat(changes).sort(*by, "time_ns")
    # Every stretch that begins for a value of `by` ends for it: sums are back at 0 where the next value begins.
    on = [
        (pl.when(_col("layer") == number).then("change").otherwise(0).cum_sum() > 0).alias(name)
        for number, name in enumerate(spans)
    ]
    times = (_col("time_ns").alias("start_ns"), _col("time_ns").shift(-1).alias("end_ns"))
    found = all_changes.select(*by, *times, *on)
    return found.filter(pl.any_horizontal(*spans), _col("end_ns") > _col("start_ns"))


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
