"""Hooks of mkdocs.yml. On the website, the reference that mkdocstrings makes replaces the one that tools/docs made, and
links to files outside of docs/, which the website does not have, are plain text."""

from __future__ import annotations

import posixpath
import re
from typing import Any

import python_page

_MADE = re.compile(r"^## Reading$.*?^## Modules$", re.MULTILINE | re.DOTALL)
_LINK_UP = re.compile(r"\[([^\]]*)\]\((\.\./[^)\s]*)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = posixpath.dirname(page.file.src_uri)

    def inside(link: re.Match[str]) -> str:
        return link[1] if posixpath.normpath(posixpath.join(folder, link[2])).startswith("..") else link[0]

    markdown = _LINK_UP.sub(inside, markdown)
    if page.file.src_uri != "python.md":
        return markdown
    parts = [
        f"## {heading}\n\n" + "".join(f"::: opspan.{name}\n    options:\n      heading_level: 3\n\n" for name in names)
        for heading, names in python_page.NAMES.items()
    ]
    return _MADE.sub(lambda _: "".join(parts) + "## Modules", markdown)
