"""Functions that several readers of tables need: declaring columns, joining frames, leaving out rows without a time,
moving times to another zero, and looking up texts, names of enumerations and labels.

Impossible values in a column are set to null and counted here, so the readers need not check for them. The readers know
what the tables and columns mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from opspan.formats.budget import Meter
from opspan.formats.sqlite_cells import Type
from opspan.labels import KIND_NAMES, Kind, parse_column
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Issues
from opspan.tables.same import is_one
from opspan.tables.schema import KIND, TABLES, Dtype, completed

Columns = Mapping[str, Type]

# A value further from a clock's zero than this (146 years) is not a time. So differences of times fit into 64 bits.
FAR_NS = 1 << 62

OWN_DOMAIN = "opspan"
# Domains of NVTX whose texts may be labels of torch or opspan, besides the default domain. Texts of other domains are
# never labels.
LABELLED_DOMAINS = (OWN_DOMAIN, "PyTorch", "pytorch")
# Kinds of ranges whose 64-bit payload was set by the user. The payload of other kinds is a sequence number.
USERS_KINDS = (int(Kind.USER), int(Kind.MODULE), int(Kind.STEP))

# Columns with the sizes of a kernel's grid and blocks.
SIZES = tuple(f"{of}_{axis}" for of in ("grid", "block") for axis in "xyz")

LABEL = ("name", "text", "kind", "seq", "op_id", "forward_tid", "class_name", "args", "sizes", "input_op_ids")


def ints(names: str) -> dict[str, Type]:
    return dict.fromkeys(names.split(), "int")


def enumeration(names: str) -> dict[int, str]:
    """Maps 0, 1, 2, ... to the names in a text such as "a, b, c"."""
    return dict(enumerate(names.split(", ")))


def stacked(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Joins the frames into one frame with contiguous columns. Takes the columns out of the frames one after another,
    so that at most one column is in memory twice."""
    if len(frames) == 1:
        return frames[0].rechunk()
    columns: list[pl.Series] = []
    schema, rows = frames[0].schema, sum(frame.height for frame in frames)
    for name in schema:
        parts = [frame.drop_in_place(name) for frame in frames]
        # Many columns have only nulls. `completed` adds them as literals, which take no memory.
        if rows and all(part.null_count() == len(part) for part in parts):
            continue
        columns.append(pl.concat(parts, rechunk=True))
    if not columns:
        return pl.DataFrame(
            {name: pl.Series([None], dtype=dtype).new_from_index(0, rows) for name, dtype in schema.items()}
        )
    return completed(pl.DataFrame(columns), schema)


def in_time(frame: pl.DataFrame, table: str, issues: Issues) -> pl.DataFrame:
    """Renames start and end to start_ns and end_ns, and leaves out rows whose start is not a time. An impossible
    end becomes null."""
    # For most tables, the one query of `_is_sound` is enough. For a small file, further queries would take longer than
    # reading the file.
    if frame.is_empty() or _is_sound(frame):
        return _in_ns(frame)
    start = pl.col("start")
    known = is_time(start)
    if "end" in frame.columns:  # where the tool's buffers overflowed, both times are zero
        known &= ~((start == 0) & (pl.col("end") == 0)).fill_null(value=False)
    sound = frame.select(known.fill_null(value=False)).to_series()
    if not sound.all():
        issues.add("no_time", frame.height - int(sound.sum()), table)
        frame = frame.filter(sound)
    if "end" not in frame.columns:
        return _in_ns(frame)
    is_backward = (pl.col("end") < start) | ~is_time(pl.col("end"))
    backward = frame.select(is_backward.fill_null(value=False)).to_series()
    if backward.any():
        issues.add("negative_duration", int(backward.sum()), table)
        frame = frame.with_columns(pl.when(~backward).then("end"))
    return _in_ns(frame)


