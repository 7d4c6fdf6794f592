"""Comments and docstrings: none begins as a riddle does, with a word that names no subject and no action."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from house.tree import REPO, files

RIDDLE = re.compile(r"(?:Of|What|Who|Those|Such|So many|Where|Whose|That)\b(?!')")
PYTHON = ("src/*.py", "tools/*", ".ci/*")
BRACES = ("native/*.cpp", "native/*.h", "src/page/*.ts")
BLOCK = re.compile(r"/\*\*?\s*(.*?)\*/", re.DOTALL)


def is_python(path: Path) -> bool:
    return path.suffix == ".py" or (not path.suffix and path.read_bytes().startswith(b"#!/usr/bin/env python"))


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring


def beginnings(comments: Iterator[tuple[int, int, str]]) -> Iterator[tuple[int, str]]:
    """The first line of each run of comments that stand below each other in one column."""
    before = (-1, -1)
    for line, column, text in comments:
        if before != (line - 1, column):
            yield line, text
        before = (line, column)


def python_comments(text: str) -> Iterator[tuple[int, int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield *token.start, token.string.lstrip("#: ")


def brace_comments(text: str) -> Iterator[tuple[int, int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"(.*?(?:^|\s))//+\s*(.*)", line)
        if match and match[1].count('"') % 2 == 0:
            yield number, len(match[1]), match[2]


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Each comment and docstring of a file, with its line."""
    text = path.read_text("utf-8")
    if is_python(path):
        yield from docstrings(text)
        yield from beginnings(python_comments(text))
    elif path.suffix in (".cpp", ".h", ".ts"):
        yield from beginnings(brace_comments(text))
        for match in BLOCK.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, match[1]


@pytest.mark.parametrize("folder", ["src/opspan", "src/page", "native", "tools"])
def test_no_comment_begins_as_a_riddle(folder):
    paths = [path for path in files(*PYTHON, *BRACES) if path.is_relative_to(REPO / folder)]

    texts = [(f"{path.relative_to(REPO)}:{line}", text) for path in paths for line, text in sentences(path)]
    assert len(texts) > 100, "sentences were read"
    assert [f"{place}: {text}" for place, text in texts if RIDDLE.match(text)] == []


def test_a_riddle_is_seen(tmp_path):
    script = tmp_path / "script.py"
    script.write_text('"""Of each its number."""\nx = 1  # What it is.\n# Says more.\n# Of it, this goes on.\n')
    assert [line for line, text in sentences(script) if RIDDLE.match(text)] == [1, 2]
    header = tmp_path / "header.h"
    header.write_text("int x; // Who asks\n/* Such as these */\n// Whatever it is\n")
    assert sorted(line for line, text in sentences(header) if RIDDLE.match(text)) == [1, 2]
