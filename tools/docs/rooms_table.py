"""Makes the table of docs/architecture.md from tests/house/rooms.py. A room is a part of the code. The table shows
which other rooms each room may import."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from house.rooms import GROUND, NOTES, ROOMS


def text() -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for room, others in ROOMS.items():
        rows.setdefault((_sentence(others), NOTES.get(room, "")), []).append(room)
    lines = [f"| {_list(rooms)} | {others}{'; ' if note else ''}{note} |" for (others, note), rooms in rows.items()]
    head = f"*The ground* is {_list(sorted(GROUND))}.\n\n| room | may import |\n| --- | --- |\n"
    return head + "\n".join(lines) + "\n"


def _sentence(others: set[str]) -> str:
    if not others:
        return "no other room"
    missing = GROUND - others
    if len(missing) > 1:
        return _list(sorted(others))
    ground = f"the ground but for {_list(missing)}" if missing else "the ground"
    return ", ".join((ground, *(f"`{room}`" for room in sorted(others - GROUND))))


def _list(rooms: Iterable[str]) -> str:
    return ", ".join(f"`{room}`" for room in rooms)
