"""A sentence on standard error says what was not captured, and has the command that captures it."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import opspan
from builders import kineto, nsys, nvprof, vtune
from builders.capture import Capture
from emit.running import opspan as command
from opspan.views import missing
from readers.test_unknown import refusal
from views import sources

KERNELS = {
    "StringIds": nsys.strings("unused", "cudaLaunchKernel_v7000", "void gemm<float>(int)", "gemm", "python"),
    "CUPTI_ACTIVITY_KIND_KERNEL": [nsys.kernel(start=10, end=50, pid=7, correlation=1)],
}


def range_(start: int, end: int, text: str, thread: int = 7) -> dict[str, object]:
    where = {"globalTid": nsys.tid(7, thread), "domainId": 0}
    return {"start": start, "end": end, "eventType": nsys.PUSH_POP, "text": text, **where}


def call(start: int, thread: int = 7) -> dict[str, object]:
    where = {"globalTid": nsys.tid(7, thread), "correlationId": 1}
    return {"start": start, "end": start + 3, "eventClass": 0, "nameId": 2, "returnValue": 0, **where}


OP = range_(1, 60, "aten::mm, seq = 3, op_id = 1")
BACKWARD = range_(70, 80, "MmBackward0, seq = 3, op_id = 2")
ITS_CALL = {"CUPTI_ACTIVITY_KIND_RUNTIME": [call(5)]}
OTHER_CALL = {"CUPTI_ACTIVITY_KIND_RUNTIME": [call(5, thread=9)]}


def nvtx(*rows: dict[str, object]) -> dict[str, list[dict[str, object]]]:
    return {"NVTX_EVENTS": list(rows)}


# tables of an export, options -> what is said, and by no means
CASES: dict[str, tuple[dict[str, object], list[str], str | None]] = {
    "no labels": ({**KERNELS, **ITS_CALL}, [], r"has no labels.*`nsys profile -t cuda,nvtx .* opspan exec train.py`"),
    "no ops": ({**KERNELS, **ITS_CALL, **nvtx(range_(1, 60, "mine"))}, [], r"none of the 1 range is an op of torch"),
    "no backward": ({**KERNELS, **ITS_CALL, **nvtx(OP)}, [], r"no backward pass.*`opspan exec train.py`"),
    "no calls": ({**KERNELS, **nvtx(OP, BACKWARD)}, [], r"no launch call of any of the 1 kernels and copies.*`nsys"),
    "other thread": ({**KERNELS, **OTHER_CALL, **nvtx(OP, BACKWARD)}, [], r"was launched within a range.*`nsys"),
    "nothing missing": ({**KERNELS, **ITS_CALL, **nvtx(OP, BACKWARD)}, [], None),
    "inference": (
        {**KERNELS, **ITS_CALL, **nvtx(range_(1, 60, "aten::mm, op_id = 1"))}, [], None),
    "inference by phase": (
        {**KERNELS, **ITS_CALL, **nvtx(range_(1, 60, "aten::mm, op_id = 1"))}, ["--by", "phase"], "no backward pass"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_missing_is_said_on_stderr(case: str, form: str, tmp_path: Path) -> None:
    tables, options, said = CASES[case]
    path = nsys.export(tmp_path / "run.sqlite", tables)

    done = command("table", path, "--format", form, *options)

    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("Missing: ")]
    assert len(lines) == (said is not None), done.stderr
    assert said is None or re.search(said, lines[0])
    assert "Missing" not in done.stdout
    if form == "json":
        json.loads(done.stdout)


@pytest.mark.parametrize(
    ("by", "option"), [("shape", "--record-shapes -o capture -- python"), ("module", "--modules -o capture -- python")]
)
def test_a_table_that_has_one_row_says_the_whole_command(by: str, option: str, tmp_path: Path) -> None:
    made = Capture()
    made.thread(7).torch("aten::mm", 1, 9)
    made.write(tmp_path / "7-1.opspan")

    said = command("table", tmp_path / "7-1.opspan", "--by", by).stdout

    assert f"`opspan run --emit nvtx {option} train.py`" in said


def test_a_table_by_step_says_how_steps_come_about(tmp_path: Path) -> None:
    path = nsys.export(tmp_path / "x.sqlite", {**KERNELS, **ITS_CALL, **nvtx(OP, BACKWARD)})

    assert 'opspan.annotate(f"ProfilerStep#{number}")' in command("table", path, "--by", "step").stdout


SOURCES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nsys": (lambda folder: sources.nsys(folder / "x.sqlite"), "nsys profile"),
    "nvprof": (lambda folder: nvprof.run(folder / "x.prof", 26), "nvprof -o"),
    "vtune": (lambda folder: vtune.run(folder / "r000hs", "2024"), "vtune -collect hotspots -knob enable"),
    "capture": (lambda folder: sources.capture(folder / "7-1.opspan"), "opspan run --emit nvtx"),
    "kineto": (lambda folder: kineto.write(folder / "x.json"), "torch.profiler.profile(record_shapes=True)"),
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_the_command_is_that_of_the_tool_that_wrote_the_trace(source: str, tmp_path: Path) -> None:
    make, begins = SOURCES[source]

    assert missing.labelling(opspan.load(make(tmp_path)), " --record-shapes").startswith(f"`{begins}")


@pytest.mark.parametrize("matching", [False, True])
def test_a_report_of_other_names_says_how_many_match(matching: bool, tmp_path: Path) -> None:
    path = nsys.export(tmp_path / "x.sqlite", {**KERNELS, **ITS_CALL, **nvtx(OP, BACKWARD)})
    report = tmp_path / "functions.csv"
    names = ["main", "memcpy", "aten::mm" if matching else "loop"]
    report.write_text("Function,CPU Time\n" + "".join(f"{name},1.5\n" for name in names))

    said = command("table", path, "--metrics", report).stderr

    assert ("0 of 3 names of the report are names of the trace" in said) == (not matching)
    assert ("`vtune -report hotspots -group-by task " in said) == (not matching)


def test_an_export_without_labels_says_so(tmp_path: Path) -> None:
    path = nsys.export(tmp_path / "x.sqlite", {**KERNELS, **ITS_CALL})

    assert "Missing: the trace has no labels" in command("export", path, tmp_path / "x.json").stderr


# --- files that a program still writes

WRITER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(f"PRAGMA journal_mode = {sys.argv[2]}")
connection.executescript(sys.argv[3])
print("ready", flush=True)
time.sleep(600)
"""
EMPTY = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT); "
FILLING = "BEGIN IMMEDIATE; INSERT INTO StringIds VALUES (1, 'x');"
ROW = 'CREATE TABLE NVTX_EVENTS (start INT, "end" INT, eventType INT, text TEXT, globalTid INT); '
ROW += "INSERT INTO NVTX_EVENTS VALUES (1, 9, 59, 'aten::mm', 117440519); "


