"""Finds the process that started work on a device. If the file lacks the call of the work, finds the op too.

Kineto writes the device's number into `pid`, the field for the process. So work belongs to the process of the call with
the work's correlation id. In merged traces, several processes may use the same id. Work with such an id belongs to
the process whose other work ran on the same device.

Some other events also have a pid that is not a process: 0 if Kineto did not know the thread, and the number of a device
if the device's runtime did something.
"""

from __future__ import annotations

import polars as pl

_col = pl.col
_DEVICE_LABEL = r"^([A-Za-z]\w*) ([0-9]+)$"  # matches GPU 0 and MTIA 17, but not CPU, which is the label of the program
_EXTERNAL = r'"[Ee]xternal id": (-?[0-9]+)'


def devices_of_labels(labels: pl.DataFrame) -> pl.DataFrame:
    """Returns pid and kind of the devices. Leaves out a pid that is also labelled as a process of the program."""
    label = _col("given").cast(pl.String)
    processes = labels.select("pid", kind=label.str.extract(_DEVICE_LABEL, 1).str.to_lowercase()).drop_nulls("pid")
    hosts = processes.filter(_col("kind").is_null())["pid"]
    return processes.filter(~_col("pid").is_in(hosts.implode())).unique("pid", keep="last", maintain_order=True)


def processes(work: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame, devices: pl.Series) -> pl.Series:
    """Returns the pid of each row of `work`; null if it is unknown. `devices`: pids that may be numbers of devices."""
    with_ops = ranges["pid"].drop_nulls().unique()
    others = calls["pid"].drop_nulls().unique()
    others = others.filter(~others.is_in(with_ops.implode()))
    real = others.filter(~others.is_in(devices.implode()))
    hosts = pl.concat([with_ops, real if len(with_ops) + len(real) else others]).sort()
    if len(hosts) < 2:
        return pl.Series("pid", [*hosts, None][:1], dtype=pl.Int64).new_from_index(0, work.height)
    calling = calls.filter(_col("pid").is_in(hosts.implode())).select("correlation_id", "pid")
    frame = work.select("correlation_id", "device_id").with_columns(external=external_ids(work))
    frame = _only(frame, calling, "correlation_id", "caller").with_columns(
        is_told=_col("correlation_id")
        .is_in(calling["correlation_id"].drop_nulls().unique().implode())
        .fill_null(value=False)
    )
    if frame["caller"].null_count():
        naming = ranges.select("pid", external=external_ids(ranges))
        frame = _only(frame, naming, "external", "namer")
        certain = pl.coalesce("caller", pl.when(~_col("is_told")).then("namer"))
    else:
        certain = _col("caller")
    frame = frame.with_columns(pid=certain)
    frame = _only(frame, frame.select("device_id", "pid"), "device_id", "user")
    # If only one process has calls, work without a call in the file belongs to that process.
    callers = calling["pid"].unique()
    only = callers[0] if len(callers) == 1 else None
    alone = pl.when(~_col("is_told")).then(pl.lit(only, pl.Int64))
    return frame.select(pl.coalesce("pid", "user", alone)).to_series().alias("pid")


def _only(frame: pl.DataFrame, owners: pl.DataFrame, key: str, name: str) -> pl.DataFrame:
    """Adds a column with the pid that `owners` has for the row's key; null if `owners` has several pids for this key.
    `name`: the name of the new column."""
    pairs = owners.select(key, "pid").drop_nulls().unique()
    pairs = pairs.filter(pl.len().over(key) == 1).rename({"pid": name})
    return frame.join(pairs, on=key, how="left", maintain_order="left")


def external_ids(frame: pl.DataFrame) -> pl.Series:
    """Returns the External id of each row; null without one. torch's profiler gives an op and its work the same id."""
    ids = frame["payload_json"].str.extract(_EXTERNAL).cast(pl.Int64, strict=False)
    return ids.set(ids <= 0, None).alias("external")


def named_ranges(work: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame) -> pl.Series:
    """Returns for each row of `work` the id of the op with the same External id. Returns null for work with a call: a
    call of the same process with the same correlation id."""
    nothing = pl.Series("named_range_id", [None], dtype=pl.Int64).new_from_index(0, work.height)
    key = ["pid", "correlation_id"]
    rows = work.select(*key, "payload_json").with_row_index("row")
    rows = rows.join(calls.select(key).drop_nulls().unique(), on=key, how="anti")
    rows = rows.with_columns(external_ids(rows))
    # In old files the External id only repeats the correlation id, and says nothing about ops.
    rows = rows.filter(_col("external").is_not_null(), _col("external").ne_missing(_col("correlation_id")))
    if not rows.height:
        return nothing
    named = (
        ranges.select("id", "pid", external_ids(ranges))
        .drop_nulls(["id", "external"])
        .unique(["pid", "external"], keep="last", maintain_order=True)
    )
    # With nulls_equal, ops and work without a process are paired too.
    pairs = rows.join(named, on=["pid", "external"], how="inner", nulls_equal=True)
    return nothing.scatter(pairs["row"], pairs["id"])
