"""Sorts the events of a Kineto trace into groups, by phase and category. Torch has used these categories since version
1.8:

    1.8 - 1.10    Operator, Runtime, Kernel, Memcpy, Memset, async
    1.11 - 1.13   cpu_op, cuda_runtime, Kernel, async_cpu_to_gpu
    since then    cpu_op, user_annotation, python_function, cuda_runtime, cuda_driver, kernel, gpu_memcpy, ac2g, fwdbwd

Calls for other devices have the same categories with another prefix: xpu_runtime, privateuse1_driver, mtia_runtime.
Work on other devices has further categories (such as mtia_ccp_events). It is recognised by its stream, or by its device
and correlation id. Hardware counters are events of phase C (mtia_counters, hardware_counters, xpu_scope_profiler), or
spans that only hold counter values and took no time on a device.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from opspan.formats.chrome import BOOKKEEPING, INTEGER, LIST, TEXT, Arg, Groups

RANGES, CALLS, WORK, FUNCTIONS, FLOWS, MEMORY, MARKS, NAMES, COUNTERS, WINDOWS, FIGURES, OTHERS = (
    "ranges calls work functions flows memory marks names counters windows figures others".split()
)

_col = pl.col
_OPS = {"cpu_op", "operator", "user_annotation"}
_WORK = {"kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset", "cuda_sync", "xpu_sync", "overhead"}
# An event of these categories holds the hardware counters of one kernel. The events from CUPTI have no real times,
# because Kineto gives each event an equal part of the total time. The events from Intel repeat kernels that are in the
# file. So these events are counted, but not read.
_FIGURES = {"cuda_profiler_range", "xpu_scope_profiler"}
_FIGURES_OF_KERNEL = "metrics: "
# Ranges of these categories are on the host, but are not ops of torch.
ON_HOST = {"collective_comm", "hpu_op"}
COUNTERS_OF_DEVICES = ("hardware_counters", "mtia_counters", "xpu_scope_profiler")
_CALLS = ("runtime", "driver")  # suffixes of the categories of calls
_MARKS = ("i", "I", "R", "n")
# Events whose names begin like this mark the begin and the end of the recorded time. The pid of such an event is a
# text, not a number.
_WINDOW_BEGINS, _WINDOW_ENDS = "Iteration Start: ", "Record Window End"
_FLOWS = {"fwdbwd", "forward_backward", "ac2g", "async", "async_cpu_to_gpu", "async_gpu"}

_OP_ARGS = (
    Arg("seq", INTEGER, ("Sequence number",)),
    Arg("forward_thread", INTEGER, ("Fwd thread id",)),
    Arg("op_id", INTEGER, ("Record function id",)),
    Arg("sizes", LIST, ("Input Dims", "Input dims")),
    Arg("input_types", LIST, ("Input type",)),
    Arg("input_strides", LIST, ("Input Strides",)),
    Arg("inputs", LIST, ("Concrete Inputs",)),
)
_CALL_ARGS = (Arg("correlation_id", INTEGER, ("correlation",)),)
_WORK_ARGS = (
    *(Arg(f"{name}_id", INTEGER, (name,)) for name in ("device", "context", "stream")),
    *_CALL_ARGS,
    Arg("bytes", INTEGER, ("bytes",)),
    Arg("grid", LIST, ("grid",)),
    Arg("block", LIST, ("block",)),
    Arg("registers", INTEGER, ("registers per thread",)),
)
_FUNCTION_ARGS = (Arg("python_id", INTEGER, ("Python id",)), Arg("python_parent", INTEGER, ("Python parent id",)))
_MEMORY_ARGS = (
    Arg("change", INTEGER, ("Bytes",)),
    Arg("address", INTEGER, ("Addr",)),
    Arg("of_device", INTEGER, ("Device Id",)),
    Arg("device_type", INTEGER, ("Device Type",)),
    Arg("total_bytes", INTEGER, ("Total Allocated",)),
    Arg("reserved", INTEGER, ("Total Reserved",)),
)
_NAME_ARGS = (Arg("given", TEXT, ("name", "labels")),)
ARGS = (*_OP_ARGS, *_WORK_ARGS, *_FUNCTION_ARGS, *_MEMORY_ARGS, *_NAME_ARGS)

_THREAD = ("pid", "tid")
_SPAN = ("cat", "name", *_THREAD, "ts_ns", "dur_ns")
_GROUPS: dict[str, tuple[tuple[str, ...], tuple[Arg, ...]]] = {
    RANGES: ((*_SPAN, "rest"), _OP_ARGS),
    CALLS: ((*_SPAN, "rest"), _CALL_ARGS),
    WORK: ((*_SPAN, "rest"), _WORK_ARGS),
    FUNCTIONS: ((*_SPAN, "rest"), _FUNCTION_ARGS),
    FLOWS: (("ph", "cat", "id", *_THREAD, "ts_ns"), ()),
    MEMORY: ((*_THREAD, "ts_ns", "rest"), _MEMORY_ARGS),
    MARKS: (("cat", "name", *_THREAD, "ts_ns", "rest"), ()),
    NAMES: (("name", *_THREAD), _NAME_ARGS),
    COUNTERS: (("cat", "name", *_THREAD, "pid_text", "ts_ns", "rest"), ()),
    WINDOWS: (("name",), ()),
    FIGURES: (("cat",), ()),
    OTHERS: ((*_SPAN, "rest"), (*_OP_ARGS, *_WORK_ARGS)),
}


def group_of(
    phase: str | None, category: str | None, is_memory: bool, is_window: bool, is_on_stream: bool, is_figure: bool
) -> str | None:
    """Returns the group of an event. If the category is unknown, the args decide: an event with a stream, or with a
    device and a correlation id, is work on a device."""
    kind = (category or "").lower()
    if phase == "X":
        return FIGURES if kind in _FIGURES or (is_figure and kind == "kernel") else _of_span(kind, is_on_stream)
    if phase in ("s", "f", "t") and kind in _FLOWS:
        return FLOWS
    if phase in _MARKS:  # is_memory looks at the name, because old torch wrote memory events without a category
        return MEMORY if is_memory else BOOKKEEPING if is_window else MARKS
    return {"M": NAMES, "C": COUNTERS}.get(phase or "")


_SPANS = {**dict.fromkeys(_OPS, RANGES), **dict.fromkeys(_WORK, WORK)}
_SPANS |= {"python_function": FUNCTIONS, "gpu_user_annotation": WINDOWS, "trace": BOOKKEEPING}


def _of_span(kind: str, is_on_stream: bool) -> str:
    of_new_kind = CALLS if kind.endswith(_CALLS) else WORK if is_on_stream else OTHERS
    return _SPANS.get(kind, of_new_kind)


def is_known(categories: Iterable[str | None]) -> bool:
    """Returns whether any of the categories is one that Kineto writes."""
    kinds = {(category or "").lower() for category in categories}
    return bool(kinds & (_OPS | _WORK | {"python_function", "cpu_instant_event"} | _FLOWS)) or any(
        kind.endswith(("_runtime", "_driver")) for kind in kinds
    )


GROUPS = Groups(
    keys={
        "ph": _col("ph"),
        "cat": _col("cat"),
        "is_memory": (_col("name") == "[memory]").fill_null(value=False),
        "is_window": (
            _col("pid").is_null() & (_col("name").cat.starts_with(_WINDOW_BEGINS) | (_col("name") == _WINDOW_ENDS))
        ).fill_null(value=False),
        "is_on_stream": _col("stream_id").is_not_null()
        | (_col("device_id").is_not_null() & _col("correlation_id").is_not_null()),
        "is_figure": (_col("name").cat.starts_with(_FIGURES_OF_KERNEL) & _col("correlation_id").is_null()).fill_null(
            value=False
        ),
    },
    of=group_of,
    columns={group: (*fields, *(arg.column for arg in args)) for group, (fields, args) in _GROUPS.items()},
    args=ARGS,
    timeless=frozenset({NAMES, WINDOWS, FIGURES}),
)
