"""Files that were made to do harm, as code: a generator each, for tests and for tools/damage --hostile.

    FAMILIES["a zip member of bzip2 that becomes gigabytes"].make(folder) -> the path to load

None of them may end a process, hang it, take more memory than the limit, or raise anything but an OpspanError. What
comes of each is told: "refused", or the code of an issue of the trace that is read all the same. Nothing here is larger
than some megabytes on the disk, and few take more than a second to make.

One file because it is a list: each entry stands for itself.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import socket
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from builders import kineto, nsys, nvprof, rocpd, vtune
from builders.capture import PAGE, Capture

Make = Callable[[Path], Path]


@dataclass(frozen=True)
class Family:
    make: Make  # in an empty folder
    comes: str  # "refused", "read", or the code of an issue
    says: str = ""  # words of the refusal or of the issue


FAMILIES: dict[str, Family] = {}


def family(name: str, comes: str, says: str = "") -> Callable[[Make], Make]:
    def keep(make: Make) -> Make:
        FAMILIES[name] = Family(make, comes, says)
        return make

    return keep


# --- compressed files

DATABASE = "r000hs/sqlite-db/dicer.db"


def bzip2_of_zeros(blocks: int) -> bytes:
    """Streams of 46 million zeros each, in 40-odd bytes: bzip2 counts what repeats before it sorts."""
    return bz2.compress(bytes(45_000_000)) * blocks


def zip_of(path: Path, raw: bytes, method: int, size: int, crc: int = 0) -> Path:
    """A zip file of one member, whose compressed bytes are those given."""
    name = DATABASE.encode()
    common = struct.pack("<4H3L2H", 0, method, 0, 0, crc, len(raw), size & 0xFFFFFFFF, len(name), 0)
    local = b"PK\3\4" + struct.pack("<H", 46) + common + name
    entry = b"PK\1\2" + struct.pack("<2H", 46, 46) + common + struct.pack("<3H2L", 0, 0, 0, 0, 0) + name
    end = b"PK\5\6" + struct.pack("<4H2LH", 0, 0, 1, 1, len(entry), len(local) + len(raw), 0)
    path.write_bytes(local + raw + entry + end)
    return path


@family("a zip member of bzip2 that becomes gigabytes", "refused", "more bytes come out of it")
def zip_bzip2(folder: Path) -> Path:
    return zip_of(folder / "x.zip", bzip2_of_zeros(200), zipfile.ZIP_BZIP2, 200 * 45_000_000)


def lzma_member(count: int) -> tuple[bytes, int]:
    raw = lzma.compress(bytes(count), lzma.FORMAT_ALONE, preset=1)
    return struct.pack("<2H", 2313, 5) + raw[:5] + raw[13:], count


@family("a zip member of LZMA that becomes gigabytes", "refused", "more bytes come out of it")
def zip_lzma(folder: Path) -> Path:
    raw, size = lzma_member(300_000_000)
    return zip_of(folder / "x.zip", raw, zipfile.ZIP_LZMA, size)


def deflated(count: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    part = bytes(1 << 20)
    return b"".join([*(packer.compress(part) for _ in range(count >> 20)), packer.flush()])


@family("a zip member that becomes half a gigabyte", "refused", "more bytes come out of it")
def zip_deflate(folder: Path) -> Path:
    return zip_of(folder / "x.zip", deflated(500 << 20), zipfile.ZIP_DEFLATED, 500 << 20)


@family("a zip of many results", "refused", "more results are in an archive")
def zip_results(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        for number in range(20_000):
            archive.writestr(f"r{number}/sqlite-db/dicer.db", b"x")
    return folder / "x.zip"


@family("a tar of many results", "refused", "more results are in an archive")
def tar_results(folder: Path) -> Path:
    with tarfile.open(folder / "x.tar.gz", "w:gz", compresslevel=1) as archive:
        for number in range(20_000):
            info = tarfile.TarInfo(f"r{number}/sqlite-db/dicer.db")
            info.size = 1
            archive.addfile(info, io.BytesIO(b"x"))
    return folder / "x.tar.gz"


def trace_of_spaces(count: int) -> Iterator[bytes]:
    yield b'{"schemaVersion": 1, "traceEvents": ['
    for _ in range(count >> 20):
        yield b" " * (1 << 20)
    yield b"]}"


COMPRESSORS = {
    "gz": lambda raw: gzip.compress(raw, 9),
    "bz2": bz2.compress,
    "xz": lambda raw: lzma.compress(raw, preset=0),
}


def _compressed(suffix: str) -> Make:
    def make(folder: Path) -> Path:
        path = folder / f"x.json.{suffix}"
        path.write_bytes(COMPRESSORS[suffix](b"".join(trace_of_spaces(300 << 20))))
        return path

    return make


for _suffix in COMPRESSORS:
    FAMILIES[f"a trace in {_suffix} that becomes hundreds of megabytes"] = Family(
        _compressed(_suffix), "refused", "more bytes come out of it"
    )


# --- JSON


@family("events within events that none of them ends", "truncated_file")
def nested_events(folder: Path) -> Path:
    """Each of them was read to the end of the file: 58 KB took minutes."""
    text = '{"schemaVersion": 1, "traceEvents": [' + '{"ph":"X","x":[' * 400 + "1," * (30 << 20)
    (folder / "x.json.gz").write_bytes(gzip.compress(text.encode(), 6))
    return folder / "x.json.gz"


def _nested_in(member: str) -> Make:
    def make(folder: Path) -> Path:
        deep = "[" * 100_000 + "]" * 100_000
        text = '{"schemaVersion": 1, ' + (f'"more": {deep}, ' if member == "a member" else "") + '"traceEvents": ['
        event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 1'
        text += event + "}, " + event + (f', "args": {{"deep": {deep}}}' if member == "args" else "") + "}]}"
        (folder / "x.json").write_text(text)
        return folder / "x.json"

    return make


FAMILIES["JSON a hundred thousand deep in args"] = Family(_nested_in("args"), "damaged_file")


@family("a marker of rocprof with JSON a hundred thousand deep", "read")
def rocprof_nested(folder: Path) -> Path:
    path = rocpd.rocprof(folder / "x.db")
    with closing(sqlite3.connect(path)) as database, database:
        tables = [
            name
            for (name,) in database.execute(
                "SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_region%' AND type = 'table'"
            )
        ]
        for table in tables:
            database.execute(f'UPDATE "{table}" SET extdata = ?', ('{"message":' * 100_000,))
    return path


# --- payloads


def own_schemas() -> list[tuple]:
    """Eight fields at one place, each of which is the whole again."""
    return [(f"f{number}", 5000, 0) for number in range(8)]


@family("a capture whose payloads refer to themselves", "over_budget", "fields are in payloads")
def capture_payloads(folder: Path) -> Path:
    made = Capture()
    main = made.thread(100)
    main.schema(5000, "itself", own_schemas(), domain="lib", size=64)
    for number in range(10):
        main.blob(main.range("copy", number, number + 1, domain="lib", schema=5000), bytes(64), 5000)
    return made.write(folder / "100-1.opspan")


def nsys_tables(entries: list[tuple], rows: int, size: int = 64) -> dict[str, list[dict]]:
    tables = {name: [dict(row) for row in rows_] for name, rows_ in nsys.tables_of("2026").items()}
    push = next(row for row in tables["NVTX_EVENTS"] if row["eventType"] == nsys.PUSH_POP)
    event = {**push, "domainId": 1, "binaryData": nsys.payload(1, 5000, bytes(size))}
    tables["NVTX_EVENTS"] += [event] * rows
    tables["NVTX_PAYLOAD_SCHEMAS"] = [{"domainId": 1, "schemaId": 5000, "name": "it", "type": 1, "payloadSize": size}]
    tables["NVTX_PAYLOAD_SCHEMA_ENTRIES"] = [
        {"domainId": 1, "schemaId": 5000, "idx": place, "type": kind, "name": name, "offset": offset, "flags": 0}
        | {"arrayOrUnionDetail": 0}
        for place, (name, kind, offset) in enumerate(entries)
    ]
    return tables


@family("an nsys export whose payloads refer to themselves", "over_budget", "fields are in payloads")
def nsys_payloads(folder: Path) -> Path:
    return nsys.export(folder / "x.sqlite", nsys_tables(own_schemas(), 3))


@family("payloads whose fields have a name of a megabyte", "over_budget", "bytes of text")
def nsys_long_names(folder: Path) -> Path:
    return nsys.export(folder / "x.sqlite", nsys_tables([("n" * 1_000_000, 17, 0)], 2_000))


@family("attributes that name one long text again and again", "over_budget", "bytes of text")
def capture_attributes(folder: Path) -> Path:
    made = Capture()
    main, other = made.thread(100), made.thread(101)
    text = "t" * 1_000_000
    for number in range(2_000):
        main.attribute(main.range("r", number, number + 1), "key", text)
        other.attribute(other.range("r", number, number + 1), "key", 1)
    return made.write(folder / "100-1.opspan")


# --- databases

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT {columns} FROM n"
CROSSED = "SELECT {columns} FROM sqlite_master a" + "".join(f", sqlite_master b{number}" for number in range(12))
LARGE = "SELECT {columns}, zeroblob(900000000) AS large FROM sqlite_master"
VIEWS = {"endless": ENDLESS, "crossed": CROSSED, "large": LARGE}


def _vtune(folder: Path) -> Path:
    return vtune.run(folder / "r000hs", "2025") / "sqlite-db" / "dicer.db"


DATABASES: dict[str, Make] = {
    "nsys": lambda folder: nsys.run(folder / "run.sqlite", "2026"),
    "nvprof": lambda folder: nvprof.run(folder / "run.prof", 26),
    "rocprof": lambda folder: rocpd.rocprof(folder / "run.db"),
    "rpd": lambda folder: rocpd.rpd(folder / "run.rpd"),
    "VTune": _vtune,
}


def columns_of(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]


def tables_of(database: sqlite3.Connection) -> list[str]:
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return [name for (name,) in rows.fetchall()]


def views_for_tables(path: Path, query: str) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        for table in tables_of(database):
            columns = ", ".join(f"1 AS [{name}]" for name in columns_of(database, table))
            database.execute(f'DROP TABLE "{table}"')
            database.execute(f'CREATE VIEW "{table}" AS {query.format(columns=columns)}')
    return path


def _views(source: str, query: str) -> Make:
    return lambda folder: views_for_tables(DATABASES[source](folder), query)


for _source in DATABASES:
    for _name, _query in VIEWS.items():
        FAMILIES[f"a database of {_source} with {_name} views for tables"] = Family(_views(_source, _query), "refused")


def page_circle(path: Path, size: int = 4096) -> Path:
    """The page that lists the tables refers to itself a hundred times: to visit all of it takes for ever."""
    raw = bytearray(path.read_bytes())
    pages = len(raw) // size
    first = bytes(raw[100:size])
    leaf = bytearray(size)
    leaf[: size - 100] = first  # unused: only its number is of interest
    raw += bytes(size)
    cells = [struct.pack(">I", 1) + bytes([number]) for number in range(1, 101)]
    content = b"".join(reversed(cells))
    head = struct.pack(">BHHHBI", 5, 0, 100, size - len(content), 0, 1)
    places = b"".join(struct.pack(">H", size - 5 * (number + 1)) for number in range(100))
    body = head + places
    raw[100:size] = body + bytes(size - 100 - len(body) - len(content)) + content
    struct.pack_into(">I", raw, 28, pages + 1)
    path.write_bytes(raw)
    return path


@family("a database whose list of tables leads to itself", "refused")
def schema_circle(folder: Path) -> Path:
    return page_circle(DATABASES["nsys"](folder))


def varint(number: int) -> bytes:
    found = [number & 127]
    while number := number >> 7:
        found.insert(0, number & 127 | 128)
    return bytes(found)


@family(
    "a database whose rows all have their text in the same pages", "over_budget", "bytes are in the texts of a table"
)
def shared_pages(folder: Path, size: int = 4096) -> Path:
    """Each of a thousand rows says that its text is the one of four megabytes which the first row has."""
    path = folder / "x.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"PRAGMA page_size = {size}")
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        # 1,816 bytes of one and 1,722 of the others are in the page itself, so one has room in place of the other.
        database.execute("INSERT INTO StringIds VALUES (1, ?)", ("x" * 3_999_600,))
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(n, "y" * 10_000) for n in range(2, 1_000)])
    raw = bytearray(path.read_bytes())
    large, payload = varint(3_999_606), 1_722
    pages = [at for at in range(size, len(raw), size) if raw[at] == 13]  # leaves of a table
    cells = [at + struct.unpack_from(">H", raw, at + 8 + 2 * n)[0] for at in pages for n in range(raw[at + 4])]
    first = next(at for at in cells if raw[at + len(large) - 1 : at + len(large) + 1] == large[-1:] + b"\1")
    begin = first + len(large) + 1  # its row id is 1, of one byte
    content = bytes(raw[begin : begin + payload + 4])
    for at in cells:
        if at == first:
            continue
        row_id = at + 2  # the sizes of the others are of two bytes
        end = row_id + (2 if raw[row_id] & 128 else 1)
        whole = large + bytes(raw[row_id:end]) + content
        raw[at : at + len(whole)] = whole
    path.write_bytes(raw)
    return path


@family("a sparse log of gigabytes beside a database", "read")
def sparse_log(folder: Path) -> Path:
    path = DATABASES["nsys"](folder)
    with path.with_name(path.name + "-wal").open("wb") as log:
        log.truncate(30 << 30)
    return path


# --- what is no file


def _fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    here = Path.cwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def _device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


NO_FILES: dict[str, Callable[[Path], None]] = {"FIFO": _fifo, "socket": _socket, "device": _device}


def captures(folder: Path) -> Path:
    for pid in (100, 101):
        made = Capture(pid=pid)
        made.thread(pid).torch("aten::mm", 10, 20)
        made.write(folder / f"{pid}-1.opspan")
    return folder


def saved(folder: Path) -> Path:
    import opspan

    opspan.load(captures(folder / "c") if (folder / "c").mkdir() is None else folder).save(folder / "saved")
    return folder / "saved"


def parquet_folder(folder: Path) -> Path:
    return nsys.folder(folder / "x", nsys.tables_of("2026"), "parquetdir")


def result(folder: Path) -> Path:
    return vtune.run(folder / "r000hs", "2025")


# A folder, and what in it is taken for a file: what then comes of it.
IN_FOLDERS: dict[str, tuple[Make, str, str]] = {
    "a capture of several": (captures, "100-1.opspan", "unreadable_file"),
    "a table of a saved trace": (saved, "ranges.parquet", "refused"),
    "the index of a saved trace": (saved, "trace.json", "refused"),
    "a table of an nsys folder": (parquet_folder, "NVTX_EVENTS.parquet", "damaged_file"),
    "the options of a result": (result, "config/runss.options", "refused"),
    "the database of a result": (result, "sqlite-db/dicer.db", "refused"),
    "the log of a database": (lambda folder: DATABASES["nsys"](folder), "../run.sqlite-wal", "refused"),
    "the journal of a database": (lambda folder: DATABASES["nsys"](folder), "../run.sqlite-journal", "refused"),
}


def _replaced(make: Make, name: str, put: Callable[[Path], None]) -> Make:
    def made(folder: Path) -> Path:
        path = make(folder)
        put(path.parent / name[3:] if name.startswith("../") else path / name)
        return path

    return made


for _what, (_make, _file, _comes) in IN_FOLDERS.items():
    for _kind, _put in NO_FILES.items():
        FAMILIES[f"a {_kind} in place of {_what}"] = Family(_replaced(_make, _file, _put), _comes)


# --- numbers and columns that no writer writes


@family("a capture of several that says it has lost 2^63 events", "lost_events")
def lost(folder: Path) -> Path:
    captures(folder)
    path = folder / "100-1.opspan"
    raw = bytearray(path.read_bytes())
    struct.pack_into("<Q", raw, 64, 1 << 63)
    path.write_bytes(raw)
    return folder


@family("a capture whose units begin at 2^40 - 1", "read")
def far_units(folder: Path) -> Path:
    made = Capture()
    main = made.thread(100)
    for number in range(10):
        main.torch("aten::mm", number, number + 1)
    raw = bytearray(made.to_bytes())
    struct.pack_into("<Q", raw, PAGE + 24, (1 << 40) - 1)
    (folder / "100-1.opspan").write_bytes(raw)
    return folder / "100-1.opspan"


COLUMNS: dict[str, pl.Series] = {
    "lists": pl.Series([[1, 2]]),
    "arrays": pl.Series([[1, 2]], dtype=pl.Array(pl.Int64, 2)),
    "structs": pl.Series([{"a": 1}]),
    "bytes that are no UTF-8": pl.Series([b"\xff\xfe\x00"]),
    "durations": pl.Series([1], dtype=pl.Duration),
    "categories": pl.Series(["a"], dtype=pl.Categorical),
    "nothing": pl.Series([None], dtype=pl.Null),
}


def _columns(what: str) -> Make:
    def make(folder: Path) -> Path:
        path = parquet_folder(folder)
        for file in path.iterdir():
            frame = pl.read_parquet(file)
            pl.DataFrame({name: COLUMNS[what].new_from_index(0, frame.height) for name in frame.columns}).write_parquet(
                file
            )
        return path

    return make


for _what in COLUMNS:
    FAMILIES[f"an nsys folder whose columns are {_what}"] = Family(_columns(_what), "issues")


def _saved_columns(what: str) -> Make:
    def make(folder: Path) -> Path:
        path = saved(folder)
        frame = pl.read_parquet(path / "ranges.parquet")
        spoilt = {name: COLUMNS[what].new_from_index(0, frame.height) for name in frame.columns}
        pl.DataFrame(spoilt).write_parquet(path / "ranges.parquet")
        return path

    return make


for _what in ("lists", "arrays", "structs", "bytes that are no UTF-8", "durations"):
    FAMILIES[f"a saved trace whose columns are {_what}"] = Family(_saved_columns(_what), "refused")


@family("a Parquet file of a few bytes that says it has billions of rows", "damaged_file", "more rows are in a table")
def parquet_rows(folder: Path) -> Path:
    path = parquet_folder(folder)
    pl.DataFrame({"start": pl.Series([1], dtype=pl.Int64).new_from_index(0, 40_000_000)}).write_parquet(
        path / "NVTX_EVENTS.parquet"
    )
    return path


# --- names

NAME = os.fsdecode(b"na\xffme\x1b")


def _named(make: Make) -> Make:
    def made(folder: Path) -> Path:
        plain = folder / "plain"
        plain.mkdir()
        path = make(plain)
        plain.rename(folder / NAME)
        return folder / NAME / path.relative_to(plain)

    return made


SOURCES: dict[str, Make] = {
    **DATABASES,
    "captures": captures,
    "a saved trace": saved,
    "an nsys folder": parquet_folder,
    "a result": result,
    "a result in a zip": lambda folder: Path(shutil.make_archive(str(folder / "x"), "zip", result(folder))),
    "Kineto": lambda folder: kineto.write(folder / "run.json"),
    "nothing": lambda folder: folder / "missing",
}
for _source, _make in SOURCES.items():
    FAMILIES[f"{_source} in a folder whose name is no UTF-8"] = Family(
        _named(_make), "refused" if _source == "nothing" else "any"
    )


@family("an nsys folder with a table whose name is no UTF-8", "any")
def table_name(folder: Path) -> Path:
    path = parquet_folder(folder)
    (path / "NVTX_EVENTS.parquet").rename(path / f"{NAME}.parquet")
    return path


@family("captures whose names are no UTF-8", "read")
def capture_name(folder: Path) -> Path:
    captures(folder)
    (folder / "100-1.opspan").rename(folder / f"{NAME}.opspan")
    return folder
