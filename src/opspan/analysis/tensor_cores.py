"""Finds the ops that could use tensor cores, and how much of their device time was on tensor cores.

    tensor_cores(ranges, work, keys) -> a row for each group of ranges with equal `keys` (name, and others):
        is_eligible (Boolean): whether ops of this name multiply matrices or convolve.
        tensor_cores_ns (Int64): time of kernels that use tensor cores, in these ranges and all ranges inside.
        unknown_ns (Int64): time of kernels whose names do not show whether they use tensor cores.

The figures are derived from the names of ops and kernels, because traces do not state the use of tensor cores. Work
must be attributed (`launches`).
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from opspan.analysis.averages import device_time
from opspan.analysis.kernels import with_facts

_col = pl.col
ELIGIBLE = (
    r"^aten::(_?(mm|addmm|bmm|baddbmm|addbmm|matmul|linear|einsum|addmv|_addmm_activation)|"
    r"(cudnn_|miopen_|_)?convolution(_(backward|transpose|overrideable))?(_.*)?|conv[123]d|conv_transpose[123]d)$"
)


def tensor_cores(ranges: pl.DataFrame, work: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    kernels = with_facts(work.filter(_col("kind") == "kernel"))
    tree = ranges.select("parent", "is_mark", *keys)
    on_cores, unknown = (
        device_time(tree, kernels.filter(which))["device_ns"]
        for which in (_col("on_tensor_cores"), _col("on_tensor_cores").is_null())
    )
    rows = tree.with_columns(tensor_cores_ns=on_cores, unknown_ns=unknown)
    rows = rows.filter(~_col("is_mark").fill_null(value=False))
    sums = rows.group_by(keys).agg(_col("tensor_cores_ns", "unknown_ns").sum())
    can = _col("name").cast(pl.String).str.contains(ELIGIBLE).fill_null(value=False)
    return sums.with_columns(is_eligible=can)
