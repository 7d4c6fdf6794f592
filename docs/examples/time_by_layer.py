"""Adds up the time of each op by layer, forward beside backward, with polars.

    python docs/examples/time_by_layer.py           record a small model, and show it
    python docs/examples/time_by_layer.py capture   the same of any file that opspan reads

Layers are known where the program was labelled with `modules=True`, and where torch.profiler saw calls of nn.Module
(`with_stack=True`). Elsewhere `module` is null, and the rest stands.
"""

import sys

import polars as pl

import opspan

PHASES = ["forward", "backward"]


def recorded() -> opspan.Trace:
    import torch

    # Large enough that its products take most of the time, also where other programs keep the machine busy.
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024))
    with opspan.record(modules=True) as recording:
        for _ in range(4):
            model(torch.randn(512, 1024)).sum().backward()
    return recording.trace


trace = opspan.load(*sys.argv[1:]) if sys.argv[1:] else recorded()

# `self_ns` is a range's time without that of what runs inside, so that sums of it count each nanosecond once.
# `module` of what runs in a backward is that of the forward op, however far away its thread is.
sums = (
    trace.analysed.complete.ranges.filter(pl.col("phase").cast(pl.String).is_in(PHASES))
    .group_by(pl.col("module", "name", "phase").cast(pl.String))
    .agg(us=pl.col("self_ns").sum() / 1000)
    .pivot("phase", on_columns=PHASES, index=["module", "name"], values="us")
    .with_columns(both=pl.sum_horizontal(PHASES))
    .sort("both", descending=True)
)
print("Microseconds:")
with pl.Config(tbl_rows=12, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, float_precision=1):
    print(sums.head(12))
