"""Docs that cannot lie: what they name exists, what exists is named. That their code runs: test_docs_blocks.py."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec

import click
import pytest

from house.tree import REPO, files, module_name, modules, room
from opspan.cli import main
from opspan.outputs import OUTPUTS, Output
from opspan.sources import SOURCES, Source

README = REPO / "README.md"
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def verbs() -> list[str]:
    return main.list_commands(click.Context(main))


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    command = [sys.executable, "-m", "opspan", verb, "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert re.search(rf"(?s)\bExamples?\b.*\bopspan {verb}\b", shown), shown


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_is_documented(verb: str) -> None:
    assert re.search(rf"^#+ .*`?opspan {verb}\b", (REPO / "docs" / "cli.md").read_text(), re.MULTILINE)


def test_every_page_is_on_one_shelf() -> None:
    shelves = REPO / "docs" / "README.md"
    linked = Counter(re.findall(r"^\| \[[^\]]*\]\(([^)]+\.md)\) \|", shelves.read_text(), re.MULTILINE))

    pages = [path for path in files("docs/*.md", "docs/**/*.md") if path != shelves]
    assert linked == Counter({str(path.relative_to(shelves.parent)): 1 for path in pages})
    assert "(docs/README.md)" in README.read_text()


def test_every_room_is_drawn() -> None:
    picture = (REPO / "docs" / "architecture.md").read_text()
    python = {room(module_name(path)) for path in modules()} - {"opspan", "__main__"}
    native = {path.parent.name for path in files("native/*.cpp")}

    missing = [name for name in sorted(python | native) if not re.search(rf"^\s*{name}(\.py|/)", picture, re.MULTILINE)]

    assert not missing, f"docs/architecture.md does not show: {missing}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_every_source_has_a_reader_a_page_and_what_writes_its_files(source: Source) -> None:
    places = (f"docs/formats/{source.name}.md", f"tests/builders/{source.name}.py")
    assert [place for place in places if not (REPO / place).exists()] == []
    assert find_spec(f"opspan.readers.{source.name}")
    assert source.reads in " ".join((main.get_command(click.Context(main), "table").help or "").split())


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output.name)
def test_every_output_is_documented(output: Output) -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", (REPO / "docs" / "outputs.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(.*?)`", row)}
    assert {*output.suffixes, *filter(None, [output.pattern.replace("?*", "*")])} <= named


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(REPO)}: {target}"
        for page in files("*.md")
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not re.match(r"https?:", target) and not (page.parent / target).exists()
    ]
    assert not broken, "\n".join(broken)


def test_the_readme_shows_two_commands_to_copy() -> None:
    commands = re.findall(r"<!-- command: (\w+) -->\n+```sh\n(.*?)\n```\n", README.read_text(), re.DOTALL)

    assert [name for name, _ in commands] == ["demo", "test"]
    assert all("\n" not in command and command.startswith("python3 -m venv .venv && ") for _, command in commands)


def test_the_changelog_has_this_version() -> None:
    (version,) = re.findall(r'^version = "(.*)"$', (REPO / "pyproject.toml").read_text(), re.MULTILINE)

    assert re.search(rf"^## {re.escape(version)}\b", (REPO / "CHANGELOG.md").read_text(), re.MULTILINE)
