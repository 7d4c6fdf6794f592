"""Limits on the cost of a file: each from both sides, one sentence past it, and one way to raise it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import hostile
import opspan
from builders import nsys
from builders.capture import Capture
from opspan.errors import OpspanError, TooLarge, UsageError
from opspan.files import copy_file, open_file
from opspan.formats import budget, chrome, sqlite
from opspan.formats.budget import Limit, Meter
from opspan.readers.vtune import archives
from opspan.readers.vtune.reports import read_report
from opspan.tables import Issues
from readers.loading import OVER_BUDGET

# --- the limits themselves


def test_a_limit_grows_with_the_file_up_to_its_most(budget: Callable[[float], None]) -> None:
    limit = Limit("bytes come out of it", always=100, per_byte=10, most=1_000)
    assert [limit.allows(size) for size in (0, 10, 11, 100, 101)] == [100, 100, 110, 1_000, 1_000]
    budget(10)
    assert limit.allows(101) == 10_000
    budget(0.5)
    assert limit.allows(0) == 50
    budget(0)
    assert limit.allows(0) > 1 << 60


@pytest.mark.parametrize("times", [0, 1e8])
def test_a_file_that_is_read_as_a_whole_needs_no_room_for_the_limit(
    budget: Callable[[float], None], tmp_path: Path, times: float
) -> None:
    (tmp_path / "report.txt").write_bytes(b"12345")
    budget(times)
    assert Limit("bytes are in a report", always=4).read(tmp_path / "report.txt") == b"12345"


@pytest.mark.parametrize("asked", ["much", "-1", "1e9", ""])
def test_a_budget_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str) -> None:
    monkeypatch.setenv("OPSPAN_BUDGET", asked)
    with pytest.raises(UsageError, match=r"OPSPAN_BUDGET=.* is not a number; expected one such as 10"):
        opspan.load(hostile.DATABASES["nsys"](tmp_path))


def test_a_meter_says_once_what_was_passed() -> None:
    issues = Issues()
    meter = Meter(Limit("fields are in payloads", always=3), 0, issues)
    assert [meter.take(1) for _ in range(5)] == [True, True, True, False, False]
    assert [(issue.code, issue.count) for issue in issues] == [("over_budget", 1)]


def test_texts_past_the_limit_are_null() -> None:
    issues = Issues()
    meter = Meter(Limit("bytes of text", always=10), 0, issues)
    texts, rows = pl.Series(["abcd", "x"]), pl.Series([0, 1, 0], dtype=pl.UInt32)
    assert meter.gather(texts, rows).to_list() == ["abcd", "x", "abcd"]
    assert meter.gather(texts, rows).to_list() == [None, None, None]
    assert len(issues) == 1


# --- each from both sides: what is just allowed is read, what is just past it is refused or left out


def zip_with(folder: Path, method: int, count: int) -> Path:
    path = folder / "x.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.write(hostile.result(folder) / "sqlite-db" / "dicer.db", "r000hs/sqlite-db/dicer.db")
        archive.writestr("r000hs/sqlite-db/a/a/0", bytes(count))
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unpacked_zip(tmp_path: Path, budget: Callable[[float], None], method: int) -> None:
    path = zip_with(tmp_path, method, 3_000_000)
    whole = sum(info.file_size for info in zipfile.ZipFile(path).infolist())
    always = max(64 << 20, 200 * path.stat().st_size)
    budget(whole / always + 1e-8)
    assert opspan.load(path).ranges.height == 7
    budget(whole / always - 1e-8)
    with pytest.raises(TooLarge, match="more bytes come out of it " + OVER_BUDGET):
        opspan.load(path)


@pytest.mark.parametrize("suffix", hostile.COMPRESSORS)
def test_unpacked_trace(tmp_path: Path, budget: Callable[[float], None], suffix: str) -> None:
    text = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}'
    text = text + b" " * (4_000_000 - len(text) - 2) + b"]}"
    path = tmp_path / f"x.json.{suffix}"
    path.write_bytes(hostile.COMPRESSORS[suffix](text))
    budget(len(text) / (64 << 20) + 1e-8)
    assert opspan.load(path).ranges.height == 1
    budget(len(text) / (64 << 20) - 1e-8)
    with pytest.raises(TooLarge, match="more bytes come out of it " + OVER_BUDGET):
        opspan.load(path)


def archive_of(folder: Path, kind: str, names: list[str]) -> Path:
    """An archive with a result's database, and next to nothing by other names."""
    path, result = folder / "x", hostile.result(folder) / "sqlite-db" / "dicer.db"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(result, "r000hs/sqlite-db/dicer.db")
            for name in names:
                archive.writestr(name, b"x")
    else:
        with tarfile.open(path, "w") as tar:
            tar.add(result, "r000hs/sqlite-db/dicer.db")
            for name in names:
                tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    return path


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_results_in_an_archive(tmp_path: Path, budget: Callable[[float], None], kind: str) -> None:
    path = archive_of(tmp_path, kind, [f"r{number}/config/runss.options" for number in range(10)])
    budget(11 / 1_000)
    assert opspan.load(path).ranges.height == 7
    budget(10 / 1_000)
    with pytest.raises(TooLarge, match="more results are in an archive " + OVER_BUDGET):
        opspan.load(path)


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_names_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = archive_of(tmp_path, kind, [f"r000hs/{number}" for number in range(9)])
    monkeypatch.setattr(archives, "MEMBERS", archives.MEMBERS._replace(always=10))
    assert opspan.load(path).ranges.height == 7
    monkeypatch.setattr(archives, "MEMBERS", archives.MEMBERS._replace(always=9))
    with pytest.raises(TooLarge, match="more names are in an archive " + OVER_BUDGET):
        opspan.load(path)


