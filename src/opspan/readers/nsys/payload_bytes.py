"""Decodes extended payloads in the column binaryData. A cell is this header of 32 bytes, and then the payload:

    domain (u32), 4 unused bytes, schema (u32), 4 unused bytes, size of the payload (u64), size of everything (u64)

The schemas are in the tables NVTX_PAYLOAD_SCHEMAS and NVTX_PAYLOAD_SCHEMA_ENTRIES. A payload whose schema is missing
becomes hex digits.
"""

from __future__ import annotations

import struct

import numpy as np
import polars as pl

from opspan import json_columns
from opspan.formats.columns import Columns, ints
from opspan.formats.nvtx_payload import Budget, Decoder, PayloadEntry, Schema
from opspan.readers.nsys.export import Export
from opspan.row_numbers import ROW_NUMBER

HEADER = struct.Struct("<IIIIQQ")

SCHEMAS = "NVTX_PAYLOAD_SCHEMAS"
SCHEMA_COLUMNS: Columns = {**ints("domainId schemaId type payloadSize"), "name": "text"}
ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
ENTRY_COLUMNS: Columns = {
    **ints("domainId schemaId idx flags type arrayOrUnionDetail offset"),
    "name": "text",
}


def members(export: Export, events: pl.DataFrame) -> pl.Series:
    """Returns for each event its payload as members of a JSON object (`"key": value, ...`), or null without a
    payload."""
    places = pl.int_range(pl.len(), dtype=ROW_NUMBER).alias("place")
    payloads = events.select(places, raw="binaryData", domain="domainId").filter(pl.col("raw").is_not_null())
    payloads = payloads.with_columns(_unhex(payloads["raw"]))
    schemas = _schemas(export)
    parts = [pl.DataFrame(schema={"place": ROW_NUMBER, "members": pl.String})]
    undecoded, budget = 0, Budget(export.written, export.issues)
    for (size,), group in payloads.group_by(pl.col("raw").bin.size(), maintain_order=True):
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
            decoder = Decoder(
                schemas.get(domain, {}), lambda ids: export.strings.texts(pl.Series(ids), "payloads"), budget
            )
            written, is_complete = decoder.members(int(number), rows)
            undecoded += 0 if is_complete else of_schema.height
            parts.append(of_schema.select("place", members=written))
    export.issues.add("undecoded_payload", undecoded)
    return events.select(places).join(pl.concat(parts), on="place", how="left", maintain_order="left")["members"]


def _as_bytes(raw: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> pl.Series:
    return '"bytes": ' + json_columns.hexes(raw, raw.shape[1])


def _unhex(raw: pl.Series) -> pl.Series:
    """Returns the payloads as bytes. Converts hex digits, which some exports write instead of bytes."""
    try:
        texts = raw.cast(pl.String)
    except pl.exceptions.ComputeError:  # not UTF-8, so not hex digits
        return raw
    if not texts.str.contains("^(?:[0-9a-fA-F]{2})*$").all():
        return raw
    return texts.str.decode("hex")


def _schemas(export: Export) -> dict[int | None, dict[int, Schema]]:
    """Returns domain -> schema id -> schema. All processes register the same schemas, so the first schema with an id
    counts."""
    entries: dict[tuple[int | None, int], dict[int, PayloadEntry]] = {}
    for row in export.frame(ENTRIES, ENTRY_COLUMNS).iter_rows(named=True):
        if row["schemaId"] is None:
            continue
        of_schema = entries.setdefault((row["domainId"], row["schemaId"]), {})
        entry = PayloadEntry(
            row["name"] or "",
            row["type"] or 0,
            max(row["offset"] or 0, 0),
            row["flags"] or 0,
            row["arrayOrUnionDetail"] or 0,
        )
        of_schema.setdefault(row["idx"] or 0, entry)
    schemas: dict[int | None, dict[int, Schema]] = {}
    for row in export.frame(SCHEMAS, SCHEMA_COLUMNS).iter_rows(named=True):
        fields = entries.get((row["domainId"], row["schemaId"]), {})
        schema = Schema(
            row["name"] or "", row["type"] or 0, row["payloadSize"] or 0, tuple(fields[at] for at in sorted(fields))
        )
        schemas.setdefault(row["domainId"], {}).setdefault(row["schemaId"], schema)
    return schemas
