"""Compares how long ops took with the least time that their costs take on the same devices.

    parts(trace, costs, user_peaks) -> Roofline:
        rows: one for each op with a cost, and for all other time one for each range, with:
            range (UInt32): the range whose time it is; null for work that belongs to no range.
            time_ns (Int64): the time of work of devices, or of the host if no device was used.
            compute_ns (Float64): the time for its operations at the peak of their type, or null.
            masked_ns (Float64): the time for operations that a mask hides; compute_ns does not include this time.
            memory_ns (Float64): the time for its bytes at the bandwidth of the memory, or null.
            is_too_fast (Boolean): whether compute_ns would be more than time_ns; if so, compute_ns is null.
            is_cached (Boolean): whether memory_ns would be more than time_ns; if so, memory_ns is null.
            (Measured peaks have a margin: an op that is within it counts as fast as the peak.)
            and the columns of `costs`, null if the cost of the op is unknown.
        peaks: the peaks of each device that was used or, if none was, of the processor of each rank.
        owner: for each range, the range of `costs` that it is part of.
        has_devices: whether times are those of devices.

The time of a range of `costs` includes all ranges inside it; other ranges have their self time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.kernels import product_type, with_facts
from opspan.analysis.nest import nearest
from opspan.analysis.peak_table import Peaks
from opspan.analysis.peaks import UserPeaks, of_devices, of_processors
from opspan.analysis.spans import length
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Tables

_col = pl.col
Device = tuple["int | None", "int | None"]  # the rank and the device_id of a device


@dataclass(frozen=True)
class Roofline:
    rows: pl.DataFrame
    peaks: Mapping[Device, Peaks | None]
    owner: pl.Series
    has_devices: bool


def parts(trace: Tables, costs: pl.DataFrame, user_peaks: UserPeaks) -> Roofline:
    ranges = trace.ranges
    columns = ("kind", "is_overhead", "rank", "device_id", "start_ns", "end_ns", "name", "full_name", "range")
    work = on_device(trace.work.select(columns))
    counted = pl.Series([False]).new_from_index(0, ranges.height)
    counted = counted.scatter(costs["range"], values=True) if costs.height else counted
    owner = nearest(ranges, counted)
    if work.height:
        used = work.select("rank", "device_id").unique(maintain_order=True).rows()
        peaks = of_devices(trace.devices, used, user_peaks)
    else:
        peaks = of_processors(trace.ranks, user_peaks)
    column, own = ("device_ns", "self_device_ns") if work.height else ("cpu_ns", "self_ns")
    times = ranges.select(
        "self_device_ns",
        "device_ns",
        "self_ns",
        "kind",
        cpu_ns=length(),
        range=pl.int_range(pl.len(), dtype=ROW_NUMBER),
    )
    known = costs.with_columns(time_ns=times[column].gather(costs["range"]))
    known = _rate(_in_tensor_cores(known, work, owner), partial(_places, ranges, work, owner), peaks)
    rest = times.filter(owner.is_null() & (times[own] > 0) & (bool(work.height) | (_col("kind") == "op")))
    rows = [known, rest.select("range", time_ns=own)]
    if work.height:
        rows.append(_outside_ranges(work))
    return Roofline(pl.concat(rows, how="diagonal"), peaks, owner, bool(work.height))


def _outside_ranges(work: pl.DataFrame) -> pl.DataFrame:
    lost = work.filter(_col("range").is_null()).group_by("rank", maintain_order=True).agg(time_ns=length().sum())
    return lost.filter(_col("time_ns") > 0).select(pl.lit(None, dtype=ROW_NUMBER).alias("range"), "time_ns")


def _in_tensor_cores(known: pl.DataFrame, work: pl.DataFrame, owner: pl.Series) -> pl.DataFrame:
    """Corrects the type of fp32 products whose kernels ran, or may have run, on tensor cores. Tensor cores do not
    compute in fp32. If the name of a kernel has a type, this type is taken, because the op may contain casts.
    Otherwise it is tf32 on NVIDIA's devices. If neither the trace nor the name has a type, the type is unknown."""
    may_be = _col("is_product") & (_col("type") == "fp32")
    if not work.height or not known.select(may_be.any()).item():
        return known
    kernels = with_facts(work).filter(_col("on_tensor_cores").ne_missing(pl.lit(value=False)))
    kernels = kernels.select(
        "rounds_to_tf32", whole=pl.coalesce("full_name", "name"), range=owner.gather(kernels["range"])
    )
    names = kernels.select(_col("whole").unique()).with_columns(in_name=product_type(_col("whole")))
    of_products = kernels.drop_nulls("range").join(names, on="whole", how="left").group_by("range")
    types = of_products.agg(_col("in_name").drop_nulls().first(), _col("rounds_to_tf32").any())
    known = known.join(types, on="range", how="left", maintain_order="left")
    on_cores = may_be & _col("rounds_to_tf32").is_not_null()
    computed = (
        pl.when(_col("in_name").is_not_null())
        .then("in_name")
        .when(~_col("is_assumed"))
        .then(pl.when("rounds_to_tf32").then(pl.lit("tf32")).otherwise("type"))
    )
    known = known.with_columns(type=pl.when(on_cores).then(computed).otherwise("type"))
    return known.drop("in_name", "rounds_to_tf32")