def test_texts_of_a_databases_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = hostile.nsys_tables([("name", 17, 0)], 1, size=8)
    tables["StringIds"] = nsys.strings("x" * 10_000)
    path = nsys.export(tmp_path / "x.sqlite", tables)
    with closing(sqlite3.connect(path)) as database:
        (size,) = database.execute("SELECT sum(length(CAST(value AS BLOB))) FROM StringIds").fetchone()

    def codes(limit: int) -> list[str]:
        monkeypatch.setattr(sqlite, "CELLS", sqlite.CELLS._replace(always=limit, per_byte=0))
        return opspan.load(path).issues["code"].cast(pl.String).to_list()

    assert "over_budget" not in codes(size)
    assert "over_budget" in codes(size - 1)


def fields(trace: opspan.Trace) -> list[dict]:
    return [json.loads(text) for text in trace.ranges["payload_json"].drop_nulls()]


def test_fields_of_a_capture(tmp_path: Path, budget: Callable[[float], None]) -> None:
    made = Capture()
    main = made.thread(100)
    main.schema(5000, "ten", [(f"f{number}", 17, 8 * number) for number in range(10)], domain="lib", size=80)
    main.blob(main.range("copy", 1, 2, domain="lib", schema=5000), bytes(80), 5000)
    path = made.write(tmp_path / "100-1.opspan")
    budget(10 / 100_000)
    assert fields(opspan.load(path)) == [{f"f{number}": 0 for number in range(10)}]
    budget(9 / 100_000)
    trace = opspan.load(path)
    assert "bytes" in fields(trace)[0]
    said = trace.issues.filter(pl.col("code").cast(pl.String) == "over_budget")["message"].to_list()
    assert "more fields are in payloads than are allowed (9)" in said[0]


def test_texts_of_an_export(tmp_path: Path, budget: Callable[[float], None]) -> None:
    tables = hostile.nsys_tables([("name", 17, 0)], 100, size=8)
    tables["StringIds"] = nsys.strings("x" * 10_000)
    for row in tables["NVTX_EVENTS"]:
        if row.pop("binaryData", None) is not None:
            row["jsonTextId"] = 1
    path = nsys.export(tmp_path / "x.sqlite", tables)
    assert opspan.load(path).ranges["payload_json"].drop_nulls().str.len_bytes().sum() == 1_000_000
    budget(500_000 / (64 << 20))
    trace = opspan.load(path)
    assert trace.ranges["payload_json"].drop_nulls().str.len_bytes().sum() <= 500_000
    assert "over_budget" in trace.issues["code"].cast(pl.String).to_list()


@pytest.mark.slow
@pytest.mark.parametrize(("what", "always"), [("bytes", 64 << 20), ("tables", 1_000), ("columns", 4_096)])
def test_a_report(tmp_path: Path, budget: Callable[[float], None], what: str, always: int) -> None:
    path = tmp_path / "report.csv"
    titles = "Task Type,CPU Time" + ",More" * 80
    # As many lines that hold nothing as make the bytes the first limit that is met.
    lines = "Task Type,CPU Time\naaa,1\n" + "\n" * 500_000 if what == "bytes" else f"{titles}\naaa,1\n" * 10
    path.write_text(lines)
    count = {"bytes": path.stat().st_size, "tables": 10, "columns": 81}[what]
    if what == "tables":
        path.write_text("Task Type,CPU Time\naaa,1\n" * 10)
    budget(count / always + 1e-7)
    assert read_report(path).height
    budget(count / always - 1e-6)
    with pytest.raises(TooLarge, match=f"more {what} are in a report {OVER_BUDGET}"):
        read_report(path)


def test_what_describes_a_result(tmp_path: Path, budget: Callable[[float], None]) -> None:
    folder = hostile.result(tmp_path)
    options = folder / "config" / "runss.options"
    options.write_text("--type=task\n" + "-" * 100_000)
    budget(options.stat().st_size / (1 << 20) + 1e-6)
    assert opspan.load(folder).ranges.height
    budget(options.stat().st_size / (1 << 20) - 1e-6)
    with pytest.raises(TooLarge, match="more bytes are in a file that describes the others " + OVER_BUDGET):
        opspan.load(folder)


