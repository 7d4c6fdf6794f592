"""Computes the model's use of devices (MFU): the speed of its matrix products, as a share of the devices' peak.

    spans_of(trace, steps) -> rank, pid, step, start_ns, end_ns: the steps of each process, or the whole time of a
        process without steps.
    in_spans(rows, ranges, spans) -> the rows of `roofline.parts` whose ranges begin in a span. `span` is the row of the
        span.
    on_devices(trace, spans, owner) -> the same spans, moved to the times when devices worked on them. `owner` comes
        from `roofline.parts`.
    use(placed, spans, work) -> for each span, its process and these columns (`placed` comes from in_spans):
        wall_ns (Int64): how long the span is.
        ideal_ns (Float64): the least time that its products take.
        masked_ns (Float64): the additional time for the operations that the masks of attention hide.
        is_known (Boolean): whether compute_ns is known for at least 99 % of the products' time.
        devices (UInt32): how many devices its process used.
    use_of_run(placed, spans, work) -> the same columns for each process; where spans overlap, time and products count
        once.

A host that runs ahead of its devices ends a step long before the devices do. So the host's times do not show for what
share of a step the devices worked; `on_devices` gives the times to use.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.busy import whole_times
from opspan.analysis.spans import PROCESS, bounded, length, number_groups, union, within
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Tables

_col = pl.col
# compute_ns may be unknown for at most this share of the products' time: the MFUs of two equal runs differ by about as
# much
_LITTLE = 0.01


def spans_of(trace: Tables, steps: pl.DataFrame) -> pl.DataFrame:
    times = whole_times(trace).join(steps, on=PROCESS, how="anti", nulls_equal=True, maintain_order="left")
    times = times.with_columns(
        step=pl.lit(None, dtype=pl.String), end_ns=pl.max_horizontal("end_ns", _col("start_ns") + 1)
    )
    columns = (*PROCESS, "step", "start_ns", "end_ns")
    steps = steps.with_columns(_col("step").cast(pl.String))
    return pl.concat([steps.select(columns), times.select(columns)])


def in_spans(rows: pl.DataFrame, ranges: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    begun = pl.DataFrame({name: ranges[name].gather(rows["range"]) for name in (*PROCESS, "start_ns")})
    pairs = within(begun, "start_ns", spans, PROCESS)
    return rows[pairs["row"]].with_columns(span=pairs["stretch"])


def on_devices(trace: Tables, spans: pl.DataFrame, owner: pl.Series) -> pl.DataFrame:
    """Returns the spans with the times when devices worked on them. If no device was used, the spans stay as they are.

    The start of a span is when the host entered the span, so idle time before the first work counts, too. If devices
    still ran earlier work then, the start is when this work was done, or when the span's own first work began,
    whichever is earlier. The end of a span is when the last work that the host began in the span was done, but not
    before the host left the span. Work that the host began between two spans is in neither span. In each process, only
    the time from the first to the last work of all spans counts.
    """
    columns = (*PROCESS, "start_ns", "end_ns", "kind", "is_overhead", "range", "call")
    work = on_device(trace.work.select(columns)).filter(_col("end_ns") >= _col("start_ns"))
    if not work.height:
        return spans
    pairs = within(_add_begun(trace, work, owner), "begun_ns", spans, PROCESS)
    times = pl.DataFrame({name: work[name].gather(pairs["row"]) for name in ("start_ns", "end_ns")})
    ends = times.group_by(pairs["stretch"].alias("span")).agg(
        first_ns=_col("start_ns").min(), last_ns=_col("end_ns").max()
    )
    rows = spans.with_row_index("span").join(ends, on="span", how="left", maintain_order="left")
    rows = rows.with_columns(_busy_until(work, rows))
    start = pl.min_horizontal("first_ns", pl.max_horizontal("start_ns", "until_ns"))
    end = pl.max_horizontal("end_ns", "last_ns")
    first, last = _col("first_ns").min().over(PROCESS), _col("last_ns").max().over(PROCESS)
    start, end = pl.max_horizontal(start, first), pl.min_horizontal(end, last)
    return rows.select(*PROCESS, "step", start_ns=start, end_ns=end)


def _add_begun(trace: Tables, work: pl.DataFrame, owner: pl.Series) -> pl.DataFrame:
    """Returns the work with begun_ns: when the host began the op that launched the work. Only ops with a known cost
    count. Without such an op, begun_ns is when the work was launched. If both times are unknown for all work of a
    process, begun_ns is the start of the work itself. If they are unknown for only some work, begun_ns is null: this
    work was launched before the part of the run that was read."""
    starts = trace.ranges["start_ns"].gather(owner.gather(work["range"]))
    begun = pl.DataFrame({"op_ns": starts, "call_ns": trace.calls["start_ns"].gather(work["call"])})
    rows = work.select(*PROCESS, "start_ns").hstack(begun.select(begun_ns=pl.coalesce("op_ns", "call_ns")))
    has_any = _col("begun_ns").is_not_null().any().over(PROCESS)
    return rows.with_columns(begun_ns=pl.when(has_any).then("begun_ns").otherwise("start_ns"))


def _busy_until(work: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """Returns, for each span, when devices were done with all work that they began before the span's first work."""
    of_work, of_rows = number_groups(PROCESS, work, rows)
    before = of_work.sort("start_ns").select("of", "start_ns", until_ns=_col("end_ns").cum_max().over("of"))
    firsts = of_rows.select("span", "of", "first_ns").drop_nulls().sort("first_ns")
    until = firsts.join_asof(
        before, left_on="first_ns", right_on="start_ns", by="of", allow_exact_matches=False, check_sortedness=False
    )
    return rows.join(until, on="span", how="left", maintain_order="left")["until_ns"]


