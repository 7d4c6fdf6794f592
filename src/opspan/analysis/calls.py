"""Counts how often modules were called, and how many steps there were, for tables by module or by step.

    calls_of(trace, "module") -> module, count: how many ranges of kind module it has. For a module without such ranges,
        FSDP's spans are counted (from a pre_forward to its post_forward). For a module without ranges and spans, the
        calls in Python are counted. Modules that occur only in DLProf's stacks of calls do not have a count.
    calls_of(trace, "step") -> step, count: the number of ranges with the name of the step, over all ranks.

Call `analyse` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.functions import MODULE, module_paths
from opspan.analysis.modules import fsdp_spans

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col


def calls_of(trace: Tables, by: str) -> pl.DataFrame:
    ranges = trace.ranges.filter(~_col("is_mark").fill_null(value=False))
    if by == "step":
        names = ranges["step"].unique().drop_nulls()
        return _counts(ranges.filter(_col("name").is_in(names.implode()))["name"], by)
    calls = trace.functions
    is_module = calls["name"].cast(pl.String).str.starts_with(MODULE).fill_null(value=False)
    sources = [
        ranges.filter(_col("kind") == "module")["name"],
        fsdp_spans(ranges)["module"],
        module_paths(calls).filter(is_module),
    ]
    # If several sources have a module, the first source counts, as in `modules`.
    return pl.concat([_counts(names, by) for names in sources]).unique(by, keep="first", maintain_order=True)


def _counts(names: pl.Series, by: str) -> pl.DataFrame:
    names = names.drop_nulls().cast(pl.Categorical).alias(by)
    return pl.DataFrame([names]).group_by(by).agg(pl.len().cast(pl.Int64).alias("count"))
