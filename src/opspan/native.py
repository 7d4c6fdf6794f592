"""Native functions over whole columns: libopspan_columns.so, by native/columns/interface.h. Each function is one call.

Frames are passed by the Arrow C data interface: native code reads an argument in place, and the resulting frame owns
the result. Python's lock is released meanwhile, so calls may run side by side. docs/analysis.md explains the columns. A
missing column, or a column of another type, is an error.
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

# The longest mangled name that is demangled: the demangler uses the stack for each letter, and a hundred letters may
# stand for more text than fits into memory.
_LONGEST_MANGLED: Final = 16 << 10
NO_KIND: Final = 16  # the kind of a piece of `cut` without a kind: greater than all kinds
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
    """A frame that native code made. `close` frees the columns that polars has not taken."""

    def __init__(self) -> None:
        self.schema = _Schema()
        self.array = _Array()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return (
            _new_capsule(ctypes.addressof(self.schema), _SCHEMA_NAME, None),
            _new_capsule(ctypes.addressof(self.array), _ARRAY_NAME, None),
        )

    def columns(self) -> list[pl.Series]:
        """Returns the columns one by one: in one frame all of them would live as long as the last."""
        count = self.schema.n_children
        schemas = ctypes.cast(self.schema.children, ctypes.POINTER(ctypes.POINTER(_Schema)))
        arrays = ctypes.cast(self.array.children, ctypes.POINTER(ctypes.POINTER(_Array)))
        columns = []
        for number in range(count):
            column = _Result()
            for part, child in ((column.schema, schemas[number]), (column.array, arrays[number])):
                ctypes.memmove(ctypes.byref(part), child, ctypes.sizeof(part))
                child.contents.release = type(part.release)()  # because it was moved
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
    except (OSError, AttributeError) as error:  # not a library, or one without our functions
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
    # The capsules own the streams: they live until the call is over.
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
    """Returns the parent, depth and own time of each range, and the ends if any differ from before. `end_ns`: the end
    of the trace, where open ranges are closed."""
    return _call("nest", ranges, number=end_ns)


def enclose(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns the parent and own time that torch.profiler would give each range."""
    return _call("enclose", ranges)


def innermost(ranges: pl.DataFrame, points: pl.DataFrame) -> pl.Series:
    """Returns for each point in time of a thread the row of the innermost range that is open there."""
    return _call("innermost", ranges, points)["range"]


def cover(spans: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Returns the time that the spans of both frames cover together: stretches that do not touch, group by group, in
    order. `row`: a row of the group, counted through both frames. The columns by0, by1, ... define groups, if
    present."""
    return _call("cover", spans, others)


def covered(spans: pl.DataFrame, stretches: pl.DataFrame) -> pl.Series:
    """Returns how much of each stretch the spans of its group cover together, in ns; null without a begin or an end."""
    return _call("covered", spans, stretches)["ns"]


def within(points: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """Returns pairs: a row of `points`, by `time_ns`, and the row of a stretch of its group that contains it."""
    return _call("within", points, stretches)


def cut(stretches: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Cuts stretches of time on threads where a span of their thread begins or ends. Returns stretch, start_ns, end_ns,
    `range`, the row of the innermost open span without a kind, and the highest open kind. Without an open kind, a piece
    has the kind of its stretch, or NO_KIND; without a thread it has the range of its stretch."""
    return _call("cut", stretches, spans)


def match(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Returns for each work the row of the call that launched it, and whether other calls might have."""
    return _call("match", calls, work)


def nearest(parents: pl.DataFrame) -> pl.Series:
    """Returns for each row its nearest marked ancestor, itself included. `parents`: parent and marked."""
    return _call("nearest", parents)["nearest"]


def rollup(parents: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Returns for each row the time of its own work, and of that with all rows below it."""
    return _call("rollup", parents, work)


def link(ranges: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Returns for each backward range the row of its forward op, and a number for the way it was matched."""
    return _call("link", ranges, names)


def labels(texts: pl.Series, threads: int) -> pl.DataFrame:
    """Splits texts of labels into fields, a row each."""
    return _call("labels", texts.alias("text").to_frame(), number=threads)


def chrome_events(text: bytes | memoryview, args: pl.DataFrame, state: int, is_last: bool) -> pl.DataFrame:
    """Returns the events in a piece of a Chrome trace, which begins in `state`; `args` lists the args to keep. The
    memory of a memoryview must be writable."""
    where = pl.DataFrame({"address": [_address(text)], "bytes": [len(text)]})  # a column of the text would be a copy
    return _call("events", where, args, 2 * state + is_last)


def _address(text: bytes | memoryview) -> int:
    if isinstance(text, bytes):
        return ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value or 0
    return ctypes.addressof(ctypes.c_char.from_buffer(text)) if len(text) else 0


def metadata(texts: pl.Series, threads: int) -> pl.DataFrame:
    """Returns seq, op_id, forward_tid and sizes from metadata in any known form: native/columns/metadata.cpp."""
    return _call("metadata", texts.alias("text").to_frame(), number=threads)


def json_objects(texts: pl.Series, threads: int) -> pl.Series:
    """Returns each text as a JSON object with one member, named like the column."""
    return _call("json_objects", texts.to_frame(), number=threads)["json"]


def json_items(rows: pl.DataFrame, before: int = 0) -> Iterator[memoryview]:
    """Yields the bytes of items of a JSON list, an object a row (native/columns/json_items.cpp), in pieces. A piece is
    valid until the next one. `before`: the number of items that the list already has; if any, a comma comes first."""
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
    """Returns messages, each a field with this number (native/columns/protobuf.cpp). Columns are named by numbers."""
    return _call("protobuf", rows, number=number)["bytes"].to_numpy().data


def timeline(slices: pl.DataFrame) -> pl.DataFrame:
    """Returns begins and ends of slices in order of time: the row, its lane beside the track, and whether it ends."""
    return _call("timeline", slices)


def places(shapes: pl.DataFrame, rows_of_lane: int) -> pl.DataFrame:
    """Returns shapes (lane, start_ns from 0, length_ns) in drawing order: `shape`, the row; the place (rows_of_lane *
    lane + row of the lane); its time; and `is_crowded`: whether it is on the last row of the lane, where shapes may
    overlap."""
    return _call("places", shapes, number=rows_of_lane)


def blocks(shapes: pl.DataFrame, most: int) -> pl.DataFrame:
    """Merges shapes of `places` into at most `most` blocks: first and longest shape, count, end, total length, and
    under_ns, one value for all: shapes shorter than that are merged with their neighbours."""
    return _call("blocks", shapes, number=most)


def latest(queries: pl.DataFrame, known: pl.DataFrame, *, strict: bool) -> pl.Series:
    """Returns for each point in time (by, time_ns) the last row of `known` of the same `by` that is not after it
    (`strict`: before it), or -1. `known` is in order of time for each `by`, and has no nulls."""
    return _call("latest", queries, known, int(strict))["found"]


def replay(work: pl.DataFrame, joins: pl.DataFrame, count: int) -> pl.DataFrame:
    """Replays work: returns its begin and end, then for each join when its thread goes on and how much later that is
    than the thread's clock: begun_ns, end_ns. The first `count` rows of `work` are work; the others are edges. Joins
    run in the order of their column `in_order`, each after as much work as `work_between` has in the same place."""
    return _call("replay", work, joins, count)


def sqlite(columns: pl.DataFrame, table: pl.DataFrame, descriptor: int) -> list[pl.Series]:
    """Returns columns of a table of an SQLite file from its pages (native/sqlite/table.h), or the reason why not. A
    column of one row stands for all rows."""
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
