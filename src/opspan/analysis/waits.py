"""Finds the calls that make the host wait: they do not return before a device, or the driver, has done something. Waits
for something else, such as a lock, are found only if the tool recorded them as waits, which VTune does.

    waits(ranges, calls, work) -> a row for each waiting call, in the order of the calls:
        call (UInt32): row of the call.
        rank, pid, tid: its thread.
        start_ns, end_ns (Int64): start and end of the call.
        wait_ns (Int64): how long the call took; null if the call did not return.
        why (WHY): the kind of wait.
        range (UInt32): row of the range that the call was made in.
        busy_ns (Int64): for how much of the wait a device ran work of the call's process.

docs/analysis.md, "waits", has the rules. Work must be attributed (`launches`) first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.nest import nearest
from opspan.analysis.spans import PROCESS, length, time_in

_col = pl.col

SYNCHRONISE, COPY, ITEM = "synchronise", "blocking copy", "item"
DRAIN = (SYNCHRONISE, COPY, ITEM)  # after a wait of these kinds, a device may have nothing left to do
BLOCKED = "blocked"  # by something else than a device: a lock, another thread, a file, a timer
WHY = pl.Enum([SYNCHRONISE, COPY, ITEM, "allocation", "free", "module loading", BLOCKED])

# Patterns of the full names of calls that wait, by the kind of wait.
NAMES: dict[str, tuple[str, ...]] = {
    SYNCHRONISE: (
        "cuda(Device|Stream|Event|Thread)Synchronize",
        "cu(Ctx|Stream|Event)Synchronize",
        "hip(Device|Ctx|Stream|Event)Synchronize",
        "ze(CommandQueue|CommandList|Event|Fence)(Host)?Synchronize",
        "urQueueFinish|urEventWait|clFinish|clWaitForEvents",
        "synchronize(Device|Stream|Event)?",  # names in MTIA's library
    ),
    # cudaMemcpyPeer and cuMemcpyDtoD are not here, because they never wait. The other copies wait unless both source
    # and target are memory of a device.
    COPY: (
        "cudaMemcpy(2D|3D)?((To|From)(Array|Symbol))?",
        "cuMemcpy(HtoD|DtoH|HtoA|AtoH|2D|2DUnaligned|3D)?",
        "hipMemcpy(HtoD|DtoH|HtoA|AtoH|2D|3D|Param2D|WithStream)?((To|From)(Array|Symbol))?",
    ),
    "allocation": (
        "cudaMalloc(3D|Pitch|Array|3DArray|MipmappedArray|Host|Managed)?|cudaHost(Alloc|Register)",
        "cuMemAlloc(Pitch|Host|Managed)?|cuMemHost(Alloc|Register)|cuMem(Create|Map|SetAccess)",
        "hipMalloc(3D|Pitch|Array|3DArray|Host|Managed)?|hipExtMallocWithFlags|hipHost(Malloc|Alloc|Register)",
        "hipMem(Alloc(Pitch|Host)|Create|Map|SetAccess)",
        "zeMemAlloc(Device|Host|Shared)|urUSM(Device|Host|Shared)Alloc|clSVMAlloc",
    ),
    "free": (
        "cudaFree(Host|Array|MipmappedArray)?|cudaHostUnregister",
        "cuMemFree(Host)?|cuMemHostUnregister|cuMem(Unmap|Release)",
        "hipFree(Host|Array|MipmappedArray)?|hipHost(Free|Unregister)|hipMem(Unmap|Release)",
        "zeMemFree|urUSMFree|clSVMFree",
    ),
    "module loading": (
        "cuModuleLoad(Data|DataEx|FatBinary)?|cu(da)?LibraryLoad(Data|FromFile)",
        "hipModuleLoad(Data|DataEx|FatBinary)?|hipLibraryLoad(Data|FromFile)",
        "zeModuleCreate|urProgramBuild|clBuildProgram",
    ),
}
# These calls wait if the source or the target is pageable memory. Devices cannot reach this memory, so the driver
# itself moves the bytes.
ASYNC_COPIES = ("(cuda|cu|hip)Memcpy[A-Za-z0-9]*Async",)
# Endings of the names of functions that use a default stream for each thread.
SUFFIX = "(_ptsz|_ptds|_spt)?"
# nsys records some calls a second time, for their backtraces. The second record has this name in the column api.
SECOND_TIME = "cuda_backtrace"
# This text in the column api means that the tool recorded a wait, instead of a call of a function.
RECORDED = "wait"
# Ops that fetch a value from a device.
ITEM_OPS = ("aten::item", "aten::_local_scalar_dense")


def waits(ranges: pl.DataFrame, calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    api = calls["api"].cast(pl.String)
    named = pl.when((api == RECORDED).fill_null(value=False)).then(pl.lit(BLOCKED)).otherwise("named")
    rows = calls.select("rank", "pid", "tid", "start_ns", "end_ns", "range", named=_by_name(calls["name"]))
    is_first_time = (api != SECOND_TIME).fill_null(value=True)
    rows = rows.with_columns(named=named).with_row_index("call").filter(_col("named").is_not_null() & is_first_time)
    rows = rows.join(_copies(work), on="call", how="left", maintain_order="left")
    is_pageable, is_on_device = (_col(name).fill_null(value=False) for name in ("is_pageable", "is_on_device"))
    why = pl.when(_col("named") == _ASYNC).then(pl.when(is_pageable).then(pl.lit(COPY))).otherwise("named")
    rows = rows.with_columns(why=pl.when((_col("named") != COPY) | ~is_on_device).then(why))
    rows = _outermost(rows.filter(_col("why").is_not_null()))
    fetched = nearest(ranges, ranges["name"].is_in(pl.Series(ITEM_OPS, dtype=pl.Categorical).implode()))
    is_item = fetched.gather(rows["range"]).is_not_null() & rows["why"].is_in([SYNCHRONISE, COPY])
    return rows.select(
        "call",
        "rank",
        "pid",
        "tid",
        "start_ns",
        "end_ns",
        wait_ns=length(),
        why=pl.when(pl.lit(is_item)).then(pl.lit(ITEM)).otherwise("why").cast(WHY),
        range="range",
        busy_ns=_busy_ns(rows, work),
    )


_ASYNC = "asynchronous copy"


def _by_name(names: pl.Series) -> pl.Series:
    """Returns, for each call, the kind of wait that its name shows (a key of NAMES, or _ASYNC), or null."""
    known = names.unique().drop_nulls()
    text = _col("name").cast(pl.String)
    rules = {**NAMES, _ASYNC: ASYNC_COPIES}
    kind = pl.coalesce(
        pl.when(text.str.contains(f"^({'|'.join(patterns)}){SUFFIX}$")).then(pl.lit(rule))
        for rule, patterns in rules.items()
    )
    kinds = known.to_frame("name").select("name", named=kind)
    return names.to_frame("name").join(kinds, on="name", how="left", maintain_order="left")["named"]


def _copies(work: pl.DataFrame) -> pl.DataFrame:
    """Returns, for each call that copied, whether the source or the target was pageable memory. Also returns whether
    both were memory of a device."""
    copied = work.filter(_col("kind") == "memcpy", _col("call").is_not_null())
    sides = [_col(name).cast(pl.String) for name in ("copy_from", "copy_to")]
    is_pageable, is_on_device = (
        [(side == memory).fill_null(value=False) for side in sides] for memory in ("pageable", "device")
    )
    return copied.group_by("call").agg(
        is_pageable=pl.any_horizontal(is_pageable).any(), is_on_device=pl.all_horizontal(is_on_device).all()
    )


def _outermost(rows: pl.DataFrame) -> pl.DataFrame:
    """Removes calls inside another call of their thread, so that no time counts twice. A call that did not return does
    not contain other calls."""
    end = pl.when(_col("start_ns").is_not_null()).then(pl.max_horizontal("start_ns", "end_ns"))
    in_order = rows.with_columns(until=end).sort("start_ns", "until", "call", descending=[False, True, False])
    before = _col("until").cum_max().shift(1).over("rank", "pid", "tid")
    is_inside = (before >= _col("until")) & (before > _col("start_ns"))
    is_known = _col("pid").is_not_null() & _col("tid").is_not_null()
    inside = in_order.filter(is_inside & is_known)
    return rows.join(inside, on="call", how="anti", maintain_order="left")


def _busy_ns(rows: pl.DataFrame, work: pl.DataFrame) -> pl.Series:
    busy = on_device(work.select("rank", "pid", "start_ns", "end_ns", "kind", "is_overhead"))
    # Work of an unknown process may belong to any process of its rank. So busy_ns is null for all these processes.
    unclear = busy.filter(_col("pid").is_null())["rank"].unique()
    known = rows.select("call", "rank", "pid", "start_ns", "end_ns").filter(
        _col("pid").is_not_null(), _col("rank").is_in(busy["rank"].unique().implode(), nulls_equal=True)
    )
    known = known.filter(~_col("rank").is_in(unclear.implode(), nulls_equal=True))
    times = known.select("call", busy_ns=time_in(busy, known, PROCESS))
    return rows.select("call").join(times, on="call", how="left", maintain_order="left")["busy_ns"]
