"""Notes the types of inputs that opspan does not know, whichever source they are from."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import polars as pl

from opspan.element_types import is_known, names_in

if TYPE_CHECKING:
    from opspan.tables import Issues


def note_types(column: pl.Series, issues: Issues) -> None:
    """`column`: input_types of ranges, texts such as ["float", "Scalar"]."""
    if not column.count():
        return
    unknown: Counter[str] = Counter()
    for text, count in column.value_counts().iter_rows():
        with suppress(ValueError):  # whoever needs the list finds that it is none
            unknown.update({name: count for name in set(names_in(text)) if not is_known(name)})
    for name, count in unknown.items():
        issues.add("unknown_types", count, name)
