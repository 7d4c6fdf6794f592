"""What `vtune -report` prints, as a frame: sums by name, never events.

    Task Type,CPU Time,Memory Bound(%)          CSV, with whatever delimiter was asked for
    aten::mm,1.234,12.5

    Task Type     Task Time  Task Count         text: columns as wide as their dashes
    ------------  ---------  ----------
    aten::linear     0.816s      30,000

    Elapsed Time: 324.611s                      a summary: what is inside something is indented; and tables as above
        CPU Time: 303.336s

Columns are called as VTune titles them, and hold numbers where all of their cells are some: seconds without `s`, shares
without `%`. A summary becomes one long frame: section, name, metric, value (a number), text (as it was printed).
"""

from __future__ import annotations

import io
import re
from itertools import pairwise
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from opspan.errors import NotATrace, NotReadable, ReadError

LARGEST = 256 << 20

# What the first column may be called; the character after it is the delimiter.
KEYS = (
    "Task Type",
    "Task Domain",
    "Host Task",
    "Computing Task",
    "Source Computing Task",
    "Function Stack",
    "Function Range",
    "Function",
    "Source Function",
    "Hierarchy Level",
    "Module",
    "Module Path",
    "Process",
    "Thread",
    "Source File",
    "Frame Domain",
    "Call Stack",
    "Callsite",
    "Package",
    "Core",
    "Hardware Event Type",
)
_KEY = "|".join(re.escape(key) for key in sorted(KEYS, key=len, reverse=True))
HEADER = re.compile(rf'(?:(?:{_KEY})(?: / [\w ()]+)*|"(?:{_KEY})(?: / [\w ()]+)*")(?P<delimiter>[^\w\s(:"/]|[\t:])')
ONE_COLUMN = re.compile(rf'"?(?:{_KEY})"?\s*')
OTHER_DELIMITERS = "\t;|^,"
# Progress stands in front of what is printed after it, as if it were overwritten.
PROGRESS = re.compile(r"(?:vtune|amplxe(?:-cl)?): Executing actions +\d+ %(?: \S+)*(?: {2,}|\r|[ \t]*$)", re.MULTILINE)
SAID = re.compile(r"(?:vtune|amplxe(?:-cl)?): |Column filter is ON|war:|Copyright |Intel\(R\) VTune", re.IGNORECASE)
DASHES = re.compile(r"-{2,}(?: +-{2,})*\s*")
FACT = re.compile(r"(?P<indent> *)(?P<name>[^:]+?):(?: +(?P<value>.*?))?\s*")
LEVEL_SPACES = 4
STACK = "Function Stack"
SUMMARY = ("Hierarchy Level", "Metric Name", "Metric Value")

LONG = {"section": pl.String, "name": pl.String, "metric": pl.String, "value": pl.Float64, "text": pl.String}


def read_report(path: Path) -> pl.DataFrame:
    """A summary as a long frame, every other report as its one table."""
    lines = _lines(path)
    dashed = [
        place for place, line in enumerate(lines) if place and DASHES.fullmatch(line) and lines[place - 1].strip()
    ]
    if dashed:
        tables = [_Table(lines, place) for place in dashed]
        held = {place for table in tables for place in table.places}
        rest = [line for place, line in enumerate(lines) if place not in held]
        if len(tables) == 1 and not any(FACT.fullmatch(line) for line in rest):
            return _numbers(tables[0].frame(), path)
        return _summary(rest, tables)
    frame = _csv(path, lines)
    if frame is None:
        facts = _summary(lines, [])
        if not facts.height:
            raise NotATrace(
                f"{path} is no report of VTune: it has no line of column titles; expected what `vtune -report hotspots "
                "-group-by task -format csv -report-output FILE` writes"
            )
        return facts
    if tuple(frame.columns[: len(SUMMARY)]) == SUMMARY:
        return _long(frame)
    return _numbers(frame, path)


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise NotReadable(f"cannot read {path}: {error.strerror}") from error
    if len(raw) > LARGEST:
        raise NotReadable(f"{path} is larger than {LARGEST >> 20} MiB; expected a report, which is some kilobytes")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = raw.decode("utf-16", "replace")
    else:
        text = raw.decode("utf-8-sig", "replace")
    if "\0" in text:
        raise NotATrace(f"{path} is no text; expected what `vtune -report` prints")
    return [line for line in PROGRESS.sub("", text).splitlines() if not SAID.match(line)]


# --- text


class _Table:
    """A table whose columns are as wide as their dashes, with one blank line or the end after it."""

    def __init__(self, lines: list[str], dashes: int) -> None:
        self._lines, self._dashes = lines, dashes
        self._spans = [match.span() for match in re.finditer(r"-+", lines[dashes])]
        end = dashes + 1
        while end < len(lines) and self._is_row(lines[end]):
            end += 1
        self._end = end
        above = lines[dashes - 2].strip() if dashes > 1 else ""
        self._titled = bool(above) and not FACT.fullmatch(above)
        self.section = above if self._titled else None

    def _is_row(self, line: str) -> bool:
        """Between its columns a row has nothing; so has no line of a summary that follows without a blank one."""
        gaps = [(one[1], other[0]) for one, other in pairwise(self._spans)]
        clear = not any(line[begin:end].strip() for begin, end in gaps)
        return bool(line.strip()) and clear and (len(self._spans) == 1 or len(line) > self._spans[-1][0])

    @property
    def places(self) -> range:
        """The lines that it is made of."""
        return range(self._dashes - (2 if self._titled else 1), self._end)

    @property
    def begin(self) -> int:
        return self._dashes - 1

    def frame(self) -> pl.DataFrame:
        titles = _unlike([self._lines[self.begin][slice(*span)].strip() for span in self._ends()])
        rows = pl.Series("row", self._lines[self._dashes + 1 : self._end], dtype=pl.String).to_frame()
        # By characters: dashes and names may be of several bytes.
        cells = [
            pl.col("row").str.slice(begin, None if end is None else end - begin).alias(title)
            for title, (begin, end) in zip(titles, self._ends(), strict=True)
        ]
        return rows.select(cells)

    def _ends(self) -> list[tuple[int, int | None]]:
        """Each column up to the next; the last as far as the line goes."""
        begins = [begin for begin, _ in self._spans]
        return list(zip(begins, [*begins[1:], None], strict=True))


