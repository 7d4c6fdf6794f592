"""Which ranges a program named itself: not torch's own, which come again in every step, and no lines of code.

of_program(ranges) -> for each range whether its name is the program's own
"""

from __future__ import annotations

import polars as pl

from opspan.labels import END_OF_STEP

# What torch and the libraries around it call their ranges: a part of a step, or of the start of the program.
_OF_LIBRARIES = (
    r"^(enumerate\(DataLoader\)|Optimizer\.|ProfilerStep#|autograd::|torch::|aten::|c10d::|nccl:|gloo:|mpi:|ucc:"
    r"|DistributedDataParallel\.|FSDP::|FullyShardedDataParallel\.|## |Torch-Compiled Region|TorchDynamo|CompiledFx"
    r"|CompiledFunction|AOTDispatcher|Inductor|Pregraph bytecode|triton_|PyTorch Profiler|Iteration Start: )"
    rf"|^{END_OF_STEP}"
)
_LINE_OF_CODE = r"\.py(\(|:)[0-9]+"  # as PyProf calls what a line calls
_DATA = r"^[\[{]"  # as PyProf writes arguments


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
