"""The table of docs/architecture.md that says which room may import which, made from tests/house/rooms.py."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from house.rooms import GROUND, NOTES, ROOMS


def text() -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for room, others in ROOMS.items():
        rows.setdefault((_said(others), NOTES.get(room, "")), []).append(room)
    lines = [f"| {_listed(rooms)} | {said}{'; ' if note else ''}{note} |" for (said, note), rooms in rows.items()]
    head = f"*The ground* is {_listed(sorted(GROUND))}.\n\n| room | may import |\n| --- | --- |\n"
    return head + "\n".join(lines) + "\n"


def _said(others: set[str]) -> str:
    if not others:
        return "no other room"
    missing = GROUND - others
    if len(missing) > 1:
        return _listed(sorted(others))
    ground = f"the ground but for {_listed(missing)}" if missing else "the ground"
    return ", ".join((ground, *(f"`{room}`" for room in sorted(others - GROUND))))


def _listed(rooms: Iterable[str]) -> str:
    return ", ".join(f"`{room}`" for room in rooms)
