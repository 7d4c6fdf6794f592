"""Calls the functions of libopspan_columns.so (native/columns/interface.h), which process whole columns. Each function
here makes one native call.

Data frames are passed by the Arrow C data interface. Native code reads an argument without copying it, and the
resulting frame owns the result. Python's global lock (GIL) is released during a call, so calls may run in parallel.
docs/analysis.md explains the columns. A missing column, or a column of another type, is an error.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from opspan import forked, libraries
from opspan.errors import OpspanError
from opspan.row_numbers import ROW_NUMBER

ABI: Final = 16
_ERROR_BYTES: Final = 512

# Maximum number of bytes of a mangled name. A longer name is not demangled, because the demangler is recursive, so the
# stack could overflow. The length of the result is limited, too, because a mangled name of a hundred letters may stand
# for more text than fits into memory.
_LONGEST_MANGLED: Final = 16 << 10
NO_KIND: Final = 16  # the number that `cut` gives to a piece of time without a kind; it is greater than all kinds
_SPARE_BYTES: Final = 1024
_MOST_GROWTH: Final = 16

_FRAMES: Final = (
    "nest enclose innermost cover covered within cut match nearest rollup link labels events metadata "
    "json_objects protobuf timeline places blocks latest replay perf sqlite"
).split()


class _Schema(ctypes.Structure):
    """The C struct ArrowSchema of the Arrow C data interface."""


class _Array(ctypes.Structure):
    """The C struct ArrowArray of the Arrow C data interface."""


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
    """A frame that native code made. `close` frees the columns that polars did not take over."""

    def __init__(self) -> None:
        self.schema = _Schema()
        self.array = _Array()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return (
            _new_capsule(ctypes.addressof(self.schema), _SCHEMA_NAME, None),
            _new_capsule(ctypes.addressof(self.array), _ARRAY_NAME, None),
        )

    def columns(self) -> list[pl.Series]:
        """Returns the columns as separate objects. In a common frame, all columns would stay in memory as long as any
        of them is used."""
        count = self.schema.n_children
        schemas = ctypes.cast(self.schema.children, ctypes.POINTER(ctypes.POINTER(_Schema)))
        arrays = ctypes.cast(self.array.children, ctypes.POINTER(ctypes.POINTER(_Array)))
        columns = []
        for number in range(count):
            column = _Result()
            for part, child in ((column.schema, schemas[number]), (column.array, arrays[number])):
                ctypes.memmove(ctypes.byref(part), child, ctypes.sizeof(part))
                child.contents.release = type(part.release)()  # `column` owns the data now, not the frame
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


def _of_rows(name: str, first: pl.DataFrame, second: pl.DataFrame | None = None, number: int = 0) -> pl.DataFrame:
    """Calls a function that takes and returns row numbers. Native code has row numbers of 32 bits."""
    if pl.UInt32 == ROW_NUMBER:
        return _call(name, first, second, number)
    short: dict[Any, Any] = {ROW_NUMBER: pl.UInt32}
    result = _call(name, first.cast(short), None if second is None else second.cast(short), number)
    return result.cast({pl.UInt32: ROW_NUMBER})


def _columns(name: str, first: pl.DataFrame, second: pl.DataFrame | None = None, number: int = 0) -> list[pl.Series]:
    """Calls a function of interface.h, which finds columns by name. A frame with several chunks is first joined to
    one."""
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
    """Returns the parent, depth and self time of each range. If some ranges have no end, also returns the ends of all
    ranges. `end_ns`: the end of the trace, which becomes the end of open ranges."""
    return _of_rows("nest", ranges, number=end_ns)


def enclose(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns the parent and self time that torch.profiler would give each range."""
    return _of_rows("enclose", ranges)


def innermost(ranges: pl.DataFrame, points: pl.DataFrame) -> pl.Series:
    """Returns, for each point in time on a thread, the row of the innermost range that is open at that time."""
    return _of_rows("innermost", ranges, points)["range"]


