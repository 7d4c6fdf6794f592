"""The names of processes, threads, devices, streams and frames as they are shown to people."""

from __future__ import annotations

import polars as pl

from opspan.tables import Tables

_col = pl.col
_PYTHON = r"^(?<file>.+?)\((?<line>[0-9]{1,9})\): "


def frame_name() -> pl.Expr:
    """The column `name`, with words for what has none."""
    name = _col("name").cast(pl.String)
    return pl.when(name != "").then(name).otherwise(pl.lit("(no name)"))


def process_names(trace: Tables, rows: pl.DataFrame) -> pl.Expr:
    """`python 1234`, with the rank in front if there are several; one name for each of the rows (rank, pid)."""
    names = trace.processes.select("rank", "pid", "name").unique(["rank", "pid"], keep="last", maintain_order=True)
    found = rows.select("rank", "pid").join(
        names, on=["rank", "pid"], how="left", nulls_equal=True, maintain_order="left"
    )
    pid = _col("pid").cast(pl.String).fill_null("of unknown number")
    name = _col("name").cast(pl.String).fill_null("process")
    return pl.lit(found.select(pl.concat_str(_of_rank(trace), name, pl.lit(" "), pid)).to_series())


def thread_names(trace: Tables, rows: pl.DataFrame) -> pl.Expr:
    """`thread 1234 main`; one name for each of the rows (rank, pid, tid)."""
    thread = ["rank", "pid", "tid"]
    names = trace.threads.select(*thread, "name").unique(thread, keep="last", maintain_order=True)
    found = rows.select(thread).join(names, on=thread, how="left", nulls_equal=True, maintain_order="left")
    tid = _col("tid").cast(pl.String).fill_null("of unknown number")
    name = pl.concat_str(pl.lit(" "), _col("name").cast(pl.String)).fill_null("")
    return pl.lit(found.select(pl.concat_str(pl.lit("thread "), tid, name)).to_series())


def device_names(trace: Tables) -> pl.Expr:
    return pl.concat_str(_of_rank(trace), device_name())


def device_name() -> pl.Expr:
    """Returns the name of a device, which is unique in one rank."""
    return pl.format("device {}", _col("device_id").cast(pl.String).fill_null("of unknown number"))


def stream_names() -> pl.Expr:
    return pl.concat_str(stream_name(), pl.format(" of context {}", "context_id").fill_null(""))


def stream_name() -> pl.Expr:
    """Returns the name of a stream, which is unique in one context."""
    return pl.format("stream {}", _col("stream_id").cast(pl.String).fill_null("of unknown number"))


def python_file(function: pl.Expr) -> pl.Expr:
    """Returns the file in the name of a Python function, `train.py(12): forward`; null for any other name."""
    return function.str.extract_groups(_PYTHON).struct.field("file")


def python_line(function: pl.Expr) -> pl.Expr:
    return function.str.extract_groups(_PYTHON).struct.field("line").cast(pl.Int64)


def _of_rank(trace: Tables) -> pl.Expr:
    return pl.format("rank {}: ", _col("rank").fill_null(0)) if len(trace.ranks) > 1 else pl.lit("")
