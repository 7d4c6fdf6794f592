"""Files, names and options may hold anything: nothing that verbs print controls the terminal."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from builders.capture import Capture
from emit.running import MAIN, environment, on_terminal, opspan, under_collectors
from test_printable import OBEYED
from views.sources import nsys

EVIL = "a\x1b]0;b\x07\u202ec\x9bd\rf"
SHOWN = r"a\x1b]0;b\x07\u202ec\x9bd"
NO_UTF8 = os.fsdecode(b"g\xff\x9bh\x1b[2J")


def run(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Texts as they are written: where newlines are translated, a carriage return would not be seen."""
    if arguments[0] in ("table", "export"):
        return opspan(*arguments)
    command = [sys.executable, "-m", "opspan", *arguments]
    done = subprocess.run(command, capture_output=True, env=environment(more), stdin=subprocess.DEVNULL, timeout=300)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def capture(path: Path, name: str = EVIL) -> Path:
    made = Capture(pid=1)
    thread = made.thread(1, EVIL)
    thread.range(name, 100, 900, domain=EVIL, sizes=EVIL)
    thread.range(f"ProfilerStep#1{EVIL}", 1000, 2000)
    return made.write(path)


def missing(folder: Path) -> list[str | Path]:
    return ["table", folder / EVIL]


def no_utf8_name(folder: Path) -> list[str | Path]:
    (folder / NO_UTF8).write_bytes(b"hello")
    return ["table", folder / NO_UTF8]


def database_of_tables(folder: Path) -> list[str | Path]:
    with closing(sqlite3.connect(folder / "x.sqlite")) as database:
        database.execute(f'CREATE TABLE "{EVIL}" (x)')
        database.commit()
    return ["table", folder / "x.sqlite"]


def folder_of_files(folder: Path) -> list[str | Path]:
    (folder / "in").mkdir()
    (folder / "in" / EVIL).write_bytes(b"")
    return ["table", folder / "in"]


def sort_column(folder: Path) -> list[str | Path]:
    return ["table", capture(folder / "1-1.opspan"), "--sort-by", EVIL]


def option(folder: Path) -> list[str | Path]:
    return ["table", "x", "--by", EVIL]


def verb(folder: Path) -> list[str | Path]:
    return [EVIL]


def output_name(folder: Path) -> list[str | Path]:
    return ["export", capture(folder / "1-1.opspan"), folder / f"{EVIL}.json"]


def output_suffix(folder: Path) -> list[str | Path]:
    return ["export", capture(folder / "1-1.opspan"), folder / f"x.{EVIL}"]


def categories(folder: Path) -> list[str | Path]:
    event = {"ph": "X", "cat": EVIL, "name": EVIL, "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {}}
    of_torch = {**event, "cat": "cpu_op"}
    path = folder / EVIL
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event, of_torch]}))
    return ["table", path]


def metric_titles(folder: Path) -> list[str | Path]:
    report = folder / "report.csv"
    evil = EVIL.replace("\r", "")
    report.write_text(f"Task Type,CPU Time,{evil}\n{evil},1.5,2.5\nother,1,1\n", encoding="utf-8")
    return ["table", capture(folder / "1-1.opspan", evil), "--metrics", report]


def command(folder: Path) -> list[str | Path]:
    return ["run", "-o", folder / EVIL, "--", EVIL]


CASES: list[Callable[[Path], list[str | Path]]] = [
    missing,
    no_utf8_name,
    database_of_tables,
    folder_of_files,
    sort_column,
    option,
    verb,
    output_name,
    output_suffix,
    categories,
    metric_titles,
    command,
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_is_foreign_is_shown_and_not_obeyed(case: Callable[[Path], list[str | Path]], tmp_path: Path) -> None:
    done = run(*case(tmp_path))
    said = done.stdout + done.stderr

    assert done.returncode in (0, 2), said
    assert not OBEYED.search(said), said
    assert "Traceback" not in said
    assert r"\x1b" in said


@pytest.mark.parametrize("by", ["name", "shape", "module", "step", "phase"])
def test_so_are_names_in_every_table(by: str, tmp_path: Path) -> None:
    said = run("table", capture(tmp_path / "1-1.opspan"), "--by", by).stdout

    assert not OBEYED.search(said), said


@pytest.mark.slow
def test_doctor_shows_what_it_found_likewise(tmp_path: Path) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\necho "{EVIL}"\n', encoding="utf-8")
    compiler.chmod(0o755)

    said = run("doctor", CXX=str(compiler), OPSPAN_CACHE_DIR=str(tmp_path / EVIL)).stdout

    assert SHOWN in said
    assert not OBEYED.search(said), said


def test_a_warning_in_the_users_program_is_likewise(tmp_path: Path) -> None:
    program = f"from opspan.emit import notices\nnotices.warn({EVIL!r}, 1)\nnotices.put_in()\nnotices.warn({EVIL!r}, 1)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    said = done.stderr.decode()
    assert said.count(SHOWN) == 2
    assert not OBEYED.search(said), said


def test_a_line_from_within_the_users_program_is_likewise(tmp_path: Path) -> None:
    env = {**under_collectors(tmp_path / "in"), "OPSPAN_CAPTURE_DIR": str(tmp_path / "missing" / EVIL)}
    program = "import opspan\nwith opspan.annotate('x'): pass"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment(env), check=True)

    said = done.stderr.decode()
    assert r"a\x1b]0;b\x07\xe2\x80\xae" in said
    assert said.endswith("nothing is recorded, the program goes on\n")
    assert not OBEYED.search(said), said


@pytest.mark.slow
def test_data_is_not_changed_but_on_a_terminal(tmp_path: Path) -> None:
    path = capture(tmp_path / "1-1.opspan")
    piped = run("table", path, "--format", "csv").stdout
    shown = on_terminal(MAIN, "table", path, "--format", "csv", stream="stdout")

    assert EVIL in piped
    assert SHOWN in shown
    assert not OBEYED.search(shown.replace("\r\n", "\n"))


@pytest.mark.slow
def test_hundreds_of_thousands_of_names_make_no_line_without_an_end(tmp_path: Path) -> None:
    event = {"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {}}
    events = [{**event, "cat": f"category {number}", "name": "x"} for number in range(200_000)]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [{**event, "cat": "cpu_op", "name": "y"}, *events]}))

    done = run("table", path)

    lines = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 0, done.stderr
    assert max(map(len, lines)) < 2_000
    assert any("(200,000)" in line and "and 199,980 more" in line for line in lines)


@pytest.mark.slow
def test_nor_do_tables_and_their_columns(tmp_path: Path) -> None:
    path = nsys(tmp_path / "run.sqlite")
    with closing(sqlite3.connect(path)) as database:
        for number in range(2_000):
            database.execute(f'CREATE TABLE "{"x" * 500}{number}" (a)')
            database.execute(f'INSERT INTO "{"x" * 500}{number}" VALUES (1)')
        database.commit()

    done = run("table", path)

    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert max(map(len, lines)) < 10_000
    assert any("(2,000)" in line and "and 1,980 more" in line for line in lines)


@pytest.mark.slow
def test_nor_do_the_issues_of_thousands_of_files(tmp_path: Path) -> None:
    for number in range(120):
        (tmp_path / f"{number}-1.opspan").write_bytes(capture(tmp_path / "made.opspan").read_bytes()[:-1])
    (tmp_path / "made.opspan").unlink()

    said = run("table", tmp_path).stdout.splitlines()

    assert sum(line.startswith("Issue (") for line in said) <= 50
