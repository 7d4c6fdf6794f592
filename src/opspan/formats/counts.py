"""Checks the counts that a file states, before memory is allocated for them."""

from __future__ import annotations

from typing import Final

LARGEST: Final = (1 << 63) - 1
SAYS_MORE: Final = "it says more of itself than it holds"


def within(value: int, most: int = LARGEST, least: int = 0) -> int:
    """Returns the number unchanged. Raises ValueError if the number is not between `least` and `most`."""
    if not least <= value <= most:
        raise ValueError(value)
    return value
