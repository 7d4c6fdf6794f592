"""Measured peaks: what is measured, where it is kept, and that recordings carry it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import pytest

import opspan
from emit.running import MAIN, forked
from opspan.emit import peaks
from opspan.emit.peaks import PEAKS, MeasuredPeaks
from opspan.errors import EmitError
from opspan.tables.processors import of_rank

XEON = {"PROCESSOR": "Some CPU @ 2.50GHz", "PROCESSOR_CORES": "2", "PROCESSOR_THREADS": "4"}
# Records one range without torch: importing it takes longer than all else.
RECORD = """
import os, sys
from opspan.emit import sinks
from opspan.emit.sink_list import CAPTURES
native = sinks.require()
native.start(CAPTURES[0].number, folder=os.fsencode(sys.argv[1]))
native.stop(CAPTURES[0].number)
"""


def measured(entries: Mapping[str, str], fp32: float = 2.5e11, share: float = 1.0) -> MeasuredPeaks:
    return MeasuredPeaks(entries, {"fp32": fp32}, 2048, 1.5e10, 1 << 29, 2, "node7", share)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("OPSPAN_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def this() -> dict[str, str]:
    entries = peaks.processor()
    if not entries.get("PROCESSOR"):
        pytest.skip("the model of this processor is not known")
    return entries


def recorded(folder: Path, cache: Path) -> opspan.Trace:
    """A recording of a new process: the variables count as they were when it started."""
    folder.mkdir()
    command = [sys.executable, "-c", RECORD, folder]
    subprocess.run(command, check=True, env={**os.environ, "OPSPAN_CACHE_DIR": str(cache)}, timeout=300)
    (file,) = folder.iterdir()
    return opspan.load(file)


def test_figures_are_kept_for_each_processor_in_a_file_of_this_user_alone(cache: Path) -> None:
    other = {**XEON, "PROCESSOR_THREADS": "2"}
    assert peaks.stored(XEON) is None
    path = peaks.store(measured(XEON, 1e11))
    peaks.store(measured(other, 2e11))
    peaks.store(measured(XEON, 3e11))

    assert path.stat().st_mode & 0o777 == 0o600
    assert path == cache / PEAKS
    assert peaks.stored(XEON) == "fp32=3e+11 bandwidth=1.5e+10 threads=2 host=node7"
    assert peaks.stored(other) == "fp32=2e+11 bandwidth=1.5e+10 threads=2 host=node7"
    assert peaks.stored({**XEON, "PROCESSOR": "Other CPU"}) is None
    assert len(path.read_text().splitlines()) == 2


def test_a_file_does_not_grow_for_good(cache: Path) -> None:
    for number in range(120):
        peaks.store(measured({**XEON, "PROCESSOR_THREADS": str(number)}))
    assert len((cache / PEAKS).read_text().splitlines()) == 101
    assert peaks.stored({**XEON, "PROCESSOR_THREADS": "119"})


def test_a_processor_without_a_name_is_not_stored(cache: Path) -> None:
    with pytest.raises(EmitError, match="not known"):
        peaks.store(measured({"PROCESSOR_CORES": "2"}))
    assert not cache.exists()


def test_a_recording_carries_what_was_measured_before_it(cache: Path, this: dict[str, str], tmp_path: Path) -> None:
    before = recorded(tmp_path / "before", cache)
    peaks.store(measured({**this, "PROCESSOR_THREADS": "9999"}, 9e11))
    peaks.store(measured(this, 2.5e11))
    after = recorded(tmp_path / "after", cache)

    first, second = of_rank(before.metadata), of_rank(after.metadata)
    assert first is not None
    assert second is not None
    assert (first.model, first.threads) == (this["PROCESSOR"], len(os.sched_getaffinity(0)))
    assert (first.peaks, first.bandwidth) == ({}, None)
    assert (second.peaks, second.bandwidth) == ({"fp32": 2.5e11}, 1.5e10)
    assert (second.measured_threads, second.measured_on) == (2, "node7")


def test_so_does_a_capture_of_opspan_run(cache: Path, this: dict[str, str], tmp_path: Path) -> None:
    peaks.store(measured(this, 2.5e11))
    program = (sys.executable, "-c", "import opspan\nwith opspan.annotate('work'): pass")
    done = forked(MAIN, "run", "-o", tmp_path / "run", "--", *program, env={"OPSPAN_CACHE_DIR": str(cache)})

    assert done.returncode == 0, done.stderr
    trace = opspan.load(tmp_path / "run")
    processor = of_rank(trace.metadata)
    assert trace.metadata.options["recorded_by"] == "collectors"
    assert processor is not None
    assert (processor.model, processor.peaks) == (this["PROCESSOR"], {"fp32": 2.5e11})


def line(entries: Mapping[str, str], figures: str) -> str:
    return "\t".join([*(entries.get(f"PROCESSOR{end}", "") for end in ("", "_CORES", "_THREADS")), figures])


@pytest.mark.parametrize(
    "damage",
    [
        "link",
        "folder",
        "pipe",
        "others write",
        "too large",
        "no end",
        "too long",
        "binary",
        "of another",
        "in the middle",
    ],
)
def test_a_file_that_is_not_as_it_should_be_is_not_used(
    damage: str, cache: Path, this: dict[str, str], tmp_path: Path
) -> None:
    cache.mkdir(0o700)
    path, good = cache / PEAKS, line(this, "fp32=1e11")
    path.write_text(f"{good}\n")
    path.chmod(0o600)
    if damage in ("link", "folder", "pipe"):
        path.rename(tmp_path / "elsewhere")
        {
            "link": lambda: path.symlink_to(tmp_path / "elsewhere"),
            "folder": path.mkdir,
            "pipe": lambda: os.mkfifo(path),
        }[damage]()
    elif damage == "others write":
        path.chmod(0o666)
    else:
        contents = {
            "too large": f"{good}\n" + 70_000 * "x",
            "no end": good,
            "too long": line(this, f"fp32=1e11 {300 * 'x'}\n"),
            "binary": "\0\xff\n\t\t\t\t\n",
            "of another": f"{line({**this, 'PROCESSOR': 'Other CPU'}, 'fp32=1e11')}\n",
            "in the middle": f"x {good}\n",
        }
        path.write_text(contents[damage], encoding="latin-1")
    trace = recorded(tmp_path / "run", cache)
    processor = of_rank(trace.metadata)
    assert processor is not None
    assert (processor.model, processor.peaks, processor.bandwidth) == (this["PROCESSOR"], {}, None)
    assert trace.issues.is_empty()


@pytest.mark.slow
def test_a_product_and_a_copy_are_as_fast_as_others_measure() -> None:
    """Oracles from outside: torch's own benchmark, and numpy. Both are measured in turns, as other programs may use the
    machine."""
    numpy = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    timer = pytest.importorskip("torch.utils.benchmark").Timer
    source, target = (numpy.ones(64 << 20, dtype=numpy.uint8) for _ in range(2))
    products, copies = [], []
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(9):
            rate, size, _ = peaks._product(torch, torch.float32, 1)
            product = timer("torch.mm(one, one, out=out)", f"one = torch.ones({size}, {size}); out = one + 0")
            products.append(rate / (2 * size**3 / min(product.timeit(1).mean for _ in range(20))))
            rate, _ = peaks._copy(torch)
            copies.append(
                rate / (2 * source.size / min(timed(lambda: numpy.copyto(target, source)) for _ in range(10)))
            )
            if len(products) > 2 and all(0.5 < median(ratios) < 2 for ratios in (products, copies)):
                break
    finally:
        torch.set_num_threads(before)
    assert 0.5 < median(products) < 2, products
    assert 0.5 < median(copies) < 2, copies


def timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def test_doctor_measures_prints_and_keeps(cache: Path, this: dict[str, str]) -> None:
    pytest.importorskip("torch")
    env = {"OPSPAN_CACHE_DIR": str(cache)}
    done = forked(MAIN, "doctor", "--measure-peaks", env=env)

    assert done.returncode == 0, done.stderr
    figures = dict(part.split("=") for part in (peaks.stored(this) or "").split())
    first, *others = done.stdout.splitlines()
    assert first.startswith(this["PROCESSOR"])
    names = [row.split()[0] for row in others]
    assert names[:2] == ["fp32", "fp64"]
    assert names[-1] == "Wrote"
    assert {"fp32", "fp64", "bandwidth", "threads"} <= set(figures)
    assert float(figures["fp64"]) > 0
    assert int(figures["threads"]) in range(1, len(os.sched_getaffinity(0)) + 1)
    check = next(row for row in forked(MAIN, "doctor", env=env).stdout.splitlines() if row.startswith("peaks "))
    assert re.match(r"peaks +ok +of the processor, as measured: fp32 [0-9.]+ [GT]FLOP/s, fp64 ", check)
    assert platform.node() not in check


def test_measuring_takes_no_other_option() -> None:
    done = forked(MAIN, "doctor", "--measure-peaks", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "leave the other options out" in done.stderr
