"""Numbers by which a file counts what is in it, before anybody makes room for so much."""

from __future__ import annotations

from typing import Final

LARGEST: Final = (1 << 63) - 1
SAYS_MORE: Final = "it says more of itself than it holds"


def within(value: int, most: int = LARGEST, least: int = 0) -> int:
    """The number itself; a ValueError where it cannot be true."""
    if not least <= value <= most:
        raise ValueError(value)
    return value
