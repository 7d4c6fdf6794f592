"""What an NVTX event carries beside its text: one number, JSON, or the fields of an extended payload.

nsys keeps extended payloads in one of three ways, and this reads all of them into `payload_json`:

    jsonText, jsonTextId    {"NCCL communicator ID": 42, ...}
    binaryData              the bytes: domain u32, 4 bytes, schema u32, 4 bytes, size u64, size of all u64, payload; the
                            schema in NVTX_PAYLOAD_SCHEMAS and NVTX_PAYLOAD_SCHEMA_ENTRIES
    a table per schema      DYNAMIC_NVTXPAYLOAD_DATATYPE_<globalPid>_<domain>_<schema>, joined on eventId
"""

from __future__ import annotations

import json
import re
import struct

import numpy as np
import polars as pl

from opspan.readers import _json
from opspan.readers._payload import Decoder, Entry, Schema
from opspan.readers.nsys import tables
from opspan.readers.nsys.export import Export
from opspan.readers.nsys.tables import Columns

HEADER = struct.Struct("<IIIIQQ")
DYNAMIC = re.compile(r"DYNAMIC_NVTXPAYLOAD_DATATYPE_(?P<pid>-?[0-9]+)_(?P<domain>[0-9]+)_(?P<schema>[0-9]+)")

SCHEMAS = "NVTX_PAYLOAD_SCHEMAS"
SCHEMA_COLUMNS: Columns = {**tables.ints("domainId schemaId type payloadSize"), "name": "text"}
ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
ENTRY_COLUMNS: Columns = {
    **tables.ints("domainId schemaId idx flags type arrayOrUnionDetail offset"),
    "name": "text",
}

# Fields of opspan's own schema: JSON key -> column
OWN_NUMBERS = {"seq": "x_seq", "op_id": "x_op_id", "fwd_tid": "x_forward_tid", "kind": "x_kind"}


def read(export: Export, events: pl.DataFrame) -> pl.DataFrame:
    """payload_int, payload_uint, payload_float, payload_json, and x_* (opspan's own payloads), a row an event."""
    members = pl.select(pl.lit(None, dtype=pl.String)).to_series().new_from_index(0, events.height)
    has = set(events.columns)
    if "binaryData" in has:
        members = _binary(export, events)
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
        # SQLite has no unsigned integers: from 2^63 on they are negative there.
        return value.reinterpret(signed=False) if dtype == pl.UInt64 and value.dtype == pl.Int64 else value.cast(dtype)

    return {
        "payload_int": first(pl.Int64, "int64Value", "int32Value"),
        "payload_uint": first(pl.UInt64, "uint64Value", "uint32Value"),
        "payload_float": first(pl.Float64, "doubleValue", "floatValue"),
    }


def _own(events: pl.DataFrame, written: pl.Series) -> dict[str, pl.Expr]:
    """The fields of opspan's own payloads; -1 is no sequence number."""
    own = (events["domain"] == "opspan") & written.is_not_null()
    if not own.any():
        return {
            **{name: pl.lit(None, dtype=pl.Int64) for name in OWN_NUMBERS.values()},
            "x_sizes": pl.lit(None, dtype=pl.String),
        }
    text = pl.lit(written.zip_with(own.fill_null(value=False), pl.Series([None], dtype=pl.String)))
    # A payload may be cut or not be JSON at all; a number or a text is found in it or not, and nothing fails.
    number = r"\s*:\s*(-?[0-9]{1,18})"
    fields = {column: text.str.extract(f'"{key}"{number}').cast(pl.Int64) for key, column in OWN_NUMBERS.items()}
    fields["x_seq"] = pl.when(fields["x_seq"] >= 0).then(fields["x_seq"])
    fields["x_kind"] = pl.when(fields["x_kind"].is_between(1, 13)).then(fields["x_kind"])
    return {**fields, "x_sizes": text.str.extract(r'"sizes"\s*:\s*"([^"]*)"')}


# --- bytes


