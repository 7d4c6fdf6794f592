"""Matches names with what a user typed: a name, or a pattern with * and ? as in a shell."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import polars as pl


def matching(names: Iterable[str | None], wanted: str) -> list[str]:
    """Returns the name that equals `wanted` or, if there is none, the names that match `wanted` as a pattern. An equal
    name is looked for first, because a name may contain `*` or `[`."""
    known = [name for name in names if name is not None]
    return [wanted] if wanted in known else [name for name in known if fnmatchcase(name, wanted)]


def names_of(frame: pl.DataFrame) -> list[str]:
    """Returns the distinct names in a table."""
    return frame["name"].unique().drop_nulls().cast(pl.String).to_list()
