"""Sentences and names as a terminal of some width has them; tables are tested where they are made."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from opspan.text_columns import Layout, cut, wrapped

SENTENCE = "Coverage: 96.5% of device time belongs to a range; `opspan waits run.sqlite --by op` says more"


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_sentence_is_whole_in_lines_of_a_terminal(width: int) -> None:
    lines = Layout(width).lines([SENTENCE])

    assert " ".join(line.strip() for line in lines) == SENTENCE
    assert all(len(line) <= width or line.strip() == "`opspan waits run.sqlite --by op`" for line in lines)
    assert [line.startswith("  ") for line in lines] == [False] + [True] * (len(lines) - 1)


def test_where_nothing_is_known_of_the_width_it_is_one_line() -> None:
    assert Layout().lines([SENTENCE]) == [SENTENCE]


def test_lines_that_there_are_stay() -> None:
    assert Layout(80).lines(["one\n\ntwo", "", "a\tb"]) == ["one", "", "two", "", "a\tb"]


def test_what_is_to_be_copied_stays_in_one_piece() -> None:
    lines = wrapped("    Do  ", "type `opspan table run.sqlite` or https://a.example/of-many-parts-and-words", 20)

    assert lines == [
        "    Do  type",
        "        `opspan table run.sqlite`",
        "        or",
        "        https://a.example/of-many-parts-and-words",
    ]


@pytest.mark.parametrize("dots", ["...", "…"])
@pytest.mark.parametrize("name", ["x" * 30 + "y" * 30, "数据" * 30])
def test_a_name_is_cut_to_the_columns_that_there_are(name: str, dots: str) -> None:
    for width in range(1, 60):
        assert cell_len(cut(name, width, cut_end=False, dots=dots)) <= width
    assert dots in cut(name, 20, cut_end=False, dots=dots)
    assert cut(name, 20, cut_end=True, dots=dots).endswith(dots)
