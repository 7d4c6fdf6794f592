"""Writes rows into a table of a page that a tool makes. Rows of other runs stay in it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

END = "<!-- to here -->\n"


def begin_of(tool: str) -> str:
    return f"<!-- tools/{tool} writes from here -->\n"


def write_row(page: Path, tool: str, head: str, row: str, key: Callable[[str], Any]) -> None:
    """Replaces the row that has the same key, or adds the row. The table is sorted by the keys."""
    text, begin = page.read_text(encoding="utf-8"), begin_of(tool)
    if begin not in text or END not in text:
        sys.exit(f"{page}: expected a line {begin.strip()} and a line {END.strip()}")
    before, _, rest = text.partition(begin)
    old, _, after = rest.partition(END)
    rows = {key(line): line for line in old.splitlines(keepends=True) if re.match(r"\| [\d?]", line)}
    rows[key(row)] = row
    page.write_text(before + begin + head + "".join(rows[one] for one in sorted(rows)) + END + after, encoding="utf-8")
