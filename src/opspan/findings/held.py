"""How much sooner a run would have gone on without some of the work of its devices.

    held = Held(found)
    held.ns(rows, others, by) -> Int64, for each of `rows`: for how long something waited for it and for none of
        `others`; where the run made up for that later, for how long the host waited
    held.waited_ns(rows, others, by, by_host), held.is_made_up(rows) -> the two parts of it
    held.sooner(rows, saved_ns) -> how much sooner each process would have ended if each of `rows` had taken so much
        less, by the graph of `opspan path --what-if`
    held.without_host(rows, with_work) -> the same if the host had taken no time in these stretches
    held.without(rows, ranges) -> the same if `rows`, their launches and these ranges had not been there
    held.merged(rows) -> the same if several of `rows` had been one

Nothing is gained by work that ends earlier while nobody waits for it. Somebody waits while work that has been launched
has not begun, and while the host is in a call that waits. Work whose call is not in the file counts as launched before
the work in front of it began if it follows that within CLOSE, on a device that has hardly any gaps of which nobody
knows the reason: where the host sets the pace there are many.

Where a device has nothing to do afterwards until the host, which waited for nothing meanwhile, launches the next work,
the host sets the pace: that launch would have come no earlier, and all that the device was behind is made up for. What
the host itself waited is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from opspan.analysis import Analysed
from opspan.analysis.averages import on_device
from opspan.analysis.kept import kept
from opspan.analysis.path_graph import Graph, last_ended, latest
from opspan.analysis.path_threads import NONE
from opspan.analysis.spans import DEVICE, PROCESS, distinct, length, numbered, summed_by, time_in, union, within
from opspan.analysis.what_if import sooner
from opspan.tables import Tables

_col = pl.col
_THREAD = (*PROCESS, "tid")
_TOLD_TO_WAIT = r"(?i)stream_?wait_?event"  # names of calls
CLOSE = 20_000  # ns; work that waits for an event of another stream begins some 10 us after it
_HARDLY = 0.1  # of the time in which a device ran something
DRAIN = ("synchronise", "blocking copy", "item")  # reasons of waits after which a device may have nothing left to do


def _ended_ns(work: pl.DataFrame) -> pl.Series:
    """When the work ended that each waited for longest."""
    return work["end_ns"].gather(work["before"].set(work["before"] == NONE, None))


def _after_events(trace: Tables, processes: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Returns work and before: what the first work after a wait for an event may have waited for. None where the file
    says which event that is: the graph of the path has it then."""
    none = pl.DataFrame(schema={"work": pl.UInt32, "before": pl.UInt32})
    if (trace.work["kind"] == "sync").any():
        return none
    names = trace.calls["name"].unique()
    names = names.filter(names.cast(pl.String).str.contains(_TOLD_TO_WAIT).fill_null(value=False))
    called = trace.calls.select(*PROCESS, "name", called_ns="start_ns").filter(_col("name").is_in(names.implode()))
    called = called.join(processes.select("process", *PROCESS), on=PROCESS, nulls_equal=True).sort("called_ns")
    if not called.height:
        return none
    stream = pl.struct("device_id", "stream_id").rank("dense")
    launched = work.select("process", "start_ns", "end_ns", "launch_ns", stream=stream).with_row_index("work")
    launched = launched.drop_nulls("launch_ns").sort("launch_ns", "work")
    after = called.select("process", "called_ns").join_asof(
        launched.select("process", "launch_ns", "work", "start_ns", "stream"),
        left_on="called_ns",
        right_on="launch_ns",
        by="process",
        strategy="forward",
        check_sortedness=False,
    )
    others = launched.select("process", other="stream").unique()
    after = after.drop_nulls("work").join(others, on="process").filter(_col("other") != _col("stream"))
    known = launched.select("process", "launch_ns", "end_ns", other="stream", before="work")
    found = (
        after.drop("launch_ns")
        .sort("called_ns")
        .join_asof(
            known,
            left_on="called_ns",
            right_on="launch_ns",
            by=["process", "other"],
            check_sortedness=False,
        )
    )
    return found.filter(_col("end_ns") <= _col("start_ns")).select("work", "before")


