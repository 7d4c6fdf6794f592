"""A page as one file of HTML: its program, its style, and the data of each section.

The page does not fetch anything. The Content-Security-Policy in its head forbids requests, and allows only the page's
own program, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import html
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from opspan import libraries
from opspan.errors import MissingPackage
from opspan.printable import printable
from opspan.views.page.section import Section, Subject, as_json, packed
from opspan.views.page.sections import NAMES, is_shown, section
from opspan.views.summary import about

_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript>This page is drawn by a program in it; allow scripts to see it. It makes no request.</noscript>
<div id="page"></div>
{parts}
<script type="application/json" id="head">{head}</script>
<script>{program}</script>
</body>
</html>
"""
_POLICY = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'sha256-{hash}'"


def page_parts(subject: Subject) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Returns the head of a page and the data of its sections, for a server that sends the sections one by one."""
    sections = _sections(subject)
    return head_of(subject, sections), {name: part.data for name, part in sections.items() if part.data is not None}


def _sections(subject: Subject) -> dict[str, Section]:
    """Makes the sections on two threads, because most of a section's work runs on one core. More threads would not
    help, because the first section takes as long as all others together."""
    shown = [name for name in NAMES if is_shown(name, subject)]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(shown, pool.map(lambda name: section(name, subject), shown), strict=True))


def document(subject: Subject) -> str:
    # Read the file first: asset() raises an error if it is missing.
    program = asset("page.js").replace("</script", "<\\/script")
    sections = _sections(subject)
    head = head_of(subject, sections)
    program_hash = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    parts = [
        f'<script type="text/plain" id="part-{name}">{part.packed or packed(part.data)}</script>'
        for name, part in sections.items()
        if part.data is not None
    ]
    return _DOCUMENT.format(
        policy=_POLICY.format(hash=program_hash),
        title=html.escape(head["title"]),
        style=asset("page.css"),
        parts="\n".join(parts),
        head=in_script(head),
        program=program,
    )


def head_of(subject: Subject, sections: dict[str, Section]) -> dict[str, Any]:
    """Returns the data for the type Head in src/page/section.ts."""
    names = [path.name for path in subject.files]
    shown = printable(", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""))
    return {
        "title": f"opspan: {shown or 'a trace'}",
        "about": about(subject.analysis),
        "editor": subject.editor,
        "sections": [
            {"name": name, "title": part.title, "why": part.why, "command": part.command}
            for name, part in sections.items()
        ],
    }


def in_script(data: Any) -> str:
    """Writes JSON for a script element. "<" is escaped, because a text with </script> would end the element."""
    return as_json(data).replace("<", "\\u003c")


def asset(name: str) -> str:
    """Returns the text of a file that was built from src/page. Raises MissingPackage if the file was not built."""
    try:
        return libraries.page(name).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        try:
            why = (libraries.page_sources() / "why.txt").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            raise MissingPackage("this opspan was built without its page (OPSPAN_PAGE=OFF)") from error
        raise MissingPackage(
            "the page could not be built when opspan was installed; "
            f"`opspan doctor --fix` tries again ({printable(why)})"
        ) from error
