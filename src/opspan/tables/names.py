"""Finds the names that a user asks for by one name, or by a pattern with * and ? as in a shell."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import polars as pl


def matching(names: Iterable[str | None], wanted: str) -> list[str]:
    """Returns only the wanted name if it is one of the names, else all names that match it as a pattern. Names may
    contain `*` or `[`."""
    known = [name for name in names if name is not None]
    return [wanted] if wanted in known else [name for name in known if fnmatchcase(name, wanted)]


def names_of(frame: pl.DataFrame) -> list[str]:
    """Returns the distinct names in a table."""
    return frame["name"].unique().drop_nulls().cast(pl.String).to_list()
