"""What a report says by name -> the table metrics, one row a name and metric.

A report has a column of names, the first, and columns of numbers; or it is long, as a summary is: section, name,
metric, value. Names may be labels: several of one op are one name, of which what can be added is added, and the rest is
not known.
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
_TASKS = "Task"  # in the title of a section that is about tasks
_NO_NAME = r"^\[.*\]$|^$"  # [Outside any task], [Others]
_NO_SUM = r"(?i)%|average|avg|ratio|rate\b|peak|max|min\b|width|latency|frequency|\bcpi\b"
_col = pl.col
T = TypeVar("T", bound=Tables)


def with_metrics(trace: T, report: pl.DataFrame, issues: Issues | None = None) -> T:
    """The trace with what a report says of its names. `issues`: those of reading the report."""
    found = metrics_of(report)
    issues = issues or Issues()
    names = found["name"] if found.height or "name" not in report.columns else report["name"]
    issues.add("unmatched_metrics", _without(names, trace))
    return trace.replace(metrics=pl.concat([trace.metrics, found]), issues=pl.concat([trace.issues, issues.frame()]))


def _without(names: pl.Series, trace: Tables) -> int:
    """How many of the names stand for nothing in the trace."""
    texts = trace.ranges.filter(pl.col("name").is_null())["text"]  # labels that a reader left whole
    known = [trace.ranges["name"], parse_column(texts)["name"], trace.work["name"], trace.work["full_name"]]
    have = pl.concat([column.unique().cast(pl.String) for column in known])
    return int((~names.cast(pl.String).unique().is_in(have.implode())).sum())


def metrics_of(report: pl.DataFrame) -> pl.DataFrame:
    long = _of_summary(report) if set(_LONG) <= set(report.columns) else _of_table(report)
    long = long.drop_nulls().filter(~_col("name").str.contains(_NO_NAME))
    named = long.with_columns(parse_column(long["name"])["name"].cast(pl.String).alias("name"))
    one = _col("value").len() == 1
    can_be_added = ~_col("metric").first().str.contains(_NO_SUM)
    found = named.group_by("name", "metric", maintain_order=True).agg(
        pl.when(one | can_be_added).then(_col("value").sum()).alias("value")
    )
    return found.drop_nulls().select(
        pl.lit(0, dtype=pl.Int32).alias("rank"), *(_col(name).cast(METRICS.schema[name]) for name in found.columns)
    )


def _of_summary(report: pl.DataFrame) -> pl.DataFrame:
    return report.filter(_col("section").str.contains(_TASKS, literal=True)).select("name", "metric", "value")


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
    """A row a rank and name, a column a metric."""
    titles = metrics["metric"].cast(pl.String).unique(maintain_order=True).drop_nulls().to_list()
    columns = [_col("value").filter(_col("metric").cast(pl.String) == title).last().alias(title) for title in titles]
    return metrics.group_by("rank", _col("name").cast(pl.String), maintain_order=True).agg(columns)
