"""Reads the HTML that a notebook shows, as a browser would, with the parser of Python's library."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Cell:
    text: str = ""
    attributes: dict[str, str | None] = field(default_factory=dict)


class Shown(HTMLParser):
    """Its sentences, the titles of its table and the cells, and the names of all elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.sentences: list[str] = []
        self.titles: list[Cell] = []
        self.rows: list[list[Cell]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag == "th":
            self.titles.append(Cell(attributes=dict(attrs)))
        elif tag == "td":
            self.rows[-1].append(Cell(attributes=dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        where = self._open[-1]
        if where == "div":
            self.sentences.append(data)
        else:
            cell = self.titles[-1] if where == "th" else self.rows[-1][-1]
            cell.text += data

    @property
    def cells(self) -> list[list[str]]:
        return [[cell.text for cell in row] for row in self.rows if row]