def cover(spans: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Returns the union of the time spans of both frames, separately for each group of rows. The union is a list of
    stretches of time, in order, which do not touch. The columns by0, by1, ... define the groups, if present. The column
    `row` of the result is the number of one row of the stretch's group. Rows of `others` are numbered after those of
    `spans`."""
    return _of_rows("cover", spans, others)


def covered(spans: pl.DataFrame, stretches: pl.DataFrame) -> pl.Series:
    """Returns how many ns of each stretch of time are covered by the spans of the stretch's group. The number is null
    if the stretch has no begin or no end."""
    return _of_rows("covered", spans, stretches)["ns"]


def within(points: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """Returns pairs of row numbers: a row of `points`, and a row of `stretches` that is in the same group and contains
    the point's `time_ns`."""
    return _of_rows("within", points, stretches)


def cut(stretches: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Cuts stretches of time on threads at each begin and end of a span on the same thread. Returns a row for each
    piece, with the columns stretch, start_ns, end_ns, range and kind. A span is a range or has a kind. `range` is the
    row of the innermost open range; for a stretch without a thread, it is the stretch's own range. `kind` is the
    highest kind of the open spans, else the kind of the stretch, else NO_KIND."""
    return _of_rows("cut", stretches, spans)


def match(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Returns, for each row of `work` (such as a kernel or a copy), the row of the call that launched it. Also returns
    whether another call may have launched it instead."""
    return _of_rows("match", calls, work)


def nearest(parents: pl.DataFrame) -> pl.Series:
    """Returns, for each row, its own number if it is marked, else the number of its nearest marked ancestor. `parents`
    has the columns parent and marked."""
    return _of_rows("nearest", parents)["nearest"]


def rollup(parents: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Returns two device times for each row of `parents`: the time of the work (such as kernels and copies) that
    belongs to this row, and the same with the work of all descendants."""
    return _of_rows("rollup", parents, work)


def link(ranges: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Returns, for each backward range, the row of its forward op, and a number that says how the two were matched."""
    return _of_rows("link", ranges, names)


def labels(texts: pl.Series, threads: int) -> pl.DataFrame:
    """Splits labels into fields. Each label becomes a row."""
    return _call("labels", texts.alias("text").to_frame(), number=threads)


def chrome_events(text: bytes | memoryview, args: pl.DataFrame, state: int, is_last: bool) -> pl.DataFrame:
    """Returns the events in a part of the text of a Chrome trace. `state` is the parser's state before this part.
    `args` lists the args to read. If `text` is a memoryview, it must be writable."""
    # Passes the address of the text, because a column would hold a copy of the text.
    return _call("events", _place(text), args, 2 * state + is_last)


def perf_samples(text: bytes) -> pl.DataFrame:
    """Returns the samples in a part of the text of `perf script` (native/columns/perf.cpp), with the frames of each
    that were left out. The last row is no sample: its `left_out` is the number of lines that belong to none. The text
    must be valid UTF-8."""
    return _call("perf", _place(text))


def _place(text: bytes | memoryview) -> pl.DataFrame:
    return pl.DataFrame({"address": [_address(text)], "bytes": [len(text)]})


def _address(text: bytes | memoryview) -> int:
    if isinstance(text, bytes):
        return ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value or 0
    return ctypes.addressof(ctypes.c_char.from_buffer(text)) if len(text) else 0


def metadata(texts: pl.Series, threads: int) -> pl.DataFrame:
    """Returns the columns seq, op_id, forward_tid and sizes of texts in any form that columns/metadata.cpp reads."""
    return _call("metadata", texts.alias("text").to_frame(), number=threads)


def json_objects(texts: pl.Series, threads: int) -> pl.Series:
    """Returns, for each text, a JSON object whose only value is the text. The key is the name of the column."""
    return _call("json_objects", texts.to_frame(), number=threads)["json"]


def json_items(rows: pl.DataFrame, before: int = 0) -> Iterator[memoryview]:
    """Yields the rows as the items of a JSON list, in blocks of bytes. Each row becomes a JSON object
    (native/columns/json_items.cpp). A block is valid until the next one is requested. `before`: the number of items
    that are already in the list; if it is not 0, the bytes begin with a comma."""
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
    """Encodes each row as a protobuf message, in a field with the number `number` (native/columns/protobuf.cpp). Each
    column is a field of the message, and the column's name is the number of the field."""
    return _call("protobuf", rows, number=number)["bytes"].to_numpy().data


def timeline(slices: pl.DataFrame) -> pl.DataFrame:
    """Returns the begins and ends of slices in order of time. A row of the result has the number of the slice's row,
    the lane, and whether the row is the slice's end. Lane 0 is the track itself. A slice gets another lane if it would
    overlap a slice of lane 0 without being nested in that slice."""
    return _of_rows("timeline", slices)


def places(shapes: pl.DataFrame, rows_of_lane: int) -> pl.DataFrame:
    """Arranges the shapes (boxes) of a timeline in lines; each lane has `rows_of_lane` lines. `shapes` has lane,
    start_ns (not negative) and length_ns. Returns the shapes in the order in which they are drawn: `shape` (the row in
    `shapes`), `place` (rows_of_lane * lane + the number of the line in the lane), `is_crowded` (whether this is the
    last line of the lane, where shapes may overlap), start_ns, length_ns."""
    return _of_rows("places", shapes, number=rows_of_lane)


def blocks(shapes: pl.DataFrame, most: int) -> pl.DataFrame:
    """Merges neighbouring shapes that `places` returned, so that at most `most` blocks result. A block has its first
    and its longest shape, the number of shapes, its length, and the sum of its shapes' lengths (busy_ns). `under_ns` is
    the same for all blocks: shapes shorter than this were merged."""
    return _of_rows("blocks", shapes, number=most)


def latest(queries: pl.DataFrame, known: pl.DataFrame, *, strict: bool) -> pl.Series:
    """Returns, for each query (by, time_ns), the last row of `known` that has the same `by` and is not later, or -1 if
    there is none. If `strict`, the row must be earlier. `known` is in order of time for each `by`, and has no nulls."""
    return _of_rows("latest", queries, known, int(strict))["found"]


def replay(work: pl.DataFrame, joins: pl.DataFrame, count: int) -> pl.DataFrame:
    """Replays the graph of a critical path with other times. Returns begun_ns and end_ns, first for each row of work
    (such as a kernel or a copy), then for each join.

    Only the first `count` rows of `work` are work. Their begun_ns and end_ns are the new begin and end. The other rows
    of `work` are edges of the graph. A join is a point where a thread waits. Its begun_ns is the time when the thread
    continues, and its end_ns is the difference between this time and the join's clock_ns. The column `in_order` of
    `joins` lists rows of `joins` in the order in which they are replayed. `work_between` says how many rows of work are
    replayed between each of these joins and the join before it.
    """
    return _of_rows("replay", work, joins, count)


def sqlite(columns: pl.DataFrame, table: pl.DataFrame, descriptor: int) -> list[pl.Series]:
    """Reads columns of a table directly from the pages of an SQLite file (native/sqlite/table.h). If that is
    impossible, returns the reason instead. A returned column with only one row means that all rows have this value."""
    return _columns("sqlite", columns, table, descriptor)


def demangled(name: str) -> str:
    """Returns the name of a C++ function or type as in its source. If the name is not mangled or is too long, returns
    it unchanged."""
    mangled = name.encode(errors="surrogatepass")
    if len(mangled) > _LONGEST_MANGLED or b"\0" in mangled:
        return name
    room = _SPARE_BYTES + _MOST_GROWTH * len(mangled)
    buffer = ctypes.create_string_buffer(room)
    size = _load()["demangle"](mangled, buffer, room)
    return buffer.raw[:size].decode("utf-8", "replace") if size > 0 else name