def _places(ranges: pl.DataFrame, work: pl.DataFrame, owner: pl.Series) -> pl.DataFrame:
    """Returns the rank and the device_id where each range ran. If it ran on several devices, the first counts."""
    if work.height:
        places = work.select("rank", "device_id", range=owner.gather(work["range"])).drop_nulls("range")
        return places.unique("range", keep="first")
    number = pl.int_range(pl.len(), dtype=ROW_NUMBER)
    return ranges.select("rank", device_id=pl.lit(None, dtype=pl.Int32), range=number)


def _rate(
    known: pl.DataFrame, places: Callable[[], pl.DataFrame], peaks: Mapping[Device, Peaks | None]
) -> pl.DataFrame:
    one, *others = peaks.values()
    if any(other != one for other in others):
        # Each op is compared with the peaks of the device that it ran on.
        known = known.join(places(), on="range", how="left", maintain_order="left")
    else:
        (rank, device), *_ = peaks
        known = known.with_columns(rank=pl.lit(rank, dtype=pl.Int32), device_id=pl.lit(device, dtype=pl.Int32))
    kinds = known.select("rank", "device_id", "type", "is_product").unique()
    figures = [_figures(peaks.get((rank, device)), *kind) for rank, device, *kind in kinds.iter_rows()]
    schema = {"most_flops": pl.Float64, "most_bytes": pl.Float64, "margin": pl.Float64}
    kinds = pl.concat([kinds, pl.DataFrame(figures, schema=schema, orient="row")], how="horizontal")
    known = known.join(
        kinds, on=("rank", "device_id", "type", "is_product"), how="left", nulls_equal=True, maintain_order="left"
    )
    known = known.with_columns(
        # Fast kernels do not compute the operations that a mask hides.
        compute_ns=(_col("flops") - _col("masked_flops").fill_null(0)) / _col("most_flops") * 1e9,
        masked_ns=_col("masked_flops") / _col("most_flops") * 1e9,
        memory_ns=_col("bytes") / _col("most_bytes") * 1e9,
    )
    return _drop_impossible(known).drop("rank", "device_id", *schema)


def _drop_impossible(known: pl.DataFrame) -> pl.DataFrame:
    """Sets compute_ns or memory_ns to null if it is longer than the measured time, because no op is faster than its
    device allows. If it is longer, the type or the cost is wrong, or a cache had some of the bytes. Within the margin
    of the peak it is the measured time instead."""
    beyond = {"is_too_fast": "compute_ns", "is_cached": "memory_ns"}
    ran, most_ns = _col("time_ns") > 0, _col("time_ns") * _col("margin")
    known = known.with_columns(
        (ran & (_col(bound) > most_ns)).fill_null(value=False).alias(name) for name, bound in beyond.items()
    )
    return known.with_columns(
        pl.when(~_col(name))
        .then(pl.when(ran & (_col(bound) > _col("time_ns"))).then("time_ns").otherwise(bound))
        .alias(bound)
        for name, bound in beyond.items()
    )


def _figures(peaks: Peaks | None, type_: str | None, is_product: bool) -> tuple[float | None, float | None, float]:
    if peaks is None:
        return None, None, 1.0
    flops = peaks.of_products(type_) if is_product else peaks.of_elements(type_)
    return flops, peaks.bandwidth, peaks.margin
