"""opspan flops on a processor: shares of measured peaks by hand, from made captures."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan as package
from builders.capture import Capture, Thread
from cli.answers import rows
from emit.running import opspan

PEAKS = {"fp32": 2e11, "bf16": 8e11, "bandwidth": 1e10}
MM = "[[100, 200], [200, 300]]"
MM_FLOPS, MM_BYTES = 2 * 100 * 200 * 300, 4 * (100 * 200 + 200 * 300 + 100 * 300)
ADD = "[[1000, 1000], [1000, 1000], []]"
ADD_FLOPS, ADD_BYTES = 1_000_000, 3 * 4_000_000
FLOAT = '["float", "float"]'


def entries(peaks: dict[str, float] | None = None, model: str = "Some CPU", host: str = "node7") -> tuple[str, ...]:
    figures = " ".join(f"{name}={value:.4g}" for name, value in (peaks or {}).items())
    measured = (f"PROCESSOR_PEAKS={figures} threads=2 host={host}",) if peaks else ()
    return (f"PROCESSOR={model}", "PROCESSOR_CORES=2", "PROCESSOR_THREADS=4", *measured)


def product(thread: Thread, start: int, took: int) -> None:
    thread.torch("aten::mm", start, start + took, sizes=MM, inputs=(FLOAT, None, None))


def capture(folder: Path, *facts: str, mm_ns: int = 100_000, add_ns: int = 2_000_000, pid: int = 100) -> Path:
    """A product and a sum."""
    recording = Capture(pid=pid, environment=facts)
    main = recording.thread(pid)
    product(main, 1_000_000, mm_ns)
    types = '["float", "float", "Scalar"]'
    main.torch("aten::add", 2_000_000, 2_000_000 + add_ns, sizes=ADD, inputs=(types, None, None))
    return recording.write(folder / f"{pid}-1.opspan")


def test_shares_are_those_of_the_measured_peaks(tmp_path: Path) -> None:
    found = {row["op"]: row for row in rows("flops", capture(tmp_path, *entries(PEAKS)))}

    mm, add = found["aten::mm"], found["aten::add"]
    assert (mm["flops"], mm["bytes"], mm["flops_per_s"]) == (MM_FLOPS, MM_BYTES, pytest.approx(MM_FLOPS / 100e-6))
    assert mm["compute_share"] == pytest.approx(MM_FLOPS / 100e-6 / PEAKS["fp32"])  # 60%
    assert mm["memory_share"] == pytest.approx(MM_BYTES / 100e-6 / PEAKS["bandwidth"])  # 44%
    assert mm["bound"] == "compute"
    assert add["compute_share"] == pytest.approx(ADD_FLOPS / 2e-3 / PEAKS["fp32"])
    assert add["memory_share"] == pytest.approx(ADD_BYTES / 2e-3 / PEAKS["bandwidth"])  # 60%
    assert add["bound"] == "memory"


def test_the_answer_says_whose_peaks_they_are(tmp_path: Path) -> None:
    done = opspan("flops", capture(tmp_path, *entries(PEAKS)))
    expected = (
        "Peaks are those of Some CPU, 2 cores, 4 threads "
        "(measured by `opspan doctor --measure-peaks` with 2 threads on node7)"
    )
    assert expected in done.stdout
    assert "of the peak of the processors, from the first work" in done.stdout


def test_without_peaks_shares_are_unknown_and_a_sentence_says_how_to_get_them(tmp_path: Path) -> None:
    path = capture(tmp_path, *entries())
    assert {row["compute_share"] for row in rows("flops", path)} == {None}
    notes = [line for line in opspan("flops", path).stdout.splitlines() if "not known" in line]
    assert notes == [
        "The peaks of the processor are not known (Some CPU, 2 cores, 4 threads), so no share of them is: `opspan "
        "doctor --measure-peaks` measures them for later recordings of opspan, or say --peak fp32=2e12"
    ]


def test_a_capture_without_a_processor_says_the_same(tmp_path: Path) -> None:
    done = opspan("flops", capture(tmp_path))
    assert "The peaks of the processor are not known, so no share of them is" in done.stdout


def test_what_the_user_says_comes_first(tmp_path: Path) -> None:
    path = capture(tmp_path, *entries(PEAKS))
    mm, add = (
        {row["op"]: row for row in rows("flops", path, "--peak", "fp32=4e11")}[op] for op in ("aten::mm", "aten::add")
    )
    assert mm["compute_share"] == pytest.approx(MM_FLOPS / 100e-6 / 4e11)
    assert add["memory_share"] == pytest.approx(ADD_BYTES / 2e-3 / PEAKS["bandwidth"])
    (mm, *_) = rows("flops", path, "--by", "shape", "--peak", "A100 40GB")[1:]
    assert mm["compute_share"] == pytest.approx(MM_FLOPS / 100e-6 / 19.5e12)


def test_a_little_faster_than_measured_is_as_fast_and_much_faster_is_unknown(tmp_path: Path) -> None:
    least_ns = MM_FLOPS / PEAKS["fp32"] * 1e9  # 60 us
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    near = {
        row["op"]: row for row in rows("flops", capture(tmp_path / "a", *entries(PEAKS), mm_ns=int(least_ns / 1.09)))
    }
    far = capture(tmp_path / "b", *entries(PEAKS), mm_ns=int(least_ns / 1.12))
    assert near["aten::mm"]["compute_share"] == 1
    assert {row["op"]: row for row in rows("flops", far)}["aten::mm"]["compute_share"] is None
    assert "1 op (2.6% of the ops' time on the host) computed faster than was measured on the processor" in (
        opspan("flops", far).stdout
    )


def test_a_capture_of_another_machine_keeps_its_own_peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has figures of its own for a processor of the same name."""
    cache = tmp_path / "cache"
    cache.mkdir(0o700)
    (cache / "processor-peaks").write_text("Some CPU\t2\t4\tfp32=9e15 bandwidth=9e12 threads=2 host=here\n")
    monkeypatch.setenv("OPSPAN_CACHE_DIR", str(cache))
    path = capture(tmp_path, *entries(PEAKS))
    shares = {row["op"]: row["compute_share"] for row in package.load(path).flops().to_dicts()}
    assert shares["aten::mm"] == pytest.approx(MM_FLOPS / 100e-6 / PEAKS["fp32"])
    trace = package.load(path)
    trace.save(tmp_path / "saved")
    assert package.load(tmp_path / "saved").flops().equals(trace.flops())
    trace.export(tmp_path / "run.json")
    assert package.load(tmp_path / "run.json").flops("run")["compute_share"].to_list() == pytest.approx(
        trace.flops("run")["compute_share"].to_list()
    )


