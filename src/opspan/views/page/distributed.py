"""The ranks of a run together: their times, their collectives, and which rank waited for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.spans import DEVICE
from opspan.questions import Options
from opspan.views import fields
from opspan.views.comm import KEYS, QUESTION, rows_of_places
from opspan.views.fields import Field, time_text
from opspan.views.page.columns import table, text, values
from opspan.views.page.overview_steps import TITLES
from opspan.views.page.places import hosts, places, world_size
from opspan.views.page.section import Section, Subject

_BY = {"kind": "kind", "group": "group", "size": "size", "op": "op"}
_MOST_BARS = 20_000
_MOST_PLACES = 64  # maximum number of devices (or processes without a device) that have tables of their own
_MOST_OF = 0.5  # one rank is named as the cause if the others waited for it longer than this share of all waiting
_col = pl.col
_KINDS = {
    "computing": "Computation alone",
    "overlapping": "Both at once",
    "communicating": "Communication alone",
    "other": "Other: copies, idle",
}
_HOST_KINDS = {kind: TITLES[kind] for kind in ("calling", "loading", "ops", "other")}
_COLUMNS = (
    fields.COLLECTIVE,
    fields.GROUP,
    fields.RANKS,
    Field("members", "Members", "text"),
    fields.STARTED_IN,
    Field("bytes_each", "Size", "bytes", "Of one, as NCCL's tests count it"),
    Field("count", "Count", "count", "Each counts on each rank"),
    Field("matched", "Matched", "count", "Found on other ranks, too"),
    Field("bytes", "Total size", "bytes"),
    Field("mean_bytes", "Mean size", "bytes"),
    replace(fields.TOTAL_LATENCY, bar=True),
    Field("mean_time_ns", "Mean latency", "ns"),
    fields.TRANSFER,
    Field("mean_transfer_ns", "Mean transfer", "ns"),
    fields.WAITING,
    fields.ALGORITHM_BANDWIDTH,
    fields.BUS_BANDWIDTH,
)
_CALL = (
    replace(fields.COLLECTIVE, unit="name"),
    replace(fields.NUMBER, help="Which of its group and kind it is there, from 0"),
    fields.WHERE,
    replace(fields.GROUP, unit="text"),
    fields.STARTED_IN,
    replace(fields.SIZE, help="As NCCL's tests count it"),
    Field("time_ns", "Latency", "ns"),
    fields.TRANSFER,
    fields.WAITING,
    Field("is_last", "Came last", "flag"),
    fields.ALGORITHM_BANDWIDTH,
    fields.BUS_BANDWIDTH,
)
_RANKS = (
    fields.WHERE,
    Field("last", "Came last", "count", "Of how many collectives"),
    Field("matched", "Of", "count", "Collectives that were found on other ranks, too"),
    Field("waited_for_ns", "Others waited for it", "ns", "All together, in those to which it came last", bar=True),
    Field("waiting_ns", "It waited for others", "ns", bar=True),
    fields.TRANSFER,
    fields.TOTAL_LATENCY,
    Field("count", "Collectives", "count"),
    Field("span_ns", "Whole time", "ns", "Of the process"),
    Field("computing_ns", "Computing", "ns", "On the device"),
    Field("exposed_ns", "Communication alone", "ns", "While nothing computed"),
    fields.ALGORITHM_BANDWIDTH,
    fields.BUS_BANDWIDTH,
)


def section(subject: Subject) -> Section:
    analysis = subject.analysis
    where = places(analysis)
    if not analysis.collectives.height and where.height < 2:
        of = world_size(analysis)
        run = f"This is one rank of {of:,}" if of and of > 1 else "This is one process on one device at most"
        why = f"{run}, and no collective was found in it: no kernel, range or record of one"
        return Section("Distributed", None, why, "opspan report RANK0 RANK1 ... -o run.html")
    data: dict[str, Any] = {"load": _load(analysis, where), "hosts": hosts(analysis, where)}
    data["notes"] = [text(note) for note in QUESTION.answer_of(analysis, Options()).notes]
    if analysis.collectives.height:
        by_rank = _with_places(QUESTION.rows_of(analysis, Options("rank")), where)
        calls = _with_places(QUESTION.rows_of(analysis, Options("call")), where).with_columns(bytes_each="bytes")
        calls = calls.sort("time_ns", descending=True, nulls_last=True, maintain_order=True)
        data["said"] = _straggler_text(by_rank)
        data["ranks"] = _ranks(by_rank)
        data["tables"] = [_table(analysis, by, calls, where) for by in _BY]
        data["calls"] = _linked_table(calls, _CALL)
    return Section("Distributed", data)


def _with_places(rows: pl.DataFrame, where: pl.DataFrame) -> pl.DataFrame:
    return rows.join(where, on=DEVICE, how="left", nulls_equal=True, maintain_order="left")


def _load(analysis: Analysis, where: pl.DataFrame) -> dict[str, Any]:
    """Returns the times of each device, or of each process if there are no devices, in the whole run and in each
    step."""
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
    rows = _with_places(rows.filter(_col("step").is_null() | _col("step").is_in(shown.implode())), where)
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


def _straggler_text(rows: pl.DataFrame) -> list[str]:
    """Returns sentences on the rank for which the others waited longest."""
    timed = rows.drop_nulls("waited_for_ns").sort("waited_for_ns", descending=True, maintain_order=True)
    if not timed.height:
        return []
    waited, took = int(timed["waiting_ns"].sum()), int(timed["matched_ns"].sum())
    if not waited:
        return ["No rank waited for another one"]
    first = timed.row(0, named=True)
    place, share = str(first["place"]), first["waited_for_ns"] / waited
    waited_for = f"the others waited {time_text(first['waited_for_ns'])} for it: {share:.1%} of all waiting"
    came = f"{place} came last to {first['last']:,} of its {first['matched']:,} collectives, and {waited_for}"
    return [
        f"Of the time of the collectives that matched {waited / took:.1%} was waiting for others",
        f"{came[:1].upper()}{came[1:]}" if share > _MOST_OF else f"They waited for several in turn. Most for {came}",
    ]


def _ranks(rows: pl.DataFrame) -> dict[str, Any]:
    known = rows.drop_nulls("time_ns").with_columns(_col("transfer_ns", "waiting_ns").fill_null(0))
    known = known.with_columns(unmatched_ns=_col("time_ns") - _col("transfer_ns") - _col("waiting_ns"))
    return {
        "rows": table(rows, _RANKS),
        "bars": {name: values(known[name]) for name in ("place", "transfer_ns", "waiting_ns", "unmatched_ns")},
    }


def _table(analysis: Analysis, by: str, calls: pl.DataFrame, where: pl.DataFrame) -> dict[str, Any]:
    """Returns a table for the whole run, and one for each device (or process without a device)."""
    several = _with_places(rows_of_places(analysis, by), where)
    parts = {"everywhere": _with_longest(QUESTION.rows_of(analysis, Options(by)), calls, KEYS.get(by, (by,)))}
    if where.height > 1:
        key = ("place", *KEYS.get(by, (by,)))
        for place in where["place"].head(_MOST_PLACES):
            rows = several.filter(_col("place") == place)
            if rows.height:
                parts[place] = _with_longest(rows, calls, key)
    note = f"The first {_MOST_PLACES} of {where.height:,} have tables of their own"
    return {
        "by": by,
        "title": _BY[by],
        "parts": [{"of": of, **_linked_table(rows, _COLUMNS)} for of, rows in parts.items()],
        "notes": [note] if where.height > _MOST_PLACES else [],
    }


def _with_longest(rows: pl.DataFrame, calls: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Adds the begin, the end and the rank of each row's longest collective. `calls` are all collectives, the longest
    first."""
    first = calls.unique(key, keep="first", maintain_order=True).select(*key, "start_ns", "end_ns", found_on="rank")
    return rows.join(first, on=list(key), how="left", nulls_equal=True, maintain_order="left").with_columns(
        rank="found_on"
    )


def _linked_table(rows: pl.DataFrame, columns: Sequence[Field]) -> dict[str, Any]:
    """Returns a table, and for each row the period of time that the timeline shows after a click on the row. Times are
    texts, because numbers in a page are exact only up to 53 bits."""
    names = {"kind": "(not known)", "group": "(not told)", "op": "(in none)"}
    shown = rows.with_columns(_col(name).fill_null(none) for name, none in names.items() if name in rows.columns)
    part = table(shown, columns)
    count = len(part["values"][0])
    return {
        "rows": part,
        "from": values(rows["start_ns"].head(count).cast(pl.String)),
        "to": values(rows["end_ns"].head(count).cast(pl.String)),
        "rank": values(rows["rank"].head(count)),
    }
