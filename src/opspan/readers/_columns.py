"""What readers of tables do alike: leave out rows without a time, texts by number, names of enumerations, labels.

What is odd in a column is made null and counted here, so that the translations need not look. Not here: which table or
column means what.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from opspan.labels import Kind, parse_column
from opspan.trace import Issues
from opspan.trace.schema import Dtype

# Further from a clock's zero than this is no time: 146 years. Differences of two times stay within 64 bits.
FAR_NS = 1 << 62

OWN_DOMAIN = "opspan"
# Where a text may be a label of torch's or ours, beside the default domain. Elsewhere text is only text.
LABELLED_DOMAINS = (OWN_DOMAIN, "PyTorch", "pytorch")
# Kinds whose 64-bit payload is the user's; that of the others is a sequence number.
USERS_KINDS = (int(Kind.USER), int(Kind.MODULE), int(Kind.STEP))

LABEL = ("name", "text", "kind", "seq", "op_id", "forward_tid", "class_name", "args", "sizes", "input_op_ids")


def in_time(frame: pl.DataFrame, table: str, issues: Issues) -> pl.DataFrame:
    """Start and end as start_ns and end_ns, without the rows whose start is no time."""
    start = pl.col("start")
    known = is_time(start)
    if "end" in frame.columns:  # where the tool's buffers overflowed, both times are zero
        known &= ~((start == 0) & (pl.col("end") == 0)).fill_null(value=False)
    sound = frame.select(known.fill_null(value=False).alias("known")).to_series()
    if not sound.all():
        issues.add("no_time", frame.height - int(sound.sum()), table)
        frame = frame.filter(sound)
    if "end" not in frame.columns:
        return frame.rename({"start": "start_ns"})
    backward = frame.select((pl.col("end") < start) | ~is_time(pl.col("end"))).to_series().fill_null(value=False)
    if backward.any():
        issues.add("negative_duration", int(backward.sum()), table)
        frame = frame.with_columns(pl.when(~backward).then("end"))
    return frame.rename({"start": "start_ns", "end": "end_ns"})


def is_time(column: pl.Expr) -> pl.Expr:
    return (column > -FAR_NS) & (column < FAR_NS)


def narrow(frame: pl.DataFrame, table: str, dtypes: Mapping[str, Dtype], issues: Issues) -> pl.DataFrame:
    """The frame with numbers in their narrower types; those that do not fit are null."""
    for name, dtype in dtypes.items():
        if name not in frame.columns or frame[name].dtype == dtype:
            continue
        fits = frame[name].cast(dtype, strict=False)
        issues.add("odd_cells", fits.null_count() - frame[name].null_count(), f"{table}, {name}")
        frame = frame.with_columns(fits)
    return frame


class Strings:
    """A file's texts by their numbers: a frame of `id` and `value`."""

    def __init__(self, frame: pl.DataFrame, issues: Issues) -> None:
        frame = frame.drop_nulls().unique("id", keep="first").sort("id")
        self._issues = issues
        self._ids = frame["id"]
        self.values = frame["value"]

    def rows(self, ids: pl.Series, what: str) -> pl.Series:
        """The row in `values` of each id; null where there is none."""
        ids = ids.cast(pl.Int64)
        if not len(self._ids):
            self._issues.add("unknown_strings", len(ids) - ids.null_count(), what)
            return pl.Series([None], dtype=pl.UInt32).new_from_index(0, len(ids))
        at = self._ids.search_sorted(ids).clip(0, len(self._ids) - 1)
        known = self._ids.gather(at) == ids
        self._issues.add("unknown_strings", int((~known).sum()), what)
        return at.to_frame("at").select(pl.when(known).then("at")).to_series()

    def names(self, ids: pl.Series, what: str, values: pl.Series | None = None) -> pl.Series:
        """The texts as a Categorical; `values` may be other texts in the order of `self.values`."""
        return (self.values if values is None else values).cast(pl.Categorical).gather(self.rows(ids, what))

    def texts(self, ids: pl.Series, what: str) -> pl.Series:
        return self.values.gather(self.rows(ids, what))


def named(column: str, labels: Mapping[int, str], template: str = "{}", other: str | None = None) -> pl.Expr:
    """Numbers of an enumeration as names; one that it has not got is `other`, or stays a number as text."""
    texts = {number: template.format(label) for number, label in labels.items()}
    numbers = pl.col(column)
    written = numbers.replace_strict(list(texts), list(texts.values()), default=None, return_dtype=pl.String)
    unknown = numbers.cast(pl.String) if other is None else pl.when(numbers.is_not_null()).then(pl.lit(other))
    return pl.coalesce(written, unknown).cast(pl.Categorical)


def constant(value: str) -> pl.Expr:
    return pl.lit(value, dtype=pl.Categorical)


def parse_labels(texts: pl.Series) -> pl.DataFrame:
    """The fields of labels, a row a text; `kind` is a number, `text` is null where it is just the name."""
    found = parse_column(texts)
    return found.with_columns(
        pl.when(pl.lit(texts) != pl.col("name")).then(pl.lit(texts)).alias("text"),
        pl.col("name", "sizes", "class_name").cast(pl.Categorical),
        pl.col("kind").cast(pl.Int64),
    ).select(LABEL)
