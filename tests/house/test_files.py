"""Rules that hold for every file of the repository."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from house.tree import REPO, files, modules

PYTHON_LINES = 400
CPP_LINES = 300

# Texts that a public repository must not have. Only this file spells them out.
FORBIDDEN = {
    "unfinished": re.compile(r"\b(TODO|FIXME|XXX)\b"),
    "a path of one machine": re.compile(r"(?<![\w.~$}])/(home|root|Users|work|farm|opt/pypi)/(?!\.\.\.)"),
    "a package host": re.compile(
        r"\b(pypi\.org|pythonhosted\.org|download\.pytorch\.org|deb\.debian\.org|archive\.ubuntu\.com|anaconda\.org)\b"
    ),
}


def text_files() -> list[Path]:
    kept = [path for path in files() if path != Path(__file__) and path.name != "LICENSE"]
    return [path for path in kept if b"\0" not in path.read_bytes()[:8192]]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_forbidden_words(what: str) -> None:
    found = [
        f"{path.relative_to(REPO)}:{number}: {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if FORBIDDEN[what].search(line)
    ]
    assert not found, f"{what}:\n" + "\n".join(found)


def opening_comment(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".cpp", ".h"):
        return " ".join(re.match(r"(?:\s*//[^\n]*\n)*", text)[0].replace("//", " ").split())  # type: ignore[index]
    return " ".join((ast.get_docstring(ast.parse(text)) or "").split())


def test_files_are_short_or_say_why_not() -> None:
    limits = dict.fromkeys((*files("*.py"), REPO / "tools" / "vendor-tools"), PYTHON_LINES)
    limits |= dict.fromkeys(files("*.cpp", "*.h"), CPP_LINES)

    long = {
        path: lines
        for path, limit in limits.items()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > limit
        if not re.search(r"one file because\b", opening_comment(path), re.IGNORECASE)
    }

    assert not long, "split these, or let the first comment say 'One file because ...': " + ", ".join(
        f"{path.relative_to(REPO)} ({lines} lines)" for path, lines in long.items()
    )


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in modules() if not opening_comment(path)]
    assert not silent, f"no docstring: {silent}"


def test_text_files_end_with_one_newline_and_have_no_trailing_space() -> None:
    wrong = [
        str(path.relative_to(REPO))
        for path in text_files()
        if path.suffix in (".py", ".h", ".cpp", ".md", ".toml", ".map", ".txt", "")
        and (text := path.read_text(encoding="utf-8"))
        and (not text.endswith("\n") or text.endswith("\n\n") or re.search(r"[ \t]+$", text, re.MULTILINE))
    ]
    assert not wrong, wrong
