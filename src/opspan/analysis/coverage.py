"""Measures how much of a trace could be attributed, by count and by time, and how much could not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import polars as pl

from opspan.analysis.autograd import BY_NESTING, LINKED, LINKS, NO_SEQ, ROOT
from opspan.analysis.averages import DURATION, on_device
from opspan.analysis.launches import launches_graph
from opspan.printable import plural


@dataclass(frozen=True)
class Share:
    """A share of a table: `count` rows, which took `ns` nanoseconds. All `of` rows of the table took `of_ns`."""

    count: int
    of: int
    ns: int
    of_ns: int

    @property
    def fraction(self) -> float:
        """The share by time, or by count if all times are 0. It is 1 if there are no rows."""
        if self.of_ns:
            return self.ns / self.of_ns
        return self.count / self.of if self.of else 1.0


@dataclass(frozen=True)
class Coverage:
    """How much of a trace could be attributed."""

    work_with_call: Share
    # Work of graph replays counts only if its ops are known, because the range that launches a graph does not show the
    # ops inside.
    work_in_range: Share
    work_in_whole_graphs: Share  # graph replays that have a single row of work; only those launched in a range
    work_in_unknown_replays: Share  # kernels and copies of graph replays whose ops are unknown
    work_in_unsure_replays: Share  # kernels and copies of graph replays whose ops were found, but may be wrong
    ambiguous_work: int  # rows of work whose correlation id several calls used
    calls_in_range: Share
    overlapping_ranges: int  # ranges outside the tree, because they partly overlap another range
    links: dict[str, int]  # for each of autograd.LINKS, how many ranges have this link

    @property
    def backward(self) -> int:
        """The number of backward ranges that should have a forward op."""
        return sum(count for how, count in self.links.items() if how not in (BY_NESTING, NO_SEQ, ROOT))

    @property
    def linked(self) -> int:
        return self.links.get(LINKED, 0)

    def lines(self) -> list[str]:
        """Returns sentences with the shares and links, and with how many events could not be attributed."""
        sentences = []
        for share, what in ((self.work_in_range, "belongs to a range"), (self.work_with_call, "has its launch call")):
            if share.of:
                counts = f"{share.count:,} of {share.of:,} kernels and copies"
                sentences.append(f"{share.fraction:.1%} of device time {what} ({counts})")
        if (graphs := self.work_in_whole_graphs).count:
            sentences.append(
                f"{graphs.fraction:.1%} of device time is in {plural(graphs.count, 'replay')} of graphs that were "
                "traced as wholes: which ops ran in them, and when the device was idle meanwhile, is unknown"
            )
        if (replays := self.work_in_unknown_replays).count:
            sentences.append(
                f"{replays.fraction:.1%} of device time is in graph replays whose ops are unknown ({replays.count:,} "
                "kernels and copies): record the capture of the graphs, and say --captures"
            )
        if (unsure := self.work_in_unsure_replays).count:
            sentences.append(
                f"{unsure.fraction:.1%} of device time is in graph replays whose ops are not sure ({unsure.count:,} "
                "kernels and copies): captures with other ops fit as well, or have no names of kernels"
            )
        if self.backward:
            sentences.append(f"{self.linked:,} of {self.backward:,} backward ranges are linked to their forward op")
            sentences += [
                f"{count:,} backward ranges: {how}"
                for how, count in self.links.items()
                if count and how not in (LINKED, BY_NESTING, NO_SEQ, ROOT)
            ]
        if self.ambiguous_work:
            sentences.append(
                f"{self.ambiguous_work:,} kernels and copies have a correlation id that several calls used"
            )
        if self.overlapping_ranges:
            sentences.append(
                f"{self.overlapping_ranges:,} ranges only overlap others of their thread and stand outside the tree"
            )
        return sentences


def coverage(ranges: pl.DataFrame, calls: pl.DataFrame, work: pl.DataFrame) -> Coverage:
    """Returns the coverage. `nest`, `launches` and `autograd` must be called first."""
    busy = on_device(work)
    is_graph = pl.col("kind") == "graph"
    is_unknown = in_unknown_replays(calls, busy)
    is_unsure = ~is_unknown & ~busy["is_replay_sure"].fill_null(value=True)
    of_kernels, of_graphs = (
        busy.with_columns(range=pl.when(which).then("range")) for which in (~is_graph & ~is_unknown, is_graph)
    )
    counts = ranges["link"].value_counts().drop_nulls() if "link" in ranges.columns else pl.DataFrame()
    links = dict(counts.iter_rows()) if counts.height else {}
    return Coverage(
        work_with_call=_share(busy, "call"),
        work_in_range=_share(of_kernels, "range"),
        work_in_whole_graphs=_share(of_graphs, "range"),
        work_in_unknown_replays=_share(busy.with_columns(unknown=pl.when(is_unknown).then(1)), "unknown"),
        work_in_unsure_replays=_share(busy.with_columns(unsure=pl.when(is_unsure).then(1)), "unsure"),
        ambiguous_work=int(busy["ambiguous"].sum()),
        calls_in_range=_share(calls, "range"),
        overlapping_ranges=int(ranges["overlaps"].sum()),
        links={how: int(links.get(how, 0)) for how in LINKS.categories},
    )


def in_unknown_replays(calls: pl.DataFrame, work: pl.DataFrame) -> pl.Series:
    """Returns, for each row of work, whether a graph launch started it and its op is unknown. The op is known (`range`
    differs from `launch_range`) if the capture of the graph or the creation of its nodes was recorded. Graphs that have
    one row for each replay do not count."""
    is_launch = launches_graph(calls)
    if not work.height or not is_launch.any():
        return pl.Series([False]).new_from_index(0, work.height)
    is_launch = is_launch.gather(work["call"]).fill_null(value=False)
    is_known = pl.col("range").ne_missing(pl.col("launch_range"))
    return is_launch & work.select((pl.col("kind") != "graph") & ~is_known).to_series().fill_null(value=False)


def together(coverages: Sequence[Coverage]) -> Coverage:
    def share(name: str) -> Share:
        return Share(*map(sum, zip(*(astuple(getattr(one, name)) for one in coverages), strict=True)))

    return Coverage(
        work_with_call=share("work_with_call"),
        work_in_range=share("work_in_range"),
        work_in_whole_graphs=share("work_in_whole_graphs"),
        work_in_unknown_replays=share("work_in_unknown_replays"),
        work_in_unsure_replays=share("work_in_unsure_replays"),
        ambiguous_work=sum(one.ambiguous_work for one in coverages),
        calls_in_range=share("calls_in_range"),
        overlapping_ranges=sum(one.overlapping_ranges for one in coverages),
        links={how: sum(one.links[how] for one in coverages) for how in LINKS.categories},
    )


def _share(frame: pl.DataFrame, column: str) -> Share:
    has = pl.col(column).is_not_null()
    if frame.height and not frame[column].null_count():
        ns = int(frame.select(DURATION.sum()).item())
        return Share(frame.height, frame.height, ns, ns)
    count, ns, of_ns = frame.select(
        has.sum(), DURATION.filter(has).sum().alias("ns"), DURATION.sum().alias("of_ns")
    ).row(0)
    return Share(int(count), frame.height, int(ns), int(of_ns))
