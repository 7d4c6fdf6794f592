"""Merges a trace with the trace that another tool recorded of the same processes at the same time. For example, one
trace has the CPU side, the other the GPU side.

merge(one, other) -> Trace with one rank, on the clock of `one`. A range that both tools recorded appears once, as the
row of `one`; columns that are null in this row are filled from `other`. docs/analysis.md says how clocks are aligned,
and which traces are refused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import polars as pl

from opspan.analysis.ops import ops
from opspan.analysis.together import analysed_like
from opspan.errors import UsageError
from opspan.printable import LONGEST_LINE, listed, plural
from opspan.tables import Issues, Metadata, Tables
from opspan.tables.compiled import COMPILED
from opspan.tables.tables import clock_shift_ns, id_count, moved

# If the starts of nine in ten paired ranges agree within this time after the shift, the pairs align the clocks. The
# starts differ because the tools themselves take time.
MOST_APART_NS = 1_000_000
# If at least this many ranges can be paired, the pairs align the clocks. Otherwise clocks stated in the files do so.
LEAST_PAIRS = 8
# Two ranges of one name may be the same range although one begins this long after the other has ended. This holds even
# if other pairs differ by much less.
LEAST_TOLERANCE_NS = 5_000

_KEY = ["pid", "tid", "name"]
_ONE_A_ROW = {"threads": ["pid", "tid"], "processes": ["pid"], "devices": ["device_id"]}


@dataclass(frozen=True)
class Alignment:
    """States how the times of the other trace were moved to the clock of the first trace."""

    # ranges (aligned by ranges that both tools recorded), clock (both tools read the same clock) or UTC (both files
    # have UTC times)
    by: str
    shift_ns: int  # the shift that was added to the times of the other trace
    pairs: int  # how many pairs of ranges aligned the clocks; 0 if the ranges did not align them
    within_ns: int | None  # nine in ten pairs differ by at most this time; None if the ranges did not align the clocks


def merge(one: Tables, other: Tables) -> Tables:
    """Merges the traces. The result's metadata.options["alignment"] is an Alignment as a dictionary. If one of the
    traces was analysed, the merged trace is analysed, too."""
    _check(one, other)
    traces, one, other = (one, other), one.without_analysis(), other.without_analysis()
    issues = Issues()
    first, second = ops(one.ranges), ops(other.ranges)
    pairs = _in_order(first, second)
    alignment = _align(one, other, pairs, issues)
    same = _same_ranges(first, second, pairs, alignment)

    ids = {name: id_count(frame) for name, frame in one.frames.items()}
    theirs = other.replace(ranges=second).frames
    # If a trace has no work, correlation ids of its calls could match the other trace's work by accident. So these ids
    # are removed.
    if not other.work.height:
        theirs["calls"] = theirs["calls"].with_columns(correlation_id=None)
    if not one.work.height:
        one = one.replace(calls=one.calls.with_columns(correlation_id=None))
    ranks = {other.metadata.rank: one.metadata.rank}
    theirs = {name: moved(name, frame, ranks, ids, alignment.shift_ns) for name, frame in theirs.items()}
    same = same.with_columns(pl.col("other") + ids["ranges"])
    # Both traces may have the same log of torch.compile. The longer one is kept.
    for name in COMPILED:
        if theirs[name].height > one.frames[name].height:
            one = one.replace(**{name: one.frames[name].clear()})
        else:
            theirs[name] = theirs[name].clear()

    frames = {
        name: pl.concat([frame, theirs[name]], how="diagonal")
        for name, frame in one.replace(ranges=first).frames.items()
    }
    frames["ranges"] = _ranges(first, theirs["ranges"], same)
    frames["relations"] = _rename_references(frames["relations"], same, "range_id", "other_id")
    frames["work"] = _rename_references(frames["work"], same, "named_range_id")
    for name, keys in _ONE_A_ROW.items():
        known = pl.all().exclude(keys).drop_nulls().first()
        frames[name] = frames[name].group_by(keys, maintain_order=True).agg(known)
    issues.add("seen_twice", same.height)
    frames["issues"] = pl.concat([frames["issues"], issues.frame()], how="diagonal")
    merged = Tables((_metadata(one.metadata, other.metadata, alignment),), **frames)
    return analysed_like(merged, traces)


def _check(one: Tables, other: Tables) -> None:
    for trace in (one, other):
        if count := len(trace.metadata.cycles):
            raise UsageError(f"cannot merge a trace of {count} cycles; expected one of them: load(..., cycle=1)")
        if len(trace.ranks) != 1:
            raise UsageError(
                f"cannot merge a trace of {len(trace.ranks)} ranks; expected two traces of one run of one rank"
            )
    a, b = one.metadata, other.metadata
    names = f"{_paths(a)} and {_paths(b)}"
    if None not in (a.host, b.host) and a.host != b.host:
        raise UsageError(
            f"cannot merge {names}: hosts {a.host} and {b.host}; expected one process that both tools watched. Load "
            "them side by side: opspan.load(one, other)"
        )
    if not _pids(one) & _pids(other):
        raise UsageError(
            f"cannot merge {names}: no process is in both ({_some(_pids(one))} and {_some(_pids(other))}); expected "
            "two tools that watched the same run"
        )
    if one.work.height and other.work.height:
        raise UsageError(
            f"cannot merge {names}: both hold work of a device, which would be counted twice; take it from one of "
            "them: merge(one, other.replace(work=other.work.clear()))"
        )


def _paths(metadata: Metadata) -> str:
    return listed(metadata.paths, longest=LONGEST_LINE) or metadata.source


def _pids(trace: Tables) -> set[int]:
    frames = [frame["pid"] for frame in (trace.ranges, trace.calls, trace.work, trace.samples)]
    return set(pl.concat(frames).unique().drop_nulls().to_list())


def _some(pids: set[int]) -> str:
    shown = ", ".join(str(pid) for pid in sorted(pids)[:3])
    return shown + (", ..." if len(pids) > 3 else "") or "none"


def _known_ranges(ranges: pl.DataFrame) -> pl.LazyFrame:
    is_known = pl.all_horizontal(pl.col(*_KEY, "start_ns").is_not_null())
    until = pl.col("end_ns").fill_null(pl.col("end_ns").max()).fill_null(pl.col("start_ns"))
    rows = ranges.lazy().filter(is_known & ~pl.col("is_mark").fill_null(value=False))
    rows = rows.select("id", *_KEY, "start_ns", until)
    return rows.sort("start_ns", "id").with_columns(nth=pl.int_range(pl.len()).over(_KEY), count=pl.len().over(_KEY))


def _in_order(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Pairs the n-th ranges of each name and thread, if both traces have the same number of ranges of this name on this
    thread. Returns `one` and `other` (the ids of the two ranges), apart_ns (the start of `one` minus the start of
    `other`), and the times of the two ranges."""
    joined = _known_ranges(first).join(_known_ranges(second), on=[*_KEY, "nth", "count"], suffix="_other")
    apart = pl.col("start_ns") - pl.col("start_ns_other")
    times = pl.col("start_ns", "end_ns", "start_ns_other", "end_ns_other")
    return joined.select(times, one="id", other="id_other", apart_ns=apart).collect()


