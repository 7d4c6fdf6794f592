"""The kernels by name or by launch configuration, with the ops that launched them. Copies and fills have separate
tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from opspan.analysis.averages import WORK_ORDER, in_order
from opspan.analysis.kernel_use import KERNELS, USES, figures, launched
from opspan.analysis.source_lines import SEPARATOR, knows_lines, line_texts
from opspan.questions import Options
from opspan.tables import Tables
from opspan.views import fields
from opspan.views.fields import Field, with_values
from opspan.views.missing import device_command
from opspan.views.page.columns import MOST_ROWS, table, text, values
from opspan.views.page.section import Section, Subject
from opspan.views.table import table_of

_col = pl.col
TOP = 10
MOST_OPS = 10  # for each kernel, maximum number of ops that are listed; also of full names, and of lines
_SIDES = {what: [f"{what}_{side}" for side in "xyz"] for what in ("grid", "block")}
_LAUNCH = ("full_name", "op", *_SIDES["grid"], *_SIDES["block"], "registers", "shared_bytes")
_TIMES = (
    Field("count", "Runs", "count"),
    Field("device_ns", "Total", "ns", bar=True),
    replace(fields.SHARE, help="Of the time of all kernels"),
    Field("average_device_ns", "Mean", "ns"),
    Field("least_device_ns", "Min", "ns"),
    Field("most_device_ns", "Max", "ns"),
)
_USE = (
    fields.BLOCKS_PER_SM,
    replace(
        fields.OCCUPANCY, help="Of the warps that a multiprocessor can hold: estimated from the launch, not measured"
    ),
    fields.TENSOR_CORES,
)
_LINES = Field("lines", "Lines", "text", "Lines of the program that it was made from, or called on")
_BY_NAME = (Field("name", "Kernel", "name"), *_TIMES, *_USE, _LINES)
_BY_LAUNCH = (
    Field("kernel", "Kernel", "name"),
    Field("op", "Launched in", "name"),
    Field("grid", "Grid", "text", "Blocks of the launch"),
    Field("block", "Block", "text", "Threads of a block"),
    Field("registers", "Registers", "count", "Of a thread"),
    Field("shared_bytes", "Shared memory", "bytes", "Of a block"),
    *_TIMES,
    *_USE,
)
_COPIES = (
    fields.RANK,
    fields.DEVICE_ID,
    fields.FROM,
    fields.TO,
    fields.COPIES,
    replace(fields.SIZE, bar=True),
    replace(fields.COPY_TIME, bar=True),
    fields.SPEED,
)
_FILLS = (Field("name", "Fill", "name"), *_TIMES[:2], *_TIMES[3:])
# Columns that a source may lack -> their names in a sentence.
_LACKING = {
    "blocks_per_sm": "blocks per multiprocessor",
    "occupancy": "occupancy",
    "registers": "registers",
    "shared_bytes": "shared memory",
    "grid": "grids",
    "block": "blocks",
    "op": "the ops that launched kernels",
}


def section(subject: Subject) -> Section:
    analysis = subject.analysis
    rows = table_of(analysis, Options("kernel")).rows
    is_kernel = _col("kind").is_in(KERNELS)
    kernels = rows.filter(is_kernel)
    if not rows.height:
        return Section("Kernels", None, "Nothing ran on a device in this trace", device_command(analysis.tables))
    trace = analysis.attributed
    work = launched(trace.work, trace.devices).filter(is_kernel)
    work = work.with_columns(trace.ranges["name"].gather(work["range"]).alias("op"))
    launches = _launches(work)
    kernels = _with_lines(trace, kernels)
    tables = [
        {"title": "name", "rows": _table(kernels, _BY_NAME), "names": values(kernels["name"].head(MOST_ROWS))},
        {"title": "launch", "rows": _table(launches, _BY_LAUNCH), "names": values(launches["name"].head(MOST_ROWS))},
    ]
    time = {uses: int(kernels.filter(_col("uses_tensor_cores") == uses)["device_ns"].sum()) for uses in USES.categories}
    total = int(kernels["device_ns"].sum())
    fills = rows.filter(kind="memset")
    return Section(
        "Kernels",
        {
            "total_ns": total,
            "tables": tables if kernels.height else [],
            "ops": _ops(launches, kernels.head(MOST_ROWS)),
            "top": [
                {"name": text(str(name)), "ns": ns} for name, ns in kernels.select("name", "device_ns").head(TOP).rows()
            ],
            "tensor_cores": [{"uses": uses, "ns": ns} for uses, ns in time.items()],
            "copies": table(analysis.copies, _COPIES) if analysis.copies.height else None,
            "fills": table(fills, _FILLS) if fills.height else None,
            "notes": _notes(kernels, launches),
        },
    )


def _launches(work: pl.DataFrame) -> pl.DataFrame:
    rows = figures(work, ("kind", "name", *_LAUNCH))
    sides = (
        pl.when(_col(names[0]).is_not_null()).then(pl.concat_str(names, separator=" x ", ignore_nulls=True)).alias(what)
        for what, names in _SIDES.items()
    )
    return rows.with_columns(*sides, kernel=pl.coalesce("full_name", "name"))


def _with_lines(trace: Tables, kernels: pl.DataFrame) -> pl.DataFrame:
    """Adds the source lines of all runs of each kernel, if the trace knows lines."""
    if not knows_lines(trace):
        return kernels
    rows = trace.work.select("kind", _col("name").cast(pl.String), line_texts(trace)[1].cast(pl.String)).drop_nulls()
    rows = rows.unique().with_columns(_col("lines").str.split(SEPARATOR)).explode("lines")
    rows = rows.group_by("kind", "name").agg(_col("lines").unique().sort().head(MOST_OPS).str.join(SEPARATOR))
    rows = rows.cast({"kind": kernels.schema["kind"], "name": kernels.schema["name"]})
    return kernels.join(rows, on=["kind", "name"], how="left", maintain_order="left")


def _table(rows: pl.DataFrame, columns: tuple[Field, ...]) -> dict[str, Any]:
    """Returns a table without empty columns, because the notes already say what the source lacks."""
    rows = rows.with_columns(share=(_col("device_ns") / _col("device_ns").sum()).fill_nan(0.0))
    return table(rows, with_values(columns, rows))


def _ops(launches: pl.DataFrame, kernels: pl.DataFrame) -> list[dict[str, Any]]:
    """Returns for each kernel its full names, and the ops that launched it, the op with the most time first."""
    by = ("kind", "name", "op")
    by_op = in_order(launches.group_by(by).agg(_col(WORK_ORDER).sum()), WORK_ORDER, by)
    by_op = by_op.group_by("kind", "name", maintain_order=True).agg(
        _col("op", "count", "device_ns").head(MOST_OPS), ops=pl.len()
    )
    by_op = by_op.with_columns(_col("name").cast(pl.String))
    full = launches.group_by("kind", _col("name").cast(pl.String)).agg(
        _col("full_name").drop_nulls().unique().sort().head(MOST_OPS)
    )
    joined = kernels.select("kind", "name").join(
        by_op, on=["kind", "name"], how="left", nulls_equal=True, maintain_order="left"
    )
    joined = joined.join(full, on=["kind", "name"], how="left", nulls_equal=True, maintain_order="left")
    return [
        {
            "op": ["(in none)" if op is None else text(op) for op in row["op"]],
            "count": row["count"],
            "ns": row["device_ns"],
            "more": max(row["ops"] - MOST_OPS, 0),
            "full": [text(name) for name in row["full_name"] if name != row["name"]],
        }
        for row in joined.to_dicts()
    ]


def _notes(kernels: pl.DataFrame, launches: pl.DataFrame) -> list[str]:
    lacking = [
        words
        for name, words in _LACKING.items()
        if not (kernels if name in kernels.columns else launches)[name].count()
    ]
    notes = ["Whether a kernel uses tensor cores is told by its name: that is all that every source has"]
    return [*notes, f"This trace does not have: {', '.join(lacking)}"] if lacking else notes