class Held:
    def __init__(self, found: Analysed) -> None:
        self._found = found

    def ns(self, rows: pl.DataFrame, others: pl.DataFrame, by: Sequence[str] = DEVICE) -> pl.Series:
        """`rows`, `others`: with DEVICE, start_ns and end_ns. `by`: whose time it is; with PROCESS what any device of
        the process does counts."""
        waited_ns, is_made_up = self.waited_ns(rows, others, by), self.is_made_up(rows)
        if not is_made_up.any():
            return waited_ns
        return waited_ns.zip_with(~is_made_up, self.waited_ns(rows, others, by, by_host=True))

    def waited_ns(
        self, rows: pl.DataFrame, others: pl.DataFrame, by: Sequence[str], by_host: bool = False
    ) -> pl.Series:
        """`by_host`: the host alone counts, and no work that was launched."""
        times = [*by, "start_ns", "end_ns"]
        waiting = self._host_waits if by_host else pl.concat([self._host_waits, self._queued])
        both = union(others.select(times), by, waiting.select(times))
        return time_in(both, rows, by) - time_in(others, rows, by)

    def is_made_up(self, rows: pl.DataFrame) -> pl.Series:
        asked = rows.select(*DEVICE, "end_ns").with_row_index("row").sort("end_ns")
        asked, dry = numbered(DEVICE, asked, self._dry)
        dry = dry.select("of", "dry_ns", "waited_until_ns").sort("dry_ns")
        found = asked.join_asof(
            dry, left_on="end_ns", right_on="dry_ns", by="of", strategy="forward", check_sortedness=False
        )
        has_waited = (_col("waited_until_ns") >= _col("end_ns")).fill_null(value=False)
        made_up = found.sort("row").select(_col("dry_ns").is_not_null() & ~has_waited)
        return made_up.to_series()

    def sooner(self, rows: pl.DataFrame, saved_ns: str) -> pl.DataFrame:
        """Returns rank, pid and ns. `rows`: with `work`, a row of the table, and the column `saved_ns`, once for each
        work."""
        none = self._found.attributed.ranges.clear().select(*_THREAD, "start_ns", "end_ns")
        return self._sooner(rows.select(row="work", saved_ns=saved_ns), none)

    def without(self, rows: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
        """Returns the same if the work of `rows`, the calls that launched it, and what threads did in these ranges had
        not been there at all. `ranges`: `range`, and `of`: from the first to the last range of the same `of` all is
        gone that their thread did."""
        found = self._found.by_lane.attributed
        times = [*_THREAD, "start_ns", "end_ns"]
        calls = found.calls.select(times)[found.work["call"].gather(rows["work"]).drop_nulls().unique()]
        some = found.ranges.select(times)[ranges["range"]].hstack([ranges["of"]])
        whole = some.group_by(*_THREAD, "of").agg(_col("start_ns").min(), _col("end_ns").max()).select(times)
        gone = pl.concat([calls, whole]).drop_nulls(("start_ns", "end_ns"))
        work = rows.select(row="work", saved_ns=_col("end_ns") - _col("start_ns"), is_at_once=True)
        return self._sooner(work, gone)

    def without_host(self, rows: pl.DataFrame, *, with_work: bool = False) -> pl.DataFrame:
        """Returns the same if threads had taken no time, and waited for nothing, in these stretches: rank, pid, tid,
        start_ns and end_ns. `with_work`: nor had launched what they launched there."""
        gone = rows.select(*_THREAD, "start_ns", "end_ns")
        work = self._found.attributed.work.with_row_index("row").select(
            "row", "call", saved_ns=length(), is_at_once=pl.lit(value=True)
        )
        if with_work:
            calls = self._found.attributed.calls
            some = within(calls, "start_ns", gone, _THREAD)["row"].unique()
            saved = work.filter(_col("call").is_in(some.implode()))
        else:
            saved = work.clear()
        return self._sooner(saved.drop("call"), gone)

    def merged(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns the same if the works of the same `of` had been one, with one launch: that of the first."""
        found = self._found.by_lane.attributed
        calls = found.work["call"].gather(rows["work"])
        rows = rows.select("of", "start_ns", row="work").hstack(found.calls.select(*_THREAD, ended_ns="end_ns")[calls])
        rows = rows.sort("of", "start_ns").with_columns(is_first=_col("of").is_first_distinct())
        between = rows.group_by(*_THREAD, "of").agg(start_ns=_col("ended_ns").min(), end_ns=_col("ended_ns").max())
        others = rows.filter(~_col("is_first")).select("row", saved_ns=pl.lit(0, dtype=pl.Int64), is_at_once=True)
        return self._sooner(others, between.select(*_THREAD, "start_ns", "end_ns").drop_nulls(("start_ns", "end_ns")))

    def _sooner(self, work: pl.DataFrame, gone: pl.DataFrame) -> pl.DataFrame:
        found = self._graph
        is_at_once = _col("is_at_once") if "is_at_once" in work.columns else pl.lit(value=False)
        work = work.select("row", "saved_ns", is_at_once=is_at_once)
        work = found.work.select("row").join(work, on="row", how="left", maintain_order="left")
        work = work.with_columns(_col("saved_ns").fill_null(0), _col("is_at_once").fill_null(value=False))
        ends = sooner(found, work.with_columns(self._meetings), gone)
        if self._found.lanes is not None:
            ranks = _col("rank").replace_strict(self._found.lanes.rank_of, return_dtype=ends.schema["rank"])
            ends = ends.with_columns(ranks)
        return ends.group_by(PROCESS).agg(_col("ns").sum())

    @kept
    def _meetings(self) -> pl.Series:
        """For each work of the graph the number of the collective of several ranks that it is a part of."""
        parts = self._found.collectives.select(row="work", match="match", end_ns="end_ns").drop_nulls()
        work = self._graph.work.select("row", "end_ns")
        # Several kernels of a collective end one after the other: which of them waits is not known.
        return work.join(parts, on=["row", "end_ns"], how="left", maintain_order="left")["match"]

    @kept
    def _graph(self) -> Graph:
        """The graph of the path, with what the file does not say. Work whose launch is not known was launched when it
        began, unless it follows other work closely. Work that was ready for longer and follows other work closely
        waited for it, on whatever stream that ran. Where a stream was told to wait for an event, it waits for all that
        the other streams had been given."""
        found = self._found.path_graph
        trace = self._found.by_lane.attributed
        work = found.work.with_columns(
            trace.work.select("device_id", "stream_id")[found.work["row"]], ended_ns=_ended_ns(found.work)
        )
        if work["launch_ns"].null_count():
            devices, full = numbered(DEVICE, self._found.attributed.work.select(DEVICE)[work["row"]], self._full)
            is_full = devices["of"].is_in(full["of"].implode())
            is_close = ((work["start_ns"] - work["ended_ns"] <= CLOSE) & is_full).fill_null(value=False)
            begun_ns = pl.when(~pl.lit(is_close)).then("start_ns")
            work = work.with_columns(launch_ns=pl.coalesce("launch_ns", begun_ns))
        ready_ns = pl.max_horizontal("launch_ns", "ended_ns")
        asked = work.with_row_index("work").filter(_col("start_ns") - ready_ns > CLOSE)
        asked = asked.select("work", "process", until_ns="start_ns")
        close = asked.select("work", "until_ns", last_ended(asked, work, ("process",)).cast(pl.UInt32).alias("before"))
        close = close.filter(_col("until_ns") - work["end_ns"].gather(close["before"]) <= CLOSE)
        more = pl.concat([close.select("work", "before"), _after_events(trace, found.processes, work)])
        if not more.height:
            return replace(found, work=work.select(found.work.columns))
        edges = pl.concat([found.edges, more]).unique()
        before = latest(work, edges).cast(pl.Int32)
        return replace(found, work=work.select(found.work.columns).with_columns(before), edges=edges)

    @kept
    def _work(self) -> pl.DataFrame:
        """The work of devices in order of time, with when its call began, as `called_ns`."""
        found = self._found.attributed
        rows = on_device(found.work.select(*DEVICE, "start_ns", "end_ns", "call", "kind", "is_overhead"))
        rows = rows.with_columns(called_ns=found.calls["start_ns"].gather(rows["call"]))
        return rows.drop_nulls(("start_ns", "end_ns")).sort(*DEVICE, "start_ns", "end_ns")

    @kept
    def _waits(self) -> pl.DataFrame:
        """The waits of threads that launch: that another one waits holds up nobody."""
        waits = self._found.waits.filter(_col("why").cast(pl.String).is_in(DRAIN))
        launching = distinct(self._found.gaps, _THREAD)
        return waits.join(launching, on=_THREAD, how="semi", nulls_equal=True).drop_nulls(("start_ns", "end_ns"))

    @kept
    def _host_waits(self) -> pl.DataFrame:
        """When the host waited, for each device that its process used."""
        used = distinct(self._work, DEVICE)
        waits = self._waits.select(*PROCESS, "start_ns", "end_ns").join(used, on=PROCESS, nulls_equal=True)
        return waits.select(*DEVICE, "start_ns", "end_ns").filter(length() > 0)

    @kept
    def _queued(self) -> pl.DataFrame:
        """When work had been launched and had not begun."""
        work, full = numbered(DEVICE, self._work, self._full)
        is_close = (_col("start_ns") - _col("end_ns").shift(1) <= CLOSE) & _col("of").is_in(full["of"].implode())
        before_ns = pl.when(is_close & (_col("of") == _col("of").shift(1))).then(_col("start_ns").shift(1))
        queued = work.select(*DEVICE, start_ns=pl.coalesce("called_ns", before_ns), end_ns="start_ns")
        return queued.filter(length() > 0)

    @kept
    def _full(self) -> pl.DataFrame:
        """The devices that had something to do nearly all the time, but for gaps whose reason is known."""
        busy = summed_by(self._work, DEVICE, busy_ns=length().sum())
        gaps = self._found.gaps.drop_nulls("next")
        sums = busy.join(summed_by(gaps, DEVICE, ns=_col("unknown_ns").sum()), on=DEVICE, how="left", nulls_equal=True)
        return sums.filter(_col("ns").fill_null(0) <= _HARDLY * _col("busy_ns")).select(DEVICE)

    @kept
    def _dry(self) -> pl.DataFrame:
        """The gaps that end when the host launches, or may do so, and until when it had waited at most, before they
        began."""
        gaps, full = numbered(DEVICE, self._found.gaps, self._full)
        may_be = (_col("unknown_ns") > CLOSE) | ((_col("unknown_ns") > 0) & ~_col("of").is_in(full["of"].implode()))
        is_late = (_col("host_ns") + _col("launch_ns") > 0) | may_be
        gaps = gaps.filter(is_late).select(*DEVICE, dry_ns="start_ns").sort("dry_ns")
        waits = self._waits.select(*PROCESS, "start_ns", "end_ns").sort("start_ns")
        gaps, waits = numbered(PROCESS, gaps, waits)
        waits = waits.select("of", "start_ns", waited_until_ns=_col("end_ns").cum_max().over("of"))
        found = gaps.join_asof(waits, left_on="dry_ns", right_on="start_ns", by="of", check_sortedness=False)
        return found.select(*DEVICE, "dry_ns", "waited_until_ns")