def _in_ns(frame: pl.DataFrame) -> pl.DataFrame:
    named = frame.clone()  # renaming by a query takes ten times as long
    named.columns = [{"start": "start_ns", "end": "end_ns"}.get(name, name) for name in frame.columns]
    return named


def _is_sound(frame: pl.DataFrame) -> bool:
    """Returns whether the extremes of the times show that all times are possible, and no end is before its start. If
    the result is False, all times may still be possible."""
    start, end = pl.col("start"), pl.col("end")
    figures = {"low": start.min(), "high": start.max(), "nulls": start.null_count()}
    has_end = "end" in frame.columns
    if has_end:
        figures |= {"last": end.max(), "is_backward": (end < start).any()}
    row = frame.select(**figures).row(0, named=True)
    if row["nulls"] or row["low"] <= (0 if has_end else -FAR_NS) or row["high"] >= FAR_NS:
        return False
    return not has_end or not (row["is_backward"] or (row["last"] or 0) >= FAR_NS)


def is_time(column: pl.Expr) -> pl.Expr:
    return (column > -FAR_NS) & (column < FAR_NS)


def narrow(frame: pl.DataFrame, table: str, dtypes: Mapping[str, Dtype], issues: Issues) -> pl.DataFrame:
    """Casts columns to narrower number types. Numbers that do not fit become null and are counted."""
    for name, dtype in dtypes.items():
        if name not in frame.columns or frame[name].dtype == dtype:
            continue
        fits = frame[name].cast(dtype, strict=False)
        issues.add("odd_cells", fits.null_count() - frame[name].null_count(), f"{table}, {name}")
        frame = frame.with_columns(fits)
    return frame


class TextTable:
    """Looks up the texts of a file by their numbers. The frame has the columns `id` and `value`."""

    def __init__(self, frame: pl.DataFrame, written: Meter, issues: Issues) -> None:
        self._written = written
        if not _is_in_order(frame):
            frame = frame.drop_nulls().unique("id", keep="first").sort("id")
        self._issues = issues
        self._ids = frame["id"]
        self.values = frame["value"]

    def rows(self, ids: pl.Series, what: str) -> pl.Series:
        """Returns, for each id, its row in `values`; null for an unknown id."""
        at = self._places(ids.cast(pl.Int64))
        self._issues.add("unknown_strings", at.null_count() - ids.null_count(), what)
        return at

    def _places(self, ids: pl.Series) -> pl.Series:
        if not len(self._ids) or ids.is_empty():
            return _none(ROW_NUMBER, len(ids))
        first, last = self._ids[0], self._ids[-1]
        at, known = pl.col("id"), pl.col("id").is_between(first, last)
        if last - first == len(self._ids) - 1:  # the ids have no gaps, so a text's row follows from its id
            low, high = ids.min(), ids.max()
            if isinstance(low, int) and isinstance(high, int) and 0 <= first <= low and high <= last < 1 << 32:
                rows = ids.cast(ROW_NUMBER)
                return rows - first if first else rows
            return ids.to_frame("id").select(pl.when(known).then(at - first).cast(ROW_NUMBER)).to_series()
        places = self._ids.search_sorted(ids).clip(0, len(self._ids) - 1)
        return places.zip_with(self._ids.gather(places) == ids, _none(places.dtype)).cast(ROW_NUMBER)

    def names(self, ids: pl.Series, what: str, values: pl.Series | None = None) -> pl.Series:
        """Returns the texts of the ids as a Categorical. `values` may replace `self.values`; it has the same order."""
        return (self.values if values is None else values).cast(pl.Categorical).gather(self.rows(ids, what))

    def column(
        self, frame: pl.DataFrame, column: str, what: str, values: pl.Series | None = None
    ) -> pl.Series | pl.Expr:
        """Returns the result of `names` for a column of ids. If all rows have one value, returns a literal, which takes
        no memory."""
        if is_one(frame, column):
            at = self._places(frame.head(1)[column].cast(pl.Int64))
            if not at.null_count():
                return constant((self.values if values is None else values)[at[0]])
        return self.names(frame[column], what, values)

    def texts(self, ids: pl.Series, what: str) -> pl.Series:
        return self._written.gather(self.values, self.rows(ids, what))


