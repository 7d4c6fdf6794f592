"""The critical path cut into pieces: where, on the thread that it is on, a range, a call or a wait begins or ends.

    cut(path, trace, waits, found, at) -> start_ns, end_ns, kind, range, work; and how many pieces of each of `path`

`path`: what path.on_path gives; `at`: process, time_ns: moments at which it is cut as well. All changes that lie on the
path are put in one order of time with the begins of its stretches. What calls and waits are open after each is a
running sum; the innermost range is asked for where one changes, and stays until the next.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan import native
from opspan.analysis.path_threads import NONE, THREAD, driving, thread_numbers

if TYPE_CHECKING:
    from opspan.analysis.path_graph import Graph
    from opspan.tables import Tables

_col = pl.col
OF_WORK = ("computing", "communicating", "copying", "filling")
DELAYS = ("launch", "queued")
OF_HOST = ("host", "call", "wait")
KINDS = (*OF_WORK, *DELAYS, *OF_HOST, "unknown")
KIND = pl.Enum(KINDS)
_HOST, _CALL_KIND, _WAIT_KIND = (np.uint8(KINDS.index(kind)) for kind in OF_HOST)
# What changes: what is open then, in one small number. No two stretches of calls, nor of waits, overlap here.
_NOTHING, _RANGE, _CALLED, _RETURNED, _WAITING, _WAITED, _BEGIN = range(7)
_ADDS = np.array([0, 0, 1, -1, 4, -4, 0], dtype=np.int8)
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint8]


class _Times(NamedTuple):
    """Moments on threads, in order."""

    times: Ints
    first: Ints  # of each thread; at last, how many there are

    def of(self, thread: int) -> Ints:
        return self.times[self.first[thread] : self.first[thread + 1]]


class _Sides(NamedTuple):
    ranges: pl.DataFrame
    changes: list[_Times]  # begins and ends of ranges; and of calls and waits that took no time
    opened: list[tuple[_Times, _Times, int, int]]  # begins and ends of calls, and of waits; and what changes then


def cut(
    path: pl.DataFrame, trace: Tables, waits: pl.DataFrame, found: Graph, at: pl.DataFrame
) -> tuple[pl.DataFrame, Ints]:
    thread = path["thread"].to_numpy()
    on_host = thread != NONE
    sides = _sides(trace, waits, found.threads) if on_host.any() else None
    times, codes, adds = _in_order(path, sides, at)
    begins = np.flatnonzero(codes == _BEGIN)
    added = np.zeros(codes.size, dtype=np.int8)
    for code in np.flatnonzero(_ADDS):  # not by places: those would be numbers of eight bytes
        added += _ADDS[code] * (codes == code)
    added[begins] = adds
    opened = np.cumsum(added, dtype=np.int8)
    is_asked = (codes == _RANGE) | (codes == _BEGIN)
    # Of several changes at one moment the last one tells what is from then on.
    until = np.empty_like(times)
    until[:-1] = times[1:]
    until[begins[1:] - 1] = path["end_ns"].to_numpy()[:-1]
    until[-1:] = path["end_ns"].to_numpy()[-1:]
    kept = until > times
    asked = np.cumsum(is_asked, dtype=np.uint32)
    asked -= 1
    of_stretch = np.add.reduceat(is_asked, begins, dtype=np.int64) if begins.size else begins
    range_ = _innermost(path, sides, times[is_asked], of_stretch)
    counts = np.add.reduceat(kept, begins, dtype=np.int64) if begins.size else begins
    if not kept.all():
        times, until, opened, asked = times[kept], until[kept], opened[kept], asked[kept]
    kinds = np.where(opened >= _ADDS[_WAITING], _WAIT_KIND, np.where(opened > 0, _CALL_KIND, _HOST))
    of_work = path["kind"].to_physical().fill_null(len(KINDS)).to_numpy().astype(np.uint8)
    kinds = np.where(np.repeat(on_host, counts), kinds, np.repeat(of_work, counts))
    stretch = np.repeat(np.arange(counts.size, dtype=np.uint32), counts)
    rows = {
        "start_ns": times,
        "end_ns": until,
        "kind": pl.Series([*KINDS, None], dtype=KIND).gather(kinds),
        "range": range_.gather(asked),
        "work": path["work"].gather(stretch),
    }
    return pl.DataFrame(rows), counts


def _innermost(path: pl.DataFrame, sides: _Sides | None, times: Ints, counts: Ints) -> pl.Series:
    """The range at each of these times, so many of each stretch."""
    if sides is None:
        return path["range"]
    tid = pl.Series("tid", np.repeat(path["thread"].to_numpy(), counts))
    elsewhere = (tid == NONE).arg_true()
    found = native.innermost(sides.ranges, pl.DataFrame({"tid": tid.scatter(elsewhere, None), "time_ns": times}))
    return found.scatter(elsewhere, path["range"].filter(path["thread"] == NONE))


def _in_order(path: pl.DataFrame, sides: _Sides | None, at: pl.DataFrame) -> tuple[Ints, Codes, npt.NDArray[np.int8]]:
    """The times of all changes, what changes; and what each stretch adds to what was open when the one before ended."""
    thread, begin, end = (path[name].to_numpy() for name in ("thread", "start_ns", "end_ns"))
    opened, closed = np.zeros(begin.size, dtype=np.int64), np.zeros(begin.size, dtype=np.int64)
    times, codes = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.uint8)]
    moments = at.partition_by("process", as_dict=True)
    process = path["process"].to_numpy()
    bounds = [*np.flatnonzero(np.diff(process, prepend=NONE)).tolist(), process.size]
    for first, past in itertools.pairwise(bounds):
        found = [
            (begin[first:past], _BEGIN),
            (_between(moments, process[first], begin[first:past], end[past - 1]), _NOTHING),
        ]
        in_order = first + np.argsort(thread[first:past], kind="stable")
        used, places = np.unique(thread[in_order], return_index=True)
        for number, mine in zip(used.tolist(), np.split(in_order, places[1:]), strict=True):
            if number == NONE or sides is None:
                continue
            for change in sides.changes:
                found.append((_inside(change.of(number), begin[mine], end[mine])[0], _RANGE))
            for begins, ends, begun, ended in sides.opened:
                for some, code in _disjoint(begins.of(number), ends.of(number), begun, ended):
                    inside, since, until = _inside(some, begin[mine], end[mine])
                    found.append((inside, code))
                    opened[mine] += int(_ADDS[code]) * since
                    closed[mine] += int(_ADDS[code]) * until
        every = np.concatenate([some for some, _ in found])
        what = np.concatenate([np.full(some.size, code, dtype=np.uint8) for some, code in found])
        order = np.argsort(every, kind="stable")
        times.append(every[order])
        codes.append(what[order])
    opened[1:] -= closed[:-1]
    if len(times) == 2:
        return times[1], codes[1], opened.astype(np.int8)
    return np.concatenate(times), np.concatenate(codes), opened.astype(np.int8)


def _disjoint(begins: Ints, ends: Ints, begun: int, ended: int) -> list[tuple[Ints, int]]:
    """Begins and ends of stretches that cover the same time and do not overlap; and those of the others, at which
    nothing opens or closes."""
    if (begins[1:] >= ends[:-1]).all():
        return [(begins, begun), (ends, ended)]
    each = np.arange(begins.size)
    is_first = np.searchsorted(ends, begins, side="right") == each
    is_last = np.searchsorted(begins, ends, side="left") == each + 1
    return [
        (begins[is_first], begun),
        (ends[is_last], ended),
        (begins[~is_first], _NOTHING),
        (ends[~is_last], _NOTHING),
    ]


def _inside(times: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Those that lie in stretches, their ends aside; and how many there are until each begins, and before it ends."""
    since, until = np.searchsorted(times, begin, side="right"), np.searchsorted(times, end, side="left")
    lengths = np.diff(np.column_stack([since, until]).ravel(), prepend=0, append=times.size)
    is_inside = np.arange(lengths.size) % 2 == 1
    return times[np.repeat(is_inside, lengths)], since, until


