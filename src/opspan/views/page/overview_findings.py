"""The findings. The page shows each with the ops, modules, lines, ranks and ranges that it is about."""

from __future__ import annotations

import re
from typing import Any

from opspan.questions import Options
from opspan.views.fields import time_text
from opspan.views.findings import as_sentence, rows_of_one
from opspan.views.page.columns import text
from opspan.views.page.section import Subject

_MOST_PLACES = 3  # a finding lists at most this many ops, this many modules and this many ranges

# Verb -> the section that shows the verb's output.
_SECTIONS = {"table": "operators", "comm": "distributed", "memory": "memory", "diff": "compare"}


def findings(subject: Subject) -> dict[str, Any]:
    several = len(subject.analysis.tables.ranks) > 1
    return {
        "rows": [
            _finding(row, several) for row in rows_of_one(subject.analysis, Options(files=subject.files)).to_dicts()
        ]
    }


def _finding(row: dict[str, Any], several: bool) -> dict[str, Any]:
    stake = row["at_stake_ns"]
    return {
        "id": row["id"],
        "title": row["title"],
        "severity": row["severity"],
        "confidence": row["confidence"],
        "at_stake": "" if stake is None else time_text(stake),
        "share": row["share"],
        "share_of": row["share_of"],
        "condition": row["condition"] or "",
        "sentence": text(as_sentence(row["sentence"])),
        "remedy": text(row["remedy"]),
        "command": text(row["command"]),
        "read": row["read"],
        "section": _section(row["command"]),
        "ops": [text(name) for name in row["ops"][:_MOST_PLACES]],
        "modules": [text(name) for name in row["modules"][:_MOST_PLACES]],
        "lines": [text(name) for name in row["lines"]],
        "ranks": row["ranks"] if several else [],
        "ranges": [
            {"rank": stretch["rank"], "from": str(stretch["start_ns"]), "to": str(stretch["end_ns"])}
            | {"time": time_text(stretch["end_ns"] - stretch["start_ns"])}
            for stretch in sorted(row["ranges"], key=lambda stretch: stretch["start_ns"] - stretch["end_ns"])[
                :_MOST_PLACES
            ]
        ],
    }


def _section(command: str) -> str:
    """Returns the name of the section that shows what the command prints, or "" if there is none."""
    if command.startswith("opspan table") and "--by kernel" in command:
        return "kernels"
    verb = re.match(r"opspan (\w+)", command)
    return _SECTIONS.get(verb[1], "") if verb else ""
