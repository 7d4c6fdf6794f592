"""Reads the data of a timeline as the page reads it: a row for each shape, and a point for each sample."""

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
        if lane["table"] == "samples":
            continue
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


def samples_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the points of samples. `stack` is a list of (function, library), the innermost first."""
    samples = data["samples"]
    functions = [
        (_at(samples["names"], name), _at(samples["libraries"], library))
        for name, library in zip(
            summed(samples["functions"]["name"]), summed(samples["functions"]["library"]), strict=True
        )
    ]
    frames = iter(samples["stacks"]["frame"])
    stacks = [[next(frames) for _ in range(count)] for count in samples["stacks"]["frames"]]
    assert next(frames, None) is None
    cut = summed(samples["stacks"]["cut"])
    several = {
        at: members
        for at, *members in zip(
            summed(samples["several"]["at"]),
            *(samples["several"][name] for name in ("count", "own", "length_ns")),
            strict=True,
        )
    }
    columns = {column["name"]: values_of(column) for column in (*data["details"]["samples"], samples["weight"])}
    points: list[dict[str, Any]] = []
    for number, lane in enumerate(data["lanes"]):
        if lane["table"] != "samples":
            continue
        for row, count in zip(lane["rows"], lane["shapes"], strict=True):
            time = int(data["begin"])
            for _ in range(count):
                at = len(points)
                time += samples["gap"][at]
                stack = samples["stack"][at]
                members, own, length = several.get(at, (1, 1, 0))
                points.append(
                    {
                        "lane": number,
                        "time_ns": time,
                        "function": _at(functions, samples["stacks"]["leaf"][stack]),
                        "event": samples["events"][lane["events"][row]]["name"],
                        "count": members,
                        "own": own,
                        "length_ns": length,
                        "stack": [_at(functions, frame) for frame in reversed(stacks[stack])],
                        "cut": cut[stack],
                        **{name: column[at] for name, column in columns.items()},
                    }
                )
    assert len(points) == len(samples["gap"]) == len(samples["stack"])
    return points


def _at(values: list[Any], number: int) -> Any:
    return None if number < 0 else values[number]


def values_of(column: dict[str, Any]) -> list[Any]:
    """Returns the values of a column of details."""
    numbers = summed(column["at"])
    if "texts" in column:
        return [_at(column["texts"], number) for number in numbers]
    return [None if number == column["missing"] else number for number in numbers]
