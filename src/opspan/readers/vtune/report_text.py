"""Parses the text of a report line by line into tables, figures (a name with a value) and notes.

    Elapsed Time: 9.094s                                 a figure
    Effective CPU Utilization: 18.6%                     a figure
     | The metric value is low, which may signal ...     advice: a note
        Spin Time: 0s                                    a figure within the figure above it

        Top Waiting Objects                              a title
        Sync Object   Wait Time  Wait Count              a table: columns as wide as their dashes
        ------------  ---------  ----------
        Stream 0xe1      0.000s           1

    Collection and Platform Info                         a title, underlined (before 2019)
    ----------------------------

In a summary, figures or another table may follow a table. In any other report, the table lasts to the end of the
report, even if empty lines separate its rows, as in the lines of a source file or the blocks of a call graph. Lines of
any other kind are notes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from opspan.readers.vtune import report_words as words

RULE = re.compile(r" *-+(?: {2,}-+)* *")
# Matches figures such as `Elapsed Time: 9.094s` and `NUMA: % of Remote Accesses: 1.2%`.
FACT = re.compile(r"(?P<name>[^:]+?(?:: % of [^:]+)?):(?:\s+(?P<value>.*))?")
ADVICE = re.compile(r"\s*\|(?:\s|$)")
# The first words of notes that may follow a summary. Such a note may have several lines.
CLOSING = re.compile(r"If you want to skip descriptions of detected performance issues|\*\s?N/A is applied")
PARAMETER = "Parameter"
RECOMMENDED = "Recommendations"
# Matches lines of /etc/os-release. Some versions of VTune print these lines with the system's name.
OS_RELEASE = re.compile(r"[A-Z][A-Z0-9_]*=")
DEEPEST = 64  # limit on levels of titles, because a figure's section holds all titles above it
FAR = 100  # limit on lines between two rows of a table in a summary


@dataclass
class ReportTable:
    titles: list[str]
    section: str | None
    rows: list[list[str]] = field(default_factory=list)


@dataclass
class Fact:
    section: str | None
    name: str
    text: str | None


@dataclass
class Text:
    tables: list[ReportTable] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)  # titles of sections
    notes: list[str] = field(default_factory=list)  # all other lines

    @property
    def is_summary(self) -> bool:
        within = any(
            fact.name == words.WITHIN_ELAPSED and (fact.section or "").endswith(words.ELAPSED) for fact in self.facts
        )
        return within or words.is_summary([*self.titles, *(fact.name for fact in self.facts)])


def parse(lines: list[str]) -> Text:
    return _Parser(lines).parse()


class _Columns:
    """The positions of a table's columns. The dashes under the titles show them."""

    def __init__(self, rule: str) -> None:
        self.spans = [match.span() for match in re.finditer(r"-+", rule)]
        self.indent = self.spans[0][0]
        self._gaps = [(one[1], other[0]) for one, other in pairwise(self.spans)]
        begins = [begin for begin, _ in self.spans]
        # Positions count characters, not bytes. Each column ends where the next column begins, and the last column ends
        # with the line.
        self._ends: list[tuple[int, int | None]] = list(zip(begins, [*begins[1:], None], strict=True))

    def cells(self, line: str) -> list[str] | None:
        """Returns the text in each column; None if the line does not fit the columns."""
        if line[: self.indent].strip() or any(line[begin:end].strip() for begin, end in self._gaps):
            parts = re.split(r" {2,}", line.strip())
            # A cell that is wider than VTune expected moves the later cells of its line to the right.
            return parts if len(parts) == len(self.spans) > 2 and not line[: self.indent].strip() else None
        first, *others = (line[begin:end] for begin, end in self._ends)
        # Keeps the indentation of the first cell, because it is the row's depth.
        return [first.rstrip(), *(cell.strip() for cell in others)]

    def is_row(self, line: str, printed: int) -> bool:
        """Returns whether a line is certainly a row. A row reaches the last column, or has at least two cells. In each
        column but the first, the text begins where the dashes begin, or ends where they end."""
        cells = self.cells(line)
        if cells is None or (printed <= self.spans[-1][0] and sum(map(bool, cells)) < min(2, len(cells))):
            return False
        return all(
            not line[begin:end].strip() or line[begin] != " " or (len(line) >= end and line[end - 1] != " ")
            for begin, end in self.spans[1:]
        )


