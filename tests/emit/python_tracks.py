"""The calls of a trace as depths and short names, for tests."""

from __future__ import annotations

import polars as pl


def named(frame: pl.DataFrame) -> list[tuple[int, str, int | None]]:
    """Returns (id, name, parent) of each call; the name without its file and line."""
    names = frame["name"].cast(pl.String).str.replace(r"^.*\): ", "").str.replace(r"^<built-in \w+ (\w+).*>$", "$1")
    return list(zip(frame["id"].to_list(), names.to_list(), frame["parent_id"].to_list(), strict=True))


def below(frame: pl.DataFrame, name: str) -> list[tuple[int, str]]:
    """Returns the depth and the name of each call in the first call of this name, which has the depth 0."""
    depths: dict[int, int] = {}
    found = []
    for id_, own, parent in named(frame):
        if parent in depths:
            depths[id_] = depths[parent] + 1
        elif own == name and not depths:
            depths[id_] = 0
        if id_ in depths:
            found.append((depths[id_], own))
    return found