def _binary(export: Export, events: pl.DataFrame) -> pl.Series:
    """The payloads in binaryData as members of a JSON object."""
    places = pl.int_range(pl.len(), dtype=pl.UInt32).alias("place")
    found = events.select(places, raw="binaryData", domain="domainId").filter(pl.col("raw").is_not_null())
    found = found.with_columns(_unhexed(found["raw"]))
    schemas = _schemas(export)
    parts = [pl.DataFrame(schema={"place": pl.UInt32, "members": pl.String})]
    undecoded = 0
    for (size,), group in found.group_by(pl.col("raw").bin.size(), maintain_order=True):
        raw = np.frombuffer(b"".join(group["raw"]), dtype=np.uint8).reshape(group.height, int(size or 0))
        if raw.shape[1] < HEADER.size:
            undecoded += group.height
            parts.append(group.select("place", members=_as_bytes(raw)))
            continue
        numbers = pl.Series("schema", np.ascontiguousarray(raw[:, 8:12]).view("<u4")[:, 0])
        for (domain, number), of_schema in group.with_columns(numbers, at=pl.int_range(pl.len())).group_by(
            "domain", "schema", maintain_order=True
        ):
            rows = raw[of_schema["at"].to_numpy(), HEADER.size :]
            decoder = Decoder(schemas.get(domain, {}), lambda ids: export.strings.texts(pl.Series(ids), "payloads"))
            members, whole = decoder.members(int(number), rows)
            undecoded += 0 if whole else of_schema.height
            parts.append(of_schema.select("place", members=members))
    export.issues.add("undecoded_payload", undecoded)
    return events.select(places).join(pl.concat(parts), on="place", how="left", maintain_order="left")["members"]


def _as_bytes(raw: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> pl.Series:
    return '"bytes": ' + _json.hexes(raw, raw.shape[1])


def _unhexed(raw: pl.Series) -> pl.Series:
    """Some exports write the bytes themselves, some write them as hex digits."""
    try:
        texts = raw.cast(pl.String)
    except pl.exceptions.ComputeError:  # no UTF-8, so no digits
        return raw
    if not texts.str.contains("^(?:[0-9a-fA-F]{2})*$").all():
        return raw
    return texts.str.decode("hex")


def _schemas(export: Export) -> dict[int | None, dict[int, Schema]]:
    """Domain -> number -> schema. Each process registers its own, alike: the first one of a number stands for all."""
    entries: dict[tuple[int | None, int], dict[int, Entry]] = {}
    for row in export.frame(ENTRIES, ENTRY_COLUMNS).iter_rows(named=True):
        if row["schemaId"] is None:
            continue
        of_schema = entries.setdefault((row["domainId"], row["schemaId"]), {})
        entry = Entry(
            row["name"] or "",
            row["type"] or 0,
            max(row["offset"] or 0, 0),
            row["flags"] or 0,
            row["arrayOrUnionDetail"] or 0,
        )
        of_schema.setdefault(row["idx"] or 0, entry)
    found: dict[int | None, dict[int, Schema]] = {}
    for row in export.frame(SCHEMAS, SCHEMA_COLUMNS).iter_rows(named=True):
        fields = entries.get((row["domainId"], row["schemaId"]), {})
        schema = Schema(
            row["name"] or "", row["type"] or 0, row["payloadSize"] or 0, tuple(fields[at] for at in sorted(fields))
        )
        found.setdefault(row["domainId"], {}).setdefault(row["schemaId"], schema)
    return found


# --- a table per schema


def _dynamic(export: Export, events: pl.DataFrame) -> pl.Series:
    parts = [pl.DataFrame(schema={"eventId": pl.Int64, "members": pl.String})]
    titles = export.frame("NVTX_EXPORT_TRANSLATION", {"originalName": "text", "sanitizedName": "text"}).drop_nulls()
    original = dict(zip(titles["sanitizedName"], titles["originalName"], strict=True))
    for table in export.tables:
        if not DYNAMIC.match(table):
            continue
        names = [name for name in export.columns(table) if name != "eventId"]
        # Values of any type: as text they go into JSON as well as they came.
        frame = export.frame(table, {"eventId": "int", **dict.fromkeys(names, "text")})
        members = [json.dumps(original.get(name, name)) + ": " + as_json(frame[name]) for name in names]
        if members and frame.height:
            text = pl.select(pl.concat_str([pl.lit(member) for member in members], separator=", ")).to_series()
            parts.append(pl.DataFrame({"eventId": frame["eventId"], "members": text}))
    found = pl.concat(parts).group_by("eventId", maintain_order=True).agg(pl.col("members").str.join(", "))
    return events.select("eventId").join(found, on="eventId", how="left", maintain_order="left")["members"]


def as_json(texts: pl.Series) -> pl.Series:
    """A number as it is, anything else as a JSON string."""
    is_number = texts.str.contains(r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?$").fill_null(value=False)
    return texts.zip_with(is_number, _json.texts(texts).fill_null("null"))
