"""How long ops took, and how long their costs would take at the least on the devices that they ran on.

    parts(trace, costs, said) -> Parts: `rows`, one for each part of the time
        range        UInt32   the range whose time it is; null: work that belongs to none
        time_ns      Int64    of the work of devices; of the host, where no device did anything
        compute_ns   Float64  its operations at the peak of their type; null: not known
        masked_ns    Float64  the same of operations that a mask hides, which compute_ns is without
        memory_ns    Float64  its bytes at the bandwidth of the memory
        and the columns of `costs`, null where the op has no cost that is known
    and `peaks`, what each device that was used can do
    spans_of(trace, steps), in_spans(rows, ranges, spans) -> stretches of time, and the rows that begin in them
    model_use(placed, spans, work) -> for each stretch: wall_ns, ideal_ns, devices, of which the MFU is made

The ranges of `costs` have the time of all that lies within them; the time of each other range is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.kernels import with_facts
from opspan.analysis.nest import nearest
from opspan.analysis.peaks import Peaks, Said, of_devices
from opspan.analysis.spans import PROCESS, length, within
from opspan.tables import Tables
from opspan.tables.tables import own

_col = pl.col
_HOST = (None, None)
Device = tuple["int | None", "int | None"]  # rank and number


@dataclass(frozen=True)
class Parts:
    rows: pl.DataFrame
    peaks: Mapping[Device, Peaks | None]


def parts(trace: Tables, costs: pl.DataFrame, said: Said) -> Parts:
    ranges = trace.ranges
    columns = ("kind", "is_overhead", "rank", "device_id", "start_ns", "end_ns", "name", "full_name", "range")
    work = on_device(trace.work.select(columns))
    counted = pl.Series([False]).new_from_index(0, ranges.height)
    counted = counted.scatter(costs["range"], values=True) if costs.height else counted
    owner = nearest(ranges, counted)
    used = work.select("rank", "device_id").unique(maintain_order=True).rows()
    peaks = of_devices(trace.devices, used or [_HOST], said)
    column, own = ("device_ns", "self_device_ns") if work.height else ("cpu_ns", "self_ns")
    times = ranges.select(
        "self_device_ns", "device_ns", "self_ns", "kind", cpu_ns=length(), range=pl.int_range(pl.len(), dtype=pl.UInt32)
    )
    known = costs.with_columns(time_ns=times[column].gather(costs["range"]))
    known = _rated(_in_tensor_cores(known, work, owner), work, owner, peaks)
    rest = times.filter(owner.is_null() & (times[own] > 0) & (bool(work.height) | (_col("kind") == "op")))
    found = [known, rest.select("range", time_ns=own)]
    if work.height:
        found.append(_of_no_range(work))
    return Parts(pl.concat(found, how="diagonal"), peaks)


def _of_no_range(work: pl.DataFrame) -> pl.DataFrame:
    lost = work.filter(_col("range").is_null()).group_by("rank", maintain_order=True).agg(time_ns=length().sum())
    return lost.filter(_col("time_ns") > 0).select(pl.lit(None, dtype=pl.UInt32).alias("range"), "time_ns")


def _in_tensor_cores(known: pl.DataFrame, work: pl.DataFrame, owner: pl.Series) -> pl.DataFrame:
    """Products of fp32 whose kernels use NVIDIA's tensor cores are of tf32: nothing else says so."""
    may_be = _col("is_product") & (_col("type") == "fp32")
    if not work.height or not known.select(may_be.any()).item():
        return known
    those = owner.gather(with_facts(work).filter("rounds_to_tf32")["range"]).unique().drop_nulls()
    is_tensor = may_be & _col("range").is_in(those.implode())
    return known.with_columns(type=pl.when(is_tensor).then(pl.lit("tf32")).otherwise("type"))


