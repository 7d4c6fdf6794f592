"""The cost of ops: operations and bytes, their rates, and whether computing or memory limits an op: `opspan flops`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from opspan.analysis import Analysis, model_use, roofline
from opspan.analysis.costs import Costs, costs, why_unknown
from opspan.analysis.lanes import in_lanes
from opspan.analysis.parts import Part, Parts
from opspan.analysis.peaks import parse_peaks
from opspan.analysis.spans import PROCESS, bounded
from opspan.analysis.step_lengths import lengths_of
from opspan.analysis.step_lengths import parts as parts_of_lengths
from opspan.printable import listed, plural, printable
from opspan.questions import Options, Question
from opspan.tables.processors import of_rank
from opspan.views import fields, of_ranges
from opspan.views.answer import Answer
from opspan.views.fields import Field, short_number, varying_fields
from opspan.views.step_words import number_text

LITTLE = 0.1  # an op that reaches less than this share of both peaks is bound by neither of them
_col = pl.col
_PEAK = "the peak of the device, or of the processor, in that type"
_MFU = Field("mfu", "MFU", "share", total_title=_PEAK)
_SIZES = replace(fields.SIZES, rank=6)
_COST = (
    Field("count", "Ops", "count", rank=5),
    Field("flops", "FLOP", "flop"),
    replace(fields.FLOP_RATE, rank=2),
    replace(fields.BYTES, unit="decimal bytes"),
    replace(fields.BYTE_RATE, rank=3),
    Field("type", "Type", "text", rank=4),
)
_BOUND = (
    Field("compute_share", "Compute", "share", rank=1, total_title=_PEAK),
    Field("memory_share", "Memory", "share", rank=1, total_title="the peak of the memory"),
    replace(fields.BOUND, rank=1),
)
NAMED = 0.01  # an op without a cost is named if it took at least this share of the time
# A share of a peak that would be above 100 % counts as unknown. These notes give the reason.
_BEYOND = {
    "is_too_fast": "computed faster than the device can in the type that the trace or the kernel's name says, or than "
    "--peak: that share is not known",
    "is_faster_than_measured": "computed faster than was measured on the processor, or than --peak says: that share is "
    "not known",
    "is_cached": "moved bytes faster than the memory can (or --peak says), as a cache had some: "
    "that share is not known",
}
# Column whose values are not added up over ranks -> how they are combined instead.
_RULES = dict.fromkeys(("types", "types_of_products"), "all of them")
_RULES |= dict.fromkeys(("has_products", "is_assumed", "is_known", "has_bytes"), "any")
_COLUMNS = (
    "count",
    "flops",
    "product_flops",
    "masked_flops",
    "bytes",
    "type",
    "is_assumed",
    "time_ns",
    "known_ns",
    "flops_per_s",
    "bytes_per_s",
    "intensity",
    "compute_share",
    "memory_share",
    "bound",
)


def rows_of_one(analysis: Analysis, options: Options) -> pl.DataFrame:
    return tables_of(analysis, (options.by,), options.peak)[options.by]


def tables_of(analysis: Analysis, bys: Sequence[str], peak: Sequence[str] = ()) -> dict[str, pl.DataFrame]:
    """Returns the rows grouped by each of `bys`. The costs of ops are computed only once for all groupings."""
    analysis = analysis.by_lane
    spent = roofline.parts(analysis.attributed, costs(analysis.attributed.ranges).rows, parse_peaks(peak))
    return {by: rows(_parts(analysis, by, spent), Options(by)) for by in bys}


@in_lanes
def parts(analysis: Analysis, options: Options) -> Parts:
    known = costs(analysis.attributed.ranges)
    spent = roofline.parts(analysis.attributed, known.rows, parse_peaks(options.peak))
    parts_by = _parts(analysis, options.by, spent)
    return (
        parts_by
        | ({} if "run" in parts_by else _parts(analysis, "run", spent))
        | _parts_of_notes(analysis, known, spent)
    )


def rows(parts: Parts, options: Options) -> pl.DataFrame:
    by = options.by
    if by == "run":
        return _run_rows(parts)
    sums = parts[f"by {by}"].rows
    if by == "step":
        return sums
    rows = _rates(sums).select(*_keys(by), *_COLUMNS)
    return rows.sort("time_ns", "flops", descending=True, nulls_last=True, maintain_order=True)


def answer(parts: Parts, options: Options) -> Answer:
    table = rows(parts, options)
    notes = (*_use_notes(parts), *_mask_notes(parts), *_peak_notes(parts), *_unknown_notes(parts))
    return Answer("flops", table, _fields(table, options.by), notes)


# --- rows


def _keys(by: str) -> tuple[str, ...]:
    return ("op", "sizes") if by == "shape" else (by,)


def _parts(analysis: Analysis, by: str, spent: roofline.Roofline) -> Parts:
    if by in ("step", "run"):
        return _step_parts(analysis, spent, with_steps=by == "step")
    keys = _keys(by)
    ranges = analysis.attributed.ranges if keys[0] == "op" else analysis.complete.ranges
    columns = {key: ranges["name" if key == "op" else key].gather(spent.rows["range"]) for key in keys}
    rows = spent.rows.with_columns(**columns).group_by(keys, maintain_order=True).agg(_sums())
    return {f"by {by}": Part(rows.with_columns(_col(keys).cast(pl.String)), keys, _RULES)}


def _step_parts(analysis: Analysis, spent: roofline.Roofline, *, with_steps: bool) -> Parts:
    """Returns sums over the run and, if `with_steps` is set, a row for each step."""
    trace, rows = analysis.attributed, spent.rows
    spans = model_use.spans_of(trace, analysis.iterations)
    placed = model_use.in_spans(rows, trace.ranges, spans)
    times = model_use.on_devices(trace, spans, spent.owner)
    device_ns = _col("wall_ns").cast(pl.Float64) * _col("devices")
    use = model_use.use_of_run(placed, times, trace.work).filter(_col("devices") > 0)
    run_use = use.select(
        _col("is_known").all(),
        _col("ideal_ns", "masked_ns").sum(),
        wall_ns=bounded(_col("wall_ns").cast(pl.Int128).sum()),
        device_ns=device_ns.sum(),
    )
    sums = rows.select(_sums()) if rows.height else rows.group_by("range").agg(_sums()).drop("range")
    parts = {"run": Part(sums, (), _RULES), "use": Part(run_use, (), {"is_known": "all"})}
    if not with_steps:
        return parts
    use = model_use.use(placed, times, trace.work).filter(_col("devices") > 0)
    use = use.select("span", "wall_ns", *_mfu(device_ns))
    rates = _rates(placed.group_by("span", maintain_order=True).agg(_sums())).select("span", *_COLUMNS)
    steps = spans.select(*PROCESS, "step", "start_ns").with_row_index("span")
    steps = steps.join(rates, on="span", how="left").sort("span")
    steps = steps.join(use, on="span", how="left", maintain_order="left")
    return parts | {"by step": Part(steps.drop("span"), times=("start_ns",))}


def _run_rows(parts: Parts) -> pl.DataFrame:
    sums = parts["run"].rows
    use = parts["use"].rows.select("wall_ns", *_mfu(_col("device_ns")))
    return pl.concat([_rates(sums).select(_COLUMNS), use.head(sums.height)], how="horizontal")


def _mfu(time: pl.Expr) -> list[pl.Expr]:
    """Returns the model FLOPs utilization: the time that matrix products, convolutions and attention would take at the
    peak, as a share of the devices' time; null if it is unknown, or if none of these ops ran. `mfu_whole` also counts
    operations that attention masks hide."""
    ideal = _col("ideal_ns")
    known = pl.when(_col("is_known") & (ideal > 0) & (time > 0))
    return [known.then(ideal / time).alias("mfu"), known.then((ideal + _col("masked_ns")) / time).alias("mfu_whole")]


def _sums() -> list[pl.Expr]:
    is_known, ran = _col("flops").is_not_null(), _col("time_ns") > 0
    product = _col("is_product").fill_null(value=False)
    sums = {
        "flops": (_col("flops"), is_known),
        "product_flops": (_col("flops"), product),
        "masked_flops": (_col("masked_flops"), is_known),
        "bytes": (_col("bytes"), is_known),
        "time_ns": (_col("time_ns"), pl.lit(value=True)),
        "known_ns": (_col("time_ns"), is_known),
        "ran_flops": (_col("flops"), ran),
        "ran_bytes": (_col("bytes"), ran),
        "ran_ns": (_col("time_ns"), is_known & ran),
        "moved_flops": (_col("flops"), ran & _col("bytes").is_not_null()),
        "moved_ns": (_col("time_ns"), ran & _col("bytes").is_not_null()),
        "compute_ns": (_col("compute_ns"), ran),
        "memory_ns": (_col("memory_ns"), ran),
        "rated_ns": (_col("time_ns"), ran & _col("compute_ns").is_not_null()),
        "banded_ns": (_col("time_ns"), ran & _col("memory_ns").is_not_null()),
    }
    floats = ("compute_ns", "memory_ns")
    return [
        pl.len().cast(pl.Int64).alias("count"),
        product.any().alias("has_products"),
        _col("type").filter(product).unique().implode().alias("types_of_products"),
        _col("type").filter(is_known).unique().implode().alias("types"),
        pl.when(is_known.any()).then(_col("is_assumed").any()).alias("is_assumed"),
        is_known.any().alias("is_known"),
        _col("bytes").is_not_null().any().alias("has_bytes"),
        *(
            (of.filter(which).sum() if name in floats else bounded(of.cast(pl.Int128).filter(which).sum())).alias(name)
            for name, (of, which) in sums.items()
        ),
    ]


def _rates(rows: pl.DataFrame) -> pl.DataFrame:
    def share(part: str, of: str) -> pl.Expr:
        return pl.when(_col(of) > 0).then(_col(part) / _col(of))

    types = pl.when("has_products").then("types_of_products").otherwise("types")
    rows = rows.with_columns(
        *(pl.when("is_known").then(name).alias(name) for name in ("flops", "product_flops", "masked_flops")),
        pl.when("has_bytes").then("bytes").alias("bytes"),
        type=pl.when(types.list.len() == 1).then(types.list.first()),
        flops_per_s=share("ran_flops", "ran_ns") * 1e9,
        bytes_per_s=share("ran_bytes", "moved_ns") * 1e9,
        intensity=share("moved_flops", "ran_bytes"),
        compute_share=share("compute_ns", "rated_ns"),
        memory_share=share("memory_ns", "banded_ns"),
    )
    compute, memory = _col("compute_share"), _col("memory_share")
    is_known = compute.is_not_null() & memory.is_not_null()
    near = pl.when(compute > memory).then(pl.lit("compute")).otherwise(pl.lit("memory"))
    bound = pl.when(pl.max_horizontal(compute, memory) < LITTLE).then(pl.lit("neither")).otherwise(near)
    return rows.with_columns(bound=pl.when(is_known).then(bound))


# --- fields and notes


def _fields(rows: pl.DataFrame, by: str) -> list[Field]:
    if by == "step":
        names = [*varying_fields(fields.PLACES[:2], rows), fields.STEP]
    elif by == "run":
        names = []
    else:
        names = [of_ranges.field("Cost of", "op" if by == "shape" else by)] + ([_SIZES] if by == "shape" else [])
    use = [_MFU] if by in ("step", "run") and rows["mfu"].count() else []
    is_rated = rows["compute_share"].count() or rows["memory_share"].count()
    return [*names, fields.TIME, *use, *_COST, *(_BOUND if is_rated else ())]


def _parts_of_notes(analysis: Analysis, known: Costs, spent: roofline.Roofline) -> Parts:
    """Returns the data for the notes, in a form that can be added up over ranks."""
    peaks = [(peaks.name, peaks.source) for peaks in spent.peaks.values() if peaks is not None]
    rows = spent.rows
    missing = rows.filter(_col("flops").is_null())
    ops = missing.filter(_col("range").is_not_null())
    ops = ops.select(op=analysis.attributed.ranges["name"].cast(pl.String).gather(ops["range"]), time_ns="time_ns")
    facts = {
        "sized": analysis.attributed.ranges["sizes"].count(),
        "assumed": int(known.rows["is_assumed"].sum()),
        "costs": known.rows.height,
        "time_ns": int(rows["time_ns"].sum()),
        "device_ns": int(rows["time_ns"].sum()) if spent.has_devices else 0,
        "flops": float(known.rows["flops"].cast(pl.Float64).sum()),
        "masked": float(known.rows["masked_flops"].cast(pl.Float64).sum()),
        "unknown_masks": known.rows["masked_flops"].null_count(),
        "lost_ns": int(missing.filter(_col("range").is_null())["time_ns"].sum()),
        "unknown_peaks": len(spent.peaks) - len(peaks) if spent.has_devices else 0,
        "unknown_processors": 0 if spent.has_devices else len(spent.peaks) - len(peaks),
    }
    too_fast = "is_too_fast" if spent.has_devices else "is_faster_than_measured"
    none = pl.lit(value=False)
    for name in _BEYOND:
        column = {too_fast: _col("is_too_fast"), "is_cached": _col("is_cached")}.get(name, none)
        times = rows.filter(column)["time_ns"]
        facts |= {name: times.len(), f"{name}_ns": int(times.sum())}
    unknown = [rank for rank in analysis.tables.ranks if spent.peaks.get((rank.rank, None), rank) is None]
    models = {processor.name for rank in unknown if (processor := of_rank(rank)) is not None}
    texts = {"name": pl.String, "source": pl.String}
    return {
        **parts_of_lengths(analysis),
        "facts": Part(pl.DataFrame([facts]), ()),
        "peaks": _distinct(pl.DataFrame(peaks, schema=texts, orient="row")),
        "devices": _distinct(analysis.tables.devices.select(_col("name").cast(pl.String)).drop_nulls()),
        "processors": _distinct(pl.DataFrame({"name": sorted(models)}, schema={"name": pl.String})),
        "failed": _distinct(pl.DataFrame({"said": known.failed}, schema={"said": pl.String})),
        "missing": Part(ops.group_by("op", maintain_order=True).agg(_col("time_ns").sum()), ("op",)),
    }


def _distinct(rows: pl.DataFrame) -> Part:
    return Part(rows.unique(maintain_order=True), tuple(rows.columns))


def _use_notes(parts: Parts) -> list[str]:
    run = _run_rows(parts)
    if not run.height or run["mfu"][0] is None:
        return []
    lengths = lengths_of(parts)
    of = number_text(lengths) if lengths.steps else "the whole run, for no steps were found"
    peak = "the devices" if parts["facts"].rows["device_ns"][0] else "the processors"
    sentence = f"MFU: {100 * run['mfu'][0]:.1f}% of the peak of {peak}, from the first work to the last of {of}"
    if run["masked_flops"][0]:
        sentence += f"; {100 * run['mfu_whole'][0]:.1f}% if causal attention counts whole"
    return [sentence]


def _mask_notes(parts: Parts) -> list[str]:
    facts = parts["facts"].rows.row(0, named=True)
    notes = []
    if facts["masked"]:
        hidden = f"{short_number(facts['masked'], 'FLOP')} ({_share(facts['masked'], facts['flops'])})"
        notes.append(
            f"FLOP and FLOP/s count attention whole; causal masks and windows hide {hidden}, which shares and the MFU "
            "are without"
        )
    if many := facts["unknown_masks"]:
        are = "ops of attention are causal: they count" if many > 1 else "op of attention is causal: it counts"
        notes.append(f"The trace does not say whether {many:,} {are} whole")
    return notes


def _peak_notes(parts: Parts) -> list[str]:
    facts = parts["facts"].rows.row(0, named=True)
    notes = [f"Peaks are those of {name} ({source})" for name, source in parts["peaks"].rows.iter_rows()]
    if facts["unknown_peaks"]:
        devices = _listed(parts["devices"])
        how = "say --peak bf16=989e12 --peak bandwidth=3.35e12, or --peak 'H100 SXM'"
        notes.append(f"The peaks of a device are not known{devices}, so no share of them is: {how}")
    if facts["unknown_processors"]:
        processors = _listed(parts["processors"])
        how = "`opspan doctor --measure-peaks` measures them for later recordings of opspan, or say --peak fp32=2e12"
        notes.append(f"The peaks of the processor are not known{processors}, so no share of them is: {how}")
    return notes


def _listed(names: Part) -> str:
    texts = [printable(name) for name in names.rows["name"]]
    return f" ({listed(texts)})" if texts else ""


def _unknown_notes(parts: Parts) -> list[str]:
    facts = parts["facts"].rows.row(0, named=True)
    notes = parts["failed"].rows["said"].to_list()
    if not facts["sized"]:
        return [*notes, "No op of this trace has sizes, so no cost is known: record_shapes=True records them"]
    if facts["assumed"]:
        text = f"of {facts['assumed']:,} of {facts['costs']:,} ops with a cost"
        notes.append(f"float32 was assumed where the trace has no types: {text}")
    total = facts["time_ns"]
    if not total:
        return notes
    of = _time_of(facts["device_ns"], total)
    for name, text in _BEYOND.items():
        if facts[name]:
            share = _share(facts[f"{name}_ns"], total)
            notes.append(f"{plural(facts[name], 'op')} ({share} of {of}) {text}")
    if facts["lost_ns"]:
        notes.append(f"{_share(facts['lost_ns'], total)} of {of} belongs to no range")
    most = parts["missing"].rows.sort("time_ns", "op", descending=[True, False])
    if most.height:
        named = most.filter((_col("time_ns") >= NAMED * total) | (pl.int_range(pl.len()) == 0))
        by_reason: dict[str, list[str]] = {}
        for op, ns in named.iter_rows():
            by_reason.setdefault(why_unknown(str(op)), []).append(f"{printable(str(op))} {_share(ns, total)}")
        groups = [f"{', '.join(ops)} ({reason})" for reason, ops in by_reason.items()]
        if others := most.height - named.height:
            groups.append(f"{plural(others, 'other')} {_share(int(most['time_ns'][named.height :].sum()), total)}")
        unknown_share = _share(int(most["time_ns"].sum()), total)
        notes.append(f"Nothing is known of the cost of {unknown_share} of {of}: {', '.join(groups)}")
    return notes


def _time_of(device_ns: int, total_ns: int) -> str:
    """Returns the words for the time of all rows: device time or, for ranks without a device, time of ops on the
    host."""
    if not device_ns:
        return "the ops' time on the host"
    return "the device time" if device_ns == total_ns else "the time of devices and, where a rank used none, of ops"


def _share(part: float, total: float) -> str:
    return f"{100 * part / total:.1f}%"


QUESTION = Question("flops", parts, rows, answer, rows_of_one)
