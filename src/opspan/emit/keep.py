"""What a rolling recording is asked for: when it is copied, and how much it keeps ("30s", "2GB", "50 steps")."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from opspan.errors import UsageError

# Why a copy is written by itself.
EXCEPTION, SIGNAL, SLOW_STEP, EXIT = REASONS = ("exception", "signal", "slow step", "exit")
_AMOUNT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", re.ASCII)
# What it is an amount of, one of each unit, and the least that is worth keeping.
_UNITS: Final = {
    "s": ("ns", 1e9),
    "min": ("ns", 60e9),
    "h": ("ns", 3600e9),
    "MB": ("bytes", 1e6),
    "GB": ("bytes", 1e9),
    "TB": ("bytes", 1e12),
    "step": ("steps", 1),
    "steps": ("steps", 1),
}
_LEAST: Final = {"ns": (1e8, "0.1s"), "bytes": (16e6, "16MB"), "steps": (1, "1 step")}
_MOST: Final = 1 << 62
# With steps alone, nothing would bound a program that never says that a step is over.
_BYTES_OF_STEPS: Final = 4_000_000_000


@dataclass(frozen=True)
class Keep:
    """At least so much; of several that are given, whichever is least. 0: not given."""

    ns: int = 0
    bytes: int = 0
    steps: int = 0

    def __bool__(self) -> bool:
        return self != EVERYTHING


EVERYTHING: Final = Keep()


def parse(asked: str | Sequence[str]) -> Keep:
    amounts: dict[str, int] = {}
    texts = [asked] if isinstance(asked, str) else list(asked)
    for text in texts:
        what, amount = _parse_one(text)
        if what in amounts:
            raise UsageError(f"keep={asked!r} names an amount of the same kind twice: expected one")
        amounts[what] = amount
    if not amounts:
        raise UsageError(f"keep={asked!r} names no amount: expected one such as '30s', '2GB' or '50 steps'")
    if list(amounts) == ["steps"]:
        amounts["bytes"] = _BYTES_OF_STEPS
    return Keep(**amounts)


def _parse_one(text: object) -> tuple[str, int]:
    found = _AMOUNT.fullmatch(text) if isinstance(text, str) else None
    unit = _UNITS.get(found[2]) if found is not None else None
    if found is None or unit is None:
        raise UsageError(
            f"keep={text!r} is no amount: expected a number and one of {', '.join(_UNITS)}, such as '30s', '2GB' or "
            "'50 steps'"
        )
    what, one = unit
    amount, (least, called) = float(found[1]) * one, _LEAST[what]
    if not least <= amount < _MOST or (what == "steps" and amount != int(amount)):
        raise UsageError(f"keep={text!r} cannot be kept: expected at least {called}, and whole steps")
    return what, int(amount)