def _rated(
    known: pl.DataFrame, work: pl.DataFrame, owner: pl.Series, peaks: Mapping[Device, Peaks | None]
) -> pl.DataFrame:
    one, *others = peaks.values()
    if any(other != one for other in others):
        # Each op by the device that it ran on: the first, where there are several.
        first = work.select("rank", "device_id", range=owner.gather(work["range"])).drop_nulls("range")
        known = known.join(first.unique("range", keep="first"), on="range", how="left", maintain_order="left")
    else:
        (rank, device), *_ = peaks
        known = known.with_columns(rank=pl.lit(rank, dtype=pl.Int32), device_id=pl.lit(device, dtype=pl.Int32))
    kinds = known.select("rank", "device_id", "type", "is_product").unique()
    figures = [_figures(peaks.get((rank, device)), *kind) for rank, device, *kind in kinds.iter_rows()]
    schema = {"most_flops": pl.Float64, "most_bytes": pl.Float64}
    kinds = pl.concat([kinds, pl.DataFrame(figures, schema=schema, orient="row")], how="horizontal")
    known = known.join(
        kinds, on=("rank", "device_id", "type", "is_product"), how="left", nulls_equal=True, maintain_order="left"
    )
    known = known.with_columns(
        compute_ns=_needed() / _col("most_flops") * 1e9,
        masked_ns=_col("masked_flops") / _col("most_flops") * 1e9,
        memory_ns=_col("bytes") / _col("most_bytes") * 1e9,
    )
    return known.drop("rank", "device_id", *schema)


def _needed() -> pl.Expr:
    """What a mask hides no device need compute, and fast kernels do not."""
    return _col("flops") - _col("masked_flops").fill_null(0)


def _figures(found: Peaks | None, type_: str | None, is_product: bool) -> tuple[float | None, float | None]:
    if found is None:
        return None, None
    return found.of_products(type_) if is_product else found.of_elements(type_), found.bandwidth


def spans_of(trace: Tables, steps: pl.DataFrame) -> pl.DataFrame:
    """rank, pid, step, start_ns, end_ns: the steps; of a process without them, all of its time."""
    have = [frame.select(*PROCESS, "start_ns", "end_ns") for frame in (trace.ranges, own(trace.work))]
    whole = pl.concat(have).drop_nulls("start_ns")
    whole = whole.group_by(PROCESS, maintain_order=True).agg(
        _col("start_ns").min(), pl.max_horizontal(_col("end_ns").max(), _col("start_ns").max() + 1).alias("end_ns")
    )
    whole = whole.join(steps, on=PROCESS, how="anti", nulls_equal=True, maintain_order="left")
    whole = whole.with_columns(step=pl.lit(None, dtype=pl.String))
    columns = (*PROCESS, "step", "start_ns", "end_ns")
    return pl.concat(
        [
            steps.select(_col(columns).exclude("step"), _col("step").cast(pl.String)).select(columns),
            whole.select(columns),
        ]
    )


def in_spans(rows: pl.DataFrame, ranges: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The rows whose ranges begin in a span, with `span`, its number."""
    begun = pl.DataFrame({name: ranges[name].gather(rows["range"]) for name in (*PROCESS, "start_ns")})
    pairs = within(begun, "start_ns", spans, PROCESS)
    return rows[pairs["row"]].with_columns(span=pairs["stretch"])


def model_use(placed: pl.DataFrame, spans: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """For each span: wall_ns; ideal_ns, what the products that ran would take at the least; is_known, whether the peaks
    of all of them are; devices, how many its process used. `placed`: what in_spans gives."""
    ran = _col("is_product") & (_col("time_ns") > 0)
    ideal = placed.group_by("span").agg(
        ideal_ns=_col("compute_ns").filter(ran).sum(), is_known=~(ran & _col("compute_ns").is_null()).any()
    )
    rows = spans.select(*PROCESS, wall_ns=length()).with_row_index("span")
    rows = rows.join(ideal, on="span", how="left", maintain_order="left")
    rows = rows.with_columns(_col("ideal_ns").fill_null(0), _col("is_known").fill_null(value=True))
    used = on_device(work).group_by(PROCESS).agg(devices=_col("device_id").n_unique())
    if not used.height:  # no device: the host is one
        return rows.with_columns(devices=pl.lit(1, dtype=pl.UInt32))
    rows = rows.join(used, on=PROCESS, how="left", nulls_equal=True, maintain_order="left")
    return rows.with_columns(_col("devices").fill_null(0))
