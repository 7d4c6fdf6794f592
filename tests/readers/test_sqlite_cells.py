"""The reader of SQLite's pages gives what SQLite gives, rows and issues, or it leaves a table to SQLite."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path

import polars as pl
import pytest

from opspan.errors import OpspanError
from opspan.formats import sqlite, sqlite_cells
from opspan.formats.sqlite import ROWID, SqliteFile, quoted
from opspan.formats.sqlite_cells import Type
from opspan.tables import Issues
from readers.sqlite_twice import PAGES, PLAIN, BySqlite, reserve, told
from real_files import in_parts, part_of

TRACES = Path(__file__).parents[3] / "shared" / "traces"
TABLE = "CREATE TABLE t (a INTEGER, b INTEGER, c REAL, d TEXT, e BLOB)"


def layout(database: sqlite3.Connection) -> sqlite_cells.TableLayout | None:
    """Returns the layout of table t."""
    roots = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'").fetchall()
    columns = database.execute("PRAGMA table_xinfo(t)").fetchall()
    return sqlite_cells.layout_of(database, quoted("t"), sqlite_cells.TableFacts([root for (root,) in roots], columns))


def read(path: Path, columns: Mapping[str, Type] = PLAIN) -> tuple[pl.DataFrame | None, str]:
    """Returns table t by the reader of pages alone, or the reason why it cannot read it."""
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database,
        sqlite_cells.opened(path) as descriptor,
    ):
        where = layout(database)
        assert where is not None
        found = sqlite_cells.read(descriptor, where, columns, 2, 1 << 30)
        return (None, found) if isinstance(found, str) else (found[0], "")


def made(path: Path, rows: Sequence[Sequence[object]], *more: str, page: int = 4096, table: str = TABLE) -> Path:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA page_size = {page}")
        database.execute(table)
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            names = ", ".join("abcde"[: len(rows[0])])
            database.executemany(f"INSERT INTO t ({names}) VALUES ({marks})", rows)
        database.commit()
        for statement in more:
            database.execute(statement)
            database.commit()
    return path


def said(path: Path) -> str:
    """Why the reader of pages declines; nothing if it does not."""
    try:
        return read(path)[1]
    except sqlite3.Error as error:
        return str(error)


def usual(count: int) -> list[tuple[int | None, int, float, str | None, bytes]]:
    return [
        (
            None if n % 7 == 3 else (-1) ** n * 3**n % 2**62,
            n % 2**31,
            n / 7 if n % 3 else float(n),
            None if n % 11 == 5 else f"a longer text, of which there are {n % 50}"[: n % 60],
            bytes([n % 256]) * (n % 4000 if n % 97 == 0 else n % 20),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("count", [0, 1, 9, 5_000])
def test_a_plain_table_is_read_from_its_pages(tmp_path: Path, page: int, count: int) -> None:
    rows = usual(count)
    path = made(tmp_path / "x.sqlite", rows, page=page)
    frame, why = read(path)
    assert not why
    assert frame is not None
    assert frame.drop(ROWID).rows() == rows
    assert frame[ROWID].to_list() == list(range(1, count + 1))
    assert told(SqliteFile, path, PLAIN) == told(BySqlite, path, PLAIN)


def test_in_an_open_file_it_is_what_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "x.sqlite", usual(2_000))
    monkeypatch.setattr(SqliteFile, "_chunk", lambda *_: pytest.fail("SQLite was asked"))
    with SqliteFile(path, Issues()) as file:
        assert file.frame("t", PLAIN).height == 2_000


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (("text", 1, 1.0, "", b""), "a cell that is no whole number"),
        ((1.5, 1, 1.0, "", b""), "a cell that is no whole number"),
        ((1, 2**31, 1.0, "", b""), "a number that is too large"),
        ((1, 1, "text", "", b""), "a cell that is no number"),
        ((1, 1, 1.0, b"bytes", b""), "a cell that is no text"),
        ((1, 1, 1.0, "", 1), "a cell that is no bytes"),
    ],
)
def test_a_cell_of_another_type_is_for_sqlite(tmp_path: Path, cells: tuple[object, ...], why: str) -> None:
    path = made(tmp_path / "x.sqlite", [*usual(50), cells], table="CREATE TABLE t (a, b, c, d, e)")
    assert read(path) == (None, why)
    assert told(SqliteFile, path, PLAIN) == told(BySqlite, path, PLAIN)


def test_a_cell_of_another_type_may_say_the_same(tmp_path: Path) -> None:
    cells = [("12", "-3", "134", 2**40, b""), ("", "0", "", -7, b""), ("", "", "", 0, b""), (1, 1, "-5", 1, b"")]
    path = made(tmp_path / "x.sqlite", [*usual(50), *cells], table="CREATE TABLE t (a, b, c, d, e)")
    frame, why = read(path)
    assert not why
    assert frame is not None
    rows = [(12, -3, 134.0, "1099511627776", b""), (None, 0, None, "-7", b""), (None, None, None, "0", b"")]
    assert frame.drop(ROWID).rows()[50:] == [*rows, (1, 1, -5.0, "1", b"")]
    assert told(SqliteFile, path, PLAIN) == told(BySqlite, path, PLAIN)


@pytest.mark.parametrize("kind", ["REAL", "double precision", "Float"])
def test_a_real_number_as_text_is_for_sqlite(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path / "x.sqlite", [(1,), (2.5,)], table=f"CREATE TABLE t (a {kind})")
    assert read(path, {"a": "text"}) == (None, "a column of real numbers as text")
    assert told(SqliteFile, path, {"a": "text"}) == told(BySqlite, path, {"a": "text"})


@pytest.mark.parametrize("text", ["-0", "+1", "01", " 1", "1.0", "1e3", "1\0", "9" * 16, "-", "x"])
@pytest.mark.parametrize("column", "abc")
def test_a_text_that_is_a_number_in_other_words_is_for_sqlite(tmp_path: Path, text: str, column: str) -> None:
    path = made(tmp_path / "x.sqlite", usual(5), table="CREATE TABLE t (a, b, c, d, e)")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE t SET {column} = ? WHERE rowid = 3", (text,))
    assert read(path)[0] is None
    assert told(SqliteFile, path, PLAIN) == told(BySqlite, path, PLAIN)


@pytest.mark.parametrize(
    ("table", "more", "why"),
    [
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, b, c, d, e) WITHOUT ROWID", [], "a page of no table with row ids"),
        (TABLE, ["UPDATE t SET d = CAST(x'ff41' AS TEXT)"], "a text that is not UTF-8"),
        (
            TABLE,
            ["UPDATE t SET d = 'a longer text that is none ' || CAST(x'c0af' AS TEXT)"],
            "a text that is not UTF-8",
        ),
    ],
)
def test_what_else_is_for_sqlite(tmp_path: Path, table: str, more: list[str], why: str) -> None:
    path = made(tmp_path / "x.sqlite", [(n, n) for n in range(20)], *more, table=table)
    columns = {name: kind for name, kind in PLAIN.items() if name != ROWID}
    assert read(path, columns) == (None, why)
    assert told(SqliteFile, path, columns) == told(BySqlite, path, columns)


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_texts_in_another_encoding_are_for_sqlite(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"PRAGMA encoding = '{encoding}'")
        database.execute(TABLE)
        database.execute("INSERT INTO t VALUES (1, 2, 3.5, 'größer', x'00')")
    assert read(path) == (None, "texts that are not UTF-8")
    assert told(SqliteFile, path, PLAIN) == told(BySqlite, path, PLAIN)


@pytest.mark.parametrize(
    "key", ["a INTEGER PRIMARY KEY", "a INTEGER PRIMARY KEY DESC", "a INT PRIMARY KEY", "rowid INTEGER", "a, RowId"]
)
def test_a_column_that_is_the_number_of_the_row(tmp_path: Path, key: str) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE t ({key}, d TEXT)")
        column = "a" if key.startswith("a") else "rowid"
        database.executemany(f"INSERT INTO t ({column}, d) VALUES (?, ?)", [(n * n + 5, "x") for n in range(40)])
    columns: dict[str, Type] = {"a": "int", "d": "text", ROWID: "int"}
    assert told(SqliteFile, path, columns) == told(BySqlite, path, columns)


def test_columns_that_came_later_have_their_default(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sqlite", [(n,) for n in range(300)], table="CREATE TABLE t (a INTEGER)")
    plain = {"b INTEGER DEFAULT -17": "int", "d TEXT DEFAULT 'it''s so'": "text", "e BLOB": "bytes", "f": "float"}
    with closing(sqlite3.connect(path)) as database, database:
        for column in plain:
            database.execute(f"ALTER TABLE t ADD COLUMN {column}")
        database.execute("INSERT INTO t VALUES (1, 2, 'x', x'01', 0.5)")
        database.execute("ALTER TABLE t ADD COLUMN g REAL DEFAULT 2.5")
    columns: dict[str, Type] = {"a": "int", "b": "int", "d": "text", "e": "bytes", "f": "float"}
    frame, why = read(path, columns)
    assert not why
    assert frame is not None
    assert frame.rows()[:1] == [(0, -17, "it's so", None, None)]
    assert told(SqliteFile, path, columns) == told(BySqlite, path, columns)
    assert read(path, {"g": "float"}) == (None, "a default that is no plain value")
    assert told(SqliteFile, path, {"g": "float"}) == told(BySqlite, path, {"g": "float"})


def test_computed_columns_are_for_sqlite(tmp_path: Path) -> None:
    table = "CREATE TABLE t (a INTEGER, b INTEGER AS (a + 1) STORED, c REAL, d TEXT AS (a || 'x'), e BLOB)"
    path = made(tmp_path / "x.sqlite", [(1,), (2,)], table=table)
    with closing(sqlite3.connect(path)) as database:
        assert layout(database) is None
    assert told(SqliteFile, path, PLAIN) == told(BySqlite, path, PLAIN)


def test_a_log_beside_the_file_is_not_forgotten(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sqlite", usual(30))
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("INSERT INTO t (a) VALUES (4711)")
        database.commit()
        with SqliteFile(path, Issues()) as file:
            assert file.frame("t", PLAIN)["a"].to_list()[-1] == 4711


_SAME = [4711, 7, 2.5, "a text of which there is one only", b"x"]
_OTHER = [-1, -2, -1.5, "another text, which is as long as it", b""]
_NOTHING: list[object] = [None] * 5


@pytest.mark.parametrize("usual_row", [_SAME, [0, 0, 0.0, "", b""], _NOTHING])
def test_columns_that_hold_one_value_as_long_as_they_do(tmp_path: Path, usual_row: list[object]) -> None:
    count = 5_000
    cases: list[Sequence[int]] = [(), (0,), (count - 1,), (2_321, 2_322), range(2_500, count), range(3, 4_000)]
    for number, (places, odd_row) in enumerate(product(cases, (_OTHER, _NOTHING, _SAME))):
        rows = [odd_row if place in places else usual_row for place in range(count)]
        frame, why = read(made(tmp_path / f"{number}.sqlite", rows, page=512))  # enough pages for two threads
        assert not why
        assert frame is not None
        assert repr(frame.drop(ROWID).rows()) == repr([tuple(row) for row in rows])


def test_reserved_bytes_at_the_end_of_pages(tmp_path: Path) -> None:
    path, reserved, page = tmp_path / "x.sqlite", 32, 1024
    reserve(path, reserved, f"PRAGMA page_size = {page}")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(TABLE)
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", usual(2_000))
    assert path.read_bytes()[20] == reserved
    frame, why = read(path)
    assert not why
    assert frame is not None
    assert frame.drop(ROWID).rows() == usual(2_000)


def test_a_file_that_is_cut_off_meanwhile_is_an_error(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sqlite", usual(5_000))
    issues = Issues()

    def read_half() -> None:
        with SqliteFile(path, issues) as file:
            os.truncate(path, path.stat().st_size // 2)
            file.frame("t", PLAIN)

    with pytest.raises(OpspanError, match="changed while it was read"):
        read_half()
    assert [issue.code for issue in issues] == ["damaged_file"]


def test_a_lock_is_held_as_long_as_the_file_is_open(tmp_path: Path) -> None:
    """A process that closes a file loses all its locks on it, so the reader must not open and close the file
    meanwhile."""
    path = made(tmp_path / "x.sqlite", usual(50))
    write = "sqlite3.connect(sys.argv[1], 0, isolation_level=None).execute('INSERT INTO t (a) VALUES (1)')"
    with SqliteFile(path, Issues()) as file:
        file.frame("t", PLAIN)
        done = subprocess.run(
            [sys.executable, "-c", f"import sqlite3, sys; {write}", path], capture_output=True, text=True, check=False
        )
        assert "database is locked" in done.stderr


DAMAGED = [pytest.param(200), pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.release])]


@pytest.mark.parametrize("variants", DAMAGED)
def test_a_damaged_file_is_read_as_sqlite_reads_it(tmp_path: Path, variants: int) -> None:
    chance = random.Random(20261123)
    path = tmp_path / "x.sqlite"
    wholes = [made(tmp_path / f"{page}.sqlite", usual(300), page=page).read_bytes() for page in (512, 1024)]
    seen = set()
    for _ in range(variants):
        raw = bytearray(chance.choice(wholes))
        page = raw[16] * 256 + raw[17]
        begin = chance.randrange(1, len(raw) // page) * page
        for _ in range(chance.randint(1, 3)):
            place = chance.choice([begin + chance.randrange(24), begin + chance.randrange(page)])
            raw[place] = chance.choice([0, 255, chance.randrange(256)])
        path.write_bytes(raw)
        why = said(path)
        if not why:  # SQLite reads behind the end of a page, and gets other bytes each time
            assert told(SqliteFile, path, PLAIN) == told(BySqlite, path, PLAIN)
        seen.add(why)
    assert "" in seen
    assert len(seen) > 5


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.is_dir(), reason="the traces of other people's profilers are not here")
@in_parts
def test_real_files_are_read_as_sqlite_reads_them(part: int) -> None:
    files = [path for path in sorted(TRACES.rglob("*")) if path.is_file() and _begins_as_sqlite(path)]
    assert len(files) > 20
    for path in part_of(files, part):
        with SqliteFile(path, Issues()) as ours, BySqlite(path, Issues()) as theirs:
            for table in ours.tables:
                columns = _declared(path, table)
                assert ours.frame(table, columns).equals(theirs.frame(table, columns)), (path, table)


def _begins_as_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return sqlite.is_sqlite(file.read(16))


def _declared(path: Path, table: str) -> dict[str, Type]:
    kinds: dict[str, Type] = {"TEXT": "text", "REAL": "float", "BLOB": "bytes"}
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as database:
        info = database.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
    return {name: kinds.get(kind.upper(), "int") for _, name, kind, *_ in info}
