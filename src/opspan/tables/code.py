"""Defines the class for issue codes, which are the kinds of problems in a trace. issues.py lists the codes."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    severity: str  # info: worth knowing; warning: something is missing; error: do not trust the rest of the trace
    message: str  # the problem in words; the text that users see also has the count
    advice: str
