"""A table with rows in a file of SQLite's that nobody knows is counted, whatever it is called: none is dropped."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import nsys, nvprof, rocpd, vtune
from readers.samples import Write

PARTS = ("uncore_data", "task_data", "model_range_duration_data", "dd_task", "new_data")
FILES: dict[str, tuple[Write, str, tuple[str, ...]]] = {
    # a function that writes a file or folder -> the SQLite file in it, and names of tables
    "vtune": (
        vtune.SAMPLES["of 2024"],
        "sqlite-db/dicer.db",
        ("uncore_data", *(f"{name}_agg_{part}" for name in PARTS for part in ("data", "band"))),
    ),
    "nsys": (nsys.SAMPLES["of 2026"], "", ("NVTX_OF_TOMORROW", "DYNAMIC_EVENTS", "ANALYSIS_EVENTS", "CUPTI_NEW")),
    "nvprof": (nvprof.SAMPLES["of version 26"], "", ("CUPTI_ACTIVITY_KIND_NEW", "somebodys")),
    "rocpd": (rocpd.SAMPLES["of RPD"], "", ("rocpd_new", "ext_new", "somebodys")),
}
CASES = [(source, name) for source, (*_, names) in FILES.items() for name in names]


def skipped(path: Path) -> dict[str, int]:
    """Tables, and how many rows of each were not read."""
    issues = opspan.load(path).issues.filter(pl.col("code") == "skipped_tables")
    listed = [part.rpartition(" ") for text in issues["message"] for part in text.split("): ", 1)[1].split(", ")]
    return {name: int(count) for name, _, count in listed}


def with_table(database: Path, name: str, rows: int = 3) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(f"CREATE TABLE {name} (anything, start_tsc)")
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?)", [(at, 7) for at in range(rows)])


@pytest.mark.parametrize(("source", "name"), CASES)
def test_a_table_that_nobody_knows_is_counted(tmp_path: Path, source: str, name: str) -> None:
    write, inside, _ = FILES[source]
    path = write(tmp_path)
    before = skipped(path)
    database = path / inside if inside else path
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {name}")

    with_table(database, name)

    assert skipped(path) == before | {name: 3}


def test_of_the_two_tables_under_a_view_the_rows_of_data_count(tmp_path: Path) -> None:
    path = vtune.SAMPLES["of 2024"](tmp_path)
    before = skipped(path)

    with_table(path / "sqlite-db" / "dicer.db", "uncore_data_agg_data", 5)
    with_table(path / "sqlite-db" / "dicer.db", "uncore_data_agg_band", 2)

    assert skipped(path) == before | {"uncore_data_agg_data": 5}


@pytest.mark.parametrize("name", ["uncore_data_agg_data", "uncore_data_agg_band", "task_data_agg_data"])
def test_a_recorded_result_with_one_table_more(traces_dir: Path, tmp_path: Path, name: str) -> None:
    folder = traces_dir / "vtune" / "r010hs_tasks" / "r010hs"
    if not folder.is_dir():
        pytest.skip("r010hs_tasks is not among the recorded traces")
    copy = Path(shutil.copytree(folder, tmp_path / "r010hs"))

    with_table(copy / "sqlite-db" / "dicer.db", name)

    assert skipped(copy) == {name: 3}
