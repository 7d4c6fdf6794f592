"""Whether a file fits into memory, before it is read: a refusal in one line, in place of a killed process.

OPSPAN_MEMORY=64G    as much may be taken, whatever the system says is free; 0: do not ask
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from opspan.errors import TooLarge, UsageError

LIMIT = "OPSPAN_MEMORY"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# What is smaller is not asked about: a wrong estimate of it would do more harm than it prevents.
SMALL_BYTES = 256 << 20


def check_room(path: Path, factor: float, has_parts: bool) -> None:
    """`factor`: bytes of memory for each byte of the file. `has_parts`: a part needs no more than it has."""
    size = _size(path)
    needed = int(size * factor)
    if needed < SMALL_BYTES and LIMIT not in os.environ:
        return
    room = available_bytes()
    if room is None or needed <= room:
        return
    way_out = "read a part of it (--between START END or --step N; load(between=... or step=...))"
    raise TooLarge(
        f"{path} has {gigabytes(size)} and needs about {gigabytes(needed)} of memory, {gigabytes(room)} are available: "
        f"{way_out if has_parts else 'record a shorter time'}, or say with {LIMIT}=64G what may be used ({LIMIT}=0: "
        "do not ask)"
    )


def available_bytes() -> int | None:
    """What this process may take more than it has; None: it is not known, or is not to be asked."""
    asked = os.environ.get(LIMIT)
    if asked is not None:
        found = re.fullmatch(r"([0-9]{1,15})\s*([KMGT]?)i?B?", asked.strip(), re.IGNORECASE)
        if found is None:
            raise UsageError(f"{LIMIT}={asked!r} is no size; expected one such as 64G, or 0 for no limit")
        return int(found[1]) * _UNITS[found[2].upper()] or None
    return min((room for room in (_of_machine(), *_of_groups()) if room is not None), default=None)


def _of_machine() -> int | None:
    found = re.search(r"^MemAvailable:\s+([0-9]+) kB", _text(Path("/proc/meminfo")), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _of_groups() -> list[int]:
    """What is left in the process' control groups, of both versions, up to the root."""
    rooms = []
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            root, most, used, cache = Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            root, most = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
            used, cache = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        group = root / place.strip("/")
        # In a container the path may be the host's, of which only the root is seen here.
        for folder in (group, *group.parents):
            if root not in (folder, *folder.parents):
                break
            limit, taken = _text(folder / most).strip(), _text(folder / used).strip()
            if limit.isdigit() and taken.isdigit():
                # Pages of files that nobody waits for are given back when memory is asked for.
                spare = re.search(rf"^{cache} ([0-9]+)$", _text(folder / "memory.stat"), re.MULTILINE)
                rooms.append(max(0, int(limit) - int(taken) + (int(spare[1]) if spare else 0)))
    return rooms


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _size(path: Path) -> int:
    """Of a file, or of the files in a folder."""
    try:
        if not path.is_dir():
            return path.stat().st_size
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    except OSError:
        return 0  # the reader says what is wrong with it


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"
