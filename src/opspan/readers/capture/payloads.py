"""Reads the extended payloads of a capture file, and finds the schema and the range of each payload.

A payload is a sequence of BLOB units (layout.py). Only the last unit may be partly filled. A schema is a SCHEMA unit,
and the payload of this unit has the schema's entries.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.formats.nvtx_payload import Budget, Decoder, PayloadEntry, Schema, numbers
from opspan.readers.capture import layout
from opspan.readers.capture.attributes import join_members
from opspan.readers.capture.file import CaptureFile, Units, find
from opspan.tables import Issues

BLOB_BYTES = 48
ENTRY = np.dtype([("flags", "u8"), ("type", "u8"), ("offset", "u8"), ("detail", "u8"), ("name", "u4"), ("pad", "u4")])

# The fields of opspan's own labels in the form SCHEMA (docs/labels.md).
OWN_DOMAIN, OWN_SCHEMA = "opspan", "opspan.op"
OWN_FIELDS = {"seq": "i8", "op_id": "i8", "fwd_tid": "u4", "kind": "u4", "sizes": "i8"}
OWN_COLUMNS = tuple(f"x_{field}" for field in OWN_FIELDS)


@dataclass(frozen=True)
class ExtendedPayloads:
    own: pl.DataFrame  # columns: row (of the range), and x_<field> for each field of opspan's own schema
    members: pl.DataFrame  # columns: row (of the range), and members (the fields of all other payloads as JSON)


def read(capture: CaptureFile, ended: npt.NDArray[np.int64], issues: Issues) -> ExtendedPayloads:
    """Reads the payloads. `ended`: for each END unit, the row of the range that it ended, because END units may have
    payloads too."""
    blobs = capture.units.of(layout.BLOB)
    payloads = _payloads(blobs)
    schemas = _schemas(capture, blobs, payloads)
    owners = payloads["owner"].to_numpy()
    at_end = find(capture.units.of(layout.END).keys, owners)
    rows = np.where(at_end < 0, capture.ranges.rows(owners), np.append(ended, -1)[at_end])
    of_schema = find(capture.units.of(layout.SCHEMA).keys, owners) >= 0
    if not capture.is_part:
        issues.add("dangling_data", int(((rows < 0) & ~of_schema).sum()), "payloads")
    payloads = payloads.with_columns(row=pl.Series(rows)).filter(pl.col("row") >= 0)
    domains = capture.texts.of(capture.ranges.at(payloads["row"].to_numpy()).u32(10))
    alone = payloads["row"].n_unique() == payloads.height
    place = pl.lit(0, dtype=pl.Int64) if alone else pl.int_range(pl.len()).over("row")
    payloads = payloads.with_columns(domain=domains, place=place)

    own: list[pl.DataFrame] = []
    members = [pl.DataFrame(schema={"row": pl.Int64, "place": pl.Int64, "members": pl.String})]
    undecoded, budget = 0, Budget(capture.written, issues)
    for (domain, number, units, size), group in payloads.group_by(
        "domain", "schema", "units", "size", maintain_order=True
    ):
        raw = _bytes(blobs, group["first"].to_numpy(), int(units))[:, : int(size)]
        of_domain = schemas.get(domain, {})
        schema = of_domain.get(int(number))
        if domain == OWN_DOMAIN and schema is not None and schema.name == OWN_SCHEMA:
            own.append(_own(schema, raw).with_columns(group["row"]))
            continue
        written, is_complete = Decoder(of_domain, capture.texts.of, budget).members(int(number), raw)
        undecoded += 0 if is_complete else len(raw)
        # A second payload of a range may have the same fields as the first, so it becomes a nested JSON object.
        name = schema.name if schema is not None and schema.name else "payload"
        members.append(
            group.select("row", "place", members=written).with_columns(
                pl.when(pl.col("place") == 0)
                .then("members")
                .otherwise(pl.lit(json.dumps(name)) + ": {" + pl.col("members") + "}")
            )
        )
    issues.add("undecoded_payload", undecoded)
    ordered = pl.concat(members).sort("row", "place").select("row", "members")
    return ExtendedPayloads(_own_columns(capture, own), join_members(ordered).sort("row"))


def _payloads(blobs: Units) -> pl.DataFrame:
    """Returns a frame with one row for each payload, in the order of the file. Its columns are owner, schema, first
    (row of the first BLOB unit), units (number of BLOB units) and size (bytes)."""
    owners, schemas, used = blobs.owners, blobs.u32(1), np.minimum(blobs.u16(1), BLOB_BYTES)
    begins = np.ones(len(blobs), dtype=np.bool_)
    # The keys of two adjacent BLOB units differ by 2 if their chunk numbers half units (32 bytes), and by 1 if it
    # numbers whole units.
    goes_on = (used[:-1] == BLOB_BYTES) & (np.diff(blobs.keys) <= 2)
    begins[1:] = ~(goes_on & (owners[1:] == owners[:-1]) & (schemas[1:] == schemas[:-1]))
    first = np.flatnonzero(begins)
    sizes = np.add.reduceat(used.astype(np.int64), first) if len(first) else np.empty(0, dtype=np.int64)
    units = np.diff(np.append(first, len(blobs)))
    return pl.DataFrame(
        {"owner": owners[first], "schema": schemas[first], "first": first, "units": units, "size": sizes},
        schema_overrides={"owner": pl.Int64, "first": pl.Int64, "units": pl.Int64, "size": pl.Int64},
    )


def _bytes(blobs: Units, first: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.uint8]:
    """Returns the bytes of payloads with `count` units each, one row for each payload."""
    rows = first[:, None] + np.arange(count)
    parts = blobs.words[rows, 2:] if count else np.empty((len(first), 0, 6), dtype=np.int64)
    return np.ascontiguousarray(parts).view(np.uint8).reshape(len(first), count * BLOB_BYTES)


def _schemas(capture: CaptureFile, blobs: Units, payloads: pl.DataFrame) -> dict[str | None, dict[int, Schema]]:
    """Returns domain -> schema id -> schema."""
    units = capture.units.of(layout.SCHEMA)
    contents = {row["owner"]: row for row in payloads.filter(pl.col("owner").is_in(units.keys)).iter_rows(named=True)}
    names, domains = capture.texts.of(units.u32(1)), capture.texts.of(units.u32(4))
    schemas: dict[str | None, dict[int, Schema]] = {}
    for place, key in enumerate(units.keys.tolist()):
        raw = b""
        if (content := contents.get(key)) is not None:
            raw = _bytes(blobs, np.array([content["first"]]), content["units"])[0, : content["size"]].tobytes()
        count = min(int(units.u32(5)[place]), len(raw) // ENTRY.itemsize)
        records = np.frombuffer(raw, dtype=ENTRY, count=count)
        entry_names = capture.texts.of(records["name"])
        entries = tuple(
            PayloadEntry(
                name or "", int(record["type"]), int(record["offset"]), int(record["flags"]), int(record["detail"])
            )
            for name, record in zip(entry_names, records, strict=True)
        )
        schema = Schema(names[place] or "", int(units.u32(7)[place]), int(units.u32(6)[place]), entries)
        schemas.setdefault(domains[place], {})[int(units.u32(2)[place])] = schema
    return schemas


def _own(schema: Schema, raw: npt.NDArray[np.uint8]) -> pl.DataFrame:
    """Returns the fields of opspan's own payloads. Finds the entries by name, because later versions may add
    entries."""
    offsets = {entry.name: entry.offset for entry in schema.entries}
    columns = {}
    for field, dtype in OWN_FIELDS.items():
        values = numbers(raw[:, offsets[field] :], dtype, 1) if field in offsets else None
        column = np.zeros(len(raw), dtype=np.int64) if values is None else values[:, 0].astype(np.int64)
        columns[f"x_{field}"] = column
    return pl.DataFrame(columns)


def _own_columns(capture: CaptureFile, own: list[pl.DataFrame]) -> pl.DataFrame:
    schema = {"row": pl.Int64, **{f"x_{field}": pl.Int64 for field in OWN_FIELDS}}
    frame = pl.concat([pl.DataFrame(schema=schema), *own], how="diagonal").sort("row", maintain_order=True)
    return frame.with_columns(x_sizes=capture.texts.of(frame["x_sizes"].fill_null(0).to_numpy()))