def ranked(rank: int, *facts: str) -> tuple[str, ...]:
    return (f"RANK={rank}", "WORLD_SIZE=2", *facts)


def test_each_rank_has_the_peaks_of_its_own_machine(tmp_path: Path) -> None:
    """The ranks' products take 60% of 100 us, and 15%: as their sum says, of 200 us in all."""
    capture(tmp_path, *ranked(0, *entries(PEAKS)), pid=100)
    capture(tmp_path, *ranked(1, *entries({"fp32": 8e11, "bandwidth": 1e10}, "Other CPU")), pid=101)
    trace = package.load(tmp_path)
    shares = {row["op"]: row["compute_share"] for row in trace.flops().to_dicts()}
    assert shares["aten::mm"] == pytest.approx((0.6 + 0.15) / 2)
    many = package.load_many(tmp_path / "100-1.opspan", tmp_path / "101-1.opspan", processes=1)
    shares = {row["op"]: row["compute_share"] for row in many.flops().to_dicts()}
    assert shares["aten::mm"] == pytest.approx((0.6 + 0.15) / 2)


def test_files_of_one_rank_that_name_two_processors_leave_it_unknown(tmp_path: Path) -> None:
    """A file without events, such as that of a launcher, does not count."""
    capture(tmp_path, *entries(PEAKS), pid=100)
    Capture(pid=101, environment=entries(None, "Launcher CPU")).write(tmp_path / "101-1.opspan")
    assert package.load(tmp_path).metadata.options["processor"]["model"] == "Some CPU"
    capture(tmp_path, *entries(PEAKS, "Other CPU"), pid=102)
    assert "processor" not in package.load(tmp_path).metadata.options


def test_a_processor_with_the_name_of_a_device_has_not_its_peaks(tmp_path: Path) -> None:
    path = capture(tmp_path, *entries(None, "AMD A10 NVIDIA A10"))
    assert {row["compute_share"] for row in rows("flops", path)} == {None}
