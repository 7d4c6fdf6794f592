"""Sums the time of kernels by name or by other columns, and averages the share of the device that they could use.

    launched(work, devices) -> the work that kept a device busy, with:
        duration_ns: how long it took.
        shared_bytes: shared memory of a block.
        blocks_per_sm, occupancy: see analysis/occupancy.py.
    figures(rows, by) -> a row for each combination of values in the columns `by`, the one with most time first. `by`
        must include kind. The further columns:
        count: how many kernels, copies and fills.
        device_ns, average_device_ns, least_device_ns, most_device_ns: the sum, mean, minimum and maximum of durations.
        blocks_per_sm, occupancy: their means, weighted by the kernels' time.
        uses_tensor_cores: yes, no or unknown, as the kernels' names show; null for copies and fills.

Values that the tool did not record are null.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from opspan.analysis.averages import DURATION, OF_WORK, WORK_ORDER, WORK_SUMS, on_device, sum_expressions
from opspan.analysis.kernels import with_facts
from opspan.analysis.occupancy import SHAPE, blocks_per_sm, occupancy, shared_bytes

_col = pl.col
KERNELS = ("kernel", "graph")
MEANS = ("blocks_per_sm", "occupancy")
USES = pl.Enum(["yes", "no", "unknown"])


def launched(work: pl.DataFrame, devices: pl.DataFrame) -> pl.DataFrame:
    rows = with_facts(on_device(work))
    shapes = rows.select("rank", "device_id", *SHAPE)
    return rows.with_columns(
        shared_bytes(), DURATION.alias("duration_ns"), blocks_per_sm(shapes, devices), occupancy(shapes, devices)
    )


def figures(rows: pl.DataFrame, by: Sequence[str] = OF_WORK["kernel"]) -> pl.DataFrame:
    return figures_of(sums(rows, by), by)


def sums(rows: pl.DataFrame, by: Sequence[str] = OF_WORK["kernel"]) -> pl.DataFrame:
    """Returns the sums, and the shortest and longest times, from which `figures_of` computes figures. The sums of
    several parts of a run can be added up."""
    ns = _col("duration_ns")
    rows = rows.with_columns(
        **{f"{name}_ns": pl.when(_col(name).is_not_null()).then(ns).otherwise(0) for name in MEANS},
        **{name: _col(name) * ns for name in MEANS},
    )
    return rows.group_by(by).agg(
        *sum_expressions(WORK_SUMS, rows.columns),
        _col([f"{name}_ns" for name in MEANS]).sum(),
        _col(MEANS).sum(),
        least_device_ns=ns.min(),
        most_device_ns=ns.max(),
        on_cores=_col("on_tensor_cores").sum(),
        off_cores=(~_col("on_tensor_cores")).sum(),
    )


def figures_of(sums: pl.DataFrame, by: Sequence[str] = OF_WORK["kernel"]) -> pl.DataFrame:
    means = {name: pl.when(_col(f"{name}_ns") > 0).then(_col(name) / _col(f"{name}_ns")) for name in MEANS}
    sums = sums.with_columns(average_device_ns=_col("device_ns") / _col("count"), **means)
    uses = pl.when(_col("on_cores") == _col("count")).then(pl.lit("yes", USES)).otherwise(pl.lit("unknown", USES))
    uses = pl.when(_col("off_cores") == _col("count")).then(pl.lit("no", USES)).otherwise(uses)
    sums = sums.with_columns(uses_tensor_cores=pl.when(_col("kind").is_in(KERNELS)).then(uses))
    figures = ("count", "device_ns", "average_device_ns", "least_device_ns", "most_device_ns", *MEANS)
    sums = sums.select(*by, *figures, "uses_tensor_cores")
    order = [*WORK_ORDER, *by]
    return sums.sort(order, descending=[name in WORK_ORDER for name in order])
