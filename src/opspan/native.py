"""What is done natively over whole columns: libopspan_columns.so, by native/columns/interface.h. One function a call.

Frames go in and come out by the Arrow C data interface: one is read where it lies, and a result is owned by the frame
that is made of it. Python's lock is not held meanwhile, so two calls may run side by side. What the columns mean is in
docs/analysis.md; one that is missing or of another type is an error.
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

# Bounds a mangled name: the demangler takes memory of the stack for each letter, and one of a hundred letters may
# stand for more text than there is memory.
_LONGEST_MANGLED: Final = 16 << 10
NO_KIND: Final = 16  # of `cut`: kinds are less
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
    """A frame that native code made, until somebody takes it. What nobody took is given back."""

    def __init__(self) -> None:
        self.schema = _Schema()
        self.array = _Array()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return (
            _new_capsule(ctypes.addressof(self.schema), _SCHEMA_NAME, None),
            _new_capsule(ctypes.addressof(self.array), _ARRAY_NAME, None),
        )

    def columns(self) -> list[pl.Series]:
        """Each by itself: of a whole frame, all columns would be there as long as one of them is."""
        count = self.schema.n_children
        schemas = ctypes.cast(self.schema.children, ctypes.POINTER(ctypes.POINTER(_Schema)))
        arrays = ctypes.cast(self.array.children, ctypes.POINTER(ctypes.POINTER(_Array)))
        columns = []
        for number in range(count):
            column = _Result()
            for part, child in ((column.schema, schemas[number]), (column.array, arrays[number])):
                ctypes.memmove(ctypes.byref(part), child, ctypes.sizeof(part))
                child.contents.release = type(part.release)()  # it was moved
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
        found = library.opspan_columns_abi()
        functions = {name: getattr(library, f"opspan_columns_{name}") for name in _FRAMES}
        demangle = library.opspan_demangle
        items, next_items, end_items = (library[f"opspan_json_items{what}"] for what in ("", "_next", "_end"))
    except (OSError, AttributeError) as error:  # not a library; a library without our functions
        raise OpspanError(
            f"cannot open {path} ({error}): without it only traces that opspan saved are read; reinstall opspan"
        ) from error
    if found != ABI:
        raise OpspanError(
            f"{path} is of another version of opspan (interface {found}, expected {ABI}): reinstall opspan"
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
    """Run one of interface.h's functions. Columns go by name; a frame in pieces is put together first."""
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
    """For each range its parent, depth and own time, and its end, if that of any is not as it was. `end_ns`: the end of
    the trace, where open ranges are closed."""
    return _call("nest", ranges, number=end_ns)


def enclose(ranges: pl.DataFrame) -> pl.DataFrame:
    """The parent and own time that torch.profiler would give each range."""
    return _call("enclose", ranges)


def innermost(ranges: pl.DataFrame, points: pl.DataFrame) -> pl.Series:
    """For each point in time of a thread the row of the innermost range that is open there."""
    return _call("innermost", ranges, points)["range"]


