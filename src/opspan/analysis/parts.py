"""Defines the parts of an answer: small frames of one rank that can be put together with those of other ranks.

    Part(rows): rows of several ranks are concatenated.
    Part(rows, key): rows with equal keys become one row; `rules` says how, and columns without a rule are summed.
    together(parts) -> Part: puts the parts of several ranks together, in their order.
    move(part, ranks, shift_ns) -> Part: gives ranks other numbers, and moves times to another clock.
    shift_times(part, shifts) -> Part: moves the times of each rank by a shift of its own.
    count_values(rows, key, value) -> Part: replaces the values by how often each value occurs.
    medians(part, key, name): the medians of values that were counted.

A module in views/ computes its answer with two functions: `parts` computes the parts of one trace. `rows` makes the
answer from the parts of one trace, or from those of many files, put together. So one definition is enough for one file
and for many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from opspan.analysis.spans import bounded
from opspan.tables.clocks import Shift, times

_col = pl.col
# if a part has more different values than this, they are rounded to three digits to limit the memory
MOST_VALUES = 100_000
_DIGITS = 3
COLLECTIVES = "collectives"  # name of the part that has a row for each collective of each rank
_COUNT = "values"


@dataclass(frozen=True)
class Part:
    rows: pl.DataFrame
    key: tuple[str, ...] | None = None
    # the rule (a key of RULES) for each column; columns without a rule are summed
    rules: Mapping[str, str] = field(default_factory=dict)
    times: tuple[str, ...] = ()  # columns that are timestamps
    value: str | None = None  # the column whose values `count_values` has counted


Parts = dict[str, Part]

# Unlike polars' sum, the sum of nothing but nulls is null, not 0.
_SUM = "sum"
RULES: dict[str, Callable[[str], pl.Expr]] = {
    _SUM: lambda name: pl.when(_col(name).is_not_null().any()).then(_col(name).sum()),
    "most": lambda name: _col(name).max(),
    "least": lambda name: _col(name).min(),
    "any": lambda name: pl.when(_col(name).is_not_null().any()).then(_col(name).any()),
    "all": lambda name: _col(name).all(),
    "first": lambda name: _col(name).drop_nulls().first(),
    "all of them": lambda name: _col(name).explode().unique(maintain_order=True).implode(),
}


def together(parts: Sequence[Part], *, again: bool = False) -> Part:
    """Puts parts together. Rows with new keys come after those of earlier ranks. With `again`, rows with equal keys are
    merged even if there is only one part."""
    first = parts[0]
    if len(parts) == 1 and not again:
        return first
    frames = [part.rows for part in parts if part.rows.height] or [first.rows]
    rows = pl.concat(frames, how="diagonal_relaxed", rechunk=True)
    if first.key is not None:
        rows = _sum(rows, first)
    if first.value is not None and rows.height > MOST_VALUES:
        rows = _sum(rows.with_columns(_col(first.value).round_sig_figs(_DIGITS)), first)
    return replace(first, rows=rows)


def _sum(rows: pl.DataFrame, part: Part) -> pl.DataFrame:
    key = list(part.key or ())
    rest = [name for name in rows.columns if name not in key]
    sums = [_rule(part.rules.get(name, _SUM), name, rows.schema[name]) for name in rest]
    grouped = rows.group_by(key, maintain_order=True).agg(sums) if key else rows.select(sums)
    return grouped.select(rows.columns)


def _rule(rule: str, name: str, dtype: pl.DataType) -> pl.Expr:
    if rule == _SUM and dtype == pl.Int64:
        return pl.when(_col(name).is_not_null().any()).then(bounded(_col(name).cast(pl.Int128).sum())).alias(name)
    return RULES[rule](name).alias(name)


def move(part: Part, ranks: Mapping[int, int], shift_ns: int = 0) -> Part:
    """Gives ranks new numbers and moves times. `ranks` maps old numbers to new ones; `shift_ns` is added to the
    times."""

    def number(rank: pl.Expr) -> pl.Expr:
        return rank.replace(list(ranks), list(ranks.values()))

    is_other = any(before != after for before, after in ranks.items())
    changes = [number(_col("rank"))] if is_other and "rank" in part.rows.columns else []
    changes += [_col(name) + shift_ns for name in part.times] if shift_ns else []
    # Rows of findings have lists of ranks and of ranges. The ranks and times in these lists change, too.
    if is_other and part.rows.schema.get("ranks") == pl.List(pl.Int32):
        changes.append(_col("ranks").list.eval(number(pl.element())))
    if (is_other or shift_ns) and isinstance(part.rows.schema.get("ranges"), pl.List):
        fields = [number(pl.field("rank")), *(pl.field(name) + shift_ns for name in ("start_ns", "end_ns"))]
        changes.append(_col("ranges").list.eval(pl.element().struct.with_fields(fields)))
    return replace(part, rows=part.rows.with_columns(changes)) if changes else part


def shift_times(part: Part, shifts: Mapping[int, Shift]) -> Part:
    schema = part.rows.schema
    changes = [times(_col(name), shifts) for name in part.times if "rank" in schema]
    if isinstance(schema.get("ranges"), pl.List):
        fields = [times(pl.field(name), shifts, pl.field("rank")) for name in ("start_ns", "end_ns")]
        changes.append(_col("ranges").list.eval(pl.element().struct.with_fields(fields)))
    return replace(part, rows=part.rows.with_columns(changes)) if changes and shifts else part


def count_values(rows: pl.DataFrame, key: Sequence[str], value: str) -> Part:
    """Returns how often each known value occurs in each group; `key` has the columns that form a group."""
    known = rows.drop_nulls(value)
    counts = known.group_by(*key, value, maintain_order=True).agg(pl.len().cast(pl.Int64).alias(_COUNT))
    return Part(counts, (*key, value), value=value)


def medians(part: Part, key: Sequence[str], name: str) -> pl.DataFrame:
    """Returns a row for each group: the columns of the key, and the median of the counted values in a column called
    `name`."""
    value = str(part.value)
    rows = part.rows.sort(value)
    over = _col(_COUNT).cum_sum().over(key) if key else _col(_COUNT).cum_sum()
    total = _col(_COUNT).sum().over(key) if key else _col(_COUNT).sum()
    rows = rows.with_columns(until=over, total=total)
    before = _col("until") - _col(_COUNT)
    # The median of an even number of values is the mean of the two in the middle.
    low, high = (_col("total") - 1) // 2, _col("total") // 2
    at = [_col(value).filter((before <= place) & (place < _col("until"))).first() for place in (low, high)]
    middle = ((at[0] + at[1].cast(pl.Float64)) / 2).alias(name)
    return rows.group_by(key, maintain_order=True).agg(middle) if key else rows.select(middle)