def use(placed: pl.DataFrame, spans: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    times = spans.select(*PROCESS, wall_ns=length())
    return _use(placed, times, work)


def use_of_run(placed: pl.DataFrame, spans: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    covered = union(spans.select(*PROCESS, "start_ns", "end_ns"), PROCESS).group_by(PROCESS, maintain_order=True)
    times = covered.agg(wall_ns=bounded(length().cast(pl.Int128).sum()))
    numbers = times.select(*PROCESS).with_row_index("process")
    process = spans.join(numbers, on=PROCESS, how="left", nulls_equal=True, maintain_order="left")["process"]
    placed = placed.with_columns(span=process.gather(placed["span"]))
    if placed["range"].n_unique() < placed.height:
        placed = placed.unique(["range", "span"], maintain_order=True)
    return _use(placed, times, work)


def _use(placed: pl.DataFrame, times: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    products = placed.filter(_col("is_product"), _col("time_ns") > 0)
    unknown_ns = _col("time_ns").filter(_col("compute_ns").is_null()).cast(pl.Float64).sum()
    ideal = products.group_by("span").agg(
        _col("compute_ns").sum().alias("ideal_ns"),
        _col("masked_ns").filter(_col("compute_ns").is_not_null()).sum(),
        is_known=unknown_ns <= _LITTLE * _col("time_ns").cast(pl.Float64).sum(),
    )
    rows = times.with_row_index("span").join(ideal, on="span", how="left", maintain_order="left")
    rows = rows.with_columns(_col("ideal_ns", "masked_ns").fill_null(0), _col("is_known").fill_null(value=True))
    used = on_device(work).group_by(PROCESS).agg(devices=_col("device_id").n_unique())
    if not used.height:  # if no device was used, the host counts as one device
        return rows.with_columns(devices=pl.lit(1, dtype=ROW_NUMBER))
    rows = rows.join(used, on=PROCESS, how="left", nulls_equal=True, maintain_order="left")
    return rows.with_columns(_col("devices").fill_null(0))
