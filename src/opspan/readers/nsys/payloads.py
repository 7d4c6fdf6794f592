"""Reads the payloads of NVTX events. A payload is one number, or several fields (an extended payload).

nsys stores the fields in one of three ways. The fields become JSON in the column `payload_json`:

    jsonText, jsonTextId    JSON: {"NCCL communicator ID": 42, ...}
    binaryData              bytes (payload_bytes.py)
    eventId                 a row in the schema's table: DYNAMIC_NVTXPAYLOAD_DATATYPE_<globalPid>_<domain>_<schema>
"""

from __future__ import annotations

import json
import re

import polars as pl

from opspan import json_columns
from opspan.readers.nsys import tables
from opspan.readers.nsys.export import Export

DYNAMIC = re.compile(r"DYNAMIC_NVTXPAYLOAD_DATATYPE_(?P<pid>-?[0-9]+)_(?P<domain>[0-9]+)_(?P<schema>[0-9]+)")

# Fields of opspan's own schema: JSON key -> column
OWN_NUMBERS = {"seq": "x_seq", "op_id": "x_op_id", "fwd_tid": "x_forward_tid", "kind": "x_kind"}

# The columns that `read` returns.
COLUMNS = {
    "payload_int": pl.Int64,
    "payload_uint": pl.UInt64,
    "payload_float": pl.Float64,
    "payload_json": pl.String,
    **dict.fromkeys(OWN_NUMBERS.values(), pl.Int64),
    "x_sizes": pl.String,
}


def read(export: Export, events: pl.DataFrame) -> pl.DataFrame:
    """Returns payload_int, payload_uint, payload_float, payload_json and x_* (fields of opspan's own payloads) of each
    event. The events have at least one of the columns tables.PAYLOADS."""
    has = set(events.columns)
    written = pl.Series([None], dtype=pl.String).new_from_index(0, events.height)
    if has & {"binaryData", "eventId"}:
        members = written
        if "binaryData" in has:
            # Imported only if needed, because it imports numpy, and numpy's threads slow down the other threads.
            from opspan.readers.nsys import payload_bytes

            members = payload_bytes.members(export, events)
        if "eventId" in has:
            members = _dynamic(export, events).zip_with(members.is_null(), members)
        written = "{" + members + "}"
    if "jsonTextId" in has:
        texts = export.strings.texts(events["jsonTextId"], f"{tables.NVTX}, jsonTextId")
        written = texts.zip_with(texts.is_not_null(), written)
    if "jsonText" in has:
        written = events["jsonText"].zip_with(events["jsonText"].is_not_null(), written)
    return pl.DataFrame({"payload_json": written}).with_columns(**_numbers(events), **_own(events, written))


def _numbers(events: pl.DataFrame) -> dict[str, pl.Series]:
    def first(dtype: type[pl.DataType], *names: str) -> pl.Series:
        have = [events[name] for name in names if name in events.columns]
        if not have:
            return pl.Series([None], dtype=dtype).new_from_index(0, events.height)
        value = have[0] if len(have) == 1 else have[0].zip_with(have[0].is_not_null(), have[1])
        # SQLite has no unsigned integers: numbers from 2^63 on are negative there.
        return value.reinterpret(signed=False) if dtype == pl.UInt64 and value.dtype == pl.Int64 else value.cast(dtype)

    return {
        "payload_int": first(pl.Int64, "int64Value", "int32Value"),
        "payload_uint": first(pl.UInt64, "uint64Value", "uint32Value"),
        "payload_float": first(pl.Float64, "doubleValue", "floatValue"),
    }


def _own(events: pl.DataFrame, written: pl.Series) -> dict[str, pl.Expr]:
    """Returns the fields of opspan's own payloads. A sequence number -1 means that the op has no sequence number."""
    own = (events["domain"] == "opspan") & written.is_not_null() if written.count() else None
    if own is None or not own.any():
        return {
            **{name: pl.lit(None, dtype=pl.Int64) for name in OWN_NUMBERS.values()},
            "x_sizes": pl.lit(None, dtype=pl.String),
        }
    text = pl.lit(written.zip_with(own.fill_null(value=False), pl.Series([None], dtype=pl.String)))
    # A payload may be cut off, or may not be JSON at all. So the fields are found with regular expressions, which never
    # fail.
    number = r"\s*:\s*(-?[0-9]{1,18})"
    fields = {column: text.str.extract(f'"{key}"{number}').cast(pl.Int64) for key, column in OWN_NUMBERS.items()}
    fields["x_seq"] = pl.when(fields["x_seq"] >= 0).then(fields["x_seq"])
    fields["x_kind"] = pl.when(fields["x_kind"].is_between(1, 13)).then(fields["x_kind"])
    return {**fields, "x_sizes": text.str.extract(r'"sizes"\s*:\s*"([^"]*)"')}


# --- a table per schema


def _dynamic(export: Export, events: pl.DataFrame) -> pl.Series:
    parts = [pl.DataFrame(schema={"eventId": pl.Int64, "members": pl.String})]
    titles = export.frame("NVTX_EXPORT_TRANSLATION", {"originalName": "text", "sanitizedName": "text"}).drop_nulls()
    original = dict(zip(titles["sanitizedName"], titles["originalName"], strict=True))
    for table in export.tables:
        if not DYNAMIC.match(table):
            continue
        names = [name for name in export.columns(table) if name != "eventId"]
        # Values of any type are read as text, because text goes into JSON without loss.
        frame = export.frame(table, {"eventId": "int", **dict.fromkeys(names, "text")})
        titles_of = {name: json.dumps(original.get(name, name)) + ": " for name in names}
        if names and frame.height and export.written.take(frame.height * sum(map(len, titles_of.values()))):
            cells = [title + as_json(frame[name]) for name, title in titles_of.items()]
            text = pl.select(pl.concat_str([pl.lit(cell) for cell in cells], separator=", ")).to_series()
            parts.append(pl.DataFrame({"eventId": frame["eventId"], "members": text}))
    members = pl.concat(parts).group_by("eventId", maintain_order=True).agg(pl.col("members").str.join(", "))
    return events.select("eventId").join(members, on="eventId", how="left", maintain_order="left")["members"]


def as_json(texts: pl.Series) -> pl.Series:
    """Returns numbers as they are, all other texts as JSON strings."""
    is_number = texts.str.contains(r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?$").fill_null(value=False)
    return texts.zip_with(is_number, json_columns.written(texts, json_columns.text).fill_null("null"))
