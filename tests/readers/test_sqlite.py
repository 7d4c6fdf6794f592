"""Opening SQLite files: nothing of the user's changes, and whatever is wrong is one line or counted."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from opspan.errors import NotATrace, NotReadable, OpspanError, Truncated
from opspan.formats import sqlite
from opspan.formats.sqlite import SqliteFile
from opspan.tables import Issues

ROWS = 5_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder of its own, so that the tests see whatever appears in it."""
    folder = tmp_path / "user's folder"
    folder.mkdir()
    return folder / "a b%20c?.sqlite"


TABLE = "CREATE TABLE t (a INTEGER, b TEXT)"


def made(path: Path, script: str = TABLE, rows: int = ROWS, journal: str = "delete") -> Path:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.executescript(script)
    if rows:
        connection.executemany("INSERT INTO t VALUES (?, ?)", ((n, f"text {n}") for n in range(rows)))
    connection.commit()
    connection.close()
    return path


def read(path: Path, table: str = "t") -> tuple[pl.DataFrame, Issues]:
    issues = Issues(str(path))
    with SqliteFile(path, issues) as file:
        return file.frame(table, {"a": "int", "b": "text"}), issues


@contextmanager
def untouched(path: Path) -> Iterator[None]:
    def seen() -> dict[str, tuple[int, int, bytes]]:
        return {
            entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns, entry.read_bytes())
            for entry in path.parent.iterdir()
        }

    before = seen()
    yield
    assert seen() == before


def test_all_rows_come_in_the_order_of_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CHUNK_ROWS", 700)
    with untouched(made(path)):
        frame, issues = read(path)
    assert frame["a"].to_list() == list(range(ROWS))
    assert frame["b"][-1] == f"text {ROWS - 1}"
    assert not len(issues)


def test_row_ids_that_lie_far_apart(path: Path) -> None:
    made(path, rows=0)
    with sqlite3.connect(path) as connection:
        ids = [-(2**63), -5, 0, 7, 2**63 - 1]
        connection.executemany("INSERT INTO t (rowid, a) VALUES (?, ?)", [(rowid, n) for n, rowid in enumerate(ids)])
    connection.close()
    assert read(path)[0]["a"].to_list() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT) WITHOUT ROWID",
        "CREATE TABLE t (rowid TEXT, a INTEGER, b TEXT); INSERT INTO t VALUES ('x', 1, 'one'), ('y', 2, 'two')",
    ],
    ids=["without rowid", "a column called rowid"],
)
def test_tables_of_every_kind(path: Path, script: str) -> None:
    made(path, script, rows=0)
    if "WITHOUT ROWID" in script:
        with sqlite3.connect(path) as connection:
            connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, "one"), (2, "two")])
        connection.close()
    assert read(path)[0].rows() == [(1, "one"), (2, "two")]


def test_missing_columns_are_null_and_missing_tables_empty(path: Path) -> None:
    made(path, "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)", rows=0)
    assert read(path)[0].rows() == [(1, None)]
    assert read(path, "u")[0].shape == (0, 2)


def test_names_with_quotes_are_only_names(path: Path) -> None:
    name = 't"; DROP TABLE x; --'
    table = sqlite.quoted(name)
    made(path, f"CREATE TABLE {table} (a INTEGER, b TEXT); INSERT INTO {table} VALUES (1, 'x')", rows=0)
    assert read(path, name)[0].rows() == [(1, "x")]


