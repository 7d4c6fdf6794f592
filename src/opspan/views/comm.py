"""Communication over ranks: the collectives, their sizes and rates, and which rank waited for which: `opspan comm`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.collective_names import bus_factor
from opspan.analysis.lanes import in_lanes
from opspan.analysis.over_ranks import matched
from opspan.analysis.parts import COLLECTIVES, Part, Parts
from opspan.analysis.spans import DEVICE
from opspan.printable import listed, printable, shortened
from opspan.questions import Options, Question
from opspan.views import fields, of_ranges
from opspan.views.answer import Answer
from opspan.views.fields import Field, share, varying_fields, with_values

_col = pl.col
KEYS = {"kind": ("kind",), "group": ("group", "group_size", "members"), "size": ("kind", "bytes_each"), "rank": DEVICE}
_GROUP = (replace(fields.GROUP, none="(in none)"), fields.RANKS)
_KIND = replace(fields.COLLECTIVE, none="(in none)")
_SIZE = replace(fields.SIZE, rank=3)
_TRANSFER = replace(fields.TRANSFER, rank=2)
_OF_PROCESS = "the whole time of the process"
_OF_RANK = (
    Field("last", "Last", "count", rank=1),
    share("computing_ns", "Computing", "span_ns", _OF_PROCESS, 1),
    share("exposed_ns", "Exposed", "span_ns", _OF_PROCESS, 1),
)
_RATES = (Field("algorithm_bytes_per_s", "Algorithm", "rate", rank=4), Field("bus_bytes_per_s", "Bus", "rate", rank=4))
_LOAD = ("span_ns", "computing_ns", "communicating_ns", "exposed_ns")
_CALL = (
    "rank pid device_id stream_id start_ns end_ns name kind bytes element algorithm protocol group group_size members "
    "seq number match ranks time_ns transfer_ns waiting_ns is_last unmatched algorithm_bytes_per_s bus_bytes_per_s "
    "bandwidth_of op"
).split()
_WHY = {
    "alone": "no other rank is here that has their group",
    "peers unknown": "nothing says who sent to whom",
    "groups unknown": "groups are not told, and there is more than one, for ranks use different numbers of streams",
    "counts differ": "ranks have different numbers of them, and nothing says which belong together",
    "at other times": "they were over on one device before they began on another: there are more groups than are told",
    "unknown": "it is not known when they began, or what they are",
}


def rows_of_places(analysis: Analysis, by: str) -> pl.DataFrame:
    """Returns sums as `rows` does, but separately for each device, and for each process without a device."""
    own = parts(analysis, Options(by))
    return _rows(_matched_collectives(own), own["load"].rows, by, is_of_each_place=True)


@in_lanes
def parts(analysis: Analysis, options: Options) -> Parts:
    """Returns a row for each collective, not sums: waiting times can be computed only when all ranks have been read. If
    grouped by rank, the part `load` also has the summed times of each device."""
    collectives, by = analysis.own_collectives, options.by
    if (named := "op" if by == "call" else by) in of_ranges.OF_RANGES:
        collectives = collectives.with_columns(
            of_ranges.names(analysis, named, collectives["range"]).cast(pl.String).alias(named)
        )
    load = analysis.whole_devices if by == "rank" else analysis.whole_devices.clear()
    load = load.select(
        *DEVICE,
        span_ns="time_ns",
        computing_ns="computing_ns",
        communicating_ns="communicating_ns",
        exposed_ns="exposed_communicating_ns",
    )
    return {COLLECTIVES: Part(collectives.drop("range"), times=("start_ns", "end_ns")), "load": Part(load, DEVICE)}


def rows(parts: Parts, options: Options) -> pl.DataFrame:
    return _rows(_matched_collectives(parts), parts["load"].rows, options.by)


def _matched_collectives(parts: Parts) -> pl.DataFrame:
    collectives = parts[COLLECTIVES].rows
    return collectives.hstack(matched(collectives))


def _rows(rows: pl.DataFrame, load: pl.DataFrame, by: str, *, is_of_each_place: bool = False) -> pl.DataFrame:
    rows = _with_rates(rows)
    if by == "call":
        rows = rows.with_columns(bandwidth_of=_bandwidth_of().over("row"), **_rates(over="row"))
        return rows.select(_CALL).sort("start_ns", "rank", nulls_last=True, maintain_order=True)
    key = list(dict.fromkeys([*(DEVICE if is_of_each_place else ()), *KEYS.get(by, (by,))]))
    sums = (
        rows.with_columns(bytes_each="bytes")
        .group_by(key, maintain_order=True)
        .agg(
            count=pl.len().cast(pl.Int64),
            matched=_col("match").count().cast(pl.Int64),
            bytes=_sum("bytes"),
            time_ns=_sum("time_ns"),
            transfer_ns=_sum("transfer_ns"),
            waiting_ns=_sum("waiting_ns"),
            matched_ns=_sum(pl.when(_col("waiting_ns").is_not_null()).then("time_ns")),
            mean_bytes=_col("bytes").mean(),
            mean_time_ns=_col("time_ns").mean(),
            mean_transfer_ns=_col("transfer_ns").mean(),
            last=pl.when(_col("is_last").is_not_null().any()).then(_col("is_last").sum().cast(pl.Int64)),
            waited_for_ns=_sum("waited_for_ns"),
            **_rates(),
            bandwidth_of=_bandwidth_of(),
        )
    )
    if by == "rank":
        return _with_load(sums, load)
    return sums.drop("last", "waited_for_ns").sort("time_ns", descending=True, nulls_last=True, maintain_order=True)


def _sum(of: str | pl.Expr) -> pl.Expr:
    """Sums the known values. If no value is known, the sum is null, not 0."""
    values = _col(of) if isinstance(of, str) else of
    return pl.when(values.is_not_null().any()).then(values.sum())


def _with_rates(rows: pl.DataFrame) -> pl.DataFrame:
    took = pl.coalesce("transfer_ns", "time_ns")
    factor = bus_factor(_col("kind"), _col("group_size"))
    is_known = (_col("bytes") > 0) & (took > 0)
    is_on_bus = is_known & factor.is_not_null()
    return rows.with_row_index("row").with_columns(
        moved=pl.when(is_known).then(_col("bytes").cast(pl.Float64)),
        moved_ns=pl.when(is_known).then(took),
        on_bus=pl.when(is_on_bus).then(_col("bytes") * factor),
        on_bus_ns=pl.when(is_on_bus).then(took),
        waited_for_ns=pl.when(_col("is_last").is_not_null()).then(
            _col("is_last") * _col("waiting_ns").sum().over("match")
        ),
        is_by_transfer=pl.when(is_known).then(_col("transfer_ns").is_not_null()),
    )


def _rates(over: str | None = None) -> dict[str, pl.Expr]:
    def rate(moved: str, ns: str) -> pl.Expr:
        total, took = (_col(name) if over else _col(name).sum() for name in (moved, ns))
        return pl.when(took > 0).then(total / took * 1e9)

    return {"algorithm_bytes_per_s": rate("moved", "moved_ns"), "bus_bytes_per_s": rate("on_bus", "on_bus_ns")}


def _bandwidth_of() -> pl.Expr:
    """Returns which time the bandwidths of the grouped collectives are computed from: transfer, own (the whole time of
    the collective), or both."""
    by_transfer = _col("is_by_transfer")
    return (
        pl.when(by_transfer.is_null().all())
        .then(None)
        .when(by_transfer.all())
        .then(pl.lit("transfer"))
        .when(~by_transfer.any())
        .then(pl.lit("own"))
        .otherwise(pl.lit("both"))
    )


def _with_load(sums: pl.DataFrame, load: pl.DataFrame) -> pl.DataFrame:
    """Adds the times of each device in the whole run. If any device has collectives, all devices have rows."""
    if not sums.height:
        return sums.with_columns(pl.lit(None, dtype=pl.Int64).alias(name) for name in _LOAD)
    rows = sums.join(load, on=DEVICE, how="full", coalesce=True, nulls_equal=True).with_columns(
        _col("count", "matched").fill_null(0)
    )
    return rows.sort(DEVICE, nulls_last=True)


def answer(parts: Parts, options: Options) -> Answer:
    collectives, by = _matched_collectives(parts), options.by
    rows = _rows(collectives, parts["load"].rows, by)
    places = (varying_fields(fields.PLACES[:3], rows) if rows.height else []) or [fields.PLACES[0]]
    shown = places if by in ("rank", "call") else []
    if by in of_ranges.OF_RANGES:
        shown.append(of_ranges.field("Started in", by))
    elif by == "group":
        shown += _GROUP
    elif by != "rank":
        shown.append(_KIND)
    size = replace(_SIZE, name="bytes_each") if by == "size" else _SIZE
    shown += [*([] if by == "call" else [fields.CALLS]), size, fields.TIME]
    if rows["transfer_ns"].count():
        # Waiting is known only for matched collectives, which were found on other ranks, too. So a share of waiting is
        # a share of the time of matched collectives. In a table by call, each row is a single collective.
        of, title = ("time_ns", "Time") if by == "call" else ("matched_ns", "the time of those that matched")
        shown += [_TRANSFER, share("waiting_ns", "Waiting", of, title, 1)]
    shown += _OF_RANK if by == "rank" else ()
    return Answer("comm", rows, (*shown, *with_values(_RATES, rows)), tuple(_notes(collectives)))


def _notes(rows: pl.DataFrame) -> Iterator[str]:
    if not rows.height:
        yield "No collective was found in this trace: no kernel, range or record of one"
        return
    unknown = rows["time_ns"].null_count()
    if unknown:
        yield (
            f"Warning: how long {unknown:,} of {rows.height:,} collectives took is not known, for only their start is "
            "in the trace, or their end is not"
        )
    is_one = rows.select(DEVICE).n_unique() == 1
    if is_one:
        yield (
            "All are of one rank, so what of their time was waiting for others is not known: load the files of all "
            "ranks together"
        )
    else:
        yield from _unmatched_notes(rows)
    yield from _missing_notes(rows, "" if is_one else "; the transfer may be shorter, and who is last may be another")
    if rows.filter(_col("group").is_null(), _col("match").is_not_null()).height:
        yield "Groups are not told for all: without one, collectives of a stream are taken to be of all ranks here"


def _unmatched_notes(rows: pl.DataFrame) -> Iterator[str]:
    reasons = rows.filter(_col("match").is_null()).group_by("unmatched").len().sort("len", "unmatched", descending=True)
    for why, count in reasons.iter_rows():
        yield f"Warning: {count:,} of {rows.height:,} collectives matched on no other rank: {_WHY[why]}"


def _missing_notes(rows: pl.DataFrame, so: str) -> Iterator[str]:
    """Yields a sentence for each process group with ranks that were not loaded; at most five sentences."""
    groups = rows.filter(_col("group_size").is_not_null(), ~_col("kind").is_in(["send", "recv"]))
    here = groups.group_by("group", "members", maintain_order=True).agg(
        _col("group_size").max(), places=pl.struct(DEVICE).n_unique(), ranks=_col("own_rank").unique()
    )
    for name, members, size, places, ranks in here.filter(_col("places") < _col("group_size")).head(5).iter_rows():
        missing = _missing_ranks(members, ranks)
        missing_text = (
            f": {'rank' if len(missing) == 1 else 'ranks'} {printable(listed(missing, 8))} missing" if missing else ""
        )
        group = shortened(printable(name)) if name else "(no name)"
        yield f"Of group {group} {places} of {size} ranks are here{missing_text}{so}"


def _missing_ranks(members: str | None, here: list[int | None]) -> list[str]:
    try:
        all_ranks = json.loads(members or "[]")
    except (ValueError, RecursionError):
        return []
    if None in here or not isinstance(all_ranks, list):
        return []
    return [str(rank) for rank in all_ranks if rank not in here]


QUESTION = Question("comm", parts, rows, answer)
