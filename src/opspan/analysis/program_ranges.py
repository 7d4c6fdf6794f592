"""Finds the ranges whose names come from the program, not from torch or another library or from lines of code.

of_program(ranges) -> for each range, whether the program chose its name.
"""

from __future__ import annotations

import polars as pl

from opspan.labels import END_OF_STEP

# Names of ranges of torch and the libraries around it.
_OF_LIBRARIES = (
    r"^(enumerate\(DataLoader\)|Optimizer\.|ProfilerStep#|autograd::|torch::|aten::|c10d::|nccl:|gloo:|mpi:|ucc:"
    r"|DistributedDataParallel\.|FSDP::|FullyShardedDataParallel\.|## |Torch-Compiled Region|TorchDynamo|CompiledFx"
    r"|CompiledFunction|AOTDispatcher|Inductor|Pregraph bytecode|triton_|PyTorch Profiler|Iteration Start: )"
    rf"|^{END_OF_STEP}"
)
_LINE_OF_CODE = r"\.py(\(|:)[0-9]+"  # names that PyProf gives to the calls of a line of code
_DATA = r"^[\[{]"  # names that are arguments, written by PyProf


def of_program(ranges: pl.DataFrame) -> pl.Series:
    names = ranges.select(pl.col("name").unique()).to_series().drop_nulls()
    texts = names.cast(pl.String)
    own = names.filter(
        ~texts.str.contains(_OF_LIBRARIES) & ~texts.str.contains(_LINE_OF_CODE) & ~texts.str.contains(_DATA)
    )
    return ranges.select(
        is_own=(pl.col("kind") == "user").fill_null(value=False)
        & pl.col("name").is_in(own.cast(pl.Categorical).implode()).fill_null(value=False)
    ).to_series()
