"""SQLite files that are programs: nothing that they say is run, no reading is endless, nothing else is touched."""

from __future__ import annotations

import sqlite3
import struct
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from emit.running import READING, forked
from hostile import DATABASES, ENDLESS, VIEWS, columns_of, views_for_tables
from opspan.errors import NotReadable, OpspanError
from opspan.formats.sqlite import SqliteFile
from opspan.tables import Issues


def load(path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """`opspan table` in a process that may take so much memory and no more, and is ended where it takes minutes."""
    program = "import resource; resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30)); "
    program += "from opspan.cli import main; main()"
    return forked(program, "table", str(path), *more, imported=READING)


@pytest.mark.slow
@pytest.mark.parametrize("query", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("source", DATABASES)
def test_tables_that_are_views_are_not_read(tmp_path: Path, source: str, query: str) -> None:
    done = load(views_for_tables(DATABASES[source](tmp_path), query))

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr


# rocprofv3's tables have suffixes: the views without are nothing that is missing.
SINGLE = {"nsys": "NVTX_EVENTS", "nvprof": "CUPTI_ACTIVITY_KIND_MARKER", "rpd": "rocpd_monitor"}


@pytest.mark.parametrize(("source", "start"), SINGLE.items(), ids=SINGLE)
def test_a_single_view_among_tables_is_an_issue(tmp_path: Path, source: str, start: str) -> None:
    path = DATABASES[source](tmp_path)
    with closing(sqlite3.connect(path)) as database, database:
        columns = ", ".join(f"1 AS [{name}]" for name in columns_of(database, start))
        database.execute(f"DROP TABLE {start}")
        database.execute(f"CREATE VIEW {start} AS {ENDLESS.format(columns=columns)}")

    done = load(path)

    assert done.returncode == 0, done.stderr
    assert f"were not read (1): {start}" in done.stdout + done.stderr


def test_views_of_views_are_not_even_looked_at(tmp_path: Path) -> None:
    path = DATABASES["nsys"](tmp_path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE VIEW v0 AS SELECT 1 AS x")
        for number in range(60):
            database.execute(f"CREATE VIEW v{number + 1} AS SELECT a.x FROM v{number} a, v{number} b")

    assert load(path).returncode == 0


@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
def test_columns_that_are_computed_are_not_read(tmp_path: Path, kind: str) -> None:
    path = DATABASES["nsys"](tmp_path)
    with closing(sqlite3.connect(path)) as database, database:
        rows = database.execute("SELECT id FROM StringIds").fetchall()
        database.execute("DROP TABLE StringIds")
        # Stored ones are computed by whoever writes the rows.
        value = "zeroblob(900000000)" if kind == "VIRTUAL" else "'computed'"
        database.execute(f"CREATE TABLE StringIds (id INTEGER, value TEXT GENERATED ALWAYS AS ({value}) {kind})")
        database.executemany("INSERT INTO StringIds (id) VALUES (?)", rows)

    done = load(path)

    assert done.returncode == 0, done.stderr


def test_a_long_default_is_not_there_once_for_every_row(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE t (a INTEGER)")
        database.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(100_000)])
        database.execute(f"ALTER TABLE t ADD COLUMN b TEXT DEFAULT '{'x' * 200_000}'")
        database.execute("ALTER TABLE t ADD COLUMN c TEXT DEFAULT 'short'")

    issues = Issues()
    with SqliteFile(path, issues) as file:
        frame = file.frame("t", {"a": "int", "b": "text", "c": "text"})

    assert (frame.height, frame["b"].null_count(), frame["c"].unique().to_list()) == (100_000, 100_000, ["short"])
    assert [(issue.code, issue.count) for issue in issues] == [("damaged_file", 1)]


@pytest.mark.parametrize("module", ["fts5(a, b)", "rtree(id, x, y)", "dbstat", "fts4(a, b)"])
def test_virtual_tables_are_not_read(tmp_path: Path, module: str) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE real_one (a INTEGER)")
        try:
            database.execute(f"CREATE VIRTUAL TABLE t USING {module}")
        except sqlite3.OperationalError as error:
            pytest.skip(str(error))

    issues = Issues()
    with SqliteFile(path, issues) as file:
        assert "t" not in file.tables
        assert file.frame("t", {"a": "text"}).is_empty()

    assert [issue.code for issue in issues] == ["skipped_views"]


def test_indexes_and_triggers_and_checks_do_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE t (a INTEGER, b TEXT CHECK (length(b) < 9), c TEXT DEFAULT (hex(randomblob(9))))"
        )
        database.execute("INSERT INTO t VALUES (1, 'x', 'y')")
        database.execute("CREATE INDEX i ON t (hex(b)) WHERE a > 0")
        database.execute("CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t; END")
    with SqliteFile(path, Issues()) as file:
        assert file.count("t") == 1
        assert file.frame("t", {"a": "int", "b": "text", "c": "text"}).rows() == [(1, "x", "y")]


def test_a_column_with_an_unknown_collation_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.create_collation("vendors", lambda one, other: (one > other) - (one < other))
        database.execute("CREATE TABLE t (a TEXT COLLATE vendors, b TEXT COLLATE vendors)")
        database.executemany("INSERT INTO t VALUES (?, ?)", [("1", "x"), ("y", "z"), ("", "")])

    issues = Issues()
    with SqliteFile(path, issues) as file:
        assert file.frame("t", {"a": "int", "b": "text"}).rows() == [(1, "x"), (None, "z"), (None, "")]
    assert [(issue.code, issue.count) for issue in issues] == [("odd_cells", 1)]


@pytest.mark.parametrize("name", [b"\x00\xff", 7, 0.5], ids=repr)
def test_a_table_that_is_named_by_no_text_is_damage(tmp_path: Path, name: object) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE t (a INTEGER)")
        database.execute("CREATE TABLE u (a INTEGER)")
        database.execute("PRAGMA writable_schema = ON")
        # SQLite itself goes by the statement where what stands beside it is a text; here it is none.
        database.execute("UPDATE sqlite_master SET name = ?, sql = '' WHERE name = 'u'", (name,))

    issues = Issues()
    try:
        with SqliteFile(path, issues) as file:
            assert file.tables == ("t",)
        assert [issue.code for issue in issues] == ["damaged_file"]
    except OpspanError as error:  # versions of SQLite differ in what they open
        assert "\n" not in str(error)  # noqa: PT017 - a refusal is as good


def page(raw: bytearray, number: int, size: int) -> memoryview:
    return memoryview(raw)[(number - 1) * size : number * size]


def test_pages_that_lead_to_each_other_again_and_again_come_to_an_end(tmp_path: Path) -> None:
    """A tree of few pages, each of which names the next a hundred times: to visit all leaves takes for ever."""
    size, fan, depth = 4096, 100, 12
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"PRAGMA page_size = {size}")
        database.execute("CREATE TABLE t (a INTEGER, b TEXT)")
        database.execute("CREATE TABLE filler (b BLOB)")
        database.execute("INSERT INTO filler VALUES (zeroblob(?))", (size * (depth + 4),))
        database.executemany("INSERT INTO t VALUES (?, ?)", [(n, "text") for n in range(50)])
    raw = bytearray(path.read_bytes())
    (root,) = [
        number for number in range(2, len(raw) // size + 1) if page(raw, number, size)[0] == 13
        and page(raw, number, size)[3:5] == struct.pack(">H", 50)
    ]  # fmt: skip
    last = len(raw) // size
    leaf, levels = last, [root, *range(last - depth + 1, last)]
    page(raw, leaf, size)[:] = bytes(page(raw, root, size))
    for level, below in zip(levels, [*levels[1:], leaf], strict=True):
        cells = [struct.pack(">I", below) + b"\x32" for _ in range(fan)]  # each child ends at row id 50
        content = b"".join(reversed(cells))
        places = b"".join(struct.pack(">H", size - 5 * (number + 1)) for number in range(fan))
        head = struct.pack(">BHHHBI", 5, 0, fan, size - len(content), 0, below)
        body = head + places
        page(raw, level, size)[:] = body + bytes(size - len(body) - len(content)) + content
    path.write_bytes(raw)
    program = f"""
from opspan.formats.sqlite import SqliteFile
from opspan.tables import Issues
with SqliteFile({str(path)!r}, Issues()) as file:
    print(file.count("t"), file.frame("t", {{"a": "int", "b": "text"}}).height)
"""
    done = forked(program, imported=READING)
    assert done.returncode == 0, done.stderr
    counted, read = done.stdout.split()
    assert max(int(counted), int(read)) <= len(raw)


def test_a_journal_cannot_name_a_file_to_be_deleted(tmp_path: Path) -> None:
    """SQLite deletes the file that a journal names as the one it belongs to, when it rolls back."""
    path, victim = tmp_path / "x.sqlite", tmp_path / "letter.txt"
    victim.write_text("dear reader")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE t (a INTEGER)")
        database.execute("INSERT INTO t VALUES (1)")
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN")
        database.execute("UPDATE t SET a = 2")
        database.execute("CREATE TABLE much AS WITH n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 20000) "
                         "SELECT x, hex(zeroblob(50)) FROM n")  # fmt: skip
        copied, journal = path.read_bytes(), path.with_name("x.sqlite-journal").read_bytes()
        database.execute("ROLLBACK")
    name = str(victim).encode()
    page = struct.unpack_from(">I", journal, 24)[0]
    tail = struct.pack(">I", (1 << 30) // page + 1) + name + struct.pack(">II", len(name), sum(name))
    path.write_bytes(copied)
    path.with_name("x.sqlite-journal").write_bytes(journal + tail + bytes.fromhex("d9d505f920a163d7"))

    with pytest.raises(NotReadable, match="several databases"), SqliteFile(path, Issues()) as file:
        file.frame("t", {"a": "int"})

    assert victim.read_text() == "dear reader"