@contextmanager
def writer(path: Path, journal: str, script: str) -> Iterator[str]:
    """A program that has done this and goes on."""
    arguments = [sys.executable, "-c", WRITER, str(path), journal, script]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield f"(process {process.pid}) still writes it"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize(
    "script", ["BEGIN IMMEDIATE; " + EMPTY, EMPTY, EMPTY + FILLING], ids=["begun", "empty", "rows"]
)
def test_a_database_without_anything_yet_says_who_writes_it(script: str, journal: str, tmp_path: Path) -> None:
    with writer(tmp_path / "run.sqlite", journal, script) as still:
        said = refusal(tmp_path / "run.sqlite")

    assert still in said
    assert "Wait until that program has ended" in said


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_what_is_there_already_is_read_with_an_issue(journal: str, tmp_path: Path) -> None:
    with writer(tmp_path / "run.sqlite", journal, EMPTY + ROW + FILLING):
        done = command("table", tmp_path / "run.sqlite")

    assert "aten::mm" in done.stdout
    assert "Issue (warning): programs are still writing the file (1): python" in done.stdout
    assert not opspan.load(tmp_path / "run.sqlite").issues.filter(code="still_written").height


def test_a_text_that_is_still_written_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    code = f"import time\nfile = open({str(path)!r}, 'w')\nprint('ready', flush=True)\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        said = refusal(path)
        process.kill()

    assert f"(process {process.pid}) still writes it" in said


def test_a_file_that_this_process_has_open_is_its_own_business(tmp_path: Path) -> None:
    path = sources.nsys(tmp_path / "x.sqlite")
    with path.open("ab"), sqlite3.connect(path):
        assert not opspan.load(path).issues.filter(code="still_written").height


@pytest.mark.slow
def test_millions_of_ranges_take_no_text_each() -> None:
    """A text for the kind of each range would be 16 bytes, and its time that of the whole table by name."""
    program = """
from pathlib import Path
import polars as pl
from opspan.analysis import attribute
from opspan.tables import Metadata
from opspan.trace import Trace
from opspan.views import missing
count = 3_000_000
row = pl.int_range(count, dtype=pl.Int64)
same = {"kind": pl.lit("op"), "name": pl.lit("aten::mm"), "rank": 0, "tid": 1}
ranges = pl.select(start_ns=2 * row, end_ns=2 * row + 1, seq=row, **same)
trace = attribute(Trace((Metadata("capture"),), ranges=ranges))
trace.coverage
def memory(key):
    return int(Path("/proc/self/status").read_text().split(key + ":")[1].split()[0]) * 1024
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = memory("VmRSS")
assert missing.lines(trace.analysed, "name")[0].startswith("Missing: there is no backward")
print((memory("VmHWM") - before) // count)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 8
