"""Foreign text for people: nothing that a terminal obeys, no line without an end."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opspan.errors import NotATrace
from opspan.printable import (
    listed,
    listed_counts,
    path_text,
    printable,
    printable_lines,
    shell_path,
    shell_word,
    shortened,
)
from opspan.tables import Issues

# Controls of both kinds but the end of a line, what turns the direction of writing, and halves of characters.
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@given(st.text(st.characters()))
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    assert printable(text).isprintable()
    assert not OBEYED.search(printable_lines(text))
    assert printable_lines(text).count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("aten::mm é 漢字 🔥", "aten::mm é 漢字 🔥"),
        ("\x1b[31m\x07", r"\x1b[31m\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("a\u202egpj.exe", r"a\u202egpj.exe"),
        ("\udcff", r"\udcff"),
        ("a\tb\r\nc", r"a\tb\r\nc"),
    ],
)
def test_what_is_seen_stays_and_the_rest_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_an_error_is_one_line_that_can_be_printed_and_has_an_end() -> None:
    error = NotATrace("in \x1b]0;title\x07 \u202e\n" + "x" * 1_000_000)

    assert not OBEYED.search(str(error))
    assert str(error).startswith(r"in \x1b]0;title\x07 \u202e xxx")
    assert str(error).endswith("x... (990,027 characters more)")
    assert len(str(error)) < 11_000
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_lists_say_how_many_more_there_are() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(range(100), most=3) == "0, 1, 2 and 97 more"
    assert listed(["x" * 1000]) == "x" * 100 + "... (900 characters more)"
    assert shortened("short") == "short"
    assert listed_counts({"b": 1, "a": 2000}) == "b 1, a 2,000"
    assert listed_counts({str(number): number for number in range(100)}) == (
        ", ".join(f"{number} {number}" for number in range(99, 79, -1)) + " and 80 more"
    )


def test_issues_of_a_kind_are_no_endless_list_either() -> None:
    issues = Issues("file")
    for number in range(50_000):
        issues.add("odd_cells", 2, f"\x1b column {number}")
    issues.add("odd_cells", 5, "\x1b column 7")
    issues.add("truncated_file")

    frame = issues.frame()

    assert frame["count"].sum() == 100_006
    assert frame.height == 102
    assert r"(7): \x1b column 7" in frame["message"][7]
    assert frame["message"][100].endswith(f"({2 * 49_900:,}): others, each of them different")


WORDS = [
    "a b",
    "plain",
    "a\nb",
    "q'u\"o",
    "x\x1b[2J",
    os.fsdecode(b"\xff\x9bz"),
    "a  b",
    "\u202eé",
    "back\\\n'",
    "",
    " x ",
]


@pytest.mark.parametrize("text", [*WORDS, "-x", "$(id)", "`id`", "!x\t", "\xa0", "\U0001f600\r"])
def test_what_one_pastes_into_a_shell_is_the_word(text: str) -> None:
    word = shell_word(text)

    assert printable(word) == word
    assert " ".join(word.split()) == word
    shells = [shell for shell in ("bash", "zsh", "ksh") if shutil.which(shell)]
    assert shells
    for shell in shells:
        done = subprocess.run([shell, "-c", f"printf %s {word}"], capture_output=True, check=True)
        assert done.stdout == os.fsencode(text), shell


def test_a_path_is_no_option_where_it_is_pasted() -> None:
    assert [shell_path(path) for path in ("-x", "-\n", Path("a b"), "x")] == ["./-x", "$'./-\\n'", "'a b'", "x"]
    assert [path_text(path) for path in ("a b", Path("-x"), "a\nb")] == ["a b", "-x", "$'a\\nb'"]
