"""Sentences that say what is so, of one thing as of several, and refer to what whoever reads them has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import opspan as package
from builders import kineto
from emit.running import opspan
from opspan.errors import WriteError
from opspan.findings import RULES
from opspan.printable import plural
from opspan.tables.issues import CODES
from opspan.views import sqlite
from opspan.views.findings import explained, read_on

SOURCES = sorted(Path(package.__file__).parent.rglob("*.py"))


def test_of_one_thing_no_more_is_said() -> None:
    assert [plural(number, "issue") for number in (0, 1, 1234)] == ["0 issues", "1 issue", "1,234 issues"]
    assert plural(1, "process", "processes") + plural(2, "process", "processes") == "1 process2 processes"


def test_an_export_with_one_issue_says_so(tmp_path: Path) -> None:
    kineto.write(tmp_path / "a.json", kineto.document([kineto.op("aten::mm", 1, 1.0, 2.0)]))

    done = opspan("export", "a.json", "a.csv", cwd=tmp_path)

    assert re.search(r"\(1 range, \d+ issues?\)", done.stdout), done.stdout
    assert "1 issues" not in done.stdout
    assert "1 ranges" not in opspan("summary", "a.json", cwd=tmp_path).stdout


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_finding_refers_to_what_there_is(rule: object) -> None:
    read = read_on(rule)  # type: ignore[arg-type]
    assert read.startswith("https://") or read == f"opspan findings --explain {rule.id}"  # type: ignore[attr-defined]


def test_findings_explain_themselves_without_a_file(tmp_path: Path) -> None:
    done = opspan("findings", "--explain", "late-host", cwd=tmp_path)
    every = opspan("findings", "--explain", "all", cwd=tmp_path)
    wrong = opspan("findings", "--explain", "late-hots", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, explained("late-host"))
    assert done.stdout.startswith("late-host: ")
    assert "{" not in every.stdout
    assert [line.split(":")[0] for line in every.stdout.splitlines() if line[0] != " "] == [r.id for r in RULES]
    assert (wrong.returncode, wrong.stderr) == (2, "error: there is no finding 'late-hots'; did you mean late-host?\n")


def test_no_issue_and_no_verb_refers_to_a_page_that_an_installation_has_not() -> None:
    assert not [code.advice for code in CODES.values() if "docs/" in code.advice]
    for path in SOURCES:
        if path.parent.name == "cli":
            texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
            assert not [text for text in texts if isinstance(text, str) and "docs/" in text], path


def test_a_database_that_does_not_fit_is_told_without_its_statement() -> None:
    said = 'INTERNAL: failed to execute: database or disk is full\nquery was: INSERT INTO main . "ranges" ("id: x")'
    assert sqlite._why(RuntimeError(said)) == "database or disk is full"
    assert sqlite._why(RuntimeError("no such table: x")) == "no such table: x"
    assert str(WriteError(f"cannot write the database: {sqlite._why(RuntimeError(said))}")).endswith("is full")
