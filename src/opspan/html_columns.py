"""Columns of text as an HTML table, for a notebook: what text_columns.py makes for a terminal.

Nothing in it has a colour, a script or a style sheet: it looks as the notebook's other tables do, in the dark as well.
What it says may come from a trace, so all of it is escaped, and none of it is longer than a reader can use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from opspan.printable import printable, shortened
from opspan.text_columns import Column, cut

if TYPE_CHECKING:
    from xml.etree import ElementTree

ROWS = 10  # as many as polars shows
LONGEST_NAME = 60  # characters; the whole name is shown when the mouse is over it
LONGEST_SENTENCE = 500
LONGEST_WHOLE = 1_000
# Dollars in a name are no formula: these are the classes that MathJax leaves alone.
_CLASSES = "tex2jax_ignore mathjax_ignore"
_ALIGN = {"<": "text-align: left", ">": "text-align: right"}


def table(columns: Sequence[Column], above: str, below: Iterable[str] = (), longest: int = LONGEST_NAME) -> str:
    """The columns between sentences. Texts (those that a terminal may cut) stand at the left, numbers at the right; a
    cell is cut to `longest` characters."""
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
    # As XML, and no element without its end: what HTML is too, and stricter in what it escapes.
    return ElementTree.tostring(frame, encoding="unicode", short_empty_elements=False)


def more(count: int, how: str) -> list[str]:
    """A sentence on the rows that are not shown, if there are any."""
    return [f"{count - ROWS:,} more: {how}"] if count > ROWS else []


def sentence(text: str) -> str:
    return table((), text)


def or_why_not(make: Callable[[], str], what: str, say: Callable[[str], str] = sentence) -> str:
    """What `make` makes. Where it cannot, a sentence that says why: who looks at a broken trace wants to know that, and
    IPython would print a traceback."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001  # whatever it is, it is what there is to say
        return say(printable(f"{what} cannot be shown. {type(error).__name__}: {error}"))


def _cell(row: ElementTree.Element, tag: str, text: str, column: Column, longest: int) -> None:
    from xml.etree import ElementTree

    whole = printable(text.strip())
    align = "<" if column.least is not None else column.align
    cell = ElementTree.SubElement(row, tag, {"style": _ALIGN[align]})
    cell.text = cut(whole, longest, column.cut_end, dots="…")
    if cell.text != whole:
        cell.set("title", shortened(whole, LONGEST_WHOLE))


def _sentence(frame: ElementTree.Element, text: str) -> None:
    from xml.etree import ElementTree

    ElementTree.SubElement(frame, "div").text = cut(printable(text), LONGEST_SENTENCE, cut_end=True, dots="…")
