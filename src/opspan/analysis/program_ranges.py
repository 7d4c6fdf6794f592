"""Finds the ranges whose names the program chose. Other names come from torch, other libraries, or lines of code.

of_program(ranges) -> for each range, whether the program chose its name.
"""

from __future__ import annotations

import polars as pl

from opspan.labels import END_OF_STEP

# Names that torch and libraries around it give to ranges.
_OF_LIBRARIES = (
    r"^(enumerate\(DataLoader\)|Optimizer\.|ProfilerStep#|autograd::|torch::|aten::|c10d::|nccl:|gloo:|mpi:|ucc:"
    r"|DistributedDataParallel\.|FSDP::|FullyShardedDataParallel\.|## |Torch-Compiled Region|TorchDynamo|CompiledFx"
    r"|CompiledFunction|AOTDispatcher|Inductor|Pregraph bytecode|triton_|PyTorch Profiler|Iteration Start: )"
    rf"|^{END_OF_STEP}"
)
_LINE_OF_CODE = r"\.py(\(|:)[0-9]+"  # ranges with PyProf's markers are named after a line of code (see `ops`)
_DATA = r"^[\[{]"  # PyProf also writes the arguments of a call as a name


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
