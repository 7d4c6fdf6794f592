"""Paths of nsys, and the errors for those that cannot be read."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import nsys as build
from opspan.readers import nsys


def test_an_export_may_have_any_name(tmp_path: Path) -> None:
    path = build.run(tmp_path / "trace.qdrep", "2022")
    assert opspan.load(path).ranges.height == 5


OTHERS = {"nvprof": {"StringTable": [{"_id_": 1}]}, "a shop": {"users": [{"name": "x"}]}}


@pytest.mark.parametrize("tables", OTHERS.values(), ids=OTHERS)
def test_other_databases_are_not_nsys(tmp_path: Path, tables: build.Tables) -> None:
    path = build.export(tmp_path / "x.sqlite", tables)
    assert not nsys.sniff(path, path.read_bytes()[:100])
    with pytest.raises(opspan.OpspanError, match="none of nsys' tables"):
        opspan.load(path, source="nsys")


def test_an_export_without_events_is_an_empty_trace(tmp_path: Path) -> None:
    trace = opspan.load(build.export(tmp_path / "x.sqlite", {"StringIds": build.strings("a")}))
    assert all(frame.is_empty() for frame in trace.frames.values())


def test_every_table_may_have_no_rows(tmp_path: Path) -> None:
    path = build.run(tmp_path / "x.sqlite", "2026")
    with sqlite3.connect(path) as connection:
        for table in build.tables_of("2026"):
            connection.execute(f"DELETE FROM {table}")
    connection.close()
    trace = opspan.load(path)
    assert all(frame.is_empty() for frame in trace.frames.values())


def test_every_cell_may_be_null(tmp_path: Path) -> None:
    tables = {name: [dict.fromkeys(rows[0])] for name, rows in build.tables_of("2026").items()}
    trace = opspan.load(build.export(tmp_path / "x.sqlite", tables))
    assert trace.ranges.is_empty()
    assert dict(trace.issues.select("code", "count").rows())["no_time"] >= 1


def test_loading_changes_nothing_in_the_folder(tmp_path: Path) -> None:
    path = build.run(tmp_path / "x.sqlite", "2022")
    before = path.read_bytes(), path.stat().st_mtime_ns
    opspan.load(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_without_nsys_says_which_command_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(opspan.OpspanError, match="nsys is not on PATH") as caught:
        opspan.load(report)
    assert f"nsys export --type sqlite --output {tmp_path}/run.sqlite {report}" in str(caught.value)


@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
def test_a_damaged_file_in_a_folder_costs_its_table_only(tmp_path: Path, kind: str) -> None:
    folder = build.folder(tmp_path / kind, build.tables_of("2025"), kind)
    (damaged,) = folder.glob("CUPTI_ACTIVITY_KIND_KERNEL.*")
    raw = bytearray(damaged.read_bytes())
    raw[len(raw) // 3 :] = b"\xff" * (len(raw) - len(raw) // 3)
    damaged.write_bytes(raw)

    trace = opspan.load(folder)

    assert (trace.ranges.height, trace.calls.height) == (5, 2)
    assert trace.work["kind"].to_list() == ["sync"]
    (message,) = trace.issues.filter(pl.col("code") == "damaged_file")["message"]
    assert damaged.name in message


def test_a_table_in_a_folder_may_be_cut_to_nothing(tmp_path: Path) -> None:
    folder = build.folder(tmp_path / "p", build.tables_of("2025"), "parquetdir")
    (folder / "NVTX_EVENTS.parquet").write_bytes(b"")
    trace = opspan.load(folder)
    assert trace.ranges.is_empty()
    assert "damaged_file" in trace.issues["code"].to_list()
