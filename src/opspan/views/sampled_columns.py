"""Adds columns about samples of processors to the table that is grouped by name. A sample counts for the innermost
range that was open on its thread, so the columns are self times and self counts."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.hardware_events import is_ns
from opspan.analysis.parts import Part
from opspan.analysis.processors import width
from opspan.analysis.samples import counted_event, figures_of, is_of, ranges_of
from opspan.events.event_frames import EventFrames
from opspan.events.kinds import is_user
from opspan.events.texts import shown_name
from opspan.text_columns import TextColumn
from opspan.views.fields import SAMPLED, time_text

_RANK = 10  # higher than the ranks of the other columns of the table, so these columns are dropped first
# Columns with figures of the hardware, their titles and the form of their values.
_RATES = {
    "ipc": ("IPC", "{:.2f}"),
    "front_end_bound": ("Front-end bound", "{:.1%}"),
    "retiring": ("Retiring", "{:.1%}"),
    "back_end_bound": ("Back-end bound", "{:.1%}"),
}
_col = pl.col


def sampled_part(analysis: Analysis, events: EventFrames, rows: pl.DataFrame) -> Part:
    """Returns the samples of each row and event. `rows` have the columns rank, name, is_user, device and nth; the sums
    have all of these but is_user and device. Their column `width` is the width of the processor's cores."""
    ranges = events.source.cpu.select("rank", "name", "kind")
    in_range = ranges_of(analysis.by_lane.attributed)
    samples = analysis.tables.samples.select("event", "weight").hstack(ranges[in_range])
    sums = samples.filter(in_range.is_not_null()).group_by("rank", "name", "kind", "event", maintain_order=True)
    of_kinds = sums.agg(samples=pl.len().cast(pl.Int64), weight=_col("weight").fill_null(0).sum())
    # The table shows some names and kinds as one.
    key = of_kinds.select(
        _col("rank").cast(pl.Int64),
        pl.Series("name", [shown_name(name) for name in of_kinds["name"].cast(pl.String)], dtype=pl.String),
        pl.Series("is_user", [is_user(kind) for kind in of_kinds["kind"].cast(pl.String)], dtype=pl.Boolean),
        _col("event").cast(pl.String),
        "samples",
        "weight",
    )
    of_cpu = rows.filter(_col("device") == "cpu").select("rank", "name", "is_user", "nth")
    own = key.join(of_cpu, on=["rank", "name", "is_user"], maintain_order="left")
    own = own.with_columns(width=pl.lit(width(analysis.tables.ranks), dtype=pl.Int64))
    by = ["rank", "name", "nth", "event", "width"]
    return Part(own.group_by(by, maintain_order=True).agg(_col("samples", "weight").sum()), tuple(by))


def with_samples(rows: pl.DataFrame, sums: pl.DataFrame) -> pl.DataFrame:
    """Adds the columns. They are null for kernels and copies, and for ranks without samples in ranges."""
    if not sums.height:
        return rows
    event = counted_event(sums.group_by("event").agg(_col("samples").sum()))
    key = ["rank", "name", "nth"]
    counted = sums.filter(is_of(event))
    time = "weight" if is_ns(event) else pl.lit(None, dtype=pl.Int64)
    counted = counted.select(*key, "samples", sampled_cpu_ns=time)
    widths = sums["width"].unique()
    rates = figures_of(sums, key, widths[0] if len(widths) == 1 else None).select(*key, *_RATES)
    rows = rows.rename({name: f"{name} (report)" for name in SAMPLED if name in rows.columns})
    for frame in (counted, rates):
        rows = rows.join(frame, on=key, how="left", maintain_order="left")
    is_sampled = (_col("device") == "cpu") & _col("rank").is_in(sums["rank"].unique().implode())
    counts = ["samples", *(["sampled_cpu_ns"] if is_ns(event) else [])]
    return rows.with_columns(
        *(pl.when(is_sampled).then(_col(name).fill_null(0)).alias(name) for name in counts),
        *(pl.when(is_sampled).then(name).alias(name) for name in _RATES),
    )


def as_text(rows: pl.DataFrame) -> list[TextColumn]:
    """Returns the columns that have values, of `rows` with the columns SAMPLED."""
    times = rows["sampled_cpu_ns"].to_list()
    if any(time is not None for time in times):
        columns = {"Sampled CPU": ["--" if time is None else time_text(time) for time in times]}
    else:
        columns = {"Samples": ["--" if count is None else f"{count:,}" for count in rows["samples"].to_list()]}
    for name, (title, form) in _RATES.items():
        if rows[name].count():
            columns[title] = ["--" if value is None else form.format(value) for value in rows[name].to_list()]
    return [TextColumn(title, cells, _RANK) for title, cells in columns.items()]
