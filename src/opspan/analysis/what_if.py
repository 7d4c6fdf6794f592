"""How long steps would take if ops, or kinds of time, took a part of their time: the graph of `path`, walked forward.

    what_if(trace, times, waits, found, factors) -> number, before_ns, after_ns: a row for each of `times`
    sooner(found, work, gone) -> rank, pid, ns: how much sooner each process would have ended without some of what its
        devices and threads did

`factors`: by name of an op, or one of path_cuts.KINDS. docs/analysis.md, "path", has the rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.analysis.nest import innermost, nearest
from opspan.analysis.path import bound_by, on_path, walk
from opspan.analysis.path_cuts import KINDS, OF_HOST, OF_WORK
from opspan.analysis.path_threads import BEGUN, FOR_ROOM, FOR_WORK, NONE, at_or_before, driving
from opspan.analysis.spans import LEAST, MOST, PROCESS, length, union, within

if TYPE_CHECKING:
    from opspan.analysis.path_graph import Graph
    from opspan.tables import Tables

_col = pl.col
_THREAD = (*PROCESS, "tid")
Ints = npt.NDArray[np.int64]
_SEVERAL = -2  # numbers of work, where there is room for one
_AT_A_TIME = 2**16  # work: an object for each of its numbers takes ten times its room
_LONGEST = 2**53  # ns, of a step: 104 days. Of more it is not known exactly what part of it is


def what_if(
    trace: Tables, times: pl.DataFrame, waits: pl.DataFrame, found: Graph, factors: Mapping[str, float]
) -> pl.DataFrame:
    of_kind = {kind: factors.get(kind, 1.0) for kind in KINDS}
    of_op = {name: factor for name, factor in factors.items() if name not in KINDS}
    host = _Host.of(trace, waits, found, of_kind, of_op)
    replayed = _replay(_weights(trace, found, of_kind, of_op), host, found)
    numbers = found.processes.select("process", *PROCESS)
    rows = times.with_row_index("number").join(numbers, on=PROCESS, nulls_equal=True, maintain_order="left")
    path = on_path(found, walk(found))
    ends = [
        _moved(rows.select("process", time_ns=name), path, found, host, replayed) for name in ("start_ns", "end_ns")
    ]
    rows = rows.select("number", before_ns=length(), after_ns=pl.lit(ends[1] - ends[0]))
    return rows.with_columns(pl.when(_col("before_ns") <= _LONGEST).then("after_ns").alias("after_ns"))


def sooner(found: Graph, work: pl.DataFrame, gone: pl.DataFrame) -> pl.DataFrame:
    """`work`: for each of `found.work` by how much less it would have taken, saved_ns; whether it would have followed
    what was before it at once, is_at_once; and in `match` the number of the collective of which it is the part of a
    rank, or null: that goes on once the last rank has come. `gone`: rank, pid, tid, start_ns and end_ns of what threads
    would not have done."""
    took = (1 - work["saved_ns"] / found.work.select(length()).to_series()).clip(0, 1).to_numpy()
    delayed = np.where(work["is_at_once"].to_numpy(), 0.0, 1.0)
    weights = _Weights(took, delayed, 1.0)
    host, found = _Host.without(gone, found), replace(found, joins=_joins_without(found, gone))
    replayed = _replay(weights, host, found, _Meetings(found.work, work["match"]))
    known = pl.DataFrame({"process": found.work["process"], "after_ns": _fitting(replayed.end)})
    known = known.with_columns(has_launches=found.work["thread"] != NONE)
    known = known.group_by("process").agg(_col("after_ns").max(), _col("has_launches").any())
    ends = found.processes.with_columns(pl.lit(_fitting(replayed.ends)).alias("ended_ns"))
    ends = ends.join(known, on="process")
    # Where no launch is known, no wait of the host is, either: its end says nothing of the devices.
    of_work = _col("last_ns") - _col("after_ns")
    of_process = _col("end_ns") - _col("ended_ns")
    return ends.select(*PROCESS, ns=pl.when("has_launches").then(of_process).otherwise(of_work))


class _Meetings:
    """The collectives of which all parts are known, and ended after all had begun."""

    def __init__(self, work: pl.DataFrame, meetings: pl.Series) -> None:
        rows = work.select("start_ns", "end_ns", of=meetings).with_row_index("node").drop_nulls("of")
        rows = rows.with_columns(tail_ns=_col("end_ns") - _col("start_ns").max().over("of"))
        rows = rows.filter((_col("tail_ns") >= 0).all().over("of") & (pl.len().over("of") > 1))
        self.of = dict(rows.select("node", "of").iter_rows())
        self.tails = dict(rows.select("node", "tail_ns").iter_rows())
        self.missing = dict(rows.group_by("of").len().iter_rows())
        self.there: dict[int, list[int]] = {}

    def meet(self, node: int, begun_at: list[int], end: list[int]) -> None:
        """A rank comes to a collective. What waits for the end of that comes later, in order of time."""
        number = self.of[node]
        there = self.there.setdefault(number, [])
        there.append(node)
        if len(there) == self.missing[number]:
            last = max(begun_at[one] for one in there)
            for one in there:
                end[one] = last + self.tails[one]


@dataclass(frozen=True)
class _Weights:
    """Holds, for each work, the factors by which its time and its delay would change."""

    took: npt.NDArray[np.float64]  # factors
    delayed: npt.NDArray[np.float64]
    unknown: float


@dataclass(frozen=True)
class _Replayed:
    end: list[int]  # of each work
    took: Ints
    shift: list[int]  # of each join: how much later its thread is then than its clock says; the last: of none
    ends: list[int]  # of each process
    weights: _Weights


def _fitting(times: list[int]) -> pl.Series:
    try:
        return pl.Series(np.array(times, dtype=np.int64))
    except OverflowError:
        pass
    return pl.Series([min(max(time, LEAST), MOST) for time in times], dtype=pl.Int64)


def _scaled(ns: Ints, factor: npt.NDArray[np.float64] | float) -> Ints:
    """Exactly the same where the factor is 1."""
    scaled = np.rint(np.clip(ns * np.asarray(factor), -(2.0**62), 2.0**62)).astype(np.int64)
    return np.where(np.equal(factor, 1.0), ns, scaled)


def _weights(trace: Tables, found: Graph, of_kind: dict[str, float], of_op: dict[str, float]) -> _Weights:
    work = found.work
    kinds = {kind: of_kind[kind] for kind in OF_WORK}
    took = work["what"].replace_strict(kinds, default=1.0, return_dtype=pl.Float64).to_numpy().copy()
    if of_op:
        named = _named(trace.ranges, of_op)
        of_range = _factors(trace.ranges, nearest(trace.ranges, named).gather(work["range"]), of_op)
        took *= of_range
    bound = bound_by(work)
    delayed = np.where(bound == NONE, of_kind["launch"], of_kind["queued"])
    delayed[work["launch_ns"].is_null().to_numpy()] = of_kind["unknown"]
    return _Weights(took, delayed, of_kind["unknown"])


def _named(ranges: pl.DataFrame, of_op: Mapping[str, float]) -> pl.Series:
    return ranges["name"].is_in(pl.Series(list(of_op), dtype=pl.Categorical).implode()).fill_null(value=False)


def _factors(ranges: pl.DataFrame, rows: pl.Series, of_op: Mapping[str, float]) -> npt.NDArray[np.float64]:
    names = ranges["name"].gather(rows).cast(pl.String)
    return names.replace_strict(dict(of_op), default=1.0, return_dtype=pl.Float64).fill_null(1.0).to_numpy()


class _Host:
    """The clock of each thread, if nothing made it wait: it goes slower, or faster, where a factor says so."""

    def __init__(self, cuts: pl.DataFrame) -> None:
        self.cuts = cuts  # thread, time_ns, factor: from then on; saved: until then

    @classmethod
    def of(
        cls, trace: Tables, waits: pl.DataFrame, found: Graph, of_kind: dict[str, float], of_op: dict[str, float]
    ) -> _Host:
        is_range = ~trace.ranges["is_mark"].fill_null(value=False)
        named = trace.ranges.filter(_named(trace.ranges, of_op) & is_range) if of_op else trace.ranges.clear()
        parts = [named.select(*_THREAD, "start_ns", "end_ns")]
        has_kinds = any(of_kind[kind] != 1 for kind in OF_HOST)
        calls, waiting = (
            frame.select(*_THREAD, "start_ns", "end_ns", is_async=pl.lit(False))
            for frame in (driving(trace.calls), waits)
        )
        if has_kinds:
            whole = found.processes.join(found.threads.select("thread", "process", "tid"), on="process")
            parts += [whole.select(*_THREAD, "start_ns", "end_ns")]
            parts += [frame.drop("is_async") for frame in (calls, waiting)]
        times = pl.concat(part.select(*_THREAD, time_ns=name) for part in parts for name in ("start_ns", "end_ns"))
        cuts = times.drop_nulls("time_ns").unique().join(found.threads, on=_THREAD, nulls_equal=True)
        cuts = cuts.sort("thread", "time_ns")
        factor = _factors(named, innermost(named, cuts), of_op) if of_op else np.ones(cuts.height)
        if has_kinds:
            in_wait, in_call = (innermost(frame, cuts).is_not_null().to_numpy() for frame in (waiting, calls))
            of_call = np.where(in_call, of_kind["call"], of_kind["host"])
            factor = factor * np.where(in_wait, of_kind["wait"], of_call)
        return cls._summed(cuts.select("thread", "time_ns", factor=factor))

    @classmethod
    def without(cls, gone: pl.DataFrame, found: Graph) -> _Host:
        gone = union(gone, _THREAD)
        ends = (("start_ns", 0.0), ("end_ns", 1.0))
        cuts = pl.concat(gone.select(*_THREAD, time_ns=name, factor=pl.lit(factor)) for name, factor in ends)
        cuts = cuts.join(found.threads, on=_THREAD, nulls_equal=True)
        return cls._summed(cuts.select("thread", "time_ns", "factor").sort("thread", "time_ns", "factor"))

    @classmethod
    def _summed(cls, cuts: pl.DataFrame) -> _Host:
        factor = cuts["factor"].to_numpy()
        length = cuts.select((_col("time_ns").shift(-1) - _col("time_ns")).over("thread").fill_null(0)).to_series()
        saved = length.to_numpy() - _scaled(length.to_numpy(), factor)
        until = pl.lit(pl.Series("saved", saved, dtype=pl.Int64))
        cuts = cuts.with_columns(saved=until)
        return cls(cuts.with_columns(saved=(_col("saved").cum_sum() - _col("saved")).over("thread")))

    def clock(self, thread: pl.Series, time_ns: pl.Series) -> Ints:
        at = time_ns.fill_null(0).to_numpy()
        if not self.cuts.height:
            return at
        place = at_or_before(pl.DataFrame({"thread": thread, "time_ns": time_ns}), self.cuts, "thread").to_numpy()
        since = at - self.cuts["time_ns"].to_numpy()[place]
        factor = self.cuts["factor"].to_numpy()[place]
        saved = self.cuts["saved"].to_numpy()[place] + (since - _scaled(since, factor))
        return np.where(place == NONE, at, at - saved)


def _replay(weights: _Weights, host: _Host, found: Graph, meetings: _Meetings | None = None) -> _Replayed:
    work, joins = found.work, found.joins
    start_ns, bound = work["start_ns"].to_numpy(), bound_by(work)
    took = _scaled((work["end_ns"] - work["start_ns"]).to_numpy(), weights.took)
    begun = found.processes["start_ns"].gather(work["process"])
    ends = work["end_ns"].gather(pl.Series(bound).set(pl.Series(bound) == NONE, None))
    since = ends.zip_with(ends.is_not_null(), work["launch_ns"]).fill_null(strategy="zero")
    no_cause = (work["launch_ns"].is_null() & pl.Series(bound == NONE)).to_numpy()
    since_ns = np.where(no_cause, begun.to_numpy(), since.to_numpy())
    delay = _scaled(start_ns - since_ns, weights.delayed)
    launch = host.clock(work["thread"], work["launch_ns"])
    is_launched = work["launch_ns"].is_not_null().to_numpy()
    launched = np.where(is_launched, launch, begun.to_numpy())
    is_alone = ~is_launched & (bound != NONE)  # nothing is known of its launch
    entered = np.where(is_launched, work["join"].to_numpy(), NONE)
    other, others = _others(found, bound)
    nodes = _rows(np.arange(work.height), bound, delay, entered, launched, is_alone, other, took)

    joined = host.clock(joins["thread"], joins["time_ns"])
    own_known = joins["own_ns"] != np.iinfo(np.int64).min
    own = host.clock(joins["thread"], joins["own_ns"].set(~own_known, None)).tolist()
    own_entry = at_or_before(joins.select("thread", time_ns="own_ns"), joins, "thread").to_list()
    done = host.clock(joins["thread"], joins["target_ns"])
    begins = joins["what"].to_numpy() == 2
    lag = np.where(begins, 0, joined - done).tolist()
    target = host.clock(joins["other"], joins["target_ns"]).tolist()
    clock, has_own, is_last = joined.tolist(), own_known.to_list(), joins["is_last"].to_list()
    what, of_work, entry, thread = (joins[name].to_list() for name in ("what", "work", "entry", "thread"))

    end, begun_at = [0] * work.height, [0] * work.height
    meeting = meetings.of if meetings else {}
    at, shift = [0] * joins.height, [0] * (joins.height + 1)  # the last is that of NONE: nothing shifted yet

    def run(count: int) -> None:
        """The next so many of the work."""
        for node, before, delayed, join, launched, is_alone, one, ns in itertools.islice(nodes, count):
            time = shift[join] + launched
            if before == NONE:
                time += delayed
            elif is_alone:
                time = end[before] + delayed
            else:
                time = max(time, end[before] + delayed)
            if one != NONE:
                then = end[one] if one >= 0 else max(end[some] for some in others[node])
                time = max(time, then)
            begun_at[node], end[node] = time, time + ns
            if meetings and node in meeting:
                meetings.meet(node, begun_at, end)

    # Each after all that it waited for: at one moment joins, by what they are for, then work.
    in_order = joins.select("time_ns", "what", "work", node=pl.int_range(pl.len(), dtype=pl.Int64))
    in_order = in_order.sort("time_ns", "what", "node")
    until = np.searchsorted(start_ns, in_order["time_ns"].to_numpy(), side="left")
    # What made room may have begun at that very moment.
    made_room = np.where((in_order["what"] == FOR_ROOM).to_numpy(), in_order["work"].to_numpy() + 1, 0)
    until = np.maximum.accumulate(np.maximum(until, made_room))
    for node, count in zip(in_order["node"].to_list(), np.diff(until, prepend=0).tolist(), strict=True):
        run(count)
        if what[node] == FOR_WORK:
            by = end[of_work[node]]
        elif what[node] == FOR_ROOM:
            by = begun_at[of_work[node]]
        else:
            by = shift[entry[node]] + target[node]
        # What did not bind might have taken less than it did: nothing.
        if is_last[node]:
            time = by + lag[node]
            if has_own[node]:
                time = max(time, shift[own_entry[node]] + own[node])
        else:
            time = max(by, shift[own_entry[node]] + clock[node])
        if node and thread[node - 1] == thread[node]:
            time = max(time, at[node - 1])
        at[node], shift[node] = time, time - clock[node]
    run(work.height)
    return _Replayed(end, took, shift, _ends(found, host, end, shift, weights.unknown), weights)


def _rows(*columns: npt.NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    parts = (slice(begin, begin + _AT_A_TIME) for begin in range(0, columns[0].size, _AT_A_TIME))
    return itertools.chain.from_iterable(zip(*(each[part].tolist() for each in columns), strict=True) for part in parts)


def _joins_without(found: Graph, gone: pl.DataFrame) -> pl.DataFrame:
    """What a thread does not do waits for nothing."""
    gone = gone.join(found.threads, on=_THREAD, nulls_equal=True)
    pairs = within(found.joins, "own_ns", gone, ("thread",))
    is_before = found.joins["own_ns"].gather(pairs["row"]) < gone["end_ns"].gather(pairs["stretch"])
    is_gone = pl.int_range(pl.len()).is_in(pairs["row"].filter(is_before).implode())
    nothing = {"what": BEGUN, "target_ns": LEAST, "entry": NONE}
    joins = found.joins.with_columns(is_gone.alias("gone"))
    joins = joins.with_columns(
        pl.when("gone").then(pl.lit(value, dtype=pl.Int64)).otherwise(name).alias(name)
        for name, value in nothing.items()
    )
    return joins.with_columns(_col("is_last") & ~_col("gone")).drop("gone")


def _others(found: Graph, bound: Ints) -> tuple[Ints, dict[int, list[int]]]:
    """What each work waited for besides that by which it is bound: NONE, that, or _SEVERAL, which are in the second."""
    edges = found.edges.filter(_col("before") != pl.Series(bound).gather(found.edges["work"]))
    other = np.full(bound.size, NONE, dtype=np.int64)
    other[edges["work"].to_numpy()] = edges["before"].to_numpy()
    several = edges.filter(_col("work").is_duplicated())
    other[several["work"].to_numpy()] = _SEVERAL
    of_work = several.group_by("work").agg("before")
    return other, dict(of_work.iter_rows())


def _ends(found: Graph, host: _Host, end: list[int], shift: list[int], unknown: float) -> list[int]:
    """When each process is done: its main thread, and all of its work."""
    processes = found.processes
    work = pl.DataFrame({"process": found.work["process"], "end": _fitting(end)})
    last = processes.join(work.group_by("process").max(), on="process", how="left", maintain_order="left")
    join = at_or_before(processes.select(thread="main", time_ns="main_ns"), found.joins, "thread").to_list()
    clock = host.clock(processes["main"], processes["main_ns"]).tolist()
    found_ends = []
    rows = processes.select("end_ns", "main_ns", "last_ns").iter_rows()
    for place, (end_ns, main_ns, last_ns) in enumerate(rows):
        measured = [ns for ns in (main_ns, last_ns) if ns is not None]
        then = [] if main_ns is None else [shift[join[place]] + clock[place]]
        then += [] if last_ns is None else [last["end"][place]]
        after = end_ns - max(measured) if measured else 0
        after = after if unknown == 1 else round(after * unknown)
        found_ends.append(max(then) + after if measured else end_ns)
    return found_ends


def _moved(asked: pl.DataFrame, path: pl.DataFrame, found: Graph, host: _Host, replayed: _Replayed) -> pl.Series:
    """When each of these moments of the path would be."""
    at = asked["time_ns"].to_numpy()
    begins = path.select("process", time_ns="start_ns")
    place = at_or_before(asked.select("process", "time_ns"), begins, "process", strict=True)
    on = path[place.set(place == NONE, None).cast(pl.UInt32)].with_columns(time_ns=asked["time_ns"])
    node = on["node"].fill_null(NONE).to_numpy()
    starts = [0 if one == NONE else replayed.end[one] - int(replayed.took[one]) for one in node.tolist()]
    start = _fitting(starts).to_numpy()
    start_ns = np.append(found.work["start_ns"].to_numpy(), 0)[node]
    took, delayed = (np.append(some, 1.0)[node] for some in (replayed.weights.took, replayed.weights.delayed))
    working = start + _scaled(at - start_ns, took)
    waiting = start - _scaled(start_ns - at, delayed)

    joins = found.joins
    join = at_or_before(on.select(_col("thread").fill_null(NONE), "time_ns"), joins, "thread").to_numpy()
    clock = host.clock(on["thread"].fill_null(NONE), on["time_ns"])
    shift = _fitting(replayed.shift).to_numpy()
    hosting = shift[join] + clock
    if joins.height:
        next_ = np.minimum(join + 1, joins.height - 1)
        after = joins[next_]
        is_tail = (after["thread"] == on["thread"]) & after["is_last"] & (after["target_ns"] <= on["time_ns"])
        is_tail &= after["time_ns"] >= on["time_ns"]
        tail = shift[next_] + clock  # its own clock goes on as it did when the join was done
        hosting = np.where(is_tail.fill_null(value=False).to_numpy(), tail, hosting)

    processes = asked.select("process").join(
        found.processes.with_columns(end=_fitting(replayed.ends)), on="process", maintain_order="left"
    )
    begun = processes["start_ns"].to_numpy()
    kind = on["kind"]
    moved = np.where(kind.is_in(OF_WORK).to_numpy(), working, waiting)
    moved = np.where((kind == "host").to_numpy(), hosting, moved)
    is_unknown = ((kind == "unknown") & (on["node"] == NONE)).fill_null(value=False).to_numpy()
    moved = np.where(is_unknown, begun + _scaled(at - begun, replayed.weights.unknown), moved)
    moved = np.where((place == NONE).to_numpy(), at, moved)
    done = processes.select(pl.max_horizontal("main_ns", "last_ns")).to_series().fill_null(2**63 - 1).to_numpy()
    last = processes["end"].to_numpy() - _scaled(processes["end_ns"].to_numpy() - at, replayed.weights.unknown)
    return pl.Series("time_ns", np.where(at >= done, last, moved), dtype=pl.Int64)
