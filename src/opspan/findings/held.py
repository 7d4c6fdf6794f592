"""How much sooner a run would have gone on without some of the work of its devices.

    held = Held(found)
    held.ns(rows, others, by) -> Int64, for each of `rows`: for how long something waited for it and for none of
        `others`; where the run made up for that later, for how long the host waited
    held.waited_ns(rows, others, by, by_host), held.is_made_up(rows) -> the two parts of it
    held.graph -> what waited for what: analysis/sooner.py goes through it again

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

import polars as pl

from opspan.analysis import Analysed
from opspan.analysis.averages import on_device
from opspan.analysis.kept import kept
from opspan.analysis.path_graph import Graph
from opspan.analysis.sooner import CLOSE, released
from opspan.analysis.spans import DEVICE, PROCESS, distinct, length, numbered, summed_by, time_in, union

_col = pl.col
_THREAD = (*PROCESS, "tid")
_HARDLY = 0.1  # of the time in which a device ran something
DRAIN = ("synchronise", "blocking copy", "item")  # reasons of waits after which a device may have nothing left to do


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

    @kept
    def graph(self) -> Graph:
        """What waited for what, as `sooner` takes it."""
        graph, trace = self._found.path_graph, self._found.attributed
        full = self.full.with_columns(is_paced=pl.lit(value=False))
        device = trace.work.select(*DEVICE)[graph.work["row"]]
        paced = device.join(full, on=DEVICE, how="left", nulls_equal=True, maintain_order="left")["is_paced"]
        return released(graph, trace, paced.fill_null(value=True))

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
        work, full = numbered(DEVICE, self._work, self.full)
        is_close = (_col("start_ns") - _col("end_ns").shift(1) <= CLOSE) & _col("of").is_in(full["of"].implode())
        before_ns = pl.when(is_close & (_col("of") == _col("of").shift(1))).then(_col("start_ns").shift(1))
        queued = work.select(*DEVICE, start_ns=pl.coalesce("called_ns", before_ns), end_ns="start_ns")
        return queued.filter(length() > 0)

    @kept
    def full(self) -> pl.DataFrame:
        """The devices that had something to do nearly all the time, but for gaps whose reason is known."""
        busy = summed_by(self._work, DEVICE, busy_ns=length().sum())
        gaps = self._found.gaps.drop_nulls("next")
        sums = busy.join(summed_by(gaps, DEVICE, ns=_col("unknown_ns").sum()), on=DEVICE, how="left", nulls_equal=True)
        return sums.filter(_col("ns").fill_null(0) <= _HARDLY * _col("busy_ns")).select(DEVICE)

    @kept
    def _dry(self) -> pl.DataFrame:
        """The gaps that end when the host launches, or may do so, and until when it had waited at most, before they
        began."""
        gaps, full = numbered(DEVICE, self._found.gaps, self.full)
        may_be = (_col("unknown_ns") > CLOSE) | ((_col("unknown_ns") > 0) & ~_col("of").is_in(full["of"].implode()))
        is_late = (_col("host_ns") + _col("launch_ns") > 0) | may_be
        gaps = gaps.filter(is_late).select(*DEVICE, dry_ns="start_ns").sort("dry_ns")
        waits = self._waits.select(*PROCESS, "start_ns", "end_ns").sort("start_ns")
        gaps, waits = numbered(PROCESS, gaps, waits)
        waits = waits.select("of", "start_ns", waited_until_ns=_col("end_ns").cum_max().over("of"))
        found = gaps.join_asof(waits, left_on="dry_ns", right_on="start_ns", by="of", check_sortedness=False)
        return found.select(*DEVICE, "dry_ns", "waited_until_ns")
