"""The iterations of a run, a row each, whoever named them.

    iterations(ranges, names=None, work=None) -> rank, pid, step, start_ns, end_ns, how, is_outlier

They are, for each process, the first of these that there is:

    how         the iterations are
    named       the ranges of `names`, if they are given
    step        the ranges ProfilerStep#N
    repeats     the ranges of one name of the program's own (no op), that is there three times or more, outside of all
                others, and takes half of the time of its process, each without the longest of them, which may be no
                iteration but what came before: of several such names, the one that takes most
    optimizer   what lies between the ends of the ranges Optimizer.step#...
    kernels     where the same kernels come in the same order again and again, if `work` is given (`repeating`)

`step` is the name of the range, with a number behind it where all have the same. An iteration is an outlier that takes
longer than the median by a tenth and by three times the usual deviation (1.4826 times the median one).
Ranges must be nested (`nest`) first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import PROCESS, distinct, length, only
from opspan.analysis.steps import matching, torch_steps

_col = pl.col
_OPTIMIZER = r"^Optimizer\.step#"
_OF_PROGRAM = ("user", "module", "step", "script")
_LEAST = 3  # iterations that no name says
_SHARE = 0.5
DEVIATIONS = 3 * 1.4826  # median ones: what differs from the median by more is no noise
COLUMNS = (*PROCESS, "step", "start_ns", "end_ns", "how", "is_outlier")


def iterations(ranges: pl.DataFrame, names: pl.Series | None = None, work: pl.DataFrame | None = None) -> pl.DataFrame:
    columns = (*PROCESS, "tid", "name", "start_ns", "end_ns", "kind", "depth", "is_async", "is_mark")
    is_range = ~_col("is_mark").fill_null(value=False)
    whole = only(ranges.select(columns), is_range & (_col("end_ns") >= _col("start_ns")))
    if names is not None:
        found = [_numbered(_called(whole, names), "named")]
    else:
        steps = _numbered(_called(whole, torch_steps(whole)), "step")
        found = [steps, _repeating(whole), _between_optimizers(whole)]
    rows = found[0]
    for more in found[1:]:
        rows = pl.concat([rows, more.join(rows, on=PROCESS, how="anti", nulls_equal=True)])
    if work is not None and names is None:
        silent = distinct(work, PROCESS)
        silent = silent.join(rows, on=PROCESS, how="anti", nulls_equal=True) if rows.height else silent
        if silent.height:
            from opspan.analysis.repeating import repeating  # late: it needs numpy, and most runs do not

            if rows.height:
                work = work.join(silent, on=PROCESS, how="semi", nulls_equal=True, maintain_order="left")
            named = repeating(work).with_columns(name=pl.lit("iteration"))
            rows = pl.concat([rows, _numbered(named, "kernels")])
    return _with_outliers(rows.sort(*PROCESS, "start_ns", "end_ns")).select(COLUMNS)


def _called(ranges: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    return ranges.filter(_col("name").is_in(names.cast(pl.Categorical).implode()))


def _repeating(ranges: pl.DataFrame) -> pl.DataFrame:
    """The ranges of one thread's name that fill most of each process' time."""
    outside = ranges.filter(_col("depth") == 0, ~_col("is_async"), _col("kind").is_in(_OF_PROGRAM))
    names = outside.group_by(*PROCESS, "tid", "name").agg(count=pl.len(), ns=length().sum(), longest_ns=length().max())
    names = names.filter(_col("count") >= _LEAST)
    if not names.height:
        return _numbered(outside.clear(), "repeats")
    spans = ranges.group_by(PROCESS).agg(span_ns=_col("end_ns").max() - _col("start_ns").min())
    names = names.join(spans, on=PROCESS, nulls_equal=True)
    others, rest = _col("ns") - _col("longest_ns"), _col("span_ns") - _col("longest_ns")
    names = names.filter(others >= _SHARE * rest)
    best = names.sort("ns", "name", descending=[True, False]).unique(PROCESS, keep="first", maintain_order=True)
    return _numbered(outside.join(best, on=[*PROCESS, "tid", "name"], how="semi", nulls_equal=True), "repeats")


def _between_optimizers(ranges: pl.DataFrame) -> pl.DataFrame:
    optimizers = _called(ranges, matching(ranges, _OPTIMIZER))
    if not optimizers.height:
        return _numbered(optimizers, "optimizer")
    # With several optimizers an iteration ends with the last of those that are called as often as the first of all.
    often = optimizers.group_by(*PROCESS, "tid", "name").agg(count=pl.len(), last_ns=_col("end_ns").max())
    last = often.sort("count", "last_ns", descending=True).unique(PROCESS, keep="first", maintain_order=True)
    ends = optimizers.join(last, on=[*PROCESS, "tid", "name"], how="semi", nulls_equal=True)
    begins = ranges.group_by(PROCESS).agg(begin_ns=_col("start_ns").min())
    ends = ends.sort(*PROCESS, "end_ns").join(begins, on=PROCESS, nulls_equal=True, maintain_order="left")
    before = _col("end_ns").shift(1).over(PROCESS)
    many = ends.filter(pl.len().over(PROCESS) >= _LEAST)
    return _numbered(many.with_columns(start_ns=pl.coalesce(before, "begin_ns")), "optimizer")


def _numbered(rows: pl.DataFrame, how: str) -> pl.DataFrame:
    rows = rows.sort(*PROCESS, "start_ns", "end_ns")
    group = (*PROCESS, "name")
    number = pl.int_range(pl.len()).over(group)
    name = _col("name").cast(pl.String)
    step = pl.when(pl.len().over(group) > 1).then(pl.format("{} #{}", name, number)).otherwise(name)
    return rows.select(*PROCESS, "start_ns", "end_ns", step=step, how=pl.lit(how))


def _with_outliers(rows: pl.DataFrame) -> pl.DataFrame:
    ns = length()
    median = ns.median().over(PROCESS)
    deviation = (ns - median).abs().median().over(PROCESS)
    return rows.with_columns(is_outlier=(ns > 1.1 * median) & (ns > median + DEVIATIONS * deviation))
