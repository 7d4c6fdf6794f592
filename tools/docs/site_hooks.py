"""Hooks of mkdocs.yml. On the website, the reference that mkdocstrings makes replaces the one that tools/docs made."""

from __future__ import annotations

import re
from typing import Any

import python_page

_MADE = re.compile(r"^## Reading$.*?^## Modules$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri != "python.md":
        return markdown
    parts = [
        f"## {heading}\n\n" + "".join(f"::: opspan.{name}\n    options:\n      heading_level: 3\n\n" for name in names)
        for heading, names in python_page.NAMES.items()
    ]
    return _MADE.sub(lambda _: "".join(parts) + "## Modules", markdown)