class _Parser:
    def __init__(self, lines: list[str]) -> None:
        self._lines = [line.rstrip() for line in lines]
        self._widths = [len(line) for line in lines]
        self._at = 0
        self._path: list[tuple[int, str]] = []  # indentation and name of each title above the current line
        self._title: str | None = None  # title of the table, if one begins at the current line
        self._text = Text()
        self._is_summary = any(
            words.is_summary([line.strip()]) or (place and self._lines[place - 1] and self._is_table(place, False))
            for place, line in enumerate(self._lines)
        )

    def parse(self) -> Text:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line:
                self._at += 1
            elif self._is_table(self._at):
                self._take_table()
            else:
                self._take_line(line)
        return self._text

    # --- tables

    def _is_rule(self, place: int) -> bool:
        return (
            place < len(self._lines) and "--" in self._lines[place] and RULE.fullmatch(self._lines[place]) is not None
        )

    def _is_table(self, place: int, in_summary: bool | None = None) -> bool:
        """Returns whether a table begins at this line: the line has titles, and the next line has dashes below them."""
        if not self._is_rule(place + 1) or self._is_rule(place):
            return False
        columns = _Columns(self._lines[place + 1])
        titles = columns.cells(self._lines[place])
        if titles is None or not all(titles):
            return False
        # A single title with dashes below it begins a section, unless it is a grouping of VTune outside of a summary.
        is_summary = self._is_summary if in_summary is None else in_summary
        return len(titles) > 1 or (titles[0].strip() in words.KEYS and not is_summary)

    def _take_table(self) -> None:
        columns = _Columns(self._lines[self._at + 1])
        titles = [title.strip() for title in columns.cells(self._lines[self._at]) or ()]
        table = ReportTable(titles, self._title)
        self._title = None
        self._at += 2
        while (place := self._next_row(columns)) is not None:
            between = [line for line in self._lines[self._at : place] if line]
            if table.rows and self._is_summary:
                table.rows[-1][-1] = "\n".join([table.rows[-1][-1], *between])  # the last cell has several lines
            else:
                self._text.notes += between
            table.rows.append(columns.cells(self._lines[place]) or [])
            self._at = place + 1
        if (
            titles[0] == PARAMETER and len(titles) == 2
        ):  # versions before 2019 print figures as a table, and the second title is the result's name
            self._text.facts += [Fact(table.section, name.strip(), text or None) for name, text in table.rows]
        else:
            self._text.tables.append(table)

    def _next_row(self, columns: _Columns) -> int | None:
        """Returns the index of the line with the next row; None if the table has ended."""
        seen_gap = False
        for place in range(self._at, len(self._lines)):
            line = self._lines[place]
            if not line:
                seen_gap = True
                continue
            if self._is_rule(place) or self._is_rule(place + 1) or ADVICE.match(line) or CLOSING.match(line.strip()):
                return None
            if not self._is_summary:
                if columns.cells(line) is not None:
                    return place
                continue
            # After an empty line, a line that looks like a figure or like a table's title is not taken for a row.
            is_other = seen_gap and (FACT.fullmatch(line.strip()) or self._is_table(place + 1))
            if columns.is_row(line, self._widths[place]) and not is_other:
                return place
            is_continued = (
                not line.startswith(" ") and not FACT.fullmatch(line) and (not seen_gap or OS_RELEASE.match(line))
            )
            if not is_continued or place - self._at > FAR:
                return None
        return None

    # --- other lines

    def _take_line(self, line: str) -> None:
        text = line.strip()
        indent = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip(" "))
        self._title = None
        if ADVICE.match(line):
            self._note(text.lstrip("| ").strip())
        elif CLOSING.match(text):
            self._take_closing()
        elif self._is_rule(self._at):
            self._note(text)
        elif self._is_rule(self._at + 1):
            self._take_title(-1, text)
            self._at += 1
        elif indent and any(name == RECOMMENDED for _, name in self._path):
            self._note(text)
        elif (match := FACT.fullmatch(text)) and (indent or not text[0].islower()):
            self._take_fact(indent, match["name"].strip(), (match["value"] or "").strip())
        elif self._has_more(indent):
            self._take_title(indent, text)
        else:
            self._note(text)
        self._at += 1

    def _note(self, text: str) -> None:
        if text:
            self._text.notes.append(text)

    def _take_closing(self) -> None:
        """Adds notes: the current line, and the lines below it that come before an empty line or a table."""
        while True:
            self._note(self._lines[self._at].strip())
            following = self._at + 1
            if following >= len(self._lines) or not self._lines[following] or self._is_table(following):
                return
            if CLOSING.match(self._lines[self._at].strip()) and self._lines[self._at].endswith("."):
                return  # the note has only one line
            self._at = following

    def _system(self, value: str) -> str:
        """Returns the value together with the lines of /etc/os-release that follow it."""
        lines = [value]
        while True:
            place = self._at + 1
            while place < len(self._lines) and not self._lines[place]:
                place += 1
            if place >= len(self._lines) or not OS_RELEASE.match(self._lines[place]):
                return "\n".join(lines)
            lines.append(self._lines[place])
            self._at = place

    def _take_fact(self, indent: int, name: str, value: str) -> None:
        self._leave(indent)
        if value or not self._has_more(indent):
            text = self._system(value) if "=" in value else value
            self._text.facts.append(Fact(self._section(), name, text or None))
        else:
            self._text.titles.append(name)
        self._enter(indent, name)
        self._title = name if not value else None

    def _take_title(self, indent: int, text: str) -> None:
        self._leave(indent)
        self._enter(indent, text)
        self._text.titles.append(text)
        self._title = text

    def _enter(self, indent: int, name: str) -> None:
        if len(self._path) < DEEPEST:
            self._path.append((indent, name))

    def _leave(self, indent: int) -> None:
        """Ends the sections whose titles are indented at least as much as this line."""
        while self._path and self._path[-1][0] >= indent:
            self._path.pop()

    def _section(self) -> str | None:
        return " / ".join(name for _, name in self._path) or None

    def _has_more(self, indent: int) -> bool:
        """Returns whether the next line is indented more than this line, or begins a table. Skips empty lines and
        advice."""
        for place in range(self._at + 1, len(self._lines)):
            line = self._lines[place]
            if line and not ADVICE.match(line):
                return len(line) - len(line.lstrip()) > indent or self._is_table(place)
        return False
