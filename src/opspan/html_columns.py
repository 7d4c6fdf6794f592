"""Makes an HTML table from text columns for a notebook. text_columns.py makes a table for a terminal.

The table has no colours, scripts or style sheets, so it looks like the notebook's other tables, also in dark mode.
Texts may come from a trace, so they are escaped, and cut to a readable length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from opspan.printable import printable, shortened
from opspan.text_columns import TextColumn, cut

if TYPE_CHECKING:
    from xml.etree import ElementTree

ROWS = 10  # maximum number of rows of a table, as in polars
LONGEST_NAME = 60  # maximum number of characters of a name; a tooltip shows the full name
LONGEST_SENTENCE = 500
LONGEST_WHOLE = 1_000
# MathJax skips these classes, so that dollar signs in a name do not become formulas.
_CLASSES = "tex2jax_ignore mathjax_ignore"
_ALIGN = {"<": "text-align: left", ">": "text-align: right"}


def table(columns: Sequence[TextColumn], above: str, below: Iterable[str] = (), longest: int = LONGEST_NAME) -> str:
    """Returns the HTML of a table with sentences above and below it. Text columns, which have a `least` width, are
    left-aligned. Other columns are aligned as in a terminal. A cell is cut to `longest` characters."""
    from xml.etree import ElementTree  # imported here, because only a notebook needs it

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
            if not any(cells):  # leaves out the empty row that follows a stack
                continue
            row = ElementTree.SubElement(body, "tr")
            for cell, column in zip(cells, columns, strict=True):
                _cell(row, "td", cell, column, longest)
    for text in below:
        _sentence(frame, text)
    # XML with explicit end tags is also valid HTML, and ElementTree escapes all texts.
    return ElementTree.tostring(frame, encoding="unicode", short_empty_elements=False)


def more(count: int, how: str) -> list[str]:
    """Returns a list with a sentence about the rows that are not shown, or an empty list if all rows are shown."""
    return [f"{count - ROWS:,} more: {how}"] if count > ROWS else []


def sentence(text: str) -> str:
    return table((), text)


def or_why_not(make: Callable[[], str], what: str, say: Callable[[str], str] = sentence) -> str:
    """Returns the result of `make`. If it raises an error, returns a sentence about the error, so that IPython prints
    no traceback."""
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
