"""The calls of a driver and the work of devices in a recorded file, read from its JSON or SQL without opspan, and idle
time computed from them by brute force.

    rows = rows_of(path)            -> Rows: calls and work, in order of time
    gaps = gaps_of(rows)            -> Gap: what was idle, when what ended it was launched, and why
    after_waits(gaps, waits)        -> the same, with what a wait explains as a gap of its own
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from findings.test_recorded import DEVICE, events_of, together

_VERSION = r"(_v\d+)?(_pt[ds]s)?$"  # nsys says from which release of CUDA a call is
SYNCHRONISE = rf"^((cuda|hip)(Device|Stream|Event|Thread)|cu(Ctx|Stream|Event))Synchronize{_VERSION}"
COPY = rf"^((cuda|hip)Memcpy(WithStream)?|cuMemcpy(HtoD|DtoH)(_v2)?){_VERSION}"
ASYNC_COPY = rf"^((cuda|hip)Memcpy|cuMemcpy(HtoD|DtoH))Async(_v2)?{_VERSION}"
HOLD = (
    rf"^((cuda|hip)(Malloc|Free)(Host|Managed|Pitch|Array)?|(cuda|hip)Host(Alloc|Malloc|Free|Register|Unregister)|"
    rf"cuMem(Alloc|Free|HostAlloc|FreeHost|Create|Map|Unmap|Release|SetAccess)(_v2)?|"
    rf"(cu|hip)(Module|Library)Load(Data|DataEx|FatBinary)?){_VERSION}"
)
# Names of CUPTI's runtime and driver API; nvprof writes numbers.
RUNTIME = {20: "cudaMalloc", 22: "cudaFree", 25: "cudaFreeArray", 26: "cudaMallocHost", 27: "cudaFreeHost"}
RUNTIME |= {31: "cudaMemcpy", 41: "cudaMemcpyAsync", 131: "cudaStreamSynchronize", 165: "cudaDeviceSynchronize"}
RUNTIME |= {206: "cudaMallocManaged"}
PAGEABLE, PINNED, ON_DEVICE = "pageable", "pinned", "device"


class Call(NamedTuple):
    pid: int
    tid: int
    name: str
    begin: int
    end: int
    id: object


class Work(NamedTuple):
    pid: int
    device: int
    kind: str
    name: str
    begin: int
    end: int
    call: object
    sides: tuple[str | None, ...]  # kinds of memory: from and to, where it is a copy


class Rows(NamedTuple):
    calls: list[Call]
    work: list[Work]


@dataclass(frozen=True)
class Gap:
    pid: int
    device: int
    tid: int | None
    begin: int
    end: int
    launched: int | None
    why: str  # late, queued, unknown; and what explains a late one
    ns: int


@lru_cache
def rows_of(path: Path) -> Rows:
    readers: dict[str, Callable[[Path], Rows]] = {".gz": _kineto, ".sqlite": _nsys, ".rpd": _rocpd}
    calls, work = readers.get(path.suffix, _nvprof)(path)
    return Rows(sorted(calls, key=lambda one: (one.begin, -one.end)), sorted(work, key=lambda one: one.begin))


def _kineto(path: Path) -> Rows:
    calls, work = [], []
    for one in events_of(path):
        args, span = one.get("args", {}), (one["begin"], one["end"])
        if one["cat"] in ("cuda_runtime", "cuda_driver", "runtime"):
            calls.append(Call(0, one["tid"], one["name"], *span, args.get("correlation")))
        elif one["cat"] in DEVICE:
            found = re.search(r"(\w+) -> (\w+)", one["name"])
            sides = tuple(side.lower() for side in found.groups()) if found else ()
            work.append(Work(0, args.get("device"), one["cat"], one["name"], *span, args.get("correlation"), sides))
    return Rows(calls, work)


def _all(path: Path, *queries: str) -> list[tuple]:
    """The rows of each query whose table the file has."""
    found: list[tuple] = []
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as file:
        for query in queries:
            try:
                found += file.execute(query).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
    return found


def _nsys(path: Path) -> Rows:
    pid = "(globalPid >> 24) & 0xFFFFFF"
    table = "CUPTI_ACTIVITY_KIND"
    calls = _all(
        path,
        "SELECT (globalTid >> 24) & 0xFFFFFF, globalTid & 0xFFFFFF, value, start, end, "
        f"((globalTid >> 24) & 0xFFFFFF) || ' ' || correlationId FROM {table}_RUNTIME JOIN StringIds ON nameId = id "
        "WHERE eventClass < 2",  # others are the same calls once more, with their backtraces
    )
    times = f"start, end, ({pid}) || ' ' || correlationId"
    work = _all(
        path,
        f"SELECT {pid}, deviceId, 'kernel', value, {times}, 0, 0 FROM {table}_KERNEL JOIN StringIds "
        "ON demangledName = id",
        f"SELECT {pid}, deviceId, 'memcpy', '', {times}, srcKind, dstKind FROM {table}_MEMCPY",
        f"SELECT {pid}, deviceId, 'memset', '', {times}, 0, 0 FROM {table}_MEMSET",
    )
    kinds = {0: PAGEABLE, 1: PINNED, 2: ON_DEVICE}
    return Rows([Call(*one) for one in calls], [_work(one, kinds) for one in work])


def _work(row: tuple, kinds: dict[int, str]) -> Work:
    return Work(*row[:7], tuple(kinds.get(side) for side in row[7:]) if row[2] == "memcpy" else ())


def _nvprof(path: Path) -> Rows:
    table = "CUPTI_ACTIVITY_KIND"
    calls = _all(path, f"SELECT processId, threadId, cbid, start, end, correlationId FROM {table}_RUNTIME")
    calls = [Call(*one[:2], RUNTIME.get(one[2], str(one[2])), *one[3:]) for one in calls]
    pid = calls[0].pid
    work = _all(
        path,
        f"SELECT deviceId, 'kernel', '', start, end, correlationId, 0, 0 FROM {table}_CONCURRENT_KERNEL",
        f"SELECT deviceId, 'memcpy', '', start, end, correlationId, srcKind, dstKind FROM {table}_MEMCPY",
        f"SELECT deviceId, 'memset', '', start, end, correlationId, 0, 0 FROM {table}_MEMSET",
    )
    kinds = {1: PAGEABLE, 2: PINNED, 3: ON_DEVICE}
    return Rows(calls, [_work((pid, *one), kinds) for one in work])


def _rocpd(path: Path) -> Rows:
    calls = _all(
        path, "SELECT pid, tid, string, start, end, a.id FROM rocpd_api a JOIN rocpd_string s ON apiName_id = s.id"
    )
    work = _all(
        path,
        "SELECT gpuId, t.string, d.string, start, end, api_id FROM rocpd_op o JOIN rocpd_string t ON opType_id = t.id "
        "JOIN rocpd_string d ON description_id = d.id LEFT JOIN rocpd_api_ops ON op_id = o.id",
    )
    return Rows([Call(*one) for one in calls], [Work(calls[0][0], *one, ()) for one in work])


def gaps_of(rows: Rows) -> list[Gap]:
    """Returns the gaps of each device of each process, from its first work to its last."""
    by_id = {one.id: one for one in rows.calls}
    found = []
    for place in sorted({(one.pid, one.device) for one in rows.work}):
        work = [one for one in rows.work if (one.pid, one.device) == place and one.end > one.begin]
        begun: dict[int, list[Work]] = {}
        for one in work:
            begun.setdefault(one.begin, []).append(one)
        for (_, begin), (end, _) in pairwise(together([(one.begin, one.end) for one in work])):
            launches = [by_id[one.call] for one in begun[end] if one.call in by_id]
            first = min(launches, key=lambda one: one.begin, default=None)
            if first is None or first.begin > end:
                found.append(Gap(*place, None, begin, end, None, "unknown", end - begin))
            else:
                why = "late" if first.begin >= begin else "queued"
                found.append(Gap(*place, first.tid, begin, end, first.begin, why, end - begin))
    return found


def held(gaps: Iterable[Gap], rows: Rows) -> list[Gap]:
    """With what the launching thread was in calls for that take memory or load code, up to the launch, taken off."""
    calls = [one for one in rows.calls if re.search(HOLD, one.name)]
    found = []
    for gap in gaps:
        if gap.why == "late" and gap.launched is not None:
            until = gap.launched
            own = together([(max(one.begin, gap.begin), min(one.end, until)) for one in calls if one.tid == gap.tid])
            gap = replace(gap, ns=gap.ns - sum(end - begin for begin, end in own))
        found.append(gap)
    return found


def after_waits(gaps: list[Gap], waits: list[Call], why: str) -> list[Gap]:
    """A wait explains the late time of what is launched after it, up to the next, and no more of it than it took."""
    found = []
    for place in {(one.pid, one.device) for one in gaps}:
        own = [one for one in gaps if (one.pid, one.device) == place]
        late = [one for one in own if one.why == "late"]
        found += [one for one in own if one.why != "late"]
        ends = [(one.end, 0, one) for one in waits if one.pid == place[0]]
        left = 0
        for _, is_gap, one in sorted([*ends, *((gap.launched, 1, gap) for gap in late)], key=lambda one: one[:2]):
            if not is_gap:
                left = one.end - one.begin
                continue
            part = min(left, one.ns)
            left -= part
            found += [replace(one, ns=part, why=why), replace(one, ns=one.ns - part)]
    return [one for one in found if one.ns > 0]


def pace_of(rows: Rows, pid: int) -> tuple[float, float]:
    """The median time from one launch to the next of a thread, and that of work."""
    launched: dict[object, Work] = {}
    for one in rows.work:
        launched.setdefault(one.call, one)
    calls = [one for one in rows.calls if one.pid == pid and one.id in launched]
    apart = []
    for tid in {one.tid for one in calls}:
        begins = [one.begin for one in calls if one.tid == tid]
        apart += [after - before for before, after in pairwise(begins)]
    return median(apart), median(launched[one.id].end - launched[one.id].begin for one in calls)