def _align(one: Tables, other: Tables, pairs: pl.DataFrame, issues: Issues) -> Alignment:
    by_files = clock_shift_ns(other.metadata, one.metadata)
    if pairs.height >= LEAST_PAIRS:
        middle = pairs["apart_ns"].median()
        shift = round(middle) if isinstance(middle, (int, float)) else 0
        within = (pairs["apart_ns"] - shift).abs().quantile(0.9, "higher")
        if within is not None and within <= MOST_APART_NS:
            if by_files is not None and abs(by_files - shift) > MOST_APART_NS:
                issues.add("clocks_disagree", detail=f"by {(by_files - shift) / 1e6:+,.3f} ms")
            return Alignment("ranges", shift, pairs.height, int(within))
    if by_files is None:
        raise UsageError(
            f"cannot merge {one.metadata.source} and {other.metadata.source}: no clock is known of one of them, and "
            f"{plural(pairs.height, 'range')} that both saw; expected at least {LEAST_PAIRS} that agree to the "
            "millisecond. "
            "Label the program for both tools (opspan exec)"
        )
    issues.add("aligned_by_clocks")
    same = by_files == 0 and one.metadata.clock is not None and one.metadata.clock == other.metadata.clock
    return Alignment("clock" if same else "UTC", by_files, 0, None)


