"""Columns of text as an HTML table for a notebook; text_columns.py makes the same for a terminal.

It uses no colour, script or style sheet, so it looks like the notebook's other tables, in dark mode as well. Texts may
come from a trace, so all are escaped, and cut to a useful length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from opspan.printable import printable, shortened
from opspan.text_columns import TextColumn, cut

if TYPE_CHECKING:
    from xml.etree import ElementTree

ROWS = 10  # as many as polars shows
LONGEST_NAME = 60  # characters; the full name is shown when the mouse is over it
LONGEST_SENTENCE = 500
LONGEST_WHOLE = 1_000
# Dollars in a name are not formulas: MathJax skips these classes.
_CLASSES = "tex2jax_ignore mathjax_ignore"
_ALIGN = {"<": "text-align: left", ">": "text-align: right"}


def table(columns: Sequence[TextColumn], above: str, below: Iterable[str] = (), longest: int = LONGEST_NAME) -> str:
    """Returns the columns between sentences. Texts (which a terminal may cut) are left-aligned, numbers right; a cell
    is cut to `longest` characters."""
    from xml.etree import ElementTree  # only a notebook needs it

    frame = ElementTree.Element("div", {"class": _CLASSES, "style": "overflow-x: auto"})
    _sentence(frame, above)
    if columns and columns[0].cells:
        grid = ElementTree.SubElement(frame, "table")
        if any(column.title for column in columns):
            head = ElementTree.SubElement(ElementTree.SubElement(grid, "thead"), "tr")
            for column in columns:
                _cell(head, "th", column.title, column, longest)
        body = ElementTree.SubElement(grid, "tbody")
        for cells in zip(*(column.cells for column in columns), strict=True):
            if not any(cells):  # the line below a stack
                continue
            row = ElementTree.SubElement(body, "tr")
            for cell, column in zip(cells, columns, strict=True):
                _cell(row, "td", cell, column, longest)
    for text in below:
        _sentence(frame, text)
    # Written as XML with explicit end tags, which is also valid HTML and escaped more strictly.
    return ElementTree.tostring(frame, encoding="unicode", short_empty_elements=False)


def more(count: int, how: str) -> list[str]:
    """Returns a sentence about rows that are not shown, if there are any."""
    return [f"{count - ROWS:,} more: {how}"] if count > ROWS else []


def sentence(text: str) -> str:
    return table((), text)


def or_why_not(make: Callable[[], str], what: str, say: Callable[[str], str] = sentence) -> str:
    """Returns the result of `make`, or a sentence about its error, for which IPython would print a traceback."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001  # the sentence reports any error
        return say(printable(f"{what} cannot be shown. {type(error).__name__}: {error}"))


def _cell(row: ElementTree.Element, tag: str, text: str, column: TextColumn, longest: int) -> None:
    from xml.etree import ElementTree

    full = printable(text.strip())
    align = "<" if column.least is not None else column.align
    cell = ElementTree.SubElement(row, tag, {"style": _ALIGN[align]})
    cell.text = cut(full, longest, column.cut_end, dots="…")
    if cell.text != full:
        cell.set("title", shortened(full, LONGEST_WHOLE))


def _sentence(frame: ElementTree.Element, text: str) -> None:
    from xml.etree import ElementTree

    ElementTree.SubElement(frame, "div").text = cut(printable(text), LONGEST_SENTENCE, cut_end=True, dots="…")
