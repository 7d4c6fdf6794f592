"""The ctypes door to libopspan_sweep.so, whose C face is native/sweep/sweep.h. No meaning here: columns in and out.

The one file that opens that library, for whoever reads labels, names or times: the sweeps over frames, and demangling.
Columns cross by the Arrow C data interface: a frame is read where it lies, and a result is owned by the frame that is
made of it. Python's lock is not held meanwhile, so two sweeps may run side by side.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any, Final

import polars as pl

import opspan
from opspan import shared_library
from opspan.errors import OpspanError

ABI: Final = 4
LIBRARY: Final = "libopspan_sweep.so"
_ERROR_BYTES: Final = 512

# Of a mangled name: the demangler takes memory of the stack for each letter, and one of a hundred letters may stand for
# more text than there is memory.
_LONGEST_MANGLED: Final = 16 << 10
_SPARE_BYTES: Final = 1024
_MOST_GROWTH: Final = 16

_SWEEPS: Final = ("nest", "innermost", "match", "nearest", "rollup", "link", "labels", "events", "enclose")


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

    def close(self) -> None:
        for part in (self.schema, self.array):
            if part.release:
                part.release(ctypes.byref(part))


def _path() -> Path:
    """The installed package's `lib`, or OPSPAN_LIB_DIR: for those who build opspan's native part by hand."""
    chosen = os.environ.get("OPSPAN_LIB_DIR")
    if chosen:
        return Path(chosen) / LIBRARY
    # __path__ rather than __file__: an editable install spreads the package over the sources and the build's files.
    return next(
        (path for root in opspan.__path__ if (path := Path(root) / "lib" / LIBRARY).is_file()),
        Path(opspan.__path__[0]) / "lib" / LIBRARY,
    )


@functools.cache
def _load() -> dict[str, Any]:
    path = _path()
    if not path.is_file():
        raise OpspanError(f"{path} is missing: opspan's native part was not installed; pip install opspan")
    try:
        shared_library.check(path)
        library = ctypes.CDLL(str(path))
        found = library.opspan_sweep_abi()
        functions = {name: getattr(library, f"opspan_sweep_{name}") for name in _SWEEPS}
        demangle = library.opspan_demangle
    except (OSError, AttributeError) as error:  # not a library; a library without our functions
        raise OpspanError(f"cannot open {path} ({error}): reinstall opspan") from error
    if found != ABI:
        raise OpspanError(f"{path} speaks version {found} of sweep.h, this opspan version {ABI}: reinstall opspan")
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
    return {**functions, "demangle": demangle}


def call(sweep: str, first: pl.DataFrame, second: pl.DataFrame | None = None, number: int = 0) -> pl.DataFrame:
    """Run one of sweep.h's functions. Columns go by name; a frame in pieces is put together first."""
    function = _load()[sweep]
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
        return pl.DataFrame(result)
    finally:
        result.close()


def demangle(name: str) -> str | None:
    """The name of a C++ function or type as its source has it; None: it is no mangled name, or one past all bounds."""
    mangled = name.encode(errors="surrogatepass")
    if len(mangled) > _LONGEST_MANGLED or b"\0" in mangled:
        return None
    room = _SPARE_BYTES + _MOST_GROWTH * len(mangled)
    buffer = ctypes.create_string_buffer(room)
    size = _load()["demangle"](mangled, buffer, room)
    return buffer.raw[:size].decode("utf-8", "replace") if size > 0 else None
