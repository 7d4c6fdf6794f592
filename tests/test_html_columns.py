"""Tables of a notebook: what a browser reads in them, whatever names are."""

from __future__ import annotations

import re

import pytest

from html_tables import Shown
from opspan.html_columns import LONGEST_NAME, or_why_not, table
from opspan.text_columns import TextColumn
from test_printable import OBEYED

HOSTILE = {
    "markup": '<img src=x onerror="alert(1)">',
    "the end of a script": "</td></table></script><script>alert(1)</script>",
    "quotes": '"\'` onmouseover=alert(1) x="',
    "entities": "&lt;b&gt; &amp; &#60;b&#62;",
    "control characters": "a\x1b[31m\x00\x9b2J\r\n\tb",
    "marks of direction": "a\u202e\u2066b\u200fc",
    "half of a pair": "a\udc80b",
    "comments": "<!-- a --> <![CDATA[ b ]]> <?php ?>",
}


def shown(*names: str, **more: str) -> Shown:
    return Shown(
        table([TextColumn("Name", names, least=0), TextColumn("Time", ["1.000us"] * len(names))], "above", **more)
    )


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("times", [1, 200])
def test_what_a_name_holds_is_text(what: str, times: int) -> None:
    html = table([TextColumn(HOSTILE[what] * times, [HOSTILE[what] * times], least=0)], HOSTILE[what], [HOSTILE[what]])

    assert set(Shown(html).elements) == {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert not OBEYED.search(html)
    assert all(char.isprintable() for char in html)
    html.encode()


@pytest.mark.parametrize("what", ["markup", "quotes", "entities", "comments"])
def test_and_it_is_the_same_text(what: str) -> None:
    assert shown(HOSTILE[what]).cells == [[HOSTILE[what], "1.000us"]]


def test_a_long_name_is_cut_and_whole_under_the_mouse() -> None:
    name = "void " + "x" * 200 + "(float)"
    (row,) = shown(name).rows[1:]

    assert re.fullmatch(r"void x+…x+\(float\)", row[0].text)
    assert len(row[0].text) == LONGEST_NAME
    assert row[0].attributes["title"] == name
    assert "title" not in row[1].attributes


def test_names_of_ten_thousand_characters_make_no_large_page() -> None:
    names = ["<" * 10_000, "数" * 10_000, "\x1b" * 10_000]
    assert len(table([TextColumn("Name", names, least=0)], "a" * 10_000, ["b" * 10_000])) < 20_000


def test_texts_stand_at_the_left_and_numbers_at_the_right() -> None:
    table = shown("a")
    assert [cell.attributes["style"] for cell in table.titles] == ["text-align: left", "text-align: right"]
    assert [cell.attributes["style"] for cell in table.rows[-1]] == ["text-align: left", "text-align: right"]


def test_it_has_no_colour_and_no_style_sheet() -> None:
    html = table([TextColumn("Name", ["a"], least=0)], "above", ["below"])
    assert "color" not in html
    assert "background" not in html
    assert "<style" not in html


def test_dollars_are_no_formula() -> None:
    """MathJax leaves elements of these classes alone: https://docs.mathjax.org/en/latest/options/document.html"""
    assert re.match(r'<div class="tex2jax_ignore mathjax_ignore"', table([TextColumn("Name", ["$x^2$"])], "above"))


def test_what_fails_is_said() -> None:
    def make() -> str:
        raise ValueError("no <b>such</b> column")

    found = Shown(or_why_not(make, "The list"))
    assert found.sentences == ["The list cannot be shown. ValueError: no <b>such</b> column"]
