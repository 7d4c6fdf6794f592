"""Says which kernels each op launched, and how long they took, of a file that you name.

    python docs/examples/kernels_of_ops.py report.sqlite

Any file with kernels in it will do: a report or a SQLite export of Nsight Systems, a trace of torch.profiler, a
database of nvprof or rocprofv3. `opspan table report.sqlite --by kernel --op aten::mm` says the same of one op.
"""

import sys

import polars as pl

import opspan

if len(sys.argv) < 2:
    sys.exit("usage: python kernels_of_ops.py FILE..., such as report.sqlite (of several: the ranks of one run)")
trace = opspan.load(*sys.argv[1:])
found = trace.analysed.attributed  # the same tables, with what was found of them

kernels = found.work.filter(kind="kernel")
if kernels.is_empty():
    sys.exit("No kernels were recorded: nsys needs `-t cuda,nvtx`")
# `range` is the row, in ranges, of the innermost range that the kernel was launched in.
op = found.ranges["name"].gather(kernels["range"]).cast(pl.String).fill_null("(in no range)")
took = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
rows = (
    kernels.select(op.alias("op"), pl.col("name").cast(pl.String).alias("kernel"), took)
    .group_by("op", "kernel")
    .agg(pl.len().alias("launches"), pl.col("ns").sum().alias("total_ns"))
    .sort("total_ns", "op", "kernel", descending=[True, False, False])
)
with pl.Config(tbl_rows=40, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, fmt_str_lengths=60):
    print(rows)
print(*trace.coverage.lines(), sep="\n")
