"""Writes the pages of docs/ that are generated from the code.

python tools/docs           write the pages that are stale
python tools/docs --check   write nothing; name the pages that are stale, and exit with 1 if there are any
python tools/docs --release also record the public names of now as those of the release (docs/public.json)
python tools/docs serve     serve the site on this machine until Ctrl-C; each change builds it again

Tools that measure something write their own tables. For example, tools/torch-matrix writes its table in docs/emit.md.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import cli_page
import costs_page
import examples_page
import findings_page
import json_page
import peaks_page
import public_list
import python_page
import rooms_table
import schema_page
import sqlite_page

REPO = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Page:
    path: str
    source: str  # the file or folder whose content the page lists; the module of `text` adds all other words
    text: Callable[..., str]  # of a part: takes the title of the section that the part is in
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
    Page("docs/architecture.md", "tests/house/rooms.py", lambda _: rooms_table.text()),
    Page("docs/json.md", "src/opspan/views/answer_columns.py", json_page.text),
    Page("docs/python.md", "src/opspan/__init__.py", lambda _: python_page.text(), needs="griffe"),
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


def with_parts(part: Page) -> str:
    """Returns the text of a page that was written by hand, with its generated parts replaced."""
    marker = f"<!-- Made by `python tools/docs` from {part.source} -->\n"
    text, *rest = (REPO / part.path).read_text(encoding="utf-8").split(marker)
    if not rest or not all(_END in piece for piece in rest):
        sys.exit(f"tools/docs: {part.path} has no place for what is made from {part.source}; expected {_END} behind it")
    for piece in rest:
        title = re.findall(r"^#+ (.*)$", text, re.MULTILINE)[-1]
        text += f"{marker}{part.text(title)}{piece[piece.index(_END) :]}"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=["write", "serve"], default="write", help="default: write")
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 if a page is stale")
    parser.add_argument("--release", action="store_true", help="record the public names as those of the release")
    parser.add_argument("--address", default="127.0.0.1:8000", help="where to serve (default: %(default)s)")
    options = parser.parse_args()
    if options.verb == "serve":
        return serve(options.address)
    is_check = options.check

    stale = 0
    pages = [page for page in (*PAGES, *PARTS) if not page.needs or find_spec(page.needs)]
    for page in {*PAGES, *PARTS}.difference(pages):
        print(f"{page.path} was left as it is: {page.needs} is not installed (pip install 'opspan[test]')")
    for page in pages:
        stale += update(page.path, with_parts(page) if page in PARTS else page_text(page), is_check=is_check)
    print(f"{len(pages) - stale} of {len(pages)} pages were up to date")
    if find_spec("griffe"):
        stale += update("docs/public.json", public_list.text(is_release=options.release), is_check=is_check)
    return 1 if is_check and stale else 0


def update(name: str, text: str, *, is_check: bool) -> bool:
    """Writes the file if it is stale, or only names it. Returns whether it was stale."""
    path = REPO / name
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    if is_check:
        print(f"{name} is stale: run `python tools/docs`")
    else:
        path.write_text(text, encoding="utf-8")
        print(f"Wrote {name}")
    return True


def serve(address: str) -> int:
    if not find_spec("material"):
        print("tools/docs: the site needs mkdocs-material: pip install 'opspan[docs]'", file=sys.stderr)
        return 1
    config = REPO / "tools" / "docs" / "mkdocs.yml"
    command = [sys.executable, "-m", "mkdocs", "serve", "--strict", "--config-file", str(config), "--dev-addr", address]
    try:
        return subprocess.run(command).returncode
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
