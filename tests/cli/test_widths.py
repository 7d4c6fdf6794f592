"""Verbs fit their output to the width of a terminal; a pipe and a program always get the same."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from rich.cells import cell_len

import opspan as package
from builders import kineto
from emit.running import MAIN, on_terminal, opspan
from opspan.questions import Options, question
from opspan.text_columns import Layout
from opspan.views.answer import as_text

NAMES = [f"aten::an_op_with_a_long_name_that_says_what_it_does_{number:02}" for number in range(12)]
WIDTHS = [40, 60, 80, 120, 200]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ops with long names, in a module each, of which the first takes longest."""
    events = []
    for number, name in enumerate(NAMES):
        begin = 1000 * number
        events += [
            kineto.span("python_function", f"nn.Module: Linear_{number}", 1, begin, 900 - number),
            kineto.op(name, 1, begin + 10, 800 - number),
        ]
    return kineto.write(tmp_path_factory.mktemp("widths") / "run.json", kineto.document(events))


@cache
def shown(path: Path, width: int, *arguments: str) -> list[str]:
    """Lines on a terminal of that many columns."""
    verb, *more = arguments
    return on_terminal(MAIN, verb, path, *more, stream="stdout", env={"TERM": "xterm"}, columns=width).splitlines()


def line_of(lines: list[str], label: str) -> str:
    return next(line for line in lines if line.startswith(label))


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_summary_is_as_wide_as_the_terminal(traced: Path, width: int) -> None:
    *lines, following, page = shown(traced, width, "summary")

    assert max(map(cell_len, lines)) <= width
    assert [following, page] == opspan("summary", traced).stdout.splitlines()[-2:]  # to be copied: whole
    assert width < 80 or len(lines) < 24


@pytest.mark.slow
def test_where_there_is_more_room_it_says_more(traced: Path) -> None:
    top = {width: line_of(shown(traced, width, "summary"), "Top ops") for width in WIDTHS}
    assert [top[width].count("an_op") for width in WIDTHS] == [1, 1, 1, 2, 3]
    longest = [max(map(len, top[width].split("  "))) for width in WIDTHS]
    assert longest == sorted(set(longest))
    assert NAMES[0].removeprefix("aten::") in top[200]


def words(lines: list[str]) -> list[str]:
    """Returns the words of lines, without lines of names, which are cut, and without the last two, which have
    commands."""
    return [word for line in lines[:-2] if not line.startswith("Top ") for word in line.split()]


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 60])
def test_where_there_is_little_a_line_goes_on_below(traced: Path, width: int) -> None:
    narrow, wide = shown(traced, width, "summary"), shown(traced, 200, "summary")
    assert words(narrow) == words(wide)
    assert len(narrow) > len(wide)


@pytest.mark.slow
def test_a_summary_of_80_columns_is_what_a_pipe_gets(traced: Path) -> None:
    piped = opspan("summary", traced)
    assert piped.stdout.splitlines() == shown(traced, 80, "summary")
    assert NAMES[0].removeprefix("aten::") in opspan("summary", traced, "--wide").stdout


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 200])
@pytest.mark.parametrize("verb", ["table", "findings", "steps"])
def test_tables_and_the_sentences_below_them_fit(verb: str, width: int, traced: Path) -> None:
    lines = [line for line in shown(traced, width, verb) if not line.startswith(("    Next", "    Read"))]
    assert lines
    assert max(map(cell_len, lines)) <= width


@pytest.mark.slow
def test_names_of_a_table_are_cut_later_on_a_wide_terminal(traced: Path) -> None:
    assert not [line for line in shown(traced, 60, "table") if NAMES[0] in line]
    assert [line for line in shown(traced, 200, "table") if NAMES[0] in line]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "csv"])
def test_data_is_the_same_on_every_terminal(form: str, traced: Path) -> None:
    piped = opspan("summary", traced, "--format", form).stdout.splitlines()
    assert shown(traced, 40, "summary", "--format", form) == piped
    assert shown(traced, 200, "summary", "--format", form) == piped


@pytest.mark.parametrize("width", [10, 40, 79, 80, 81, 120, 500])
def test_a_summary_of_any_width_fits_it(traced: Path, width: int) -> None:
    found = question("summary").answer_of(package.load(traced).analysed, Options())
    *lines, _, _ = as_text(found, 1, Layout(width)).splitlines()
    longest_word = max(len(word) for word in words([*lines, "", ""]))
    assert max(map(cell_len, lines)) <= max(width, 13 + max(longest_word, 12))
