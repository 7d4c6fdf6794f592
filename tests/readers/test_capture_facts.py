"""What captures state about their process: threads of torch, usable processors, and the start of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from builders.capture import Capture

SEGMENT_AT = 3228
STATED = (
    "TORCH_THREADS=1",
    "USABLE_PROCESSORS=4",
    "PROCESSOR_LIST=0-2,8",
    "PROCESS_BEGAN_NS=400",
    "TORCH_IMPORT_NS=500-900",
)


def options(folder: Path, *texts: str, pid: int = 7, **more: object) -> dict[str, object]:
    capture = Capture(pid=pid, environment=texts, open_ns=(1000, 5000), **more)  # type: ignore[arg-type]
    capture.thread(pid).torch("aten::mm", 2000, 3000)
    return dict(opspan.load(capture.write(folder / f"{pid}-1.opspan")).metadata.options)


def test_the_facts_of_a_process_are_options_of_its_file(tmp_path: Path) -> None:
    stated = options(tmp_path, "RANK=1", "WORLD_SIZE=2", *STATED)
    assert {name: stated[name] for name in list(stated)[-5:]} == {
        "torch_threads": {"7": 1},
        "usable_processors": {"7": 4},
        "processor_list": {"7": "0-2,8"},
        "process_age_ns": {"7": 600},
        "torch_import_ns": {"7": [100, 500]},
    }


def test_a_limit_of_time_is_a_part_of_a_processor(tmp_path: Path) -> None:
    assert options(tmp_path, "USABLE_PROCESSORS=1.5")["usable_processors"] == {"7": 1.5}


@pytest.mark.parametrize(
    "text",
    [
        "TORCH_THREADS=",
        "TORCH_THREADS=0",
        "TORCH_THREADS=-1",
        "TORCH_THREADS=1e3",
        "TORCH_THREADS=99999999999999",
        "USABLE_PROCESSORS=nan",
        "USABLE_PROCESSORS=0",
        "PROCESSOR_LIST=0-",
        "PROCESSOR_LIST=x",
        "PROCESS_BEGAN_NS=1001",  # after the file was opened
        "TORCH_IMPORT_NS=500-900",  # of a process of which nobody knows when it began
    ],
)
def test_what_cannot_be_is_left_out(text: str, tmp_path: Path) -> None:
    assert set(options(tmp_path, text)) == {"recorded_by", "forked"}


def test_a_fork_and_a_segment_may_lack_the_first_ops_of_their_process(tmp_path: Path) -> None:
    assert "process_age_ns" not in options(tmp_path, *STATED, forked=True)
    path = tmp_path / "7-1.opspan"
    content = bytearray(path.read_bytes())
    content[72:76], content[SEGMENT_AT : SEGMENT_AT + 4] = bytes(4), (1).to_bytes(4, "little")
    path.write_bytes(content)
    stated = opspan.load(path).metadata.options
    assert stated["torch_threads"] == {"7": 1}
    assert "process_age_ns" not in stated


def test_a_rank_has_the_facts_of_all_its_processes_that_agree(tmp_path: Path) -> None:
    options(tmp_path, *STATED)
    options(tmp_path, "TORCH_THREADS=8", pid=8)
    again = Capture(pid=8, environment=("TORCH_THREADS=4", "USABLE_PROCESSORS=8"), open_ns=(9000, 13000))
    again.thread(8).torch("aten::mm", 9500, 9600)
    again.write(tmp_path / "8-2.opspan")
    stated = opspan.load(tmp_path).metadata.options
    assert stated["torch_threads"] == {"7": 1}  # that of process 8 changed
    assert stated["usable_processors"] == {"7": 4, "8": 8}
