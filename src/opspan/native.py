"""Calls the functions of libopspan_columns.so (native/columns/interface.h), which process whole columns. Each function
here makes one native call.

Frames are passed by the Arrow C data interface. Native code reads an argument without copying it, and the resulting
frame owns the result. Python's lock is released during a call, so calls may run in parallel. docs/analysis.md explains
the columns. A missing column, or a column of another type, is an error.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from opspan import forked, libraries
from opspan.errors import OpspanError

ABI: Final = 16
_ERROR_BYTES: Final = 512

# The longest mangled name that is demangled. Longer names could overflow the stack, which the demangler uses for each
# letter. A hundred letters may encode more text than fits into memory.
_LONGEST_MANGLED: Final = 16 << 10
NO_KIND: Final = 16  # the kind that `cut` gives to a piece without a kind; it is greater than all kinds
_SPARE_BYTES: Final = 1024
_MOST_GROWTH: Final = 16

_FRAMES: Final = (
    "nest",
    "enclose",
    "innermost",
    "cover",
    "covered",
    "within",
    "cut",
    "match",
    "nearest",
    "rollup",
    "link",
    "labels",
    "events",
    "metadata",
    "json_objects",
    "protobuf",
    "timeline",
    "places",
    "blocks",
    "latest",
    "replay",
    "sqlite",
)


class _Schema(ctypes.Structure):
    """ArrowSchema."""


class _Array(ctypes.Structure):
    """ArrowArray."""


_Schema._fields_ = (
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))),
    ("private_data", ctypes.c_void_p),
)
_Array._fields_ = (
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.c_void_p),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))),
    ("private_data", ctypes.c_void_p),
)

_SCHEMA_NAME: Final = b"arrow_schema"
_ARRAY_NAME: Final = b"arrow_array"
_STREAM_NAME: Final = b"arrow_array_stream"

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)


class _Result:
    """A frame that native code made. `close` frees the columns that were not passed on to polars."""

    def __init__(self) -> None:
        self.schema = _Schema()
        self.array = _Array()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return (
            _new_capsule(ctypes.addressof(self.schema), _SCHEMA_NAME, None),
            _new_capsule(ctypes.addressof(self.array), _ARRAY_NAME, None),
        )

    def columns(self) -> list[pl.Series]:
        """Returns separate columns, because the columns of one frame would all stay in memory as long as any of them is
        used."""
        count = self.schema.n_children
        schemas = ctypes.cast(self.schema.children, ctypes.POINTER(ctypes.POINTER(_Schema)))
        arrays = ctypes.cast(self.array.children, ctypes.POINTER(ctypes.POINTER(_Array)))
        columns = []
        for number in range(count):
            column = _Result()
            for part, child in ((column.schema, schemas[number]), (column.array, arrays[number])):
                ctypes.memmove(ctypes.byref(part), child, ctypes.sizeof(part))
                child.contents.release = type(part.release)()  # the column was moved, so the frame must not free it
            name = (column.schema.name or b"").decode()
            columns.append(pl.Series(name, column))
            column.close()
        return columns

    def close(self) -> None:
        for part in (self.schema, self.array):
            if part.release:
                part.release(ctypes.byref(part))


@functools.cache
def _load() -> dict[str, Any]:
    path = libraries.columns()
    if not path.is_file():
        raise OpspanError(
            f"{path} is missing: opspan's native part was not installed, and without it only traces that opspan saved "
            "are read; pip install opspan"
        )
    try:
        libraries.check_whole(path)
        library = libraries.load(path)
        version = library.opspan_columns_abi()
        functions = {name: getattr(library, f"opspan_columns_{name}") for name in _FRAMES}
        demangle = library.opspan_demangle
        items, next_items, end_items = (library[f"opspan_json_items{what}"] for what in ("", "_next", "_end"))
    except (OSError, AttributeError) as error:  # the file is not a library, or lacks our functions
        raise OpspanError(
            f"cannot open {path} ({error}): without it only traces that opspan saved are read; reinstall opspan"
        ) from error
    if version != ABI:
        raise OpspanError(
            f"{path} is of another version of opspan (interface {version}, expected {ABI}): reinstall opspan"
        )
    for function in functions.values():
        function.restype = ctypes.c_int
        function.argtypes = (
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_size_t,
        )
    demangle.restype = ctypes.c_int64
    demangle.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    items.restype = ctypes.c_void_p
    items.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
    next_items.restype = ctypes.c_int64
    next_items.argtypes = (ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p, ctypes.c_size_t)
    end_items.restype = None
    end_items.argtypes = (ctypes.c_void_p,)
    return {**functions, "demangle": demangle, "items": items, "next_items": next_items, "end_items": end_items}


def _call(name: str, first: pl.DataFrame, second: pl.DataFrame | None = None, number: int = 0) -> pl.DataFrame:
    return pl.DataFrame(_columns(name, first, second, number))


def _columns(name: str, first: pl.DataFrame, second: pl.DataFrame | None = None, number: int = 0) -> list[pl.Series]:
    """Calls a function of interface.h. Columns are found by name; a frame in several chunks is rechunked first."""
    forked.refuse("this analysis")
    function = _load()[name]
    # The capsules own the streams, so they must exist until the call ends.
    capsules = [frame.rechunk().__arrow_c_stream__() for frame in (first, second) if frame is not None]
    streams = [_pointer_of(capsule, _STREAM_NAME) for capsule in capsules]
    result = _Result()
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    try:
        done = function(
            streams[0],
            streams[1] if second is not None else None,
            number,
            ctypes.addressof(result.schema),
            ctypes.addressof(result.array),
            error,
            _ERROR_BYTES,
        )
        if done != 0:
            raise OpspanError(f"reading {first.height:,} rows failed: {error.value.decode(errors='replace')}")
        return result.columns()
    finally:
        result.close()


def nest(ranges: pl.DataFrame, end_ns: int) -> pl.DataFrame:
    """Returns the parent, depth and self time of each range, and the ends of ranges if any end changed. `end_ns`: the
    end of the trace, which becomes the end of open ranges."""
    return _call("nest", ranges, number=end_ns)


def enclose(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns the parent and self time that torch.profiler would give each range."""
    return _call("enclose", ranges)


