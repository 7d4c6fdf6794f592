"""The details of shapes. When a user chooses a shape, the page shows its name, its times and its details. Each detail
is a column that has a row for each shape except blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.views.page.timeline_columns import of_numbers, of_texts

_col = pl.col
_TEXT, _NUMBER = "text", "count"
# For each detail: the name of its column, its title, its unit.
_RANGES = (
    ("seq", "Sequence number", "number"),
    ("sizes", "Sizes", _TEXT),
    ("input_types", "Types of inputs", _TEXT),
    ("inputs", "Values of inputs", _TEXT),
    ("module", "Module", _TEXT),
    ("phase", "Phase", _TEXT),
    ("step", "Step", _TEXT),
    ("class_name", "Class", _TEXT),
    ("overload", "Overload", _TEXT),
    ("device_ns", "Device time", "ns"),
    ("domain", "Domain", _TEXT),
    ("category", "Category", _TEXT),
    ("args", "Arguments", _TEXT),
    ("payload", "Payload", _TEXT),
    ("payload_json", "Data", _TEXT),
)
_CALLS = (
    ("op", "In", _TEXT),
    ("why", "Waits for", _TEXT),
    ("api", "Interface", _TEXT),
    ("correlation_id", "Correlation", "number"),
    ("return_code", "Returned", "number"),
)
_WORK = (
    ("op", "Launched in", _TEXT),
    ("module", "Module", _TEXT),
    ("phase", "Phase", _TEXT),
    ("step", "Step", _TEXT),
    ("full", "Full name", _TEXT),
    ("bytes", "Bytes", "bytes"),
    ("copied", "Memory", _TEXT),
    ("grid", "Grid", _TEXT),
    ("block", "Block", _TEXT),
    ("registers", "Registers of a thread", _NUMBER),
    ("shared", "Shared memory", "bytes"),
    ("context_id", "Context", "number"),
    ("graph_id", "Graph", "number"),
    ("correlation_id", "Correlation", "number"),
)
_GAPS = (
    ("next", "Ended by", _TEXT),
    ("host_ns", "Until the host launched", "ns"),
    ("launch_ns", "From the launch on", "ns"),
    ("queued_ns", "Launched before, queued", "ns"),
)
_SAMPLES = (
    ("op", "In", _TEXT),
    ("module", "Module", _TEXT),
    ("phase", "Phase", _TEXT),
    ("step", "Step", _TEXT),
    ("call", "In the call", _TEXT),
)
_COLUMNS = {"ranges": _RANGES, "calls": _CALLS, "work": _WORK, "gaps": _GAPS, "functions": ()}


def details(analysis: Analysis, table: str, rows: pl.Series) -> list[dict[str, Any]]:
    """Returns the columns of details. A column has a value for each of `rows`, in the same order. Columns without any
    value are left out."""
    return _known(_FRAMES[table](analysis, rows), _COLUMNS[table])


def sample_details(analysis: Analysis, ranges: pl.Series, calls: pl.Series) -> list[dict[str, Any]]:
    """Returns the columns of details of points that stand for samples. `ranges` and `calls` are the rows of the
    innermost range and call that were open on the thread of each."""
    names = analysis.complete.calls["name"].gather(calls)
    return _known(pl.DataFrame([*_range_columns(analysis, ranges), names.alias("call")]), _SAMPLES)


def _known(frame: pl.DataFrame, of: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
    columns = []
    for name, title, unit in of:
        column = frame[name]
        if column.null_count() == len(column):
            continue
        texts = unit == _TEXT
        columns.append(of_texts(name, title, column) if texts else of_numbers(name, title, unit, column))
    return columns


def self_times(analysis: Analysis, rows: pl.Series) -> pl.Series:
    """Returns the data from which the page computes self times: for each range, the time of the ranges directly inside
    it; null if unknown."""
    ranges = analysis.complete.ranges.select("start_ns", "end_ns", "self_ns")[rows]
    return ranges.select(inner=_col("end_ns") - _col("start_ns") - _col("self_ns"))["inner"]


def _ranges(analysis: Analysis, rows: pl.Series) -> pl.DataFrame:
    payload = pl.coalesce(_col(f"payload_{name}").cast(pl.String) for name in ("int", "uint", "float"))
    device_ns = pl.when(_col("device_ns") > 0).then("device_ns")
    return analysis.complete.ranges[rows].with_columns(payload=payload, device_ns=device_ns)


def _calls(analysis: Analysis, rows: pl.Series) -> pl.DataFrame:
    calls, waits = analysis.complete.calls, analysis.waits
    why = pl.Series([None], dtype=waits.schema["why"]).new_from_index(0, calls.height)
    why = why.scatter(waits["call"], waits["why"])
    return calls[rows].with_columns(_range_columns(analysis, calls["range"].gather(rows)), why=why.gather(rows))


def _work(analysis: Analysis, rows: pl.Series) -> pl.DataFrame:
    work = analysis.complete.work[rows]
    shared = _col("static_shared_bytes").fill_null(0) + _col("dynamic_shared_bytes").fill_null(0)
    both = pl.format("{} to {}", _col("copy_from").cast(pl.String), _col("copy_to").cast(pl.String))
    return work.with_columns(
        _range_columns(analysis, work["range"]),
        full=pl.when(_col("full_name") != _col("name")).then("full_name"),
        copied=pl.coalesce(both, _col("copy_to").cast(pl.String)),
        grid=_product("grid"),
        block=_product("block"),
        shared=pl.when(shared > 0).then(shared),
    )


def _product(name: str) -> pl.Expr:
    return pl.format("{} \u00d7 {} \u00d7 {}", *(_col(f"{name}_{axis}") for axis in "xyz"))


def _gaps(analysis: Analysis, rows: pl.Series) -> pl.DataFrame:
    gaps = analysis.gaps[rows]
    names = analysis.complete.work["name"].gather(gaps["next"])
    times = (pl.when(_col(name) > 0).then(name).alias(name) for name in ("host_ns", "launch_ns", "queued_ns"))
    return gaps.with_columns(*times, next=names)


def _range_columns(analysis: Analysis, range_: pl.Series) -> list[pl.Series]:
    ranges = analysis.complete.ranges
    names = {"op": "name", "module": "module", "phase": "phase", "step": "step"}
    return [ranges[column].gather(range_).alias(name) for name, column in names.items()]


_FRAMES: dict[str, Callable[[Analysis, pl.Series], pl.DataFrame]] = {
    "ranges": _ranges,
    "calls": _calls,
    "work": _work,
    "gaps": _gaps,
    "functions": lambda analysis, rows: analysis.complete.functions[rows],
}
