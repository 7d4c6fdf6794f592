"""A file for speedscope, https://www.speedscope.app: a profile for each thread and for each stream of a device.

    {"type":"O","frame":3,"at":1200},{"type":"O","frame":7,"at":1250},{"type":"C","frame":7,"at":1900},...

A profile is a list of events: frames open and close, and must nest. So ranges that overlap are in extra profiles beside
the profile of their thread. Each profile covers the whole trace, with times in nanoseconds since the trace began. The
format is https://www.speedscope.app/file-format-schema.json.

`write_samples` writes the stacks of samples of processors instead. A profile of this kind has a list of stacks and
their weights, without times:

    {"type":"sampled","samples":[[0,3,7],[0,3]],"weights":[12000,500],...}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from opspan import native
from opspan.analysis import Analysis
from opspan.analysis.averages import on_device
from opspan.analysis.nest import trace_end_ns
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Tables
from opspan.views import pieces
from opspan.views.chrome_tracks import ChromeTracks, tracks_of
from opspan.views.contents import nothing_in, parts
from opspan.views.lanes import columns_to_nest, lanes
from opspan.views.merged_stacks import SMALLER, bounded
from opspan.views.names import frame_name, python_file, python_line
from opspan.views.pieces import Piece
from opspan.views.sampled_stacks import sampled_stacks
from opspan.views.stacks import tree

MOST_SPANS = 1_000_000  # a browser can still show a file of this size; each span has two events of about 30 bytes
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_BATCH = 50_000
_TRACK = ["process", "thread", "lane"]
_col = pl.col
_Makers = Sequence[Callable[[], Piece]]  # each returns a piece of the file


def write(analysis: Analysis, path: Path) -> list[str]:
    trace = analysis.attributed
    spans, tracks = _spans(trace)
    notes = []
    spans = spans.with_columns(native.nest(columns_to_nest(spans), trace_end_ns(spans)).select("depth", "overlaps"))
    if overlaps := int(spans["overlaps"].sum()):
        notes.append(f"{overlaps:,} spans overlap too many others, and were left out")
        spans = spans.filter(~_col("overlaps"))
    if (more := spans.height - MOST_SPANS) > 0:
        took = _col("end_ns") - _col("start_ns")
        # Outer spans are at least as long as the spans inside them. So if a span is kept, all spans around it are kept,
        # too.
        spans = spans.sort(took, "depth", descending=[True, False]).head(MOST_SPANS)
        longest = spans.select(took.min()).item()
        notes.append(
            f"{more:,} spans were left out, none of which takes more than {longest:,} ns: a file has {MOST_SPANS:,}, "
            "as a browser should show it. --step and --between export a part of the trace"
        )
    names = spans["name"].unique(maintain_order=True).to_frame().with_row_index("frame")
    spans = spans.join(names, on="name", how="left", nulls_equal=True, maintain_order="left")
    pieces.write(path, _pieces(names, tracks["len"].arg_max() or 0, _evented(spans, tracks)))
    if not spans.height:
        return [nothing_in(trace, path.name, ("ranges", "functions", "kernels and copies"))]
    return [*notes, *_left_out(trace)]


def write_samples(analysis: Analysis, path: Path) -> list[str]:
    sampled = sampled_stacks(analysis)
    stacks = sampled.stacks()
    shown, tree = bounded(stacks, ["weight"], ["weight"])
    left_out = stacks.height - shown["stack"].is_in(stacks["stack"].implode()).sum()
    names = tree.select(name=_col("frame").unique(maintain_order=True)).with_row_index("number")
    tree = tree.join(names, left_on="frame", right_on="name", how="left", maintain_order="left")
    weights = shown.filter(_col("weight") > 0).group_by("root").agg("stack", "weight", total=_col("weight").sum())
    threads = sampled.roots.join(weights, on="root", maintain_order="left")
    makers = _sampled(threads, tree, "nanoseconds" if sampled.is_ns else "none")
    pieces.write(path, _pieces(names, threads["total"].arg_max() or 0, makers))
    notes = [*sampled.unit_notes, *sampled.left_out]
    if not left_out:
        return notes
    smaller = f"{left_out:,} stacks of less weight than the others are one for each thread: {SMALLER}"
    return [smaller, *notes]


def _sampled(threads: pl.DataFrame, tree: pl.DataFrame, unit: str) -> Iterator[_Makers]:
    frame, around = tree["number"].to_list(), tree["parent"].to_list()

    def path(stack: int | None) -> str:
        numbers = []
        while stack is not None:
            numbers.append(frame[stack])
            stack = around[stack]
        return f"[{','.join(map(str, reversed(numbers)))}]"

    columns = ("process", "thread", "stack", "weight", "total")
    for process, thread, stacks, weights, total in threads.select(columns).iter_rows():
        name = f"{process}, {thread}"
        about = {"type": "sampled", "name": name, "unit": unit, "startValue": 0, "endValue": total}
        yield [
            f'{json.dumps(about)[:-1]}, "samples": [\n'.encode,
            ",\n".join(map(path, stacks)).encode,
            f'\n], "weights": {json.dumps(weights)}}}'.encode,
        ]


def _spans(trace: Tables) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns spans, with the columns track, name, start_ns and end_ns; and tracks, with the columns track, len (the
    number of spans) and title. Functions and ranges are on the track of their thread; kernels and copies are on the
    track of their stream."""
    places = tracks_of(trace)
    rows = places.on_threads(tree(trace).filter(~_col("is_mark").fill_null(value=False)))
    is_apart = rows["is_async"].fill_null(value=False)
    host = rows.select("process", "thread", "name", "start_ns", "end_ns", lane=pl.lit(0, dtype=ROW_NUMBER))
    host = host.with_columns(row=pl.int_range(pl.len()))
    apart = host.filter(is_apart, _col("start_ns").is_not_null())
    apart = apart.with_columns(track=pl.struct("process", "thread").rank("dense"))
    apart = apart.with_columns(lane=lanes(apart) + 1).drop("track")
    host = pl.concat([host.filter(~is_apart), apart]).sort("row").drop("row")
    work = on_device(places.on_devices(trace.work)).select(host.columns)
    spans = pl.concat([host, work.with_columns(_col("lane").cast(ROW_NUMBER))], how="vertical_relaxed")
    spans = spans.drop_nulls("start_ns").with_columns(pl.max_horizontal("start_ns", "end_ns").alias("end_ns"))
    tracks = spans.group_by(_TRACK).len().sort(_TRACK).with_row_index("track")
    spans = spans.join(tracks.select("track", *_TRACK), on=_TRACK, how="left", maintain_order="left")
    return spans.select("track", frame_name().alias("name"), "start_ns", "end_ns"), _with_titles(tracks, places)


