"""Writes the pages of docs/ that are generated from the code.

python tools/docs           write the pages that are stale
python tools/docs --check   write nothing; name the pages that are stale, and exit with 1 if there are any

Tools that measure something write their own tables. For example, tools/torch-matrix writes its table in docs/emit.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import cli_page
import costs_page
import examples_page
import findings_page
import peaks_page
import python_page
import rooms_table
import schema_page
import sqlite_page

REPO = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Page:
    path: str
    source: str  # the file or folder whose content the page lists; the module of `text` adds all other words
    text: Callable[[], str]
    needs: str = ""  # a module that `text` imports; the page is skipped if the module is not installed


PAGES = (
    Page("docs/cli.md", "src/opspan/cli", cli_page.text),
    Page("docs/costs.md", "src/opspan/analysis/formulas.py", costs_page.text),
    Page("docs/examples/README.md", "docs/examples", examples_page.text),
    Page("docs/findings.md", "src/opspan/findings/rules", findings_page.text),
    Page("docs/peaks.md", "src/opspan/analysis/peak_table.py", peaks_page.text),
    Page("docs/schema.md", "src/opspan/tables/schema.py", schema_page.text),
    Page("docs/sqlite.md", "src/opspan/views/database.py", sqlite_page.text),
)


PARTS = (
    Page("docs/architecture.md", "tests/house/rooms.py", rooms_table.text),
    Page("docs/python.md", "src/opspan/__init__.py", python_page.text, needs="griffe"),
)
_END = "<!-- end of what is made -->"


def page_text(page: Page) -> str:
    """Returns the text of a page, with a comment below its title that names its source."""
    if not (REPO / page.source).exists():
        sys.exit(f"tools/docs: {page.path} is made from {page.source}, which is not there; expected a file or a folder")
    title, rest = page.text().split("\n", 1)
    comment = (
        f"Made by `python tools/docs` from {page.source}; its own words are in tools/docs/{page.text.__module__}.py"
    )
    return f"{title}\n\n<!-- {comment} -->\n{rest}"


def with_part(part: Page) -> str:
    """Returns the text of a page that was written by hand, with its generated part replaced."""
    before, marker, rest = (
        (REPO / part.path)
        .read_text(encoding="utf-8")
        .partition(f"<!-- Made by `python tools/docs` from {part.source} -->\n")
    )
    if not marker or _END not in rest:
        sys.exit(f"tools/docs: {part.path} has no place for what is made from {part.source}; expected {_END} behind it")
    return f"{before}{marker}{part.text()}{rest[rest.index(_END) :]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 if a page is stale")
    is_check = parser.parse_args().check

    stale = 0
    pages = [page for page in (*PAGES, *PARTS) if not page.needs or find_spec(page.needs)]
    for page in {*PAGES, *PARTS}.difference(pages):
        print(f"{page.path} was left as it is: {page.needs} is not installed (pip install 'opspan[test]')")
    for page in pages:
        path, text = REPO / page.path, with_part(page) if page in PARTS else page_text(page)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if is_check:
            print(f"{page.path} is stale: run `python tools/docs`")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"Wrote {page.path}")
    print(f"{len(pages) - stale} of {len(pages)} pages were up to date")
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
