"""Files that a folder, a pattern or a path stands for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from builders import capture, kineto, nsys, vtune
from opspan.cli.loading import is_several
from opspan.errors import NotATrace, NotReadable
from opspan.many.files import files_of


def names(*paths: str | Path, below: Path) -> list[str]:
    return [str(Path(file.path).relative_to(below)) for file in files_of(paths).files]


def ranks(folder: Path, *numbers: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    first = nsys.run(folder / f"rank{numbers[0]}.sqlite", "2026")
    return [first, *(Path(shutil.copy(first, folder / f"rank{number}.sqlite")) for number in numbers[1:])]


def test_a_folder_is_its_traces_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    made = ranks(tmp_path / "run", 10, 2, 1)

    found = files_of([tmp_path / "run"])

    assert [Path(file.path).name for file in found.files] == ["rank1.sqlite", "rank2.sqlite", "rank10.sqlite"]
    assert {file.size for file in found.files} == {made[0].stat().st_size}
    assert found.skipped == 0
    assert is_several(tmp_path / "run")


def test_a_pattern_is_the_files_that_fit(tmp_path: Path) -> None:
    ranks(tmp_path, 0, 1, 11)

    assert names(f"{tmp_path}/rank?.sqlite", below=tmp_path) == ["rank0.sqlite", "rank1.sqlite"]
    assert is_several(tmp_path / "rank*.sqlite")
    with pytest.raises(NotReadable, match=r"no file is called .*expected a pattern that fits some"):
        files_of([f"{tmp_path}/node*.sqlite"])


def test_a_file_that_has_the_letters_of_a_pattern_is_that_file(tmp_path: Path) -> None:
    (made,) = ranks(tmp_path, 0)
    odd = made.rename(tmp_path / "rank[0].sqlite")

    assert names(odd, below=tmp_path) == ["rank[0].sqlite"]
    assert not is_several(odd)


def test_a_folder_that_is_a_trace_is_one(tmp_path: Path) -> None:
    result = vtune.SAMPLES["of 2024"](tmp_path)
    (tmp_path / "capture").mkdir()
    for number in range(2):
        capture.run(tmp_path / "capture" / f"{number}.opspan")

    assert not is_several(result)
    assert not is_several(tmp_path / "capture")
    assert names(result, tmp_path / "capture", below=tmp_path) == [result.name, "capture"]
    assert names(tmp_path, below=tmp_path) == ["capture", result.name]


def test_folders_in_a_folder_are_looked_into_once(tmp_path: Path) -> None:
    ranks(tmp_path / "node1", 0, 1)
    ranks(tmp_path / "node2", 2)
    deeper = tmp_path / "node1" / "old"
    ranks(deeper, 9)

    assert names(tmp_path, below=tmp_path) == ["node1/rank0.sqlite", "node1/rank1.sqlite", "node2/rank2.sqlite"]


def test_other_files_are_counted_and_hidden_ones_are_not(tmp_path: Path) -> None:
    made = ranks(tmp_path, 0)
    for name in ("train.log", "config.yaml", ".rank7.sqlite"):
        (tmp_path / name).write_text("text")
    os.mkfifo(tmp_path / "rank9.fifo")

    found = files_of([tmp_path])

    assert [file.path for file in found.files] == [str(made[0])]
    assert found.skipped == 3


def test_what_is_called_like_a_trace_is_damaged_and_not_another_thing(tmp_path: Path) -> None:
    ranks(tmp_path, 0, 2)
    (tmp_path / "rank1.sqlite").write_bytes(bytes(100))
    kineto.write(tmp_path / "worker-3.json", kineto.document([kineto.span("cpu_op", "aten::mm", 1, 0, 5, 1)]))
    (tmp_path / "worker-4.json").write_text("{")
    (tmp_path / "notes.json").write_text("{}")

    found = files_of([tmp_path])

    called = [Path(file.path).name for file in found.files]
    assert called == ["rank0.sqlite", "rank1.sqlite", "rank2.sqlite", "worker-3.json", "worker-4.json"]
    assert found.skipped == 1


def test_a_report_beside_its_export_is_one_rank(tmp_path: Path) -> None:
    (export,) = ranks(tmp_path, 0)
    export.with_suffix(".nsys-rep").write_bytes(b"NVIDIA Nsight Systems Report\0" + bytes(4096))

    assert [Path(file.path).suffix for file in files_of([tmp_path]).files] == [".sqlite"]


def test_a_folder_without_a_trace_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("text")

    with pytest.raises(NotATrace, match=r"is a folder with train.log, and no trace is in it"):
        files_of([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotATrace, match="empty folder"):
        files_of([tmp_path / "empty"])