def _between(moments: dict[tuple[object, ...], pl.DataFrame], process: int, begins: Ints, end: int) -> Ints:
    """Those moments of the process that lie on its path, but not where a stretch of it begins."""
    if (mine := moments.get((int(process),))) is None:
        return np.zeros(0, dtype=np.int64)
    times = np.unique(mine["time_ns"].drop_nulls().to_numpy())
    return np.setdiff1d(times[(times > begins[0]) & (times < end)], begins, assume_unique=True)


def _sides(trace: Tables, waits: pl.DataFrame, threads: pl.DataFrame) -> _Sides:
    rows = trace.ranges.select(*THREAD, "start_ns", "end_ns", "is_mark", "is_async", "overlaps")
    number = thread_numbers(rows, threads)
    is_range = ~rows["is_mark"].fill_null(value=False)
    changes = [_times(rows[name], number, threads, is_range) for name in ("start_ns", "end_ns")]
    is_apart = (_col("is_async") & ~_col("overlaps")).fill_null(value=False)
    tid = pl.Series("tid", number)
    tid = tid.set(tid == NONE, None)
    ranges = rows.select(tid, "start_ns", "end_ns", is_async=is_apart)
    opened = []
    for some, begun, ended in ((driving(trace.calls), _CALLED, _RETURNED), (waits, _WAITING, _WAITED)):
        number = thread_numbers(some, threads)
        took_time = (some["end_ns"] > some["start_ns"]).fill_null(value=False)
        begins, ends = (_times(some[name], number, threads, took_time) for name in ("start_ns", "end_ns"))
        opened.append((begins, ends, begun, ended))
        if not took_time.all():
            changes += [_times(some[name], number, threads, ~took_time) for name in ("start_ns", "end_ns")]
    return _Sides(ranges, changes, opened)


def _times(times: pl.Series, number: Ints, threads: pl.DataFrame, those: pl.Series) -> _Times:
    those = those & times.is_not_null() & pl.Series(number != NONE)
    if not those.all():
        times, number = times.filter(those), number[those.to_numpy()]
    ns = times.to_numpy()
    if threads.height == 1:
        return _Times(np.sort(ns, kind="stable"), np.array([0, ns.size]))
    order = np.argsort(ns, kind="stable")
    small = number.astype(np.uint16) if threads.height <= 1 << 16 else number  # a radix sort, of so few
    order = order[np.argsort(small[order], kind="stable")]
    return _Times(ns[order], np.append(0, np.cumsum(np.bincount(number, minlength=threads.height))))