@pytest.mark.parametrize("at", [0, ROWS - 1], ids=["in the first batch", "in a later batch"])
def test_cells_of_other_types_are_kept_where_they_are_exact_and_counted_where_not(
    path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BATCH_ROWS", 64)
    made(path, "CREATE TABLE t (a, b)")
    cells = ["12", 3.0, 3.5, "x", b"\x01", "99999999999999999999", None, -(2**63)]
    with sqlite3.connect(path) as connection:
        for cell in cells:
            connection.execute("INSERT INTO t (rowid, a) VALUES (?, ?)", (ROWS + 100 + cells.index(cell), cell))
            connection.execute("UPDATE t SET a = ? WHERE rowid = ?", (cell, at + 1))
    connection.close()

    frame, issues = read(path)

    assert frame["a"].to_list()[-len(cells) :] == [12, 3, None, None, None, None, None, -(2**63)]
    assert [(issue.code, issue.count) for issue in issues] == [("odd_cells", 4)]


def test_nulls_in_the_first_batch_do_not_decide_the_type(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BATCH_ROWS", 64)
    made(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE t SET b = NULL WHERE rowid < 4000")
    connection.close()
    frame, issues = read(path)
    assert (frame["b"].null_count(), frame["b"][-1], len(issues)) == (3999, f"text {ROWS - 1}", 0)


def test_text_that_is_not_utf8_is_replaced_and_counted(path: Path) -> None:
    made(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE t SET b = CAST(x'61ff62' AS TEXT) WHERE a IN (7, 4000)")
    connection.close()
    frame, issues = read(path)
    assert (frame["b"][7], frame["b"][8], frame["b"][4000]) == ("a\ufffdb", "text 8", "a\ufffdb")
    assert [(issue.code, issue.count) for issue in issues] == [("undecoded_text", 2)]


# --- journals, locks, permissions


def test_a_file_in_wal_mode_gets_no_files_beside_it(path: Path) -> None:
    made(path, journal="wal")
    with untouched(path):
        assert read(path)[0].height == ROWS


def test_a_write_ahead_log_is_read_and_left_as_it_is(path: Path) -> None:
    made(path, journal="wal")
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.execute("INSERT INTO t VALUES (-1, 'in the log')")
    writer.commit()
    try:
        with untouched(path):
            assert read(path)[0].height == ROWS + 1
    finally:
        writer.close()


def test_a_journal_of_a_killed_writer_is_rolled_back_in_a_copy(path: Path) -> None:
    made(path)
    pid = os.fork()
    if pid == 0:  # dies in the middle of a transaction, pages half written
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN")
        writer.execute("UPDATE t SET b = 'spoiled'")
        os._exit(0)
    os.waitpid(pid, 0)
    assert path.with_name(path.name + "-journal").stat().st_size

    with untouched(path):
        frame, _ = read(path)

    assert not (frame["b"] == "spoiled").any()
    assert frame.height == ROWS


def test_a_file_that_is_locked_by_a_writer(path: Path) -> None:
    made(path)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(NotReadable, match=r"locked by a program that writes it. Wait"):
            read(path)
    finally:
        writer.close()


def test_a_file_that_changes_while_it_is_read(path: Path) -> None:
    made(path)
    file = SqliteFile(path, Issues())
    file.frame("t", {"a": "int"})
    with path.open("r+b") as raw:
        raw.seek(24)
        raw.write(b"\xff\xff\xff\xff")
    with pytest.raises(NotReadable, match="changed while it was read"):
        file.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (b"", NotATrace, "is empty"),
        (b"PK\x03\x04zip", NotATrace, "does not begin as one"),
        (b"SQLite format 3\0" + b"\0" * 20, Truncated, "within the header"),
        (b"SQLite format 3\0" + b"\xee" * 8000, OpspanError, "cut off"),
    ],
    ids=["empty", "a zip", "a cut header", "rubbish behind the magic"],
)
def test_files_that_are_none(path: Path, content: bytes, error: type[OpspanError], says: str) -> None:
    path.write_bytes(content)
    with pytest.raises(error, match=says) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_paths_that_are_no_file(path: Path) -> None:
    with pytest.raises(NotReadable, match="No such file"):
        read(path)
    with pytest.raises(NotReadable, match="Is a directory"):
        read(path.parent)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(path: Path) -> None:
    made(path).chmod(0)
    with pytest.raises(NotReadable, match="Permission denied"):
        read(path)


# --- damage


def test_a_file_that_was_cut_off_at_any_page(path: Path) -> None:
    whole = made(path).read_bytes()
    for at in range(4096, len(whole), 4096):
        path.write_bytes(whole[:at])
        with pytest.raises(Truncated, match=f"cut off: {at:,} bytes of {len(whole):,}"):
            read(path)


def test_around_a_damaged_page_everything_else_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "SMALLEST_CHUNK", 64)
    raw = bytearray(made(path).read_bytes())
    pages = len(raw) // 4096
    raw[pages // 2 * 4096 : pages // 2 * 4096 + 4096] = b"\xff" * 4096
    path.write_bytes(raw)

    frame, issues = read(path)

    assert ROWS - 600 < frame.height < ROWS
    assert frame["a"][0] == 0
    assert frame["a"][-1] == ROWS - 1
    assert {issue.code for issue in issues} == {"damaged_file"}
    assert "t, rows" in next(iter(issues)).detail


def test_damaged_row_ids_that_are_far_apart_come_to_an_end(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t(a)")
        connection.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(100)])
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'")
        ((page_bytes,),) = connection.execute("PRAGMA page_size")
    connection.close()
    raw = bytearray(path.read_bytes())
    # The cells behind their places: each now says that it is very long, and has a very large row id.
    begin, end = (root - 1) * page_bytes + 8 + 2 * 100, root * page_bytes
    raw[begin:end] = b"\x89" * (end - begin)
    path.write_bytes(raw)

    issues = Issues()
    with SqliteFile(path, issues) as file:
        assert file.frame("t", {"a": "int"}).is_empty()
    assert [issue.code for issue in issues] == ["damaged_file"]
