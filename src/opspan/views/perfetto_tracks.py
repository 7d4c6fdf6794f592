"""The tracks of a Perfetto trace: the number, the parent track and the title of each track.

    process 7 > thread 7 > beside it, for what overlaps       device 0 > stream 7 > beside it; counters of the device
              > counters and memory of the process                     > memory of the device

Perfetto's processes and threads have unique numbers of 31 bits. A process or thread with a larger number is
written as a named track, like a device. So are all processes and threads if two processes have the same number.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opspan import native
from opspan.tables import Tables
from opspan.views.chrome_tracks import DEVICE, PROCESS, STREAM, THREAD, joined, unique
from opspan.views.names import device_names, process_names, stream_names, thread_names
from opspan.views.perfetto_annotations import PACKET

_col = pl.col
SERIES = [*THREAD, "device_id", "name", "domain"]
_HIGHEST = (1 << 31) - 1
_BYTES = 3  # stands for the unit "bytes" in Perfetto's CounterDescriptor
_DESCRIPTOR = "60"  # field number of track descriptors in TracePacket


@dataclass(frozen=True)
class PerfettoTracks:
    """Holds the tracks of processes, threads, devices and streams, and looks up the `track` of rows."""

    processes: pl.DataFrame
    threads: pl.DataFrame
    devices: pl.DataFrame
    streams: pl.DataFrame
    first_free: int

    def of_thread(self, rows: pl.DataFrame) -> pl.Series:
        return joined(rows, self.threads, THREAD, "track")

    def of_work(self, work: pl.DataFrame) -> pl.Series:
        """Returns the track of each row of work. The profiler's own activity on the host is on the track of the
        thread that it ran on."""
        on_host = is_on_host(work)
        stream = joined(work, self.streams, STREAM, "track")
        if not on_host.any():
            return stream
        return self.of_thread(work).zip_with(on_host, stream)

    def of_owner(self, rows: pl.DataFrame) -> pl.Series:
        """Returns the track of each row: the track of its device, or else of its thread, or else of its process."""
        device, process = joined(rows, self.devices, DEVICE, "track"), joined(rows, self.processes, PROCESS, "track")
        host = self.of_thread(rows).zip_with(rows["tid"].is_not_null(), process)
        return device.zip_with(rows["device_id"].is_not_null(), host)


def is_on_host(work: pl.DataFrame) -> pl.Series:
    return work["device_id"].is_null() & work["tid"].is_not_null()


def tracks_of(trace: Tables) -> PerfettoTracks:
    points = [trace.memory, trace.counters]
    on_host = is_on_host(trace.work)
    work = trace.work.filter(~on_host)
    hosts = [trace.ranges, trace.calls, trace.functions, trace.work.filter(on_host), trace.threads, trace.counters]
    threads = unique(hosts, THREAD)
    processes = unique([threads, trace.processes, *points], PROCESS)
    devices = unique([work, *(rows.filter(_col("device_id").is_not_null()) for rows in points)], DEVICE)
    streams = unique([work], STREAM)
    is_own = not processes["pid"].is_duplicated().any()
    parts, first = [], 1  # 0 is not a valid track
    for frame in (processes, threads, devices, streams):
        parts.append(frame.with_columns(track=pl.int_range(pl.len(), dtype=pl.UInt32) + first))
        first += frame.height
    processes, threads, devices, streams = parts
    processes = processes.with_columns(
        title=process_names(trace, processes), is_numbered=(_is_number("pid") & is_own).fill_null(value=False)
    )
    threads = threads.with_columns(
        joined(threads, processes, PROCESS, "track").alias("parent"),
        joined(threads, processes, PROCESS, "is_numbered"),
        title=thread_names(trace, threads),
    ).with_columns(_col("is_numbered") & _is_number("tid").fill_null(value=False))
    devices = devices.with_columns(title=device_names(trace))
    streams = streams.with_columns(joined(streams, devices, DEVICE, "track").alias("parent"), title=stream_names())
    return PerfettoTracks(processes, threads, devices, streams, first)


def _is_number(column: str) -> pl.Expr:
    return _col(column).is_between(1, _HIGHEST)


def descriptors(tracks: PerfettoTracks) -> bytes:
    # Viewers add the number of a process or thread to its name, so the number is removed here.
    name = _col("title").str.strip_suffix(pl.format(" {}", "pid"))
    process = pl.struct(_col("pid").alias("1"), name.alias("6"))
    name = _col("title").str.strip_prefix(pl.format("thread {}", "tid")).str.strip_chars_start()
    thread = pl.struct(_col("pid").alias("1"), _col("tid").alias("2"), pl.when(name != "").then(name).alias("5"))
    is_named = ~_col("is_numbered")
    frames = [
        _track(tracks.processes, {"2": pl.when(is_named).then("title"), "3": pl.when("is_numbered").then(process)}),
        _track(
            tracks.threads,
            {
                "2": pl.when(is_named).then("title"),
                "4": pl.when("is_numbered").then(thread),
                "5": pl.when(is_named).then("parent"),
            },
        ),
        _track(tracks.devices, {"2": _col("title")}),
        _track(tracks.streams, {"2": _col("title"), "5": _col("parent")}),
    ]
    return b"".join(native.protobuf(frame, PACKET) for frame in frames)


def beside(tracks: pl.DataFrame) -> memoryview:
    """Returns the packets that define these tracks, each below its `parent`. Viewers merge tracks that have the same
    name and parent."""
    return native.protobuf(_track(tracks, {"2": _col("title"), "5": _col("parent")}), PACKET)


def series(tracks: pl.DataFrame) -> memoryview:
    """Returns the packets that define tracks of counters."""
    unit = pl.when(_col("title").str.contains(r"\bbytes\b")).then(_BYTES)
    return native.protobuf(
        _track(tracks, {"2": _col("title"), "5": _col("parent"), "8": pl.struct(unit.alias("3"))}), PACKET
    )


def _track(frame: pl.DataFrame, fields: dict[str, pl.Expr]) -> pl.DataFrame:
    fields = {"1": _col("track"), **fields}
    return frame.select(pl.struct(value.alias(number) for number, value in fields.items()).alias(_DESCRIPTOR))
