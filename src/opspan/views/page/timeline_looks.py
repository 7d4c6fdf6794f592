"""Computes how shapes of the timeline look: their kind, which selects a colour of src/page/colors.ts, and their form.
Only the shapes that are drawn are looked up, because most shapes of a long trace are not drawn."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.busy import BUSY_BY, busy_with
from opspan.analysis.engine_labels import SERVING_PHASES

_col = pl.col
KINDS = (
    *("forward", "backward", "optimizer", "ops", "module", "step", "loading", "other", "function", "calling"),
    *("waiting", "computing", "communicating", "copying", "filling", "idle"),
    *SERVING_PHASES,
)
_KIND = pl.Enum(KINDS)
FORMS = ("", "mark", "open", "backwards")  # backwards: the end is before the begin
_FORM = pl.Enum(FORMS)
# Ranges of these kinds are drawn as "ops" if their phase is unknown.
_NO_KIND = ("script", "static_op", "op", "dtype", "lite")
_PHASES = {"data": "loading"}  # phase -> its kind; other phases have a kind of the same name


def kinds(analysis: Analysis, shapes: pl.DataFrame) -> pl.Series:
    """Returns the kind of each shape. `shapes` has the columns table and row."""
    return _looked_up(shapes, lambda table, rows: _KIND_OF[table](analysis, rows), _KIND)


def forms(analysis: Analysis, shapes: pl.DataFrame) -> pl.Series:
    """Returns the form of each shape. `shapes` has the columns table and row."""
    return _looked_up(shapes, lambda table, rows: _form(analysis, table, rows), _FORM)


def _looked_up(shapes: pl.DataFrame, look: Callable[[str, pl.Series], pl.Series], dtype: pl.Enum) -> pl.Series:
    looks = pl.Series([None], dtype=dtype).new_from_index(0, shapes.height)
    for table in shapes["table"].unique():
        at = (shapes["table"] == table).arg_true()
        looks = looks.scatter(at, look(table, shapes["row"].gather(at)).cast(dtype))
    return looks


def _ranges(analysis: Analysis, rows: pl.Series) -> pl.Series:
    ranges = analysis.complete.ranges.select("kind", "phase")[rows]
    phase = _col("phase").cast(pl.String).replace(_PHASES)
    kind = _col("kind").cast(pl.String)
    shown = pl.when(kind.is_in(["module", "step"])).then(kind).otherwise(phase)
    shown = shown.fill_null(pl.when(kind.is_in(_NO_KIND)).then(pl.lit("ops")).otherwise(pl.lit("other")))
    distinct = ranges.unique().with_columns(shown=shown.cast(_KIND))
    return ranges.join(distinct, on=["kind", "phase"], how="left", nulls_equal=True, maintain_order="left")["shown"]


def _calls(analysis: Analysis, rows: pl.Series) -> pl.Series:
    waits = pl.Series([False]).new_from_index(0, analysis.complete.calls.height).scatter(analysis.waits["call"], True)
    return _constant("calling", rows).set(waits.gather(rows), "waiting")


def _work(analysis: Analysis, rows: pl.Series) -> pl.Series:
    work = analysis.complete.work.select(BUSY_BY)[rows]
    busy = busy_with(work).select("work", "what")
    looks = _constant("other", rows).scatter(busy["work"], busy["what"].fill_null("other").cast(_KIND))
    return looks.set((work["kind"] == "sync").fill_null(value=False), "waiting")


def _constant(kind: str, rows: pl.Series) -> pl.Series:
    return pl.Series([kind], dtype=_KIND).new_from_index(0, len(rows))


_KIND_OF: dict[str, Callable[[Analysis, pl.Series], pl.Series]] = {
    "functions": lambda _, rows: _constant("function", rows),
    "ranges": _ranges,
    "calls": _calls,
    "work": _work,
    "gaps": lambda _, rows: _constant("idle", rows),
}


def _form(analysis: Analysis, table: str, rows: pl.Series) -> pl.Series:
    frame = analysis.gaps if table == "gaps" else analysis.complete.frames[table]
    is_open, is_back = _col("end_ns").is_null(), _col("end_ns") < _col("start_ns")
    if table != "ranges":
        times = frame.select("start_ns", "end_ns")[rows]
        return times.select(form=_first_of(open=is_open, backwards=is_back))["form"]
    is_mark, was_open = (_col(name).fill_null(value=False) for name in ("is_mark", "is_open"))
    times = frame.select("start_ns", "end_ns", "is_mark", "is_open")[rows]
    # Use the end as it was recorded, because the analysis may change it.
    recorded = pl.lit(analysis.tables.ranges["end_ns"].gather(rows))
    is_back = is_back | (recorded < _col("start_ns"))
    return times.select(form=_first_of(mark=is_mark, open=is_open | was_open, backwards=is_back))["form"]


def _first_of(**forms: pl.Expr) -> pl.Expr:
    return pl.coalesce(*(pl.when(so).then(pl.lit(name)) for name, so in forms.items()), pl.lit("")).cast(_FORM)
