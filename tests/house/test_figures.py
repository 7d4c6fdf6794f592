"""docs/figures.md says how each figure is measured again: with tools that there are, and options that they have."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict

import pytest

from house.tree import REPO, files

PAGE = (REPO / "docs" / "figures.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"`python (tools/bench(?:/\w+\.py)?)([^`]*)`", PAGE)


def options() -> dict[str, set[str]]:
    found = defaultdict(set)
    for tool, words in COMMANDS:
        found[tool] |= set(re.findall(r"--\w+", words))
    return found


@pytest.mark.parametrize("tool", sorted(options()))
def test_tools_have_the_options_that_the_page_gives_them(tool: str) -> None:
    shown = subprocess.run([sys.executable, REPO / tool, "--help"], capture_output=True, text=True, check=True).stdout

    missing = {option for option in options()[tool] if not re.search(rf"^\s*{option}\b", shown, re.MULTILINE)}
    assert not missing, shown


def test_every_tool_that_measures_is_on_the_page() -> None:
    measuring = {path for path in files("tools/bench/*.py") if "argparse" in path.read_text(encoding="utf-8")}

    assert {REPO / tool for tool, _ in COMMANDS} == measuring - {REPO / "tools/bench/__main__.py"} | {
        REPO / "tools/bench"
    }


def test_every_section_with_figures_says_of_which_day_and_commit_they_are() -> None:
    sections = {text.partition("\n")[0]: text for text in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}

    silent = {
        title for title, text in sections.items() if not re.search(r"\b20\d\d-\d\d-\d\d, (commit )?[0-9a-f]{7}\b", text)
    }
    assert silent == {"To measure again"}


def test_the_page_is_short() -> None:
    assert len(PAGE.split()) <= 1500
