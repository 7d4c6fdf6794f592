"""Which process work on a device is of, and which op where no call of it is in the file.

Kineto writes the device where the process belongs. The call that has a work's correlation id says the process; numbers
of several processes may be equal, where traces were put together, and then the device has to tell. Some events are
written with a process that is none: 0 for a thread that Kineto had not met, a device for what a runtime did there.
"""

from __future__ import annotations

import polars as pl

_col = pl.col
_DEVICE_LABEL = r"^([A-Za-z]\w*) ([0-9]+)$"  # GPU 0, MTIA 17; that of the program is CPU
_EXTERNAL = r'"[Ee]xternal id": (-?[0-9]+)'


def devices_said(labels: pl.DataFrame) -> pl.DataFrame:
    """pid and kind of the processes that the file says are devices, and not the program as well: both are numbers."""
    label = _col("given").cast(pl.String)
    found = labels.select("pid", kind=label.str.extract(_DEVICE_LABEL, 1).str.to_lowercase()).drop_nulls("pid")
    both = found.filter(_col("kind").is_null())["pid"]
    return found.filter(~_col("pid").is_in(both.implode())).unique("pid", keep="last", maintain_order=True)


def processes(work: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame, devices: pl.Series) -> pl.Series:
    """The pid of each work, null where nothing tells; `devices`: the processes that may stand for devices."""
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
    # What no call in the file has launched is of the only process that calls anything, or is there at all.
    callers = calling["pid"].unique()
    only = callers[0] if len(callers) == 1 else None
    alone = pl.when(~_col("is_told")).then(pl.lit(only, pl.Int64))
    return frame.select(pl.coalesce("pid", "user", alone)).to_series().alias("pid")


def _only(frame: pl.DataFrame, found: pl.DataFrame, key: str, name: str) -> pl.DataFrame:
    """The frame with the process that alone has the key, under a name; null where several have it."""
    pairs = found.select(key, "pid").drop_nulls().unique()
    pairs = pairs.filter(pl.len().over(key) == 1).rename({"pid": name})
    return frame.join(pairs, on=key, how="left", maintain_order="left")


def external_ids(frame: pl.DataFrame) -> pl.Series:
    """What torch's profiler pairs ops and work by, where it is said."""
    found = frame["payload_json"].str.extract(_EXTERNAL).cast(pl.Int64, strict=False)
    return found.set(found <= 0, None).alias("external")


def named_ranges(work: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame) -> pl.Series:
    """For work that no call of a known process has launched, the op that has its External id."""
    nothing = pl.Series("named_range_id", [None], dtype=pl.Int64).new_from_index(0, work.height)
    key = ["pid", "correlation_id"]
    rows = work.select(*key, "payload_json").with_row_index("row")
    rows = rows.join(calls.select(key).drop_nulls().unique(), on=key, how="anti")
    rows = rows.with_columns(external_ids(rows))
    # Old files have the number of the call here a second time.
    rows = rows.filter(_col("external").is_not_null(), _col("external").ne_missing(_col("correlation_id")))
    if not rows.height:
        return nothing
    named = (
        ranges.select("id", "pid", external_ids(ranges))
        .drop_nulls(["id", "external"])
        .unique(["pid", "external"], keep="last", maintain_order=True)
    )
    # Where no event has a process, those of none belong together.
    found = rows.join(named, on=["pid", "external"], how="inner", nulls_equal=True)
    return nothing.scatter(found["row"], found["id"])
