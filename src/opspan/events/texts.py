"""Returns names and sizes of events as torch shows them."""

from __future__ import annotations

from typing import Any

from opspan.labels import parse_sizes

NO_NAME = "(no name)"
_STEP = "ProfilerStep#"


def shown_name(name: str | None) -> str:
    """Returns the name that tables show. All steps get the same name, so that they are averaged together. The attribute
    trace_name keeps their numbers."""
    if name is None:
        return NO_NAME
    return "ProfilerStep*" if name.startswith(_STEP) else name


def shapes_of(sizes: str | None) -> list[list[int]]:
    """Returns torch's input_shapes. A list of tensors becomes [] here, but not in structured_input_shapes."""
    return [[] if entry and isinstance(entry[0], list) else entry for entry in structured_of(sizes)]


def structured_of(sizes: str | None) -> list[Any]:
    if sizes is None:
        return []
    try:
        return parse_sizes(sizes)
    except ValueError:  # the reader did not take the sizes from a label, so they may be any text
        return []