def _summary(lines: list[str], tables: list[_Table]) -> pl.DataFrame:
    """All of a summary: what is indented belongs to what stands above it."""
    parts = [_melted(table.frame(), table.section) for table in tables]
    facts: list[dict[str, str | None]] = []
    path: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        found = FACT.fullmatch(line)
        depth = (len(line) - len(line.lstrip(" "))) // LEVEL_SPACES
        name = found["name"].strip() if found else line.strip()
        if found and found["value"]:
            facts.append({"section": " / ".join(path[:depth]) or None, "name": name, "text": found["value"]})
        path = [*path[:depth], name]
    return pl.concat([_valued(pl.DataFrame(facts, schema=LONG)), *parts])


def _melted(frame: pl.DataFrame, section: str | None) -> pl.DataFrame:
    key = frame.columns[0]
    long = frame.unpivot(index=key, variable_name="metric", value_name="text").rename({key: "name"})
    long = long.with_columns(pl.col("name").str.strip_chars(), pl.col("text").str.strip_chars())
    return _valued(long.with_columns(section=pl.lit(section, dtype=pl.String)))


def _long(frame: pl.DataFrame) -> pl.DataFrame:
    """A summary in CSV: its depth, what it is, how much."""
    level, name, value = (pl.col(column) for column in SUMMARY)
    return _valued(frame.select(section=level, name=name.str.strip_chars(), text=value.str.strip_chars()))


def _valued(frame: pl.DataFrame) -> pl.DataFrame:
    text = pl.col("text") if "text" in frame.columns else pl.lit(None, dtype=pl.String)
    missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in LONG.items() if name not in frame.columns]
    return frame.with_columns(missing).with_columns(_number(text).alias("value")).select(LONG.keys())


# --- CSV


def _csv(path: Path, lines: list[str]) -> pl.DataFrame | None:
    """The table that begins with the first line of titles; None where there is none."""
    place, delimiter = _header(lines)
    if place is None:
        return None
    text = "\n".join(lines[place:]).strip("\n") + "\n"
    try:
        raw = pl.read_csv(
            io.BytesIO(text.encode()),
            has_header=False,
            separator=delimiter,
            infer_schema=False,
            truncate_ragged_lines=True,
        )
    except (PolarsError, ValueError) as error:
        raise ReadError(f"{path} is a damaged report ({' '.join(str(error).split())[:120]})") from error
    titles = _unlike([(title or "").strip() for title in raw.row(0)])
    return raw.slice(1).rename(dict(zip(raw.columns, titles, strict=True)))


def _header(lines: list[str]) -> tuple[int | None, str]:
    for place, line in enumerate(lines):
        if match := HEADER.match(line):
            return place, match["delimiter"]
        if ONE_COLUMN.fullmatch(line):
            return place, ","
    # By something else than the usual: the first two lines that are cut alike.
    for place, (line, following) in enumerate(pairwise(lines)):
        for delimiter in OTHER_DELIMITERS:
            if line.count(delimiter) == following.count(delimiter) > 0 and not FACT.fullmatch(line):
                return place, delimiter
    return None, ","


def _unlike(titles: list[str]) -> list[str]:
    """The titles; one that stands there again gets a number."""
    seen: dict[str, int] = {}
    made = []
    for title in titles:
        seen[title] = seen.get(title, 0) + 1
        made.append(title if seen[title] == 1 else f"{title} ({seen[title]})")
    return made if len(set(made)) == len(made) else [f"{title} [{place}]" for place, title in enumerate(made)]


# --- numbers


def _numbers(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """The first column as names, each other one as numbers where all of its cells are some."""
    if not frame.columns:
        raise NotATrace(f"{path} is a report without columns")
    key, others = frame.columns[0], frame.columns[1:]
    if key == STACK:
        depth = pl.col(key).str.len_chars() - pl.col(key).str.strip_chars_start().str.len_chars()
        frame = frame.with_columns(depth.cast(pl.Int64).alias("depth"))
    frame = frame.with_columns(pl.col(name).str.strip_chars() for name in (key, *others))
    found = frame.select(_number(pl.col(name)).alias(name) for name in others)
    is_number = [
        name
        for name in others
        if found[name].count() and not (found[name].is_null() & (frame[name].fill_null("") != "")).any()
    ]
    return frame.with_columns(found[name] for name in is_number)


def _number(text: pl.Expr) -> pl.Expr:
    """1.5, 0.816s, 13.5%, 30,000; nothing else."""
    plain = text.str.strip_chars().str.extract(
        r"^([+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*[s%]?$"
    )
    return plain.str.replace_all(",", "", literal=True).cast(pl.Float64, strict=False)
