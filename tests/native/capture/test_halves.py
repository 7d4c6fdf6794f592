"""Ranges that take half a line of a capture file come back as they were told, wherever they stand."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import opspan
from builders import capture_units as units
from collectors.running import NATIVE, compiled

HERE = Path(__file__).parent
LARGE_PAGES = HERE / "large_pages.cpp"


def program(shared_folder: Path, source: str, *more: Path) -> Path:
    sources = (HERE / source, *more, *(NATIVE / "capture").glob("*.cpp"))
    name = "-".join(path.stem for path in (Path(source), *more))
    return compiled(shared_folder / name, "g++", "-std=c++20", "-O1", "-I", NATIVE, *sources, "-pthread", "-ldl")


@pytest.fixture(scope="module", params=[(), (LARGE_PAGES,)], ids=["", "with large pages"])
def halves(shared_folder: Path, request: pytest.FixtureRequest) -> Path:
    return program(shared_folder, "halves.cpp", *request.param)


@pytest.mark.parametrize(("ranges", "seed"), [(1, 1), (2, 2), (300, 3), (20_000, 4), (20_000, 5)])
def test_every_range_is_read_as_it_was_written(halves: Path, tmp_path: Path, ranges: int, seed: int) -> None:
    done = subprocess.run([halves, tmp_path, str(ranges), str(seed)], capture_output=True, text=True, check=True)
    told = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    (capture,) = units.read_folder(tmp_path)
    fields = ("value", "id", "category", "forward_tid", "sizes", "color", "schema")
    apart = {
        it.owner_unit: it.time_ns for it in capture.units(units.END)
    }  # ranges that lasted for days have separate end units
    found = [
        (
            it.number,
            it.start_ns,
            it.end_ns or apart.get(it.number, 0),
            it.source,
            it.flags,
            *(it.fields[name] for name in fields),
        )
        for it in capture.units(units.RANGE, units.MARK)
    ]
    memory = [
        (it.flags, it.time_ns, it.address, it.bytes, it.total, it.device_index) for it in capture.units(units.MEMORY)
    ]
    assert found == [one for one in told if len(one) == 12]
    assert memory == [one for one in told if len(one) == 6]
    assert apart or ranges < 300

    trace = opspan.load(tmp_path)
    assert trace.ranges["start_ns"].to_list() == [one[1] for one in found]
    assert trace.ranges["end_ns"].to_list() == [one[2] or None for one in found]
    assert "damaged_file" not in trace.issues["code"]


def test_most_ranges_of_ops_take_half_a_line(halves: Path, tmp_path: Path) -> None:
    subprocess.run([halves, tmp_path, "20000", "5"], capture_output=True, check=True)
    (path,) = tmp_path.glob("*.opspan")
    kinds = [content[at] for kind, _, _, _, content in units.split(path.read_bytes()) if kind == 3
             for at in range(0, len(content), 32)]  # fmt: skip

    assert kinds.count(units.SHORT) > 1000
    assert kinds.count(units.LIKE) > 5000
    assert kinds.count(units.BLOCK) > 1000
    assert kinds.count(units.MODEL) < 1000


def test_a_program_with_large_pages_outlives_its_file(shared_folder: Path) -> None:
    cut = program(shared_folder, "stress_cut.cpp", LARGE_PAGES)
    done = subprocess.run([cut], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