def test_steps_for_opening_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hostile.DATABASES["nsys"](tmp_path)

    def opens(steps: int) -> bool:
        monkeypatch.setattr(sqlite, "STEPS", budget.STEPS._replace(always=steps, per_byte=0))
        try:
            with sqlite.SqliteFile(path, Issues()) as file:
                return len(file.tables) > 5
        except TooLarge:
            return False

    refused, enough = 1, 1 << 20
    assert opens(enough)
    while enough - refused > 1:
        steps = (refused + enough) // 2
        refused, enough = (refused, steps) if opens(steps) else (steps, enough)

    assert 10 < enough < budget.STEPS.always / 1_000  # a sound file is far from it
    assert opens(enough)
    assert not opens(refused)
    with pytest.raises(TooLarge, match="more steps are needed to open it " + OVER_BUDGET):
        opspan.load(path)


@pytest.mark.parametrize("is_more", [False, True])
def test_bytes_of_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_more: bool) -> None:
    monkeypatch.setattr(chrome, "_PIECE", 1 << 10)
    some = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "dur": 1}
    events = [{**some, "name": name, "ts": ts} for ts, name in enumerate(("before", "long", "after"), 1)]
    events[1]["args"] = {"a": "x" * 20_000}
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    # The part of a file that is read at a time is doubled until an event ends in it.
    allowed = 10_000 if is_more else 40_000
    monkeypatch.setattr(chrome, "EVENT", budget.EVENT._replace(always=allowed))

    trace = opspan.load(path)

    found = dict(trace.issues.select(pl.col("code").cast(pl.String), "message").iter_rows())
    if is_more:
        assert trace.ranges["name"].to_list() == ["before"]
        assert re.search("more bytes are in one event " + OVER_BUDGET, found["over_budget"])
        assert "truncated_file" not in found
    else:
        assert trace.ranges["name"].to_list() == ["before", "long", "after"]
        assert not {"over_budget", "damaged_file", "truncated_file"} & found.keys()


# --- what is no file, and copies


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    for kind, put in hostile.NO_FILES.items():
        put(tmp_path / kind)
        with pytest.raises(OSError, match=r"it is a|No such device"):
            open_file(tmp_path / kind)


def test_holes_are_not_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 30)
        file.write(b"middle")
        file.truncate(3 << 30)
    copy_file(source, target)
    assert target.stat().st_size == 3 << 30
    assert target.stat().st_blocks * 512 < 1 << 20
    with target.open("rb") as file:
        assert file.read(6) == b"begin\0"
        file.seek(1 << 30)
        assert file.read(7) == b"middle\0"


COPYING = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
from contextlib import ExitStack
from pathlib import Path
from opspan.formats.sqlite_path import read_only_uri
with ExitStack() as stack:
    read_only_uri(Path(sys.argv[1]), stack)
    print("copied", flush=True)
    while True:  # not one long sleep: a signal that comes just before it would be seen at its end
        time.sleep(0.1)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_copies_are_gone_when_the_process_is_told_to_end(tmp_path: Path, number: signal.Signals) -> None:
    path = hostile.DATABASES["nsys"](tmp_path)
    path.with_name(path.name + "-wal").write_bytes(bytes(100))
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, "-c", COPYING, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"copied\n"
        assert any((tmp_path / "tmp").iterdir())
        process.send_signal(number)
        process.communicate(timeout=300)
    assert process.returncode == -number  # as if nobody had handled it
    assert not any((tmp_path / "tmp").iterdir())


def test_a_handler_of_the_program_stays(tmp_path: Path) -> None:
    path = hostile.DATABASES["nsys"](tmp_path)
    path.with_name(path.name + "-wal").write_bytes(bytes(100))
    before = signal.getsignal(signal.SIGTERM)
    opspan.load(path)
    assert signal.getsignal(signal.SIGTERM) is before


# --- time


@pytest.mark.slow
def test_many_names_in_an_archive_take_linear_time(tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        path = tmp_path / f"{count}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(count):
                archive.writestr(f"data.0/{number}", b"")
        before = time.process_time()
        with pytest.raises(OpspanError):
            opspan.load(path)
        return time.process_time() - before

    seconds(1_000)
    assert seconds(40_000) < 40 * max(seconds(4_000), 0.01)  # 100 times, if it were quadratic


def test_the_limits_are_documented(repo: Path) -> None:
    text = (repo / "docs" / "security.md").read_text(encoding="utf-8")
    limits = [value for value in vars(budget).values() if isinstance(value, Limit)]
    assert len(limits) >= 10
    missing = [limit.what for limit in limits if limit.what not in text]
    assert not missing
