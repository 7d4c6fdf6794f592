"""Joins two recordings: that of the devices, by torch's own collection, and that of the host, by opspan.

    with_device(host, parts) -> the tables of `host`, with the calls, work, devices and issues of `parts` added. All
        times are on the clock of `host`.
    causal(calls, work, session, issues) -> the work, without impossible times.

Calls have their process and thread, so `launches` attributes them and their work by time, as for any tool. Times of
devices are sometimes wrong, mostly if a process collects more than once. Work with an impossible time keeps its row and
its call, and loses its times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.clock_fit import nesting_shift
from opspan.analysis.path_threads import driving
from opspan.capture_files import SESSION
from opspan.tables import Issues, Tables
from opspan.tables.tables import moved

# The clocks of a device and its host may differ by this much after the tool has aligned them.
TOLERANCE_NS = 5_000
# The largest error that is corrected in the times of calls. The tool converts these times; on a busy machine it was
# wrong by 23 us.
_MOST_WRONG_NS = 100_000
# If the difference between the host's monotonic clock and its UTC clock changes by more than this during a collection,
# one of these clocks was adjusted.
MOST_APART_NS = 1_000_000

_col = pl.col


def with_device(host: Tables, parts: Sequence[Tables]) -> Tables:
    """Joins host and devices. Torch may have collected several times while `host` was recorded. Each element of `parts`
    is one collection."""
    frames = {name: [host.frames[name]] for name in ("calls", "work", "devices", "issues")}
    ids = {name: host.frames[name].height for name in ("calls", "work")} | {"ranges": 0}
    for part in parts:
        issues = Issues(part.metadata.paths[0])
        shift_ns, session = _clocks(part, host, issues)
        shift_ns += _nested_by(part, host, shift_ns)
        work = causal(part.calls, part.work, session, issues)
        for name, rows in (("calls", part.calls), ("work", work)):
            there = moved(name, rows, {}, ids, shift_ns)
            # The ranges of the part are left out, so the references to these ranges are dropped.
            frames[name].append(there.drop("named_range_id", strict=False))
            ids[name] += rows.height
        frames["devices"].append(part.devices)
        frames["issues"] += [part.issues, issues.frame()]
    joined = {name: pl.concat(rows, how="diagonal") for name, rows in frames.items()}
    joined["devices"] = joined["devices"].unique("device_id", keep="first", maintain_order=True)
    return host.replace(**joined)


def _clocks(part: Tables, host: Tables, issues: Issues) -> tuple[int, tuple[int, int] | None]:
    """Returns the number of ns to add to the times of the part. Also returns start and end of its collection on the
    clock of the part, or None if these are unknown."""
    times = _times(part.metadata.options.get(SESSION))
    origin = part.origin_utc_ns or 0
    if times is None:
        issues.add("aligned_by_clocks")
        return origin - (host.origin_utc_ns or 0), None
    (begin, end), (begin_utc, end_utc) = times["monotonic_ns"], times["utc_ns"]
    changed = (end_utc - end) - (begin_utc - begin)
    if abs(changed) > MOST_APART_NS:
        issues.add("clock_stepped", detail=f"by {changed / 1e6:+,.3f} ms")
    shift_ns = begin - begin_utc + origin
    return shift_ns, (begin - shift_ns, end - shift_ns)


def _nested_by(part: Tables, host: Tables, shift_ns: int) -> int:
    """Returns the ns that must still be added to the part's times, so that its calls nest in ranges of the host. Clocks
    were read one after the other, and times were converted, so an error remains after the shift."""
    is_nested = ~(_col("is_mark").fill_null(value=False) | _col("is_async").fill_null(value=False))
    ranges = host.ranges.filter(is_nested)
    calls = driving(part.calls).with_columns(_col("start_ns", "end_ns") + shift_ns)
    return nesting_shift(calls, ranges, _MOST_WRONG_NS)


def _times(session: Any) -> dict[str, list[int]] | None:
    """Returns when a collection began and ended, on two clocks. Returns None if these times, read from a file, are
    damaged."""
    pairs = {}
    for name in ("monotonic_ns", "utc_ns"):
        pair = session.get(name) if isinstance(session, Mapping) else None
        if (
            not isinstance(pair, list)
            or [type(time) for time in pair] != [int, int]
            or any(time >> 63 for time in pair)
        ):
            return None
        pairs[name] = pair
    return pairs


def causal(calls: pl.DataFrame, work: pl.DataFrame, session: tuple[int, int] | None, issues: Issues) -> pl.DataFrame:
    """Removes the times of work that begins before its launch, lies outside of `session` (start and end of the
    collection), or begins before work that was launched earlier on its stream."""
    begin, end = (pl.lit(time, dtype=pl.Int64) for time in session or (None, None))
    rows = _add_calls(calls, on_device(work)).with_columns((_col("start_ns") + TOLERANCE_NS).alias("not_after"))
    rows = rows.with_columns(
        too_early=_col("not_after") < _col("called_ns"),
        outside=(_col("not_after") < begin) | (_col("end_ns") - TOLERANCE_NS > end),
    )
    rows = _with_latest(rows).with_columns(overtakes=_col("not_after") < _col("latest_ns"))
    for name, why in (
        ("too_early", "begin before the call that launched them"),
        ("outside", "lie outside of the time in which the device was watched"),
        ("overtakes", "begin before work that was launched earlier on their stream"),
    ):
        issues.add("impossible_device_times", int(rows[name].sum()), why)
    failed = rows.filter(pl.any_horizontal("too_early", "outside", "overtakes"))["id"]
    is_wrong = _col("id").is_in(failed.implode())
    return work.with_columns(pl.when(~is_wrong).then(name).alias(name) for name in ("start_ns", "end_ns"))


def _add_calls(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Adds called_ns and returned_ns: start and end of the call that launched the work."""
    key = ["pid", "correlation_id"]
    # If several calls have the same id, it is unknown which of them launched the work.
    once = calls.select(*key, called_ns="start_ns", returned_ns="end_ns").drop_nulls().unique(key, keep="none")
    stream = pl.struct("device_id", "context_id", "stream_id").hash().alias("stream")
    return work.select("id", *key, "start_ns", "end_ns", stream).join(once, on=key, how="left", maintain_order="left")


def _with_latest(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds latest_ns: the latest start of earlier work on the same stream. Work is earlier if its call returned before
    the row's call began."""
    known = rows.drop_nulls(["start_ns", "called_ns"])
    possible = known.filter(~pl.any_horizontal("too_early", "outside").fill_null(value=False))
    before = possible.sort("returned_ns").select(
        "pid", "stream", "returned_ns", latest_ns=_col("start_ns").cum_max().over("pid", "stream")
    )
    latest = known.sort("called_ns").join_asof(
        before, left_on="called_ns", right_on="returned_ns", by=["pid", "stream"], check_sortedness=False
    )
    return rows.join(latest.select("id", "latest_ns"), on="id", how="left", maintain_order="left")
