"""Defines what the code of an issue is. issues.py lists the codes."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    severity: str  # info: worth knowing; warning: something is missing; error: do not trust the rest
    message: str  # what was found; the text that users see also has the count
    advice: str
