"""The tracks of a Chrome trace: the lines on which a viewer draws spans. In the file, each track has the number of a
process and the number of a thread. So a device is written as a process, and its streams as threads of that process.

Viewers drop a span that partly overlaps another span of its track. In one stream, waits and the nodes of a graph may
overlap. A span that overlaps others of its stream is on an extra track beside the stream's track.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opspan.tables import Tables
from opspan.views.lanes import lanes
from opspan.views.names import device_names, process_names, stream_names, thread_names

_col = pl.col
_HIGHEST = 1 << 62
PROCESS, DEVICE = ["rank", "pid"], ["rank", "device_id"]
THREAD, STREAM = [*PROCESS, "tid"], [*DEVICE, "context_id", "stream_id"]
_LANE = [*STREAM, "lane"]


@dataclass(frozen=True)
class ChromeTracks:
    """Holds frames with a row for each track. `process` and `thread` are the numbers of the track in the file; `title`
    is the text that viewers show."""

    processes: pl.DataFrame
    threads: pl.DataFrame
    devices: pl.DataFrame
    streams: pl.DataFrame
    lanes: pl.Series  # a number for each row of work: 0 for the stream's own track, 1 for the first extra track, ...
    no_thread: int  # the thread number for rows whose thread is unknown

    @property
    def by_process(self) -> pl.DataFrame:
        """Returns the rank and the pid of each `process` in the file. The pid is null if the `process` is a device."""
        devices = self.devices.select("process", "rank")
        return pl.concat([self.processes.select("process", *PROCESS), devices], how="diagonal")

    def on_threads(self, rows: pl.DataFrame) -> pl.DataFrame:
        process = joined(rows, self.processes, PROCESS, "process")
        return rows.with_columns(process, thread=_col("tid").fill_null(self.no_thread))

    def on_devices(self, work: pl.DataFrame) -> pl.DataFrame:
        """Adds the track of each row of work. The profiler's own activity on the host is on the track of the thread
        that it ran on."""
        work = work.with_columns(lane=self.lanes)
        on_host = _col("device_id").is_null() & _col("tid").is_not_null()
        process, thread = (joined(work, self.streams, _LANE, name) for name in ("process", "thread"))
        host = joined(work, self.processes, PROCESS, "process")
        return work.with_columns(
            process=pl.when(on_host).then(host).otherwise(process),
            thread=pl.when(on_host).then("tid").otherwise(thread),
        )


def tracks_of(trace: Tables) -> ChromeTracks:
    frames = [trace.ranges, trace.calls, trace.threads, trace.counters, trace.work, trace.functions, trace.memory]
    threads = unique(frames, THREAD)
    processes = unique([threads, trace.processes], PROCESS)
    # Processes get new numbers if pids are not unique (two machines may have equal pids), or if pids are so high that
    # no numbers are left for the devices.
    highest = processes["pid"].max()
    are_pids_usable = not processes["pid"].null_count() and processes["pid"].n_unique() == processes.height
    are_pids_usable &= not isinstance(highest, int) or highest < _HIGHEST
    number = _col("pid") if are_pids_usable else pl.int_range(1, pl.len() + 1, dtype=pl.Int64)
    processes = processes.with_columns(number.alias("process"), title=process_names(trace, processes))
    first_free = processes["process"].max()
    first_device = (first_free if isinstance(first_free, int) else 0) + 1
    devices = unique([trace.work], DEVICE).with_columns(
        process=first_device + pl.int_range(pl.len(), dtype=pl.Int64), title=device_names(trace)
    )
    on_lanes = lanes(trace.work.select("start_ns", "end_ns", track=pl.struct(STREAM).rank("dense")))
    streams = unique([trace.work.with_columns(lane=on_lanes)], _LANE)
    streams = streams.with_columns(
        joined(streams, devices, DEVICE, "process"),
        thread=pl.int_range(pl.len(), dtype=pl.Int64),
        title=pl.concat_str(
            stream_names(), pl.when(_col("lane") > 0).then(pl.format(", overlapping {}", "lane")).otherwise(pl.lit(""))
        ),
    )
    lowest = threads["tid"].min()
    no_thread = min(lowest, 1) - 1 if isinstance(lowest, int) else 0
    threads = threads.with_columns(
        joined(threads, processes, PROCESS, "process"),
        thread=_col("tid").fill_null(no_thread),
        title=thread_names(trace, threads),
    )
    return ChromeTracks(
        processes.with_columns(thread=pl.lit(0)),
        threads,
        devices.with_columns(thread=pl.lit(0)),
        streams,
        on_lanes,
        no_thread,
    )


def unique(frames: list[pl.DataFrame], columns: list[str]) -> pl.DataFrame:
    # Consecutive rows are mostly of the same thread, so it is faster to drop repeated rows before unique().
    is_first = pl.int_range(pl.len()) == 0
    for column in columns:
        is_first |= _col(column).ne_missing(_col(column).shift())
    frames = [frame for frame in frames if frame.height] or frames[:1]
    return pl.concat([frame.select(columns).filter(is_first) for frame in frames]).unique().sort(columns)


def joined(rows: pl.DataFrame, tracks: pl.DataFrame, on: list[str], name: str) -> pl.Series:
    """Returns a value for each of the `rows`: the value that its track has in the column called `name`."""
    if tracks.height == 1:  # tracks are made from these rows, so with one track all rows are on it
        return pl.select(pl.repeat(tracks[name].item(), rows.height, dtype=tracks[name].dtype)).to_series().alias(name)
    columns = tracks.select(*on, name)
    return rows.select(on).join(columns, on=on, how="left", nulls_equal=True, maintain_order="left")[name]
