"""Reads the output of `vtune -report` into a frame: sums by name, never events.

    Task Type,CPU Time,Memory Bound(%)          CSV, with the delimiter that the user chose
    aten::mm,1.234,12.5

    Task Type     Task Time  Task Count         text: columns as wide as their dashes (report_text.py)
    ------------  ---------  ----------
    aten::linear     0.816s      30,000

    Elapsed Time: 324.611s                      a summary: figures, some indented below another, and tables
        CPU Time: 303.336s

Columns have VTune's titles, and hold numbers if all of their cells are numbers: seconds without `s`, shares without
`%`. A summary becomes one long frame with the columns section, name, metric, value (a number) and text (as printed). A
file without VTune's words (report_words.py) is not a report.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sized
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from opspan.errors import NotATrace, ReadError
from opspan.formats.boundary import boundary
from opspan.formats.budget import REPORT, REPORT_COLUMNS, REPORT_TABLES
from opspan.readers.vtune import report_text
from opspan.readers.vtune.report_text import Fact, ReportTable, Text
from opspan.readers.vtune.report_words import KEY, SUMMARY, is_vtunes
from opspan.readers.vtune.result_files import first_bytes
from opspan.tables import Issues

SNIFFED = 1 << 18
# The character after the title of the first column is the delimiter.
HEADER = re.compile(
    rf'(?:(?:{KEY}|Parameter)(?: / [\w ()]+)*|"(?:{KEY})(?: / [\w ()]+)*")(?P<delimiter>[^\w\s(:"/]|[\t:])'
)
ONE_COLUMN = re.compile(rf'"?(?:{KEY})"?\s*')
OTHER_DELIMITERS = "\t;|^,"
LINE_END = re.compile(r"\r\n|\r|\n")  # not Unicode's other line ends, because names may contain them
# VTune overwrites its progress message on a terminal. In a file, the message remains in front of the next output.
PROGRESS = re.compile(
    r"(?:(?:vtune|amplxe(?:-cl)?): )?Executing actions +\d+ %(?: \S+)*(?: {2,}|[ \t]*$)", re.MULTILINE
)
TOOL = re.compile(
    r"(?:vtune|amplxe(?:-cl)?): |Column filter is ON|war:|Intel\(R\) VTune|Executing actions", re.IGNORECASE
)
TOOL_LINE = re.compile(rf"{TOOL.pattern}|Using result path|Copyright ", re.IGNORECASE)
STACK = "Function Stack"
EXPECTED = "expected what `vtune -report hotspots -group-by task -format csv -report-output FILE` writes"

LONG = {"section": pl.String, "name": pl.String, "metric": pl.String, "value": pl.Float64, "text": pl.String}


@dataclass(frozen=True)
class VtuneReport:
    frame: pl.DataFrame  # the table of the report; for a summary, the long frame
    notes: tuple[str, ...] = ()  # lines outside tables and figures: advice, the program's output
    cut: int = 0  # number of rows with more cells than titles
    path: Path | None = None

    @property
    def issues(self) -> Issues:
        issues = Issues(str(self.path) if self.path else None)
        issues.add("report_notes", len(self.notes), repr(self.notes[0][:80]) if self.notes else "")
        issues.add("odd_cells", self.cut, "rows of the report have more cells than it has titles")
        return issues


def read_report(path: Path) -> pl.DataFrame:
    with boundary(path):
        return read(path).frame


def read(path: Path) -> VtuneReport:
    text = _text(path, REPORT.allows() + 1)
    if len(text) > REPORT.allows():
        raise REPORT.passed(path)
    if "\0" in text:
        raise NotATrace(f"{path} is not text; expected the output of `vtune -report`")
    lines, is_tools = _lines(text)
    report = _report(path, lines, is_tools)
    if report is None:
        begins = repr(next((line.strip() for line in lines if line.strip()), "")[:40])
        raise NotATrace(
            f"{path} is not a report of VTune: it begins {begins}, and has no columns or figures that VTune prints; "
            f"{EXPECTED}"
        )
    return replace(report, path=path)


def is_report(path: Path) -> bool:
    """Returns whether a file begins like a report."""
    try:
        text = _text(path, SNIFFED)
        return "\0" not in text and _report(path, *_lines(text)) is not None
    except ReadError:
        return False


def _report(path: Path, lines: list[str], is_tools: bool) -> VtuneReport | None:
    return _of_text(path, report_text.parse(lines), is_tools) or _of_csv(path, lines, is_tools)


def _text(path: Path, most: int) -> str:
    raw = first_bytes(path, most)
    return raw.decode("utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig", "replace")


def _lines(text: str) -> tuple[list[str], bool]:
    """Returns the lines that are not messages of VTune, and whether any message shows that VTune wrote the file (a line
    with a copyright or a result path does not show it)."""
    lines = LINE_END.split(PROGRESS.sub("", LINE_END.sub("\n", text)))
    is_tools = any(TOOL.match(line) for line in lines) or PROGRESS.search(text) is not None
    return [line for line in lines if not TOOL_LINE.match(line)], is_tools


# --- text


def _of_text(path: Path, text: Text, is_tools: bool) -> VtuneReport | None:
    """Returns the report, or None if the text has neither a table nor figures of VTune."""
    _bound(path, text.tables, max((len(table.titles) for table in text.tables), default=0))
    has_tables = any(is_vtunes(table.titles, is_tools=is_tools) for table in text.tables)
    if not has_tables and not (text.is_summary and (text.facts or text.tables)):
        return None
    if len(text.tables) == 1 and not text.is_summary:
        notes = [*text.notes, *text.titles, *(f"{fact.name}: {fact.text or ''}" for fact in text.facts)]
        return VtuneReport(_numbers(_frame(text.tables[0]), path), tuple(notes))
    return VtuneReport(_summary(text.facts, text.tables), tuple(text.notes))


def _frame(table: ReportTable) -> pl.DataFrame:
    return pl.DataFrame(table.rows, schema=dict.fromkeys(_distinct(table.titles), pl.String), orient="row")


def _summary(facts: list[Fact], tables: list[ReportTable]) -> pl.DataFrame:
    rows = [{"section": fact.section, "name": fact.name, "text": fact.text} for fact in facts]
    parts = [_melt(_frame(table), table.section) for table in tables]
    return pl.concat([_with_values(pl.DataFrame(rows, schema=LONG)), *parts])


def _melt(frame: pl.DataFrame, section: str | None) -> pl.DataFrame:
    key = frame.columns[0]
    long = frame.unpivot(index=key, variable_name="metric", value_name="text").rename({key: "name"})
    long = long.with_columns(
        pl.col("name", "text").cast(pl.String).str.strip_chars()
    )  # `text` has the type Null if the table has only one column
    return _with_values(long.with_columns(section=pl.lit(section, dtype=pl.String)))


def _from_long(frame: pl.DataFrame) -> pl.DataFrame:
    """Converts a summary in CSV, whose columns are SUMMARY, to the long frame."""
    level, name, value = (pl.col(column) for column in SUMMARY)
    return _with_values(frame.select(section=level, name=name.str.strip_chars(), text=value.str.strip_chars()))


def _with_values(frame: pl.DataFrame) -> pl.DataFrame:
    text = pl.col("text") if "text" in frame.columns else pl.lit(None, dtype=pl.String)
    missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in LONG.items() if name not in frame.columns]
    return frame.with_columns(missing).with_columns(_number(text).alias("value")).select(LONG.keys())


# --- CSV


def _of_csv(path: Path, lines: list[str], is_tools: bool) -> VtuneReport | None:
    """Returns the tables in CSV, or None if no line has titles. Each line of titles begins a table."""
    heads = list(_headers(lines, is_tools))
    if not heads:
        return None
    _bound(path, heads, max(lines[place].count(delimiter) for place, delimiter in heads))
    if lines[heads[0][0]].strip('"').startswith(report_text.PARAMETER):
        return _old_summary(lines, heads[0][1])
    notes = [line.strip() for line in lines[: heads[0][0]] if line.strip()]
    ends = [place for place, _ in heads[1:]] + [len(lines)]
    parts = [_table(path, lines[place:end], delimiter) for (place, delimiter), end in zip(heads, ends, strict=True)]
    cut = sum(part_cut for _, part_cut in parts)
    if len(parts) > 1:
        frames = [_from_long(part) if _is_long(part) else _melt(part, None) for part, _ in parts]
        return VtuneReport(pl.concat(frames), tuple(notes), cut)
    frame = parts[0][0]
    return VtuneReport(_from_long(frame) if _is_long(frame) else _numbers(frame, path), tuple(notes), cut)


def _bound(path: Path, tables: Sized, columns: int) -> None:
    """Raises an error if a report has too many tables, or a table has too many columns. Each table needs a frame in
    memory, and each column needs a series."""
    for limit, count in ((REPORT_TABLES, len(tables)), (REPORT_COLUMNS, columns)):
        if count > limit.allows():
            raise limit.passed(path)


def _is_long(frame: pl.DataFrame) -> bool:
    return tuple(frame.columns[: len(SUMMARY)]) == SUMMARY


def _headers(lines: list[str], is_tools: bool) -> Iterator[tuple[int, str]]:
    """Yields the index of each line of titles, and the delimiter of this line."""
    seen = False
    for place, line in enumerate(lines):
        match = HEADER.match(line)
        if is_tools and not seen and ONE_COLUMN.fullmatch(line):
            yield place, ","
            seen = True
        for delimiter in [match["delimiter"]] if match else OTHER_DELIMITERS:
            if delimiter in line and is_vtunes(_cells(line, delimiter), is_tools=is_tools):
                yield place, delimiter
                seen = True
                break


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:  # a quote that does not end, or an invalid delimiter
        return []


def _table(path: Path, lines: list[str], delimiter: str) -> tuple[pl.DataFrame, int]:
    """Returns the rows below the titles, and the number of rows with more cells than titles."""
    text = "\n".join(line for line in lines if line.strip()) + "\n"
    cut = 0
    try:
        try:
            raw = _csv(text, delimiter, is_cut=False)
        except PolarsError:
            raw = _csv(text, delimiter, is_cut=True)
            rows = csv.reader(io.StringIO(text), delimiter=delimiter)
            cut = sum(any(cell.strip() for cell in row[raw.width :]) for row in rows)
    except (PolarsError, ValueError, csv.Error) as error:
        raise ReadError(f"{path} is a damaged report ({' '.join(str(error).split())[:120]})") from error
    titles = _distinct([(title or "").strip() for title in raw.row(0)])
    return raw.slice(1).rename(dict(zip(raw.columns, titles, strict=True))), cut


def _csv(text: str, delimiter: str, *, is_cut: bool) -> pl.DataFrame:
    return pl.read_csv(
        io.BytesIO(text.encode()),
        has_header=False,
        separator=delimiter,
        infer_schema=False,
        truncate_ragged_lines=is_cut,
    )


def _old_summary(lines: list[str], delimiter: str) -> VtuneReport:
    """Reads a summary in CSV from before 2019. A section has a title, and lines with a name and a value.

    CPU
    Parameter,r002hs
    Logical CPU Count,16
    """
    rows: list[tuple[str | None, str, list[str]]] = []
    notes: list[str] = []
    title = None
    for place, line in enumerate(lines):
        cells = _cells(line, delimiter)
        if cells[:1] == [report_text.PARAMETER] or not any(cells):
            continue
        if len(cells) > 1:
            rows.append((title, cells[0].removesuffix(":"), [delimiter.join(cells[1:]).strip(delimiter)]))
        elif rows and report_text.OS_RELEASE.match(line):
            rows[-1][2].append(line.strip())
        elif delimiter in "".join(lines[place + 1 : place + 2]):
            title = cells[0]
        else:
            notes.append(line.strip())
    facts = [Fact(section, name, "\n".join(texts) or None) for section, name, texts in rows]
    return VtuneReport(_summary(facts, []), tuple(notes))


def _distinct(titles: list[str]) -> list[str]:
    """Adds a number to each title that occurs again."""
    seen: dict[str, int] = {}
    names = []
    for title in titles:
        seen[title] = seen.get(title, 0) + 1
        names.append(title if seen[title] == 1 else f"{title} ({seen[title]})")
    return names if len(set(names)) == len(names) else [f"{name} [{place}]" for place, name in enumerate(names)]


# --- numbers

_NUMBER = r"^([+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(%|[mun]?s)?$"
_UNITS = {"": 1.0, "%": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def _numbers(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Keeps the first column as names; converts each other column to numbers if all of its cells are numbers."""
    if not frame.columns:
        raise NotATrace(f"{path} is a report without columns")
    key, others = frame.columns[0], frame.columns[1:]
    if key == STACK:
        depth = pl.col(key).str.len_chars() - pl.col(key).str.strip_chars_start().str.len_chars()
        frame = frame.with_columns(depth.cast(pl.Int64).alias("depth"))
    frame = frame.with_columns(pl.col(name).str.strip_chars() for name in (key, *others))
    numbers = frame.select(_number(pl.col(name)).alias(name) for name in others)
    return frame.with_columns(
        column
        for column in numbers
        if column.count() and not (column.is_null() & (frame[column.name].fill_null("") != "")).any()
    )


def _number(text: pl.Expr) -> pl.Expr:
    """Parses 1.5, 0.816s, 12.5ms (as seconds), 13.5%, 30,000 and 2.1e9; null for anything else."""
    text = text.str.strip_chars()
    plain = text.str.extract(_NUMBER, 1).str.replace_all(",", "", literal=True).cast(pl.Float64, strict=False)
    return plain * text.str.extract(_NUMBER, 2).fill_null("").replace_strict(
        _UNITS, default=None, return_dtype=pl.Float64
    )
