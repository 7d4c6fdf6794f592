"""What ranks did together: how their time went, what they gave each other, and who waited for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.spans import DEVICE
from opspan.questions import Options
from opspan.views.comm import KEYS, QUESTION, rows_of_places
from opspan.views.fields import (
    ALGORITHM_BANDWIDTH,
    BUS_BANDWIDTH,
    COLLECTIVE,
    GROUP,
    NUMBER,
    RANKS,
    SIZE,
    STARTED_IN,
    TOTAL_LATENCY,
    TRANSFER,
    WAITING,
    WHERE,
    Field,
    time_text,
)
from opspan.views.page.columns import table, text, values
from opspan.views.page.overview_steps import TITLES
from opspan.views.page.places import hosts, places, world_size
from opspan.views.page.section import Section, Subject

_BY = {"kind": "kind", "group": "group", "size": "size", "op": "op"}
_MOST_BARS = 20_000
_MOST_PLACES = 64  # that have tables of their own
_MOST_OF = 0.5  # of all waiting: who is waited for longer than all others together is a straggler
_col = pl.col
_KINDS = {
    "computing": "Computation alone",
    "overlapping": "Both at once",
    "communicating": "Communication alone",
    "other": "Other: copies, idle",
}
_HOST_KINDS = {kind: TITLES[kind] for kind in ("calling", "loading", "ops", "other")}
_COLUMNS = (
    COLLECTIVE,
    GROUP,
    RANKS,
    Field("members", "Members", "text"),
    STARTED_IN,
    Field("bytes_each", "Size", "bytes", "Of one, as NCCL's tests count it"),
    Field("count", "Count", "count", "Each counts on each rank"),
    Field("matched", "Matched", "count", "Found on other ranks, too"),
    Field("bytes", "Total size", "bytes"),
    Field("mean_bytes", "Mean size", "bytes"),
    replace(TOTAL_LATENCY, bar=True),
    Field("mean_time_ns", "Mean latency", "ns"),
    TRANSFER,
    Field("mean_transfer_ns", "Mean transfer", "ns"),
    WAITING,
    ALGORITHM_BANDWIDTH,
    BUS_BANDWIDTH,
)
_CALL = (
    replace(COLLECTIVE, unit="name"),
    replace(NUMBER, help="Which of its group and kind it is there, from 0"),
    WHERE,
    replace(GROUP, unit="text"),
    STARTED_IN,
    replace(SIZE, help="As NCCL's tests count it"),
    Field("time_ns", "Latency", "ns"),
    TRANSFER,
    WAITING,
    Field("is_last", "Came last", "flag"),
    ALGORITHM_BANDWIDTH,
    BUS_BANDWIDTH,
)
_RANKS = (
    WHERE,
    Field("last", "Came last", "count", "Of how many collectives"),
    Field("matched", "Of", "count", "Collectives that were found on other ranks, too"),
    Field("waited_for_ns", "Others waited for it", "ns", "All together, in those to which it came last", bar=True),
    Field("waiting_ns", "It waited for others", "ns", bar=True),
    TRANSFER,
    TOTAL_LATENCY,
    Field("count", "Collectives", "count"),
    Field("span_ns", "Whole time", "ns", "Of the process"),
    Field("computing_ns", "Computing", "ns", "On the device"),
    Field("exposed_ns", "Communication alone", "ns", "While nothing computed"),
    ALGORITHM_BANDWIDTH,
    BUS_BANDWIDTH,
)


def section(subject: Subject) -> Section:
    found = subject.found
    where = places(found)
    if not found.collectives.height and where.height < 2:
        of = world_size(found)
        what = f"This is one rank of {of:,}" if of and of > 1 else "This is one process on one device at most"
        why = f"{what}, and no collective was found in it: no kernel, range or record of one"
        return Section("Distributed", None, why, "opspan report RANK0 RANK1 ... -o run.html")
    data: dict[str, Any] = {"load": _load(found, where), "hosts": hosts(found, where)}
    data["notes"] = [text(note) for note in QUESTION.answer_of(found, Options()).notes]
    if found.collectives.height:
        by_rank = _placed(QUESTION.rows_of(found, Options("rank")), where)
        each = _placed(QUESTION.rows_of(found, Options("call")), where).with_columns(bytes_each="bytes")
        each = each.sort("time_ns", descending=True, nulls_last=True, maintain_order=True)
        data["said"] = _said(by_rank)
        data["ranks"] = _ranks(by_rank)
        data["tables"] = [_table(found, by, each, where) for by in _BY]
        data["calls"] = _linked(each, _CALL)
    return Section("Distributed", data)


def _placed(rows: pl.DataFrame, where: pl.DataFrame) -> pl.DataFrame:
    return rows.join(where, on=DEVICE, how="left", nulls_equal=True, maintain_order="left")


def _load(analysis: Analysis, where: pl.DataFrame) -> dict[str, Any]:
    """What each device did, in the whole run and in each step; where there is none, what each process did."""
    has_device = analysis.whole_devices.height > 0
    if has_device:
        rows = pl.concat([analysis.whole_devices, analysis.devices.drop_nulls("step")])
        exposed = _col("exposed_communicating_ns")
        overlapping = _col("communicating_ns") - exposed
        rows = rows.select(
            *DEVICE,
            "step",
            computing_ns=_col("computing_ns") - overlapping,
            overlapping_ns=overlapping,
            communicating_ns=exposed,
            other_ns=_col("time_ns") - _col("computing_ns") - exposed,
        )
    else:
        rows = pl.concat([analysis.whole_breakdown, analysis.breakdown.drop_nulls("step")])
        rows = rows.with_columns(device_id=pl.lit(None, dtype=pl.Int32))
    kinds = _KINDS if has_device else _HOST_KINDS
    steps = rows["step"].drop_nulls().unique(maintain_order=True)
    shown = steps.head(max(_MOST_BARS // max(where.height, 1), 1))
    rows = _placed(rows.filter(_col("step").is_null() | _col("step").is_in(shown.implode())), where)
    number = pl.DataFrame({"step": shown, "step_at": range(1, len(shown) + 1)}, schema_overrides={"step_at": pl.Int64})
    rows = rows.join(number, on="step", how="left", maintain_order="left")
    more = f"The first {len(shown):,} of {len(steps):,} steps are in this page: --steps A:B chooses others"
    return {
        "places": values(where["place"]),
        "steps": values(shown),
        "place": values(rows["at"]),
        "step": values(rows["step_at"].fill_null(0)),
        "kinds": [{"name": kind, "title": title, "ns": values(rows[f"{kind}_ns"])} for kind, title in kinds.items()],
        "has_device": has_device,
        "notes": [more] if len(shown) < len(steps) else [],
    }


def _said(rows: pl.DataFrame) -> list[str]:
    """Who it was that others waited for."""
    timed = rows.drop_nulls("waited_for_ns").sort("waited_for_ns", descending=True, maintain_order=True)
    if not timed.height:
        return []
    waited, took = int(timed["waiting_ns"].sum()), int(timed["matched_ns"].sum())
    if not waited:
        return ["No rank waited for another one"]
    first = timed.row(0, named=True)
    who, share = str(first["place"]), first["waited_for_ns"] / waited
    waited_for = f"the others waited {time_text(first['waited_for_ns'])} for it: {share:.1%} of all waiting"
    came = f"{who} came last to {first['last']:,} of its {first['matched']:,} collectives, and {waited_for}"
    is_one = share > _MOST_OF
    return [
        f"Of the time of the collectives that matched {waited / took:.1%} was waiting for others",
        f"{came[:1].upper()}{came[1:]}" if is_one else f"They waited for several in turn. Most for {came}",
    ]


def _ranks(rows: pl.DataFrame) -> dict[str, Any]:
    known = rows.drop_nulls("time_ns").with_columns(_col("transfer_ns", "waiting_ns").fill_null(0))
    known = known.with_columns(unmatched_ns=_col("time_ns") - _col("transfer_ns") - _col("waiting_ns"))
    return {
        "rows": table(rows, _RANKS),
        "bars": {name: values(known[name]) for name in ("place", "transfer_ns", "waiting_ns", "unmatched_ns")},
    }


def _table(analysis: Analysis, by: str, each: pl.DataFrame, where: pl.DataFrame) -> dict[str, Any]:
    """For all together, and for each place."""
    several = _placed(rows_of_places(analysis, by), where)
    parts = {"everywhere": _with_longest(QUESTION.rows_of(analysis, Options(by)), each, KEYS.get(by, (by,)))}
    if where.height > 1:
        key = ("place", *KEYS.get(by, (by,)))
        for place in where["place"].head(_MOST_PLACES):
            some = several.filter(_col("place") == place)
            if some.height:
                parts[place] = _with_longest(some, each, key)
    more = where.height > _MOST_PLACES
    note = f"The first {_MOST_PLACES} of {where.height:,} have tables of their own"
    return {
        "by": by,
        "title": _BY[by],
        "parts": [{"of": of, **_linked(rows, _COLUMNS)} for of, rows in parts.items()],
        "notes": [note] if more else [],
    }


def _with_longest(rows: pl.DataFrame, each: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """With where the longest of them is. `each`: the longest first."""
    first = each.unique(key, keep="first", maintain_order=True).select(*key, "start_ns", "end_ns", found_on="rank")
    return rows.join(first, on=list(key), how="left", nulls_equal=True, maintain_order="left").with_columns(
        rank="found_on"
    )


def _linked(rows: pl.DataFrame, columns: Sequence[Field]) -> dict[str, Any]:
    """A table, and for each row the stretch of time that it leads to. As texts: numbers in a page have 53 bits."""
    names = {"kind": "(not known)", "group": "(not told)", "op": "(in none)"}
    shown = rows.with_columns(_col(name).fill_null(said) for name, said in names.items() if name in rows.columns)
    part = table(shown, columns)
    count = len(part["values"][0])
    return {
        "rows": part,
        "from": values(rows["start_ns"].head(count).cast(pl.String)),
        "to": values(rows["end_ns"].head(count).cast(pl.String)),
        "rank": values(rows["rank"].head(count)),
    }
