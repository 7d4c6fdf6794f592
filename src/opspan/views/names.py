"""The names of processes, threads, devices, streams and frames as they are shown to people."""

from __future__ import annotations

import polars as pl

from opspan.tables import Tables

_col = pl.col


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
    rank = pl.format("rank {}: ", _col("rank").fill_null(0)) if len(trace.ranks) > 1 else pl.lit("")
    return pl.lit(found.select(pl.concat_str(rank, name, pl.lit(" "), pid)).to_series())


def thread_names(trace: Tables, rows: pl.DataFrame) -> pl.Expr:
    """`thread 1234 main`; one name for each of the rows (rank, pid, tid)."""
    thread = ["rank", "pid", "tid"]
    names = trace.threads.select(*thread, "name").unique(thread, keep="last", maintain_order=True)
    found = rows.select(thread).join(names, on=thread, how="left", nulls_equal=True, maintain_order="left")
    tid = _col("tid").cast(pl.String).fill_null("of unknown number")
    name = pl.concat_str(pl.lit(" "), _col("name").cast(pl.String)).fill_null("")
    return pl.lit(found.select(pl.concat_str(pl.lit("thread "), tid, name)).to_series())


def device_names(trace: Tables) -> pl.Expr:
    rank = pl.format("rank {}: ", _col("rank").fill_null(0)) if len(trace.ranks) > 1 else pl.lit("")
    return pl.concat_str(rank, pl.lit("device "), _col("device_id").cast(pl.String).fill_null("of unknown number"))


def stream_names() -> pl.Expr:
    return pl.concat_str(
        pl.format("stream {}", _col("stream_id").cast(pl.String).fill_null("of unknown number")),
        pl.format(" of context {}", "context_id").fill_null(""),
    )
