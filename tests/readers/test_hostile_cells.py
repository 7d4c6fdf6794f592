"""Databases whose cells hold anything at all: a Trace with issues or an OpspanError of one line, never anything else.

A file that a builder made is taken, its tables lose their types, and cells are exchanged for what nobody would write.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import opspan
from builders import nsys, nvprof, rocpd
from opspan.analysis import analyse
from opspan.errors import OpspanError
from opspan.tables import side_by_side
from opspan.trace import Trace
from tiers import before_release

FILES: dict[str, Callable[[Path], Path]] = {
    "nsys 2019": lambda path: nsys.run(path, "2019"),
    "nsys 2026": lambda path: nsys.run(path, "2026"),
    "nvprof 8": lambda path: nvprof.run(path, 8),
    "nvprof 26": lambda path: nvprof.run(path, 26),
    "rocprof": lambda path: rocpd.rocprof(path),
    "rpd": lambda path: rocpd.rpd(path),
}
# As SQL has them: no number, one that is no time, one past every type, one that is none, bytes, text that is no UTF-8.
ODD = [
    "NULL",
    "''",
    "'text'",
    "0",
    "-1",
    "1",
    "0.5",
    "-0.5e-300",
    "9e999",
    "-9e999",
    "9223372036854775807",
    "-9223372036854775808",
    "4611686018427387905",
    "4294967296",
    "2147483648",
    "'9223372036854775808'",
    "'0x10'",
    "' 12'",
    "'nan'",
    "x''",
    "x'00ff'",
    "zeroblob(12)",
    "zeroblob(3000)",
    "CAST(x'fffe00c3' AS TEXT)",
    "CAST(x'41004200' AS TEXT)",
    "replace(hex(zeroblob(2000)), '0', '[')",
    "'[[1, 2], [' || char(0) || '\u202e\U0001f525'",
    '\'{"message": 1e999, "message": {}}\'',
    "'_Z1f1AIiiES_IS0_S0_ES_IS1_S1_E'",
]


def untyped(made: Path, path: Path) -> dict[str, list[str]]:
    """The same tables, with columns that hold what they are given; each row as often as there are odd things."""
    tables = {}
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"ATTACH '{made}' AS made")
        names = database.execute(
            "SELECT name FROM made.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
        for (name,) in names.fetchall():
            columns = [row[1] for row in database.execute(f'PRAGMA made.table_info("{name}")')]
            listed = ", ".join(f"[{column}]" for column in columns)
            database.execute(f'CREATE TABLE "{name}" ({listed})')
            if not database.execute(f'SELECT count(*) FROM made."{name}"').fetchone()[0]:
                database.execute(f'INSERT INTO "{name}" DEFAULT VALUES')
            times = f"WITH n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT {len(ODD)})"
            database.execute(
                f'INSERT INTO "{name}" {times} SELECT {listed} FROM n, (SELECT * FROM made."{name}" LIMIT 3)'
            )
            tables[name] = columns
    return tables


@pytest.fixture(scope="module", params=FILES)
def source(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, list[str]]]:
    folder = tmp_path_factory.mktemp("hostile")
    made = FILES[request.param](folder / "made")
    return folder / "file", untyped(made, folder / "file")


def spoilt(path: Path, to: Path, cells: dict[tuple[str, str], list[str]]) -> Path:
    """A copy in which the rows of each column hold the values in turn; "" leaves what is there."""
    to.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(to)) as database, database:
        for (table, column), values in cells.items():
            cases = "WHEN -1 THEN NULL " + " ".join(f"WHEN {n} THEN {value}" for n, value in enumerate(values) if value)
            database.execute(
                f'UPDATE "{table}" SET [{column}] = CASE rowid % {len(values)} {cases} ELSE [{column}] END'
            )
    return to


def read(path: Path) -> Trace | None:
    try:
        trace = opspan.load(path)
        analyse(trace)
        trace.events().key_averages().table()
    except OpspanError as error:
        assert "\n" not in str(error)  # noqa: PT017 - a refusal is as good as a trace
        return None
    return trace


@pytest.mark.slow
@pytest.mark.release
def test_every_column_may_hold_anything(source: tuple[Path, dict[str, list[str]]], tmp_path: Path) -> None:
    """One column of each table at a time; by itself where another had the file refused, and was all that was seen."""
    path, tables = source
    for number in range(max(map(len, tables.values()))):
        together = [(table, columns[number]) for table, columns in tables.items() if number < len(columns)]
        if read_spoilt(path, tmp_path / "x", together) is None:
            for one in together:
                read_spoilt(path, tmp_path / "x", [one])


def read_spoilt(path: Path, to: Path, columns: list[tuple[str, str]]) -> Trace | None:
    try:
        return read(spoilt(path, to, dict.fromkeys(columns, ODD)))
    except BaseException as error:
        raise AssertionError(f"one of {columns}") from error


@pytest.mark.slow
@pytest.mark.parametrize("odd", before_release(ODD, kept=len(ODD) // 2), ids=range(len(ODD)))
def test_every_cell_may_be_anything(source: tuple[Path, dict[str, list[str]]], tmp_path: Path, odd: str) -> None:
    path, tables = source
    cells = {(table, column): [odd] for table, columns in tables.items() for column in columns}
    read(spoilt(path, tmp_path / "x", cells))


@pytest.mark.slow
@pytest.mark.parametrize("seed", before_release(range(6), kept=2))
def test_some_cells_may_be_anything(source: tuple[Path, dict[str, list[str]]], tmp_path: Path, seed: int) -> None:
    path, tables = source
    chance = random.Random(seed)
    share = chance.choice([0.02, 0.1, 0.4])
    cells = {
        (table, column): [chance.choice(ODD) if chance.random() < share else "" for _ in range(31)]
        for table, columns in tables.items()
        for column in columns
    }
    trace = read(spoilt(path, tmp_path / "x", cells))
    if trace is not None:
        assert not trace.issues.is_empty()
        assert side_by_side([analyse(trace), trace]).ranges.height == 2 * trace.ranges.height
