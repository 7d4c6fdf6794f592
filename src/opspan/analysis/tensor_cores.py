"""Which ops could use tensor cores, and how much of their time on the device did.

    tensor_cores(ranges, work, keys) -> the keys (name, and what else makes a group), and
        is_eligible      Boolean  ops of this name multiply matrices or convolve
        tensor_cores_ns  Int64    time of kernels that use tensor cores, in these ranges and in all inside them

Told by names of ops and of kernels: nothing else is in every trace. Work must be attributed (`launches`).
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from opspan.analysis.averages import device_time
from opspan.analysis.kernels import uses_tensor_cores

_col = pl.col
ELIGIBLE = (
    r"^aten::(_?(mm|addmm|bmm|baddbmm|addbmm|matmul|linear|einsum|addmv|_addmm_activation)|"
    r"(cudnn_|miopen_|_)?convolution(_(backward|transpose|overrideable))?(_.*)?|conv[123]d|conv_transpose[123]d)$"
)


def tensor_cores(ranges: pl.DataFrame, work: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    names = work.select(_col("name").unique()).filter(uses_tensor_cores(_col("name")))["name"]
    used = work.filter((_col("kind") == "kernel") & _col("name").is_in(names.implode()))
    rows = device_time(ranges.select("parent", "is_mark", *keys), used)
    rows = rows.filter(~_col("is_mark").fill_null(value=False))
    sums = rows.group_by(keys).agg(tensor_cores_ns=_col("device_ns").sum())
    can = _col("name").cast(pl.String).str.contains(ELIGIBLE).fill_null(value=False)
    return sums.with_columns(is_eligible=can)
