"""Turns a report that has one row for each name into the table metrics, which has one row for each name and metric.

The first column of a report has names, and the others have numbers. A summary has the columns section, name, metric and
value instead. A name may be a label of opspan or torch. If several labels have the same name, their metrics are added,
and metrics that cannot be added are left out.
"""

from __future__ import annotations

from typing import TypeVar

import polars as pl

from opspan.errors import UsageError
from opspan.labels import parse_column
from opspan.printable import listed
from opspan.tables.issues import Issues
from opspan.tables.schema import METRICS
from opspan.tables.tables import Tables

_LONG = ("section", "name", "metric", "value")
_TASKS = "Task"  # part of the titles of sections about tasks, VTune's word for ranges
_NO_NAME = r"^\[.*\]$|^$"  # matches entries without a name: [Outside any task], [Others]
# Matches titles of metrics that cannot be added, such as averages.
_NO_SUM = r"(?i)%|average|avg|ratio|rate\b|peak|max|min\b|width|latency|frequency|\bcpi\b"
_col = pl.col
T = TypeVar("T", bound=Tables)


def with_metrics(trace: T, report: pl.DataFrame, issues: Issues | None = None) -> T:
    """Adds the report to the trace's metrics. `issues`: the issues from reading the report."""
    metrics = metrics_of(report)
    issues = issues or Issues()
    names = metrics["name"] if metrics.height or "name" not in report.columns else report["name"]
    issues.add("unmatched_metrics", _count_unknown(names, trace))
    return trace.replace(metrics=pl.concat([trace.metrics, metrics]), issues=pl.concat([trace.issues, issues.frame()]))


def _count_unknown(names: pl.Series, trace: Tables) -> int:
    """Returns how many of the names are not in the trace."""
    texts = trace.ranges.filter(pl.col("name").is_null())["text"]  # labels that a reader did not split into fields
    known = [trace.ranges["name"], parse_column(texts)["name"], trace.work["name"], trace.work["full_name"]]
    have = pl.concat([column.unique().cast(pl.String) for column in known])
    return int((~names.cast(pl.String).unique().is_in(have.implode())).sum())


def metrics_of(report: pl.DataFrame) -> pl.DataFrame:
    if set(_LONG) <= set(report.columns):
        long = report.filter(_col("section").str.contains(_TASKS, literal=True)).select("name", "metric", "value")
    else:
        long = _of_table(report)
    long = long.drop_nulls().filter(~_col("name").str.contains(_NO_NAME))
    named = long.with_columns(parse_column(long["name"])["name"].cast(pl.String).alias("name"))
    one = _col("value").len() == 1
    can_be_added = ~_col("metric").first().str.contains(_NO_SUM)
    metrics = named.group_by("name", "metric", maintain_order=True).agg(
        pl.when(one | can_be_added).then(_col("value").sum()).alias("value")
    )
    return metrics.drop_nulls().select(
        pl.lit(0, dtype=pl.Int32).alias("rank"), *(_col(name).cast(METRICS.schema[name]) for name in metrics.columns)
    )


def _of_table(report: pl.DataFrame) -> pl.DataFrame:
    names, numbers = report.columns[:1], [name for name, dtype in report.schema.items() if dtype.is_numeric()]
    if names and not report.height:
        raise UsageError(
            f"the report has no rows, only titles ({listed(report.columns)}); expected one by "
            "task: `vtune -report hotspots -group-by task -format csv -r RESULT`"
        )
    if not names or report.schema[names[0]] not in (pl.String, pl.Categorical) or not numbers:
        raise UsageError(
            f"a report with columns {listed(report.columns) or '(none)'} has no metrics by name; expected names in "
            "the first column and numbers in others, as opspan.load_vtune_report gives"
        )
    return (
        report.select(
            _col(names[0]).cast(pl.String).alias("\0name"), *(_col(name).cast(pl.Float64) for name in numbers)
        )
        .unpivot(index="\0name", variable_name="metric", value_name="value")
        .rename({"\0name": "name"})
    )


def wide(metrics: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each rank and name, with a column for each metric."""
    titles = metrics["metric"].cast(pl.String).unique(maintain_order=True).drop_nulls().to_list()
    columns = [_col("value").filter(_col("metric").cast(pl.String) == title).last().alias(title) for title in titles]
    return metrics.group_by("rank", _col("name").cast(pl.String), maintain_order=True).agg(columns)
