"""The error for a path that is not a trace: it says what the path is, and the likeliest next command, without a list of
readers."""

from __future__ import annotations

import bz2
import cProfile
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import opspan
from builders import kineto, nsys, vtune
from opspan.errors import NotATrace, NotReadable, ReadError
from opspan.readers.registry import trace_source
from views.sources import capture

SCRIPT = b"import torch\n\nprint(torch.ones(3).sum())\n"
SNAPSHOT = {"segments": [{"device": 0, "blocks": []}], "device_traces": [[{"action": "alloc"}]]}


class Bomb:
    """Unpickled, it would leave a mark."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (open, ("unpickled", "w"))  # type: ignore[return-value]


def zipped(**members: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, content in members.items():
            file.writestr(name.replace("__", "/").replace("_pkl", ".pkl").replace("_npy", ".npy"), content)
    return made.getvalue()


def tarred(name: str, content: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as file:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        file.addfile(entry, io.BytesIO(content))
    return made.getvalue()


XPLANE = b'\x0a\xc7\xa9\x01\x12\x0e/host:metadata"\xa6\x0e\x08O' + bytes(range(200))
PROTON = json.dumps([{"children": [], "frame": {"name": "ROOT"}, "metrics": {"count": 1}}], indent=1).encode()
EXECUTION = json.dumps({"schema": "1.0.1", "pid": 1, "nodes": [{"name": "aten::mm", "id": 2, "rf_id": 0}]}).encode()
PERFETTO = b"\x0a\x56\x32\x4e\x10\x06" + bytes(range(100))

# content -> what is said of it, and what to do
FILES: dict[str, tuple[bytes, str, str]] = {
    "nothing": (b"", "an empty file", "record again"),
    "jax.xplane.pb": (XPLANE, "a profile of JAX", "XProf reads it"),
    "jax.gz": (gzip.compress(XPLANE), "a gzip file of a profile of JAX", "XProf reads it"),
    "proton.hatchet": (PROTON, "a profile of Triton's Proton", "`proton-viewer` reads it"),
    "et.json": (EXECUTION, "an execution trace", "opspan run --emit nvtx"),
    "et.json.gz": (gzip.compress(EXECUTION), "a gzip file of an execution trace", "opspan run --emit nvtx"),
    "any perfetto": (PERFETTO, "a trace for Perfetto", "opspan run --emit nvtx"),
    "torch perfetto": (PERFETTO + b"aten::mm", "with ops of torch", "export_chrome_trace"),
    "rocprof perfetto": (PERFETTO + b"hip_api", "of rocprofv3", "rocprofv3 --output-format rocpd"),
    "zeros": (bytes(5_000), "zeros", "killed"),
    "train.py": (SCRIPT, "a Python script", "`opspan run --emit nvtx -o capture -- python {}`"),
    "a script by its first line": (b"#!/usr/bin/env python3\nx = 1\n", "a Python script", "-- python {}`"),
    "a shell's script": (b"#!/bin/sh\nexec python train.py\n", "a script", "-- sh {}`"),
    "train.py.gz": (gzip.compress(SCRIPT), "a gzip file of a Python script", "`gunzip -k {}`"),
    "an export.gz": (gzip.compress(b"SQLite format 3\0" + bytes(100)), "a SQLite database", "`gunzip -k {}`"),
    "image.bz2": (bz2.compress(b"\x89PNG\r\n\x1a\n"), "a bzip2 file of an image", "expected the output of a profiler"),
    "nothing.xz": (lzma.compress(b""), "an xz file with nothing in it", "record again"),
    "cut.gz": (gzip.compress(SCRIPT)[:12], "gzip", ""),
    "files.tgz": (gzip.compress(tarred("train.py", SCRIPT)), "a tar archive that begins with train.py", "unpack it"),
    "files.zip": (zipped(train=SCRIPT), "a zip file that begins with train", "unpack it"),
    "model.pt": (zipped(model__data_pkl=b"\x80\x02}."), "torch.save", "opspan run --emit nvtx"),
    "script.pt": (zipped(m__data__0=b"x", m__constants_pkl=b"x"), "torch.save", "opspan run --emit nvtx"),
    "old.pt": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "torch.save", "opspan run"),
    "model.safetensors": (b"\x40\0\0\0\0\0\0\0" + b'{"w":{"dtype":"F32"}}', "a model", "opspan run"),
    "snapshot.pickle": (pickle.dumps(SNAPSHOT), "a snapshot of torch's memory", "memory_viz"),
    "old snapshot": (pickle.dumps(SNAPSHOT, 2), "a snapshot of torch's memory", "no pickles"),
    "bomb.pickle": (pickle.dumps({"x": Bomb()}), "a pickle", "no pickles: they can run code"),
    "image.png": (b"\x89PNG\r\n\x1a\n" + bytes(40), "an image", ""),
    "image.jpg": (b"\xff\xd8\xff\xe0\0\x10JFIF", "an image", ""),
    "image.bmp": (b"BM" + (1078).to_bytes(4, "little") + bytes(4) + b"6\0\0\0", "an image", ""),
    "image.svg": (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "an image", ""),
    "page.html": (b"<!DOCTYPE html>\n<html></html>", "HTML", ""),
    "kernels.ncu-rep": (b"NVR\0" + bytes(range(60)), "a report of Nsight Compute", "`ncu --import {}`"),
    "perf.data": (b"PERFILE2h\0\0\0" + bytes(60), "perf record", "-F +pid -i {} > perf.txt`"),
    "py-spy.json": (
        b'{"$schema":"https://www.speedscope.app/file-format-schema.json","profiles":[{"type":"sampled"}]}',
        "speedscope", "samples beside ops: `opspan run --perf"),
    "stream": (b"U3w[END]NVIDIA Nsight Systems Stream 2022.4.2.1", "a stream", "`QdstrmImporter -i {}`"),
    "python": (b"\x7fELF" + bytes(60), "a program", "`opspan run -o capture -- {}`"),
    "results.csv": (b'"Index","KernelName","gpu-id"\n0,"k",1\n', "a CSV of rocprof", "--output-format rocpd"),
    "run_kernel_trace.csv": (
        b'"Kind","Agent_Id","Queue_Id","Thread_Id","Kernel_Name"\n"KERNEL_DISPATCH",1,1,7,"k"\n',
        "a CSV of rocprofv3", "--output-format rocpd"),
    "run_marker_api_trace.csv": (
        b'"Domain","Function","Process_Id"\n"MARKER_CORE_API","aten::mm",7\n', "a CSV of rocprofv3", "rocpd"),
    "run.json": (b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}', "JSON of rocprofv3", "--output-format rocpd"),
    "stats.csv": (b"Time (%),Total Time (ns),Instances\n99.0,1,1\n", "nsys stats", "opspan table REPORT.nsys-rep"),
    "log": (b"==7== NVPROF is profiling process 7\n==7== Profiling result:\n", "nvprof printed", "nvprof -o"),
    "chrome.json": (b'{"traceEvents": [{"ph": "X", "name": "x", "ts": 1, "dur": 1}]}', "Chrome trace", "kineto"),
    "empty.json": (b'{"traceEvents": []}', "Chrome trace", ""),
    "data.xml": (b"<?xml version='1.0'?>\n<data/>", "an XML file", ""),
    "settings.json": (b'{"lr": 0.1}', "a JSON file", ""),
    "book.ipynb": (b'{\n "cells": []}', "a notebook", "opspan.record"),
    "tree.stacks": (b"a;b 12\na;c 7\na;b;d 1\n", "stacks for flame graphs", "exported from"),
    "words": (b"hello there", "text that begins 'hello there'", "opspan table --help"),
    "no pickle": (b"\x80\x02\xff\xfe\0", "binary data that begins 80 02 ff", "opspan table --help"),
    "noise": (b"\xc3\x28\xa0\xff\x01\x02", "binary data that begins c3 28", "opspan table --help"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_named_by_its_content(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content, what, todo = FILES[name]
    path = tmp_path / "trace.opspan"  # the name promises, the content decides
    path.write_bytes(content)

    said = refusal(path)

    assert what in said
    assert todo.replace("{}", str(path)) in said
    assert not (tmp_path / "unpickled").exists()


def refusal(path: Path) -> str:
    with pytest.raises((NotATrace, NotReadable)) as raised:
        opspan.load(path)
    said = str(raised.value)
    assert "parquetdir" not in said  # no list of readers
    assert len(said.replace(str(path), "PATH")) <= 220  # wherever the tests' folders are
    return said


def test_a_profile_of_pythons_own_is_named(tmp_path: Path) -> None:
    profile = cProfile.Profile()
    profile.runcall(json.dumps, {})
    profile.dump_stats(tmp_path / "run.prof")

    assert "what cProfile wrote" in refusal(tmp_path / "run.prof")


def test_what_opspan_exported_leads_back_to_the_trace(tmp_path: Path) -> None:
    trace = opspan.load(capture(tmp_path / "100-1.opspan"))

    for name in ("x.sqlite", "x.csv", "x.table.json", "x.stacks"):
        trace.export(tmp_path / name)
        assert "load the trace that it was exported from" in refusal(tmp_path / name), name


def test_a_foreign_database_says_its_tables(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE users (name)")

    assert "(tables users)" in refusal(tmp_path / "x.db")


def test_a_stream_that_was_called_so_is_named_where_nsys_cannot_export_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ncase $1 in --version) echo version 2022.4.2.1;; *) exit 1;; esac\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("OPSPAN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "run.qdstrm").write_bytes(b"U3w[END]NVIDIA Nsight Systems Stream 2022.4.2.1")

    with pytest.raises(ReadError, match="`QdstrmImporter -i "):
        opspan.load(tmp_path / "run.qdstrm")


RESULTS: dict[str, Callable[[Path], Path]] = {
    "VTune": lambda place: vtune.run(place, "2024"),
    "nsys": lambda place: nsys.run(place, "2026"),
    "kineto": lambda place: kineto.write(place.with_name(place.name + ".json")),
    "capture": lambda place: capture(place / "7-1.opspan").parent,
}


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("source", RESULTS)
def test_a_folder_around_a_trace_leads_to_it(source: str, depth: int, tmp_path: Path) -> None:
    inner = tmp_path.joinpath("runs", *["deeper"] * depth)
    inner.mkdir(parents=True)
    (inner / "r000hs").mkdir()
    if source in ("nsys", "kineto"):
        (inner / "r000hs").rmdir()
    made = RESULTS[source](inner / "r000hs")
    (tmp_path / "runs" / "notes.txt").write_text("batch 64")

    assert f"did you mean {made}?" in refusal(tmp_path / "runs")


def test_of_many_traces_some_are_named(tmp_path: Path) -> None:
    for rank in range(5):
        kineto.write(tmp_path / f"rank{rank}.json")

    assert "rank2.json (of 5)?" in refusal(tmp_path)


def test_a_part_of_a_result_leads_to_the_result(tmp_path: Path) -> None:
    result = vtune.run(tmp_path / "r000hs", "2024")

    assert f"did you mean {result}?" in refusal(result / "sqlite-db")
    assert f"did you mean {result}?" in refusal(result / "config" / "runss.options")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_table_of_an_exported_folder_leads_to_the_folder(kind: str, tmp_path: Path) -> None:
    folder = nsys.folder(tmp_path / "run", nsys.tables_of("2026"), f"{kind}dir")

    assert f"did you mean {folder}?" in refusal(folder / f"NVTX_EVENTS.{kind}")


def test_a_report_is_no_trace_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "tasks.csv").write_text("Task Type,CPU Time\naten::mm,1.5\n")

    assert "no trace is in it" in refusal(tmp_path)


def test_a_folder_that_leads_round_in_circles_ends(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to(tmp_path)

    assert "no trace is in it" in refusal(tmp_path)


def test_a_misspelt_path_leads_to_one_that_is_there(tmp_path: Path) -> None:
    made = kineto.write(tmp_path / "report.json")

    assert f"there is no {tmp_path / 'reprot.json'}; did you mean {made}?" in refusal(tmp_path / "reprot.json")
    assert "did you mean" not in refusal(tmp_path / "something else")


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("jax.xplane.pb.zst", b"\x28\xb5\x2f\xfd" + bytes(9), "a zstd file of a profile of JAX"),
        ("run.pftrace.zst", b"\x28\xb5\x2f\xfd" + bytes(9), "a zstd file of a trace for Perfetto"),
        ("rank.et", b"\x08\x01\x12\x05\x80\x81", "an execution trace"),
    ],
)
def test_the_name_says_what_the_content_does_not(name: str, content: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(NotATrace, match=rf"{what}.*opspan run --emit nvtx"):
        opspan.load(tmp_path / name)


def test_a_perfetto_trace_of_our_own_is_known(tmp_path: Path) -> None:
    kineto.write(tmp_path / "run.json")
    opspan.load(tmp_path / "run.json").export(tmp_path / "run.perfetto-trace")

    with pytest.raises(NotATrace, match=r"that `opspan export` wrote.*load the trace that it was exported from"):
        opspan.load(tmp_path / "run.perfetto-trace")


def test_a_rocpd_database_that_has_nothing_of_a_run_is_known(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("create table rocpd_other (id integer)")

    with pytest.raises(NotATrace, match=r"a rocpd database without calls.*--kernel-trace"):
        opspan.load(tmp_path / "a.db")


def test_no_reader_takes_the_trace_of_its_tool_for_sums(traces_dir: Path) -> None:
    assert trace_source(traces_dir / "nsys" / "conductor.nsys-rep") is not None  # a report of nsys is a trace
    assert trace_source(traces_dir / "vtune" / "hotspots_function.csv") is None
