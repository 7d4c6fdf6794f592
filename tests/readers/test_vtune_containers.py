"""Containers beside VTune's database: records of a fixed size, in files that are as long as the folder says."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from builders import vtune
from builders.vtune import tsc
from opspan.errors import NotReadable
from readers.loading import codes


def test_tasks_in_a_container_name_the_command(tmp_path: Path) -> None:
    folder = vtune.run(tmp_path / "r000hs", "2020")
    vtune.container(folder / "sqlite-db" / "task_data", [(0,) * 11 + (0.0,)])
    with pytest.raises(NotReadable, match=r"task_data in a container.*vtune -finalize"):
        opspan.load(folder)


def test_an_empty_container_of_tasks_is_none(tmp_path: Path) -> None:
    folder = vtune.run(tmp_path / "r000hs", "2020")
    vtune.container(folder / "sqlite-db" / "task_data", [])
    assert opspan.load(folder).ranges.height == 7


def test_a_container_that_is_not_as_long_as_it_says_is_counted(tmp_path: Path) -> None:
    folder = vtune.run(tmp_path / "r000hs", "2020")
    file = folder / "sqlite-db" / "pmu_data" / "end_tsc" / "0"
    file.write_bytes(file.read_bytes()[:-8])
    trace = opspan.load(folder)
    assert trace.samples.height == 2
    assert codes(trace)["damaged_file"] == 1


def test_a_container_of_another_kind_is_counted(tmp_path: Path) -> None:
    folder = vtune.run(tmp_path / "r000hs", "2020")
    vtune.container(folder / "sqlite-db" / "offload_region_data", [(0,) * 11 + (0.0,)] * 5)
    assert codes(opspan.load(folder))["skipped_tables"] == 2 + 5


def test_records_that_are_cut_between_two_files_are_counted(tmp_path: Path) -> None:
    folder = vtune.run(tmp_path / "r000hs", "2020")
    file = folder / "sqlite-db" / "pmu_data" / "end_tsc" / "0"
    raw = file.read_bytes()
    file.write_bytes(raw[:40])
    file.with_name("1").write_bytes(raw[40:])
    trace = opspan.load(folder)
    assert trace.samples.height == 2
    assert codes(trace)["damaged_file"] == 1


def test_index_0_is_none_and_a_count_of_0_is_one(tmp_path: Path) -> None:
    folder = vtune.result(tmp_path / "r000hs", {**vtune.around("2020"), **vtune.events("2020")})
    unknown = (tsc(40), *[0] * 7, 0, 0, tsc(35), 0.0)
    vtune.container(folder / "sqlite-db" / "pmu_data", [unknown])
    trace = opspan.load(folder)
    assert trace.samples.select("tid", "event", "stack", "weight").rows()[-1] == (None, None, None, 0)
    assert "missing_rows" not in codes(trace)
