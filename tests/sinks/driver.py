"""For programs under test: the C functions of sinks.h and observer.h as they are, and a torch made of one function."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

SINKS = range(6)
NVTX, ITT, CAPTURE = range(3)
AUTO, SCHEMA, PAYLOAD, TEXT, TORCH, TASK = range(6)
OP, BACKWARD, ENGINE, USER, MODULE, STEP = range(1, 7)
TO_NVTX, TO_ITT, TO_CAPTURE, TO_ALL = 1, 2, 4, 63


class Op(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("overload_length", c_size_t),
        ("kind", c_uint32),
        ("inputs_count", c_uint32),
        ("inputs", POINTER(c_int64)),
        ("type_names", POINTER(c_char_p)),
        ("values", POINTER(c_int64)),
        ("values_count", c_size_t),
        ("python", c_void_p),
        ("instruction", c_int64),
        ("stacks", c_void_p),
        ("sequence", c_int64),
        ("op_id", c_uint64),
        ("thread", c_uint64),
        ("forward_thread", c_uint64),
        ("tensors", POINTER(c_size_t)),
        ("tensor_count", c_size_t),
        ("keywords", c_char_p),
    )


BEGIN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Op))
END = ctypes.CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, POINTER(c_size_t), c_size_t)


class Sink(ctypes.Structure):
    _fields_ = (("begin", BEGIN), ("end", END), ("memory", c_void_p), ("announce", c_void_p))


class Stats(ctypes.Structure):
    _fields_ = tuple(
        (name, c_uint64)
        for name in "ranges late_ends sizes_dropped relations_missed lost given_up fields_dropped".split()
    )

    def __str__(self) -> str:
        return " ".join(f"{name}={getattr(self, name)}" for name, _ in self._fields_)


class Payload(ctypes.Union):
    _fields_ = (("i", c_int64), ("u", c_uint64), ("d", c_double))


class Range(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("name_length", c_size_t),
        ("kind", c_uint32),
        ("color", c_uint32),
        ("category", c_char_p),
        ("detail", c_char_p),
        ("payload_type", c_int32),
        ("payload", Payload),
    )


class Settings(ctypes.Structure):
    _fields_ = (
        ("form", ctypes.c_int),
        ("max_strings", c_uint32),
        ("folder", c_char_p),
        ("keep_ns", c_int64),
        ("keep_bytes", c_uint64),
        ("keep_steps", c_uint64),
    )


native = ctypes.CDLL(os.environ["SINKS"])
native.opspan_sink_of.restype = POINTER(Sink)
native.opspan_range_start.restype = c_uint64
native.opspan_range_end.argtypes = (c_uint64,)
recorder = ctypes.CDLL(os.environ["RECORDER"]) if "RECORDER" in os.environ else None
if recorder:
    recorder.recorder_take.restype = c_char_p
_error = ctypes.create_string_buffer(4096)


def taken() -> str:
    """The calls that reached the recorder since the last time."""
    return recorder.recorder_take().decode()


def said(result: int) -> Any:
    return result if result >= 0 else (result, _error.value.decode())


def start(sink: int, form: int = AUTO, max_strings: int = 65536, folder: str = "") -> Any:
    settings = Settings(form, max_strings, folder.encode())
    return said(native.opspan_start(sink, byref(settings), _error, len(_error)))


def start_nvtx(form: int = AUTO, max_strings: int = 65536) -> Any:
    return start(NVTX, form, max_strings)


def open_itt(library: str | None = None) -> Any:
    return said(native.opspan_itt_open((library or os.environ["ITT"]).encode(), _error, len(_error)))


def start_itt(form: int = AUTO, max_strings: int = 65536) -> Any:
    open_itt()
    return start(ITT, form, max_strings)


def start_capture(folder: str) -> Any:
    started = start(CAPTURE, folder=folder)
    return _error.value.decode() if isinstance(started, int) else started


def stop(sink: int) -> Stats:
    stats = Stats()
    native.opspan_stop(sink, byref(stats))
    return stats


# The kind of an input without a value; only its sizes are passed.
NONE = 0


def tensor(*sizes: int) -> tuple[int, ...]:
    return (1 | len(sizes) << 32, *sizes)


def several(*items: tuple[int, ...] | int) -> tuple[int, ...]:
    """A list."""
    return (2 | len(items) << 32, *(word for item in items for word in (item if isinstance(item, tuple) else (item,))))


def begin(
    sink: int,
    key: int,
    name: str | ctypes.Array[Any],
    sizes: Sequence[int] = (),
    tensors: Sequence[int] = (),
    **fields: int,
) -> None:
    """The name is a text, or a buffer of the caller's that holds one."""
    text = name.encode() if isinstance(name, str) else ctypes.cast(name, c_char_p)
    op = Op(name=text, kind=OP, sequence=-1, op_id=key, thread=1)
    op.inputs_count, op.inputs = len(sizes), (c_int64 * len(sizes))(*sizes)
    op.tensor_count, op.tensors = len(tensors), (c_size_t * len(tensors))(*tensors)
    for field, value in fields.items():
        setattr(op, field, value)
    native.opspan_sink_of(sink).contents.begin(key, byref(op))


def end(sink: int, key: int, thread: int = 1, outputs: list[int] = ()) -> None:  # type: ignore[assignment]
    native.opspan_sink_of(sink).contents.end(key, key, thread, (c_size_t * len(outputs))(*outputs), len(outputs))


def own(name: str, kind: int = USER, payload: float | None = None, **fields: Any) -> Any:
    """A range of the user's own, as opspan_push takes it."""
    text = name.encode()
    made = Range(name=text, name_length=len(text), kind=kind, **fields)
    if isinstance(payload, int):
        made.payload_type, made.payload.i = 1, payload
    elif payload is not None:
        made.payload_type, made.payload.d = 3, payload
    return byref(made)
