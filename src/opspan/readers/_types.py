"""Notes the types of inputs that opspan does not know, whichever source they are from."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import polars as pl

from opspan.element_types import is_known

if TYPE_CHECKING:
    from opspan.tables import Issues


def note_types(column: pl.Series, issues: Issues) -> None:
    """`column`: input_types of ranges, texts such as ["float", "Scalar"]."""
    if not column.count():
        return
    unknown: Counter[str] = Counter()
    for text, count in column.value_counts().iter_rows():
        for name in set(_types(text)):
            if not is_known(name):
                unknown[name] += count
    for name, count in unknown.items():
        issues.add("unknown_types", count, name)


def _types(text: str | None) -> list[str]:
    try:
        found = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []  # whoever needs the list finds that it is none
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