def cover(spans: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """The time that the spans of both frames cover together: stretches that do not touch, group by group, in order.
    `row`: a row of the group, counted through both frames. Groups differ in the columns by0, by1, ..., if any."""
    return _call("cover", spans, others)


def covered(spans: pl.DataFrame, stretches: pl.DataFrame) -> pl.Series:
    """How much of each stretch the spans of its group cover together, in ns; null where it has no begin or no end."""
    return _call("covered", spans, stretches)["ns"]


def within(points: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """Pairs of a row of `points`, by `time_ns`, and the row of a stretch of its group that it lies in."""
    return _call("within", points, stretches)


def cut(stretches: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Stretches of time on threads in pieces, cut where a span of their thread begins or ends: stretch, start_ns,
    end_ns, and of what is open the row of the innermost `range`, which is a span without a kind, and the highest kind.
    Where no kind is open a piece has that of its stretch, or NO_KIND; on no thread it has the range of its stretch."""
    return _call("cut", stretches, spans)


def match(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """For each work the row of the call that launched it, and whether others might have."""
    return _call("match", calls, work)


def nearest(parents: pl.DataFrame) -> pl.Series:
    """For each row the nearest one up the tree that is marked, itself first. `parents`: parent and marked."""
    return _call("nearest", parents)["nearest"]


def rollup(parents: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """For each row the time of the work that is its own, and of that with all below it."""
    return _call("rollup", parents, work)


def link(ranges: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """For each backward range the row of its forward op, and the number of how it was found."""
    return _call("link", ranges, names)


def labels(texts: pl.Series, threads: int) -> pl.DataFrame:
    """Texts of labels taken apart, a row each."""
    return _call("labels", texts.alias("text").to_frame(), number=threads)


def chrome_events(text: bytes | memoryview, args: pl.DataFrame, state: int, is_last: bool) -> pl.DataFrame:
    """The events in a piece of a Chrome trace, which begins in `state`; `args`: which of their args are wanted. A view
    must be one of memory that may be written."""
    where = pl.DataFrame({"address": [_address(text)], "bytes": [len(text)]})  # a column of it would be a copy
    return _call("events", where, args, 2 * state + is_last)


def _address(text: bytes | memoryview) -> int:
    if isinstance(text, bytes):
        return ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value or 0
    return ctypes.addressof(ctypes.c_char.from_buffer(text)) if len(text) else 0


def metadata(texts: pl.Series, threads: int) -> pl.DataFrame:
    """seq, op_id, forward_tid and sizes, as a text of any making says them: native/columns/metadata.cpp."""
    return _call("metadata", texts.alias("text").to_frame(), number=threads)


def json_objects(texts: pl.Series, threads: int) -> pl.Series:
    """Each text as a JSON object with one member, which is called like the column."""
    return _call("json_objects", texts.to_frame(), number=threads)["json"]


def json_items(rows: pl.DataFrame, before: int = 0) -> Iterator[memoryview]:
    """The bytes of items of a JSON list, an object a row as native/columns/json_items.cpp says, some at a time: each is
    there until the next is asked for. `before`: how many items the list has already; if there are any, a comma comes
    first."""
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
    """The bytes of messages, each a field of that number, as native/columns/protobuf.cpp says. Columns are called after
    the numbers of fields."""
    return _call("protobuf", rows, number=number)["bytes"].to_numpy().data


def timeline(slices: pl.DataFrame) -> pl.DataFrame:
    """Begins and ends of slices in the order of time: the row of each, its lane beside the track, whether it ends."""
    return _call("timeline", slices)


def places(shapes: pl.DataFrame, rows_of_lane: int) -> pl.DataFrame:
    """Shapes (lane, start_ns from 0, length_ns) in the order in which they are drawn: the row of each as `shape`, its
    place (rows_of_lane * lane + row of the lane), its time, and `is_crowded`: it is on the last row, with any others.
    No two shapes of another row overlap."""
    return _call("places", shapes, number=rows_of_lane)


def blocks(shapes: pl.DataFrame, most: int) -> pl.DataFrame:
    """What of `places` is drawn as one, so that no more than `most` are: first and longest of them, how many, until
    when, how long together; and under_ns, which is the same for all: shorter ones are drawn with their neighbours."""
    return _call("blocks", shapes, number=most)


def latest(asked: pl.DataFrame, known: pl.DataFrame, *, strict: bool) -> pl.Series:
    """For each point in time (by, time_ns) the last row of `known` of the same `by` that is not after it, or, if
    `strict`, that is before it; -1: there is none. `known` is in order of time for each `by`, and has no nulls."""
    return _call("latest", asked, known, int(strict))["found"]


def replay(work: pl.DataFrame, joins: pl.DataFrame, count: int) -> pl.DataFrame:
    """When work would begin and end, and after it for each join when its thread goes on, and how much later that is
    than the thread's clock: begun_ns, end_ns. The first `count` rows of `work` are work; the others are edges. Joins
    are walked as their column `in_order` says, each after as much work as `work_between` has in the same place."""
    return _call("replay", work, joins, count)


def sqlite(wanted: pl.DataFrame, table: pl.DataFrame, descriptor: int) -> list[pl.Series]:
    """Columns of a table of an SQLite file, from its pages, as native/sqlite/table.h says; or why not. A column of one
    row stands for all of them."""
    return _columns("sqlite", wanted, table, descriptor)


def demangled(name: str) -> str:
    """The name of a C++ function or type as its source has it; one that is not mangled, or too long, as it is."""
    mangled = name.encode(errors="surrogatepass")
    if len(mangled) > _LONGEST_MANGLED or b"\0" in mangled:
        return name
    room = _SPARE_BYTES + _MOST_GROWTH * len(mangled)
    buffer = ctypes.create_string_buffer(room)
    size = _load()["demangle"](mangled, buffer, room)
    return buffer.raw[:size].decode("utf-8", "replace") if size > 0 else name
