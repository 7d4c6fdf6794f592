"""Names that a person asks for: one, or a pattern with * and ? as a shell has them."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import polars as pl


def matching(names: Iterable[str | None], wanted: str) -> list[str]:
    """The one that is called so, else those that the pattern stands for. A name may have a `*` or a `[` itself."""
    known = [name for name in names if name is not None]
    return [wanted] if wanted in known else [name for name in known if fnmatchcase(name, wanted)]


def names_of(frame: pl.DataFrame) -> list[str]:
    """The names that rows of a table have, each once."""
    return frame["name"].unique().drop_nulls().cast(pl.String).to_list()
