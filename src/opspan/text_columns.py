"""Makes a table of text columns that fits the width of a terminal. To make it fit, long names are cut and the least
important columns are left out. A note below the table says so.

Name             Self CPU %  Self CPU  # of Calls
4:aten::convolu...backward 41.20%  1.204ms          3
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

GAP = "  "  # the space between columns, as in torch's table
_DOTS = "..."
_NARROWEST = 8  # minimum width of a text column, even if columns of numbers need the rest
_UNKNOWN_TERMINAL = 80
_COMMAND = "`[^`]*`"


class Layout(NamedTuple):
    """The width of a table (None means unlimited), and whether long names are shown in full."""

    width: int | None = None
    whole_names: bool = False

    def lines(self, sentences: Iterable[str]) -> list[str]:
        """Splits sentences into lines of at most this width. A long sentence continues on indented lines."""
        if self.width is None:
            return list(sentences)
        texts = (text for sentence in sentences for text in sentence.split("\n"))
        return [line for text in texts for line in wrapped("", text, self.width, "  ") or [""]]


class TextColumn(NamedTuple):
    title: str
    cells: Sequence[str]
    rank: int = 0  # columns with the highest rank are left out first; columns with rank 0 are never left out
    # Before texts are cut to less than this width, other columns are left out. None: texts are never cut.
    least: int | None = None
    cut_end: bool = False  # True to cut texts at the end, False to cut them in the middle
    align: str = ">"

    @property
    def width(self) -> int:
        return max([width_of(self.title), *(width_of(cell) for cell in self.cells)])

    def line(self, cell: str, width: int) -> str:
        text = cut(cell, width, self.cut_end)
        return f"{text:{self.align}{width - width_of(text) + len(text)}}"


def terminal() -> Layout:
    """Returns the layout for the standard output. The width is $COLUMNS if set, else that of the terminal. For a file
    or a pipe it is unlimited."""
    known = shutil.get_terminal_size((0, 0)).columns
    if known or sys.stdout is None or not sys.stdout.isatty():
        return Layout(known or None)
    return Layout(_UNKNOWN_TERMINAL)


def fitted(columns: Sequence[TextColumn], width: int) -> tuple[list[str], list[str]]:
    """Returns the lines (a rule, the titles, a rule, the cells, a rule), and notes about what is left out."""
    # Widens the text columns on wide terminals, where longer names are more useful than more columns.
    columns = [
        column if column.least is None else column._replace(least=max(column.least, width * 3 // 10))
        for column in columns
    ]
    shown = list(columns)
    while _least(shown) > width and any(column.rank for column in shown):
        # A table of names without numbers is useless. So the last column that could be left out stays if it fits when
        # names are cut more.
        narrow = [column if column.least is None else column._replace(least=_NARROWEST) for column in shown]
        if sum(column.rank > 0 for column in shown) == 1 and _least(narrow) <= width:
            break
        shown.remove(max(shown, key=lambda column: (column.rank, columns.index(column))))
    widths = _widths(shown, width)
    notes = []
    if hidden := [column.title for column in columns if column not in shown]:
        notes.append(f"Hidden to fit {width} columns: {', '.join(hidden)}; --wide shows them")
    elif any(column.width > final for column, final in zip(shown, widths, strict=True)):
        notes.append(f"Texts are cut to fit {width} columns; --wide shows all of them")
    return lines_of(shown, widths), notes


def as_torch(
    columns: Sequence[TextColumn], widths: Sequence[int], measure: Callable[[str], int] | None = None
) -> list[str]:
    """Returns the lines of a table as torch prints it. A gap follows every column, even the last, and texts are never
    cut. `measure` returns the width of a text; in torch that is the number of characters."""
    how_wide = measure or width_of
    pairs = list(zip(columns, widths, strict=True))
    rule = "".join("-" * width + GAP for width in widths)

    def line(cells: Iterable[str]) -> str:
        return "".join(
            f"{cell:{column.align}{max(0, width - how_wide(cell)) + len(cell)}}{GAP}"
            for cell, (column, width) in zip(cells, pairs, strict=True)
        )

    rows = zip(*(column.cells for column in columns), strict=True)
    return [rule, line(column.title for column in columns), rule, *map(line, rows), rule]


def lines_of(columns: Sequence[TextColumn], widths: Sequence[int]) -> list[str]:
    pairs = list(zip(columns, widths, strict=True))
    rule = GAP.join("-" * width for _, width in pairs)
    titles = GAP.join(column._replace(cut_end=True).line(column.title, width) for column, width in pairs)
    count = len(columns[0].cells) if columns else 0
    rows = [GAP.join(column.line(column.cells[row], width) for column, width in pairs) for row in range(count)]
    return [line.rstrip() for line in (rule, titles, rule, *rows, rule)]


def _least(columns: Sequence[TextColumn]) -> int:
    widths = [column.width if column.least is None else min(column.width, column.least) for column in columns]
    return sum(widths) + len(GAP) * (len(columns) - 1)


def _widths(columns: Sequence[TextColumn], width: int) -> list[int]:
    """Returns the widths of the columns. Columns of numbers get the width that they need, and text columns share the
    rest. If a text column needs less than its share, the other text columns get more."""
    widths = {number: column.width for number, column in enumerate(columns) if column.least is None}
    room = width - sum(widths.values()) - len(GAP) * (len(columns) - 1)
    names = sorted((column.width, number) for number, column in enumerate(columns) if column.least is not None)
    for done, (needed, number) in enumerate(names):
        widths[number] = min(needed, max(_NARROWEST, room // (len(names) - done)))
        room -= widths[number]
    return [widths[number] for number in range(len(columns))]


def wrapped(first: str, text: str, width: int, rest: str | None = None) -> list[str]:
    """Wraps words into lines. The first line begins with `first`. Later lines begin with `rest`, or with spaces as long
    as `first`. Long words and commands between backticks are not split, because people copy them."""
    glued = re.sub(_COMMAND, lambda command: command[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(
        glued,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        expand_tabs=False,  # keeps tabs, because control characters are escaped later
        replace_whitespace=False,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace("\0", " ") for line in lines]


def width_of(text: str) -> int:
    """Returns the number of terminal columns that a text takes. Chinese, Japanese and Korean characters take two
    columns."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int, cut_end: bool, dots: str = _DOTS) -> str:
    """Cuts the text to at most this width. Dots replace the end or the middle of the text."""
    if width_of(text) <= width:
        return text
    if width <= len(dots):
        return _start(text, width)
    room = width - len(dots)
    end = 0 if cut_end else room // 2
    return _start(text, room - end) + dots + _start(text[::-1], end)[::-1]


def _start(text: str, width: int) -> str:
    """Returns the longest prefix that fits `width` columns."""
    start = text[:width]
    while width_of(start) > width:
        start = start[:-1]
    return start
