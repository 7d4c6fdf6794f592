"""Reads the shares of a section in a browser, each with the total that it names.

    with browser.open(page) as opened:
        seen = seen_in(opened, "memory")
    assert_shares(seen, "memory")

A share stands in a list of bars, in a column of per cents, as the bar behind a figure, or in a sentence. The page must
name its total: below the list, in the head of the column, below the table, or behind the per cent.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from opspan.views.page.section import Subject
from page.browser import Opened

UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
AMOUNT = r"([0-9.,]+)\s?(ns|µs|ms|s|B|KiB|MiB|GiB)\b"
MINUS = "\N{MINUS SIGN}"
# LOOK returns for each list with shares its rows and the text below it; for each table the columns with per cents and
# those with bars, all cells by the titles of columns, and the text below it; and all other lines with a per cent.
LOOK = r"""section => {
    const isShare = (text) => /^[-+\u2212]?[0-9.]+%$/.test(text.trim());
    const lists = [...section.querySelectorAll("ol.bars, ul.legend")].map((list) => ({
        after: list.nextElementSibling?.textContent ?? "",
        isWhole: list.matches(".legend"),
        rows: [...list.children].map((row) => row.innerText),
    })).filter((list) => list.rows.some((row) => row.includes("%")));
    const tables = [...section.querySelectorAll("table")].map((table) => {
        const heads = [...table.querySelectorAll("thead th")];
        const titles = heads.map((head) => head.innerText.replace(/ [▴▾]$/, ""));
        const rows = [...table.querySelectorAll("tbody tr:not(.detail)")].map((row) => [...row.children]);
        const some = (is) => titles.filter((_, at) => rows.some((row) => row[at] && is(row[at])));
        return {
            name: table.closest("[aria-label]").getAttribute("aria-label"),
            below: table.closest(".table").nextElementSibling?.textContent ?? "",
            help: Object.fromEntries(heads.map((head, at) => [titles[at], head.title])),
            shares: some((cell) => isShare(cell.textContent)),
            bars: some((cell) => cell.matches(".share")),
            rows: rows.map((row) => Object.fromEntries(row.map((cell, at) => [titles[at], {
                text: cell.innerText.trim(),
                title: cell.title,
                part: cell.style.getPropertyValue("--part"),
            }]))),
        };
    });
    const lines = new Set();
    const walker = document.createTreeWalker(section, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const element = node.parentElement;
        if (!/[0-9]%/.test(node.textContent) || element.closest("style, table, ol.bars, ul.legend")) continue;
        lines.add(element.closest("p, li, dd, div").innerText);
    }
    return { lists, tables, lines: [...lines] };
}"""


def seen_in(opened: Opened, section: str) -> dict[str, Any]:
    opened.goto(section)
    return look(opened.at, section)


def look(page: Any, section: str) -> dict[str, Any]:
    """`page`: what has the section, which is open; a frame, perhaps."""
    return dict(page.locator(f"#section-{section}").evaluate(LOOK))


def amount_of(text: str) -> float:
    number, unit = re.findall(AMOUNT, text)[-1]
    return float(number.replace(",", "")) * UNITS[unit]


def percent_of(text: str) -> float:
    """With its sign, which the page writes as people do."""
    return float(re.findall(r"([-+]?[0-9.]+)%", text.replace(MINUS, "-"))[-1])


def assert_shares(seen: dict[str, Any], where: str) -> dict[str, float]:
    """Returns the wholes that the lists name, with their times."""
    wholes: dict[str, float] = {}
    for one in seen["lists"]:
        said = re.fullmatch(r"Shares are of (.+): (.+)", one["after"])
        assert said, f"{where}: nothing says of what {one['rows'][0]!r} is a share"
        whole = wholes[said[1]] = amount_of(said[2])
        shares = [percent_of(row) for row in one["rows"]]
        for row, share in zip(one["rows"], shares, strict=True):
            assert 100 * amount_of(row) / whole == pytest.approx(share, abs=0.15), (where, row)
        if one["isWhole"]:
            assert sum(shares) == pytest.approx(100, abs=0.051 * len(shares)), where
        assert sum(shares) <= 100 + 0.051 * len(shares), where
    for table in seen["tables"]:
        for title in table["shares"]:
            assert table["help"][title], f"{where}: the column {title} does not say of what its cells are shares"
        if table["bars"]:
            assert_bars(table, where)
    return wholes


def assert_bars(table: dict[str, Any], where: str) -> None:
    """Bars behind figures are as long as the share that their cell says, which is that of its figure."""
    said = re.fullmatch(r"Bars are shares of (.+?): (.+)", table["below"])
    assert said, f"{where}: nothing says of what the bars behind {table['bars']} are shares"
    totals = dict(re.findall(r"([^;]+?) ([0-9.,]+ \S+?)(?:; |$)", said[2]))
    assert list(totals) == table["bars"], where
    for title, total in totals.items():
        for row in table["rows"]:
            cell = row[title]
            if not cell["text"]:
                continue
            assert cell["title"].endswith(f"% of {said[1]}"), (where, cell)
            share = percent_of(cell["title"])
            assert percent_of(cell["part"]) == share <= 100, (where, cell)
            # A size has two digits behind the point, so it may be off by one in two hundred.
            assert 100 * amount_of(cell["text"]) / amount_of(total) == pytest.approx(share, rel=0.01, abs=0.15), cell


def bars_of(seen: dict[str, Any], caption: str, title: str, key: str) -> dict[str, float]:
    """Returns the shares of a column's bars, in per cent, by the text of another column."""
    (table,) = (one for one in seen["tables"] if one["name"] == caption)
    return {row[key]["text"]: percent_of(row[title]["title"]) for row in table["rows"] if row[title]["text"]}


def subject_of(trace: Any, other: Any = None) -> Subject:
    """Returns the subject of a page, for tests that look at the data of a section."""
    return Subject(trace.analysed, paths(trace), other and other.analysed, paths(other) if other else ())


def paths(trace: Any) -> tuple[Path, ...]:
    return tuple(Path(path) for rank in trace.ranks for path in rank.paths)
