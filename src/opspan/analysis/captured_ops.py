"""Reads captured ops and launches from recordings that were made while graphs were captured.

    captured_ops(captures) -> CapturedOps: the launches of all captures, and the ranges around the launches.

Only ranges that began within a capture count. Ranges around a capture, such as an engine's warm-up, are not replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from opspan.analysis.analysed import Analysis
from opspan.analysis.call_stacks import stack_texts
from opspan.analysis.captured_launches import captured_launches
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Tables
from opspan.tables.schema import NAME

_col = pl.col
# The columns that a captured op keeps. Times, seq and op_id are valid only in the recording of the capture.
KEPT = (
    "name",
    "kind",
    "source",
    "domain",
    "sizes",
    "input_types",
    "input_strides",
    "inputs",
    "overload",
    "class_name",
    "args",
)
# Names that serving engines give to the range around all captures of one batch size.
_LABEL = r"^(?:capture_(\d{1,9})_(?:FULL|PIECEWISE)|graph_capture: batch=(\d{1,9}) mode=.*)$"
_DEEPEST = 1000  # only damaged files nest ranges deeper


class Capture(NamedTuple):
    """A recording of captures.

    batch_size: the size of the batch, if the name of the file or the engine's list of files has it.
    rank: the rank whose replays may repeat these captures, or None for all ranks.
    is_own: whether the replays are in the same recording. Then a process replays only what it captured itself.
    """

    tables: Tables
    batch_size: int | None = None
    rank: int | None = None
    is_own: bool = False


class CapturedOps(NamedTuple):
    """Captured launches and ops.

    launches: the columns
        rank, pid, tid, capture, kind, kernel: as in `captured_launches`.
        recording: position of the recording in the list of captures.
        batch_size: size of the batch for which the launch was captured.
        range: a row of `ranges`.
        op: a number. Equal numbers mean the same op with the same sizes.
        of_rank, of_pid: the process whose replays may repeat the launch; null for any.
    ranges: the columns KEPT, parent (a row of `ranges`), stack and module.
    """

    launches: pl.DataFrame
    ranges: pl.DataFrame


def captured_ops(captures: Sequence[Capture]) -> CapturedOps:
    launches, ranges, before = [], [], 0
    for number, capture in enumerate(captures):
        own_launches, own_ranges = _of_recording(capture)
        row = (_col("range") + before).cast(ROW_NUMBER)
        launches.append(own_launches.with_columns(row, recording=pl.lit(number, pl.Int64)))
        ranges.append(own_ranges.with_columns((_col("parent") + before).cast(ROW_NUMBER)))
        before += own_ranges.height
    joined = pl.concat(ranges)
    every = pl.concat(launches)
    return CapturedOps(every.with_columns(_numbers(joined).gather(every["range"]).alias("op")), joined)


def _of_recording(capture: Capture) -> tuple[pl.DataFrame, pl.DataFrame]:
    trace = Analysis(capture.tables).complete
    launches = captured_launches(trace)
    ranges = trace.ranges
    size = pl.coalesce(_col("name").cast(pl.String).str.extract(_LABEL, group) for group in (1, 2))
    labelled = ranges.select(size.cast(pl.Int64).alias("batch_size"), row=pl.int_range(pl.len(), dtype=ROW_NUMBER))
    labelled = labelled.drop_nulls("batch_size")
    begins = trace.calls["range"].gather(launches["capture"].drop_nulls().unique())
    outside = above(ranges["parent"], pl.concat([begins, labelled["row"]]))
    around = above(ranges["parent"], launches["range"])
    kept = around.filter(~_col("row").is_in(outside["row"].implode()))["row"].unique().sort()
    sizes = around.join(labelled, on="row").unique("of", keep="first")
    launches = launches.join(
        sizes.select(range="of", batch_size="batch_size"), on="range", how="left", maintain_order="left"
    )
    launches = launches.with_columns(
        _col("batch_size").fill_null(pl.lit(capture.batch_size, pl.Int64)),
        of_rank=_col("rank") if capture.is_own else pl.lit(capture.rank, pl.Int32),
        of_pid=_col("pid") if capture.is_own else pl.lit(None, pl.Int64),
    )
    place = pl.DataFrame({"row": kept, "place": pl.int_range(len(kept), dtype=ROW_NUMBER, eager=True)})
    rows = ranges[kept].select(
        *KEPT, "parent", "module", stack_texts(ranges, trace.functions, kept).cast(NAME).alias("stack")
    )
    rows = rows.with_columns(_in_place(rows["parent"], place).alias("parent"))
    return launches.with_columns(_in_place(launches["range"], place).alias("range")), rows


def _in_place(rows: pl.Series, place: pl.DataFrame) -> pl.Series:
    return rows.alias("row").to_frame().join(place, on="row", how="left", maintain_order="left")["place"]


def above(parent: pl.Series, rows: pl.Series) -> pl.DataFrame:
    """Walks up the tree from each of `rows` to its root. Returns the rows on the way, the nearest first: `of` (the row
    of the start) and `row` (the start itself, its parent, and so on)."""
    level = rows.drop_nulls().unique().sort().alias("of").to_frame().with_columns(row=_col("of"))
    levels = [level]
    for _ in range(_DEEPEST):
        level = level.with_columns(parent.gather(level["row"]).alias("row")).drop_nulls("row")
        if not level.height:
            break
        levels.append(level)
    return pl.concat(levels)


def _numbers(ranges: pl.DataFrame) -> pl.Series:
    """Numbers the ranges. Ranges with equal names, kinds, sizes and input types get equal numbers."""
    columns = ["name", "kind", "sizes", "input_types"]
    distinct = ranges.select(columns).unique().with_row_index("op")
    return ranges.select(columns).join(distinct, on=columns, how="left", nulls_equal=True, maintain_order="left")["op"]
