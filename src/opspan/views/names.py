"""The names of processes, threads, devices, streams and frames as they are shown to people."""

from __future__ import annotations

import polars as pl

from opspan.tables import Tables

_col = pl.col
_PYTHON = r"^(?<file>.+?)\((?<line>[0-9]{1,9})\): "


def frame_name() -> pl.Expr:
    """Returns the column `name`, with (no name) in place of null and empty names."""
    name = _col("name").cast(pl.String)
    return pl.when(name != "").then(name).otherwise(pl.lit("(no name)"))


def process_names(trace: Tables, rows: pl.DataFrame) -> pl.Expr:
    """Returns a name for each of the rows (rank, pid): `python 1234`. If there are several ranks, each name begins
    with the rank."""
    names = _known_names(trace.processes, rows, ["rank", "pid"])
    pid = _col("pid").cast(pl.String).fill_null("of unknown number")
    name = _col("name").cast(pl.String).fill_null("process")
    return pl.lit(names.select(pl.concat_str(_of_rank(trace), name, pl.lit(" "), pid)).to_series())


def thread_names(trace: Tables, rows: pl.DataFrame) -> pl.Expr:
    """Returns a name for each of the rows (rank, pid, tid): `thread 1234 main`."""
    names = _known_names(trace.threads, rows, ["rank", "pid", "tid"])
    tid = _col("tid").cast(pl.String).fill_null("of unknown number")
    name = pl.concat_str(pl.lit(" "), _col("name").cast(pl.String)).fill_null("")
    return pl.lit(names.select(pl.concat_str(pl.lit("thread "), tid, name)).to_series())


def _known_names(named: pl.DataFrame, rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Returns the key of each row, and a name or null: the last name that `named` has for the key."""
    names = named.select(*key, "name").unique(key, keep="last", maintain_order=True)
    return rows.select(key).join(names, on=key, how="left", nulls_equal=True, maintain_order="left")


def device_names(trace: Tables) -> pl.Expr:
    return pl.concat_str(_of_rank(trace), device_name())


def device_name() -> pl.Expr:
    """Returns a name for each device. Devices of different ranks may have the same name."""
    return pl.format("device {}", _col("device_id").cast(pl.String).fill_null("of unknown number"))


def stream_names() -> pl.Expr:
    return pl.concat_str(stream_name(), pl.format(" of context {}", "context_id").fill_null(""))


def stream_name() -> pl.Expr:
    """Returns a name for each stream. Streams of different contexts may have the same name."""
    return pl.format("stream {}", _col("stream_id").cast(pl.String).fill_null("of unknown number"))


def python_file(function: pl.Expr) -> pl.Expr:
    """Returns the file that a Python function's name contains, as in `train.py(12): forward`; null for other names."""
    return function.str.extract_groups(_PYTHON).struct.field("file")


def python_line(function: pl.Expr) -> pl.Expr:
    return function.str.extract_groups(_PYTHON).struct.field("line").cast(pl.Int64)


def _of_rank(trace: Tables) -> pl.Expr:
    return pl.format("rank {}: ", _col("rank").fill_null(0)) if len(trace.ranks) > 1 else pl.lit("")