def innermost(ranges: pl.DataFrame, points: pl.DataFrame) -> pl.Series:
    """Returns, for each point in time on a thread, the row of the innermost range that is open at that time."""
    return _call("innermost", ranges, points)["range"]


def cover(spans: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Returns the union of the spans of both frames, as stretches that do not touch, in order, for one group after
    another. The columns by0, by1, ... define groups, if present. `row` is a row of the group; rows of `others` are
    counted after those of `spans`."""
    return _call("cover", spans, others)


def covered(spans: pl.DataFrame, stretches: pl.DataFrame) -> pl.Series:
    """Returns how many ns of each stretch are covered by the spans of its group; null if the stretch has no begin or
    end."""
    return _call("covered", spans, stretches)["ns"]


def within(points: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """Returns pairs of a row of `points` and a row of `stretches`, if the stretch is of the same group and contains
    `time_ns` of the point."""
    return _call("within", points, stretches)


def cut(stretches: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Cuts stretches of time on threads at each begin and end of a span on the same thread. Returns the pieces:
    stretch, start_ns, end_ns, `range` (the row of the innermost open span without a kind) and the highest kind of the
    open spans. If no open span has a kind, the piece has the kind of its stretch, or NO_KIND. If the stretch has no
    thread, the piece has the range of its stretch."""
    return _call("cut", stretches, spans)


def match(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Returns, for each row of work, the row of the call that launched it, and whether other calls may have launched
    it."""
    return _call("match", calls, work)


def nearest(parents: pl.DataFrame) -> pl.Series:
    """Returns, for each row, the row itself if it is marked, else its nearest marked ancestor. `parents` has the
    columns parent and marked."""
    return _call("nearest", parents)["nearest"]


def rollup(parents: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Returns, for each row, the time of its work, and the time of the work of the row and all its descendants."""
    return _call("rollup", parents, work)


def link(ranges: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Returns, for each backward range, the row of its forward op, and a number that says how the two were matched."""
    return _call("link", ranges, names)


def labels(texts: pl.Series, threads: int) -> pl.DataFrame:
    """Splits labels into fields. Each label becomes a row."""
    return _call("labels", texts.alias("text").to_frame(), number=threads)


def chrome_events(text: bytes | memoryview, args: pl.DataFrame, state: int, is_last: bool) -> pl.DataFrame:
    """Returns the events in a piece of a Chrome trace. `state` is the parser's state at the begin of the piece, and
    `args` lists the args to read. A memoryview must be writable."""
    # Passes the address, because a column would copy the text.
    where = pl.DataFrame({"address": [_address(text)], "bytes": [len(text)]})
    return _call("events", where, args, 2 * state + is_last)


def _address(text: bytes | memoryview) -> int:
    if isinstance(text, bytes):
        return ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value or 0
    return ctypes.addressof(ctypes.c_char.from_buffer(text)) if len(text) else 0


def metadata(texts: pl.Series, threads: int) -> pl.DataFrame:
    """Returns seq, op_id, forward_tid and sizes from metadata in any form that native/columns/metadata.cpp knows."""
    return _call("metadata", texts.alias("text").to_frame(), number=threads)


def json_objects(texts: pl.Series, threads: int) -> pl.Series:
    """Returns each text as a JSON object with one member, named like the column."""
    return _call("json_objects", texts.to_frame(), number=threads)["json"]


def json_items(rows: pl.DataFrame, before: int = 0) -> Iterator[memoryview]:
    """Yields the bytes of items of a JSON list, in pieces. Each row becomes an object (native/columns/json_items.cpp).
    A piece is valid until the next piece is requested. `before`: the number of items that were written before; if it is
    not 0, the bytes begin with a comma."""
    library = _load()
    bytes_at, error = ctypes.c_void_p(), ctypes.create_string_buffer(_ERROR_BYTES)
    capsule = rows.rechunk().__arrow_c_stream__()
    items = library["items"](_pointer_of(capsule, _STREAM_NAME), before == 0, error, _ERROR_BYTES)
    try:
        while items and (size := library["next_items"](items, ctypes.byref(bytes_at), error, _ERROR_BYTES)) > 0:
            with memoryview((ctypes.c_char * size).from_address(bytes_at.value or 0)).cast("B") as some:
                yield some
    finally:
        library["end_items"](items)
    if error.value:
        raise OpspanError(f"writing {rows.height:,} rows failed: {error.value.decode(errors='replace')}")


def protobuf(rows: pl.DataFrame, number: int) -> memoryview:
    """Returns a protobuf message for each row, as fields with this number (native/columns/protobuf.cpp). The names of
    columns are numbers of fields."""
    return _call("protobuf", rows, number=number)["bytes"].to_numpy().data


def timeline(slices: pl.DataFrame) -> pl.DataFrame:
    """Returns the begins and ends of slices in order of time. A row of the result has the slice's row, its lane, and
    whether this is the slice's end. Lane 0 is the track itself. Slices that do not nest in it get other lanes."""
    return _call("timeline", slices)


def places(shapes: pl.DataFrame, rows_of_lane: int) -> pl.DataFrame:
    """Returns shapes (lane, start_ns from 0, length_ns) in drawing order. Each has `shape`, its row in `shapes`, and
    its place, which is rows_of_lane * lane + the row within the lane. `is_crowded` says whether the shape is on the
    last row of its lane, where shapes may overlap. The result also has the times."""
    return _call("places", shapes, number=rows_of_lane)


def blocks(shapes: pl.DataFrame, most: int) -> pl.DataFrame:
    """Merges shapes of `places` into at most `most` blocks. A block has its first and its longest shape, count, end and
    total length. `under_ns` is equal for all blocks: shapes that are shorter were merged with their neighbours."""
    return _call("blocks", shapes, number=most)


def latest(queries: pl.DataFrame, known: pl.DataFrame, *, strict: bool) -> pl.Series:
    """Returns, for each point in time (by, time_ns), the last row of `known` with equal `by` that is not later
    (`strict`: that is earlier), or -1. `known` is in order of time for each `by`, and has no nulls."""
    return _call("latest", queries, known, int(strict))["found"]


def replay(work: pl.DataFrame, joins: pl.DataFrame, count: int) -> pl.DataFrame:
    """Replays the graph of a critical path. Returns begun_ns and end_ns, first for each work, then for each join.

    The first `count` rows of `work` are work, and their results are its new begin and end. The other rows of `work` are
    edges of the graph. A join is a place where a thread waits. Its begun_ns is the time when the thread continues, and
    its end_ns is the difference between this time and the join's clock_ns. The column `in_order` of `joins` lists rows
    of `joins` in the order in which they are replayed, and `work_between` says how many works are replayed before each
    of these.
    """
    return _call("replay", work, joins, count)


def sqlite(columns: pl.DataFrame, table: pl.DataFrame, descriptor: int) -> list[pl.Series]:
    """Returns columns of a table of an SQLite file, read from its pages (native/sqlite/table.h). If that is impossible,
    returns the reason. A column with one row has this value in all rows."""
    return _columns("sqlite", columns, table, descriptor)


def demangled(name: str) -> str:
    """Returns the name of a C++ function or type as in its source; unchanged if it is not mangled, or too long."""
    mangled = name.encode(errors="surrogatepass")
    if len(mangled) > _LONGEST_MANGLED or b"\0" in mangled:
        return name
    room = _SPARE_BYTES + _MOST_GROWTH * len(mangled)
    buffer = ctypes.create_string_buffer(room)
    size = _load()["demangle"](mangled, buffer, room)
    return buffer.raw[:size].decode("utf-8", "replace") if size > 0 else name
