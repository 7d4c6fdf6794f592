"""Options of a rolling recording: when it is copied, and how much it keeps ("30s", "2GB", "50 steps")."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from opspan.errors import UsageError

# Reasons for an automatic copy.
EXCEPTION, SIGNAL, SLOW_STEP, EXIT = REASONS = ("exception", "signal", "slow step", "exit")
_AMOUNT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", re.ASCII)
# The unit and the factor of each suffix. `_LEAST` has the smallest useful amount of each unit.
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
# If the only limit is in steps, this limit in bytes is added, because a program may never report a step.
_BYTES_OF_STEPS: Final = 4_000_000_000


@dataclass(frozen=True)
class Retention:
    """How much a rolling recording keeps at least. It may drop older data once newer data reach one of the limits. 0
    means no limit."""

    ns: int = 0
    bytes: int = 0
    steps: int = 0

    def __bool__(self) -> bool:
        return self != EVERYTHING


EVERYTHING: Final = Retention()


def parse(keep: str | Sequence[str]) -> Retention:
    amounts: dict[str, int] = {}
    texts = [keep] if isinstance(keep, str) else list(keep)
    for text in texts:
        kind, amount = _parse_one(text)
        if kind in amounts:
            raise UsageError(f"keep={keep!r} names an amount of the same kind twice: expected one")
        amounts[kind] = amount
    if not amounts:
        raise UsageError(f"keep={keep!r} names no amount: expected one such as '30s', '2GB' or '50 steps'")
    if list(amounts) == ["steps"]:
        amounts["bytes"] = _BYTES_OF_STEPS
    return Retention(**amounts)


def _parse_one(text: object) -> tuple[str, int]:
    match = _AMOUNT.fullmatch(text) if isinstance(text, str) else None
    unit = _UNITS.get(match[2]) if match is not None else None
    if match is None or unit is None:
        raise UsageError(
            f"keep={text!r} is no amount: expected a number and one of {', '.join(_UNITS)}, such as '30s', '2GB' or "
            "'50 steps'"
        )
    kind, factor = unit
    amount, (least, least_text) = float(match[1]) * factor, _LEAST[kind]
    if not least <= amount < _MOST or (kind == "steps" and amount != int(amount)):
        raise UsageError(f"keep={text!r} cannot be kept: expected at least {least_text}, and whole steps")
    return kind, int(amount)
