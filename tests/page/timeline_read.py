"""Reads the data of a timeline as the page reads it: a row for each shape, with its times."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import polars as pl

_SCHEMA = {
    "lane": pl.Int64,
    "table": pl.String,
    "row": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "name": pl.String,
    "kind": pl.String,
    "form": pl.String,
    "count": pl.Int64,
    "busy_ns": pl.Int64,
}


def summed(deltas: list[int] | dict[str, list[int]]) -> list[int]:
    if isinstance(deltas, dict):
        runs = zip(deltas["count"], deltas["delta"], strict=True)
        deltas = [delta for count, delta in runs for _ in range(count)]
    return list(accumulate(deltas))


def shapes_of(data: dict[str, Any]) -> pl.DataFrame:
    blocks = dict(
        zip(
            summed(data["blocks"]["shape"]),
            zip(data["blocks"]["count"], data["blocks"]["busy_ns"], strict=True),
            strict=True,
        )
    )
    kinds, forms = summed(data["kind"]), summed(data["form"])
    rows = []
    for number, lane in enumerate(data["lanes"]):
        for row, count in zip(lane["rows"], lane["shapes"], strict=True):
            end = 0
            for _ in range(count):
                shape = len(rows)
                start = end + data["gap"][shape]
                end = start + data["length_ns"][shape]
                name = data["name"][shape]
                members, busy = blocks.get(shape, (1, end - start))
                rows.append(
                    (
                        number,
                        lane["table"],
                        row,
                        int(data["begin"]) + start,
                        int(data["begin"]) + end,
                        None if name < 0 else data["names"][name],
                        data["kinds"][kinds[shape]],
                        data["forms"][forms[shape]],
                        members,
                        busy,
                    )
                )
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")