def _with_titles(tracks: pl.DataFrame, places: ChromeTracks) -> pl.DataFrame:
    first = pl.concat([places.processes, places.devices], how="diagonal").select("process", first="title")
    hosts = places.threads.select("process", "thread", second="title", beside=True)
    streams = places.streams.select("process", "thread", second="title", beside=False)
    threads = pl.concat([hosts, streams], how="vertical_relaxed").unique(["process", "thread"], keep="first")
    titled = tracks.join(first, on="process", how="left", maintain_order="left")
    titled = titled.join(threads, on=["process", "thread"], how="left", maintain_order="left")
    # The title of a stream already contains the lane.
    beside = pl.when(_col("beside") & (_col("lane") > 0)).then(pl.format(", overlapping {}", "lane"))
    return titled.select("track", "len", title=pl.concat_str("first", pl.lit(", "), "second", beside.fill_null("")))


def _left_out(trace: Tables) -> list[str]:
    texts = parts(trace)
    others = [texts[name] for name in ("marks", "calls", "counters", "memory", "samples") if name in texts]
    return [f"speedscope shows spans only: {', '.join(others)} are not in it; .json has them"] if others else []


def _evented(spans: pl.DataFrame, tracks: pl.DataFrame) -> Iterator[_Makers]:
    begin, end = spans.select(_col("start_ns").min().fill_null(0), _col("end_ns").max().fill_null(0)).row(0)
    of_track = spans.partition_by("track", as_dict=True)
    for number, _, title in tracks.iter_rows():
        about = {"type": "evented", "name": title, "unit": "nanoseconds", "startValue": 0, "endValue": end - begin}
        # There are none if all spans of the track were left out.
        own = of_track.pop((number,), spans.clear())
        yield [f'{json.dumps(about)[:-1]}, "events": [\n'.encode, *_items(_events(own, begin)), b"\n]}".__bytes__]


def _pieces(names: pl.DataFrame, active: int, profiles: Iterable[_Makers]) -> Iterator[Callable[[], Piece]]:
    """Yields a function for each piece of the file. `names` has the frames, and `active` is the profile that speedscope
    shows first."""
    head = {"$schema": _SCHEMA, "exporter": "opspan", "activeProfileIndex": active}
    yield (json.dumps(head)[:-1] + ', "shared": {"frames": [\n').encode
    yield from _items(names.select("name", file=python_file(_col("name")), line=python_line(_col("name"))))
    yield b'\n]}, "profiles": [\n'.__bytes__
    for number, makers in enumerate(profiles):
        if number:
            yield b",\n".__bytes__
        yield from makers
    yield b"\n]}\n".__bytes__


def _items(rows: pl.DataFrame) -> Iterator[Callable[[], Piece]]:
    for start in range(0, rows.height, _BATCH):
        yield partial(native.json_items, rows.slice(start, _BATCH), start)


def _events(spans: pl.DataFrame, begin: int) -> pl.DataFrame:
    """Returns an open event and a close event for each frame, in an order in which frames nest. At equal times, open
    frames close first, the innermost before the others. Then new frames open, the outermost first. A frame without
    duration closes before the next frame opens."""
    spans = spans.sort("start_ns", -_col("end_ns"), "depth", maintain_order=True)
    order, takes_time = pl.int_range(pl.len(), dtype=pl.Int64) * 2, _col("end_ns") > _col("start_ns")
    spans = spans.with_columns(order=order, takes_time=takes_time)
    opened = spans.select(type=pl.lit("O"), frame="frame", at="start_ns", opens=pl.lit(True), order="order")
    closed = spans.select(
        type=pl.lit("C"),
        frame="frame",
        at="end_ns",
        opens=~_col("takes_time"),
        order=pl.when("takes_time").then(-_col("depth").cast(pl.Int64)).otherwise(_col("order") + 1),
    )
    return pl.concat([opened, closed]).sort("at", "opens", "order").select("type", "frame", _col("at") - begin)
