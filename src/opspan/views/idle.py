"""The times when devices had nothing to do, and what the host ran meanwhile: `opspan idle`."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.idle import WHY, before_work_ns, in_functions, in_sampled_functions
from opspan.analysis.lanes import in_lanes
from opspan.analysis.launched import STREAM
from opspan.analysis.parts import Part, Parts
from opspan.analysis.samples import FEW
from opspan.printable import plural
from opspan.questions import Options, Question
from opspan.views import of_ranges
from opspan.views.answer import Answer
from opspan.views.fields import IN, PLACES, REASON, Field, share, shares_of_kinds, varying_fields

_GAP = (IN, REASON)
_IDLE = Field("time_ns", "Idle", "ns")
_GAPS = Field("gaps", "Gaps", "count", rank=5)
_ELSEWHERE = share("elsewhere_ns", "Others busy", "time_ns", "Idle", 1)
_WHY = {"host": "Host", "launch": "Launch", "queued": "Queued", "unknown": "Unknown"}
WHY_IDLE = {
    "host": "until the host launched",
    "launch": "in launches",
    "queued": "though it was launched",
    "unknown": "for unknown reasons",
}
_TIMES = [f"{why}_ns" for why in WHY]
_col = pl.col


@in_lanes
def parts(analysis: Analysis, options: Options) -> Parts:
    work = {
        "work": [analysis.tables.work.height],
        "before_work_ns": [before_work_ns(analysis.attributed, analysis.gaps)],
    }
    pieces = in_sampled_functions(analysis.attributed, analysis.gaps) if _is_sampled(analysis, options.by) else None
    return {
        "rows": _idle_part(analysis, options.by, pieces),
        "work": Part(pl.DataFrame(work), ()),
        "sampled": _sampled_part(pieces),
    }


def _is_sampled(analysis: Analysis, by: str) -> bool:
    """Returns whether samples of processors say what the functions were, because no tool traced functions, and ops have
    no stacks."""
    tables = analysis.tables
    is_traced = tables.functions.height > 0 or tables.ranges["stack"].count() > 0
    return by == "function" and not is_traced and tables.samples.height > 0


def _sampled_part(pieces: pl.DataFrame | None) -> Part:
    """Returns the number of samples of each function. A sample counts once, though several devices may be idle."""
    rows = pl.DataFrame(schema={"function": pl.String, "samples": pl.Int64})
    if pieces is not None:
        counts = pieces.drop_nulls(("sample", "function")).unique("sample", maintain_order=True)
        counts = counts.group_by("function", maintain_order=True).agg(samples=pl.len().cast(pl.Int64))
        rows = counts.with_columns(_col("function").cast(pl.String))
    return Part(rows, ("function",))


def rows(parts: Parts, options: Options) -> pl.DataFrame:
    return parts["rows"].rows.sort("time_ns", descending=True, maintain_order=True)


def _idle_part(analysis: Analysis, by: str, sampled: pl.DataFrame | None) -> Part:
    if by == "gap":
        return Part(_gap_rows(analysis), times=("start_ns", "end_ns"))
    if by == "stream":
        sums = analysis.stream_gaps.group_by(STREAM, maintain_order=True).agg(
            time_ns=(_col("end_ns") - _col("start_ns")).sum(),
            gaps=pl.len().cast(pl.Int64),
            **{name: _col(name).sum() for name in (*_TIMES, "elsewhere_ns")},
        )
        return Part(sums, STREAM)
    key = ("rank", "pid", "device_id") if by == "device" else (by,)
    is_traced = by == "function" and analysis.tables.functions.height > 0
    if sampled is not None:
        pieces = sampled
    elif is_traced:
        pieces = in_functions(analysis.attributed, analysis.gaps)
    else:
        pieces = analysis.idle
    if by == "device":
        pieces = pieces.with_columns(analysis.gaps[name].gather(pieces["gap"]) for name in key)
    elif is_traced:
        pieces = pieces.with_columns(analysis.tables.functions["name"].gather(pieces["function"]).alias(by))
    elif sampled is None:
        pieces = pieces.with_columns(of_ranges.names(analysis, by, pieces["range"]))
    times = {f"{why}_ns": pl.when(_col("why") == why).then("ns").otherwise(0) for why in WHY}
    sums = (
        pieces.with_columns(**times)
        .group_by(key, maintain_order=True)
        .agg(_col("ns").sum().alias("time_ns"), _col("gap").n_unique().cast(pl.Int64).alias("gaps"), _col(*times).sum())
    )
    return Part(sums if by == "device" else sums.with_columns(_col(by).cast(pl.String)), key)


def _gap_rows(analysis: Analysis) -> pl.DataFrame:
    """Returns the gaps. `op` is the op to which `Analysis.idle` attributes the largest piece of the gap."""
    pieces = analysis.idle.sort("ns", descending=True, maintain_order=True)
    most = pieces.unique("gap", keep="first", maintain_order=True)
    most = most.select("gap", op=of_ranges.names(analysis, "op", most["range"]).cast(pl.String))
    rows = analysis.gaps.with_row_index("gap").join(most, on="gap", how="left", maintain_order="left")
    rows = rows.with_columns(time_ns=_col("end_ns") - _col("start_ns"))
    return rows.select(
        "rank", "pid", "device_id", "start_ns", "end_ns", "time_ns", _col("why").cast(pl.String), "op", *_TIMES
    )


def answer(parts: Parts, options: Options) -> Answer:
    table, by = rows(parts, options), options.by
    if by in ("gap", "device", "stream"):
        always = {"device": STREAM[:3], "stream": ("device_id", "stream_id")}.get(by, ())
        names = varying_fields(PLACES, table, always) + list(_GAP if by == "gap" else ())
    else:
        names = [of_ranges.field("The host was in", by)]
    elsewhere = [_ELSEWHERE] if by == "stream" else []
    counted = [] if by == "gap" else [_GAPS]
    shares = shares_of_kinds(_WHY, table, "time_ns", "Idle")
    return Answer("idle", table, (*names, _IDLE, *elsewhere, *counted, *shares), tuple(_notes(parts, table, by)))


def _notes(parts: Parts, rows: pl.DataFrame, by: str) -> list[str]:
    if not parts["work"].rows["work"][0]:
        return ["Nothing ran on a device in this trace, so none was idle"]
    total = int(rows["time_ns"].sum()) / 1e6
    times = {text: int(rows[f"{why}_ns"].sum()) / 1e6 for why, text in WHY_IDLE.items()}
    if not any(times.values()):
        return []
    reasons = ", ".join(f"{ms:.3f} ms {text}" for text, ms in times.items() if ms)
    notes = [f"{'Streams' if by == 'stream' else 'Devices'} were idle for {total:.3f} ms: {reasons}"]
    before = int(parts["work"].rows["before_work_ns"][0]) / 1e6
    if before and by != "stream":
        notes.append(f"Of that {before:.3f} ms were before the first work of each device")
    return [*notes, *_notes_on_samples(parts["sampled"].rows)]


def _notes_on_samples(functions: pl.DataFrame) -> list[str]:
    if not functions.height:
        return []
    notes = [
        f"The functions are those of {plural(int(functions['samples'].sum()), 'sample')}: the host's time in a gap is "
        "divided equally among the samples of the launching thread, and time in gaps without a sample is in none"
    ]
    few = int((functions["samples"] < FEW).sum())
    if few:
        notes.append(f"{plural(few, 'function')} had fewer than {FEW} samples, so the time of each is only an estimate")
    return notes


QUESTION = Question("idle", parts, rows, answer)