def _same_ranges(first: pl.DataFrame, second: pl.DataFrame, pairs: pl.DataFrame, alignment: Alignment) -> pl.DataFrame:
    """Returns the ids of the ranges that both traces have: one, other."""
    if alignment.within_ns is None:
        return pairs.clear().select("one", "other")
    # Both ranges of a pair were recorded around the same code, so they overlap. But their starts may be far apart, if
    # the thread was interrupted between them.
    tolerance, shift = max(3 * alignment.within_ns, LEAST_TOLERANCE_NS), alignment.shift_ns
    overlap = (pl.col("start_ns_other") + shift <= pl.col("end_ns") + tolerance) & (
        pl.col("start_ns") <= pl.col("end_ns_other") + shift + tolerance
    )
    in_order = pairs.filter(overlap).select("one", "other")
    # If one tool has more ranges of a name than the other, the nearest ranges are paired.
    ours = _known_ranges(first).filter(~pl.col("id").is_in(in_order["one"].implode()))
    theirs = _known_ranges(second).filter(~pl.col("id").is_in(in_order["other"].implode()))
    ours = ours.select("start_ns", "end_ns", *_KEY, one="id", at="start_ns").sort("at")
    names = {"start_ns_other": "start_ns", "end_ns_other": "end_ns"}
    near = theirs.select("id", *_KEY, at=pl.col("start_ns") + shift, **names).sort("at")
    near = near.join_asof(ours, on="at", by=_KEY, strategy="nearest", check_sortedness=False)
    near = near.filter(pl.col("one").is_not_null() & overlap)
    near = near.with_columns(apart=(pl.col("start_ns_other") + shift - pl.col("start_ns")).abs()).sort("apart", "id")
    nearest = near.unique("one", keep="first", maintain_order=True).select("one", other="id")
    return pl.concat([in_order, nearest.collect()])


def _ranges(ours: pl.DataFrame, theirs: pl.DataFrame, same: pl.DataFrame) -> pl.DataFrame:
    """Returns all ranges of the first trace (nulls are filled from the other trace), and after them the ranges that
    only the other trace has."""
    shared = theirs.join(same, left_on="id", right_on="other", how="inner").drop("id", "parent_id")
    columns = [name for name in shared.columns if name in ours.columns and name not in ("start_ns", "end_ns")]
    joined = ours.join(shared, left_on="id", right_on="one", how="left", suffix="_other", maintain_order="left")
    filled = joined.with_columns(pl.coalesce(name, f"{name}_other").alias(name) for name in columns)
    kind = pl.when(pl.col("kind") == "unknown").then(pl.coalesce("kind_other", "kind")).otherwise("kind")
    filled = filled.with_columns(kind.alias("kind")).select(ours.columns)
    rest = theirs.join(same, left_on="id", right_on="other", how="anti", maintain_order="left")
    return pl.concat([filled, _rename_references(rest, same, "parent_id")], how="diagonal")


def _rename_references(frame: pl.DataFrame, same: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Replaces ids of ranges of the other trace by the ids of the same ranges in the first trace. Other ids remain."""
    return frame.with_columns(pl.col(name).replace(same["other"], same["one"]) for name in columns)


def _metadata(one: Metadata, other: Metadata, alignment: Alignment) -> Metadata:
    options = {
        "alignment": asdict(alignment),
        "merged": [{"source": side.source, "tool": side.tool, "options": dict(side.options)} for side in (one, other)],
    }
    return Metadata(
        source=f"{one.source}+{other.source}",
        paths=(*one.paths, *other.paths),
        tool=one.tool,
        tool_version=one.tool_version,
        host=one.host or other.host,
        clock=one.clock,
        origin_utc_ns=one.origin_utc_ns,
        options=options,
        rank=one.rank,
        rank_by=one.rank_by,
        told=one.told if one.told.rank is not None else other.told,
    )