def _is_in_order(frame: pl.DataFrame) -> bool:
    """Returns whether the ids are unique and ascending, and each id has a text. Most files are like that."""
    ids = frame["id"]
    return not (ids.null_count() or frame["value"].null_count()) and bool((ids[1:] > ids[:-1]).all())


def _none(dtype: Dtype, length: int = 1) -> pl.Series:
    return pl.Series([None], dtype=dtype).new_from_index(0, length)


def named(numbers: pl.Series, labels: Mapping[int, str], template: str = "{}", other: str | None = None) -> pl.Series:
    """Replaces the numbers of an enumeration by texts: `template`, filled with the number's name. For an unknown
    number, the text is `other`, filled with the number, or the number alone if `other` is None."""
    if numbers.is_empty():
        return pl.Series(numbers.name, [], dtype=pl.Categorical)
    has_one = numbers.min() == numbers.max() and not numbers.null_count()
    used = numbers.head(1) if has_one else numbers.drop_nulls().unique()
    unknown = "{}" if other is None else other
    texts = [template.format(labels[one]) if one in labels else unknown.format(one) for one in used.to_list()]
    names = pl.Series(texts, dtype=pl.String).cast(pl.Categorical)
    if not len(used):
        return names.extend_constant(None, len(numbers)).alias(numbers.name)
    if len(used) == 1 and not numbers.null_count():
        return names.new_from_index(0, len(numbers))
    return numbers.replace_strict(used, names, default=None, return_dtype=pl.Categorical)


def names_in(
    frame: pl.DataFrame, column: str, labels: Mapping[int, str], template: str = "{}", other: str | None = None
) -> pl.Series | pl.Expr:
    """Returns the result of `named` for a column. If all rows have one value, returns a literal, which takes no
    memory."""
    if is_one(frame, column):
        return constant(named(frame.head(1)[column], labels, template, other)[0])
    return named(frame[column], labels, template, other)


def constant(value: str) -> pl.Expr:
    return pl.lit(value, dtype=pl.Categorical)


def parse_labels(texts: pl.Series) -> pl.DataFrame:
    """Returns the fields of labels, with a row for each text. `kind` is a number. `text` is null if it equals
    the name."""
    return parse_column(texts).select(LABEL)


def labelled(texts: pl.Series) -> pl.DataFrame:
    """Returns the fields of the label in each text, as columns of the table ranges."""
    labels = parse_labels(texts)
    return labels.with_columns(pl.Series("kind", KIND_NAMES, dtype=KIND).gather(labels["kind"].fill_null(0)))


def numbered(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("id"), rank=pl.lit(0, dtype=pl.Int32))


def numbered_alike(**frames: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Adds the columns `id` (row numbers) and `rank` (0) to each frame. All frames share the memory of one column of
    row numbers."""
    numbers = pl.int_range(max(frame.height for frame in frames.values()), dtype=pl.Int64, eager=True).alias("id")
    rank = pl.lit(0, dtype=pl.Int32).alias("rank")
    return {name: frame.with_columns(numbers.head(frame.height), rank) for name, frame in frames.items()}


def first_ns(frames: Iterable[pl.DataFrame], default: int) -> int:
    starts = [frame[name].min() for frame in frames for name in ("start_ns", "time_ns") if name in frame.columns]
    return min((start for start in starts if isinstance(start, int)), default=default)


def from_zero(zero_ns: int, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Returns the tables with `zero_ns` subtracted from all times."""
    return {table: frame.with_columns(_times(table, frame) - zero_ns) for table, frame in frames.items()}


def _times(table: str, frame: pl.DataFrame) -> pl.Expr:
    return pl.col([column.name for column in TABLES[table].columns if column.unit == "ns" and column.name in frame])
