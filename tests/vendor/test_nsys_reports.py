"""nsys' own reports over real exports, against sums over the frames: counts and total times must be the same.

Where the two mean different things, the test says so: nsys groups by the whole text and by grid and block sizes, puts
the name of a range's domain before its text (where the file has it), and lists a call that has a backtrace twice.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import nsys
import polars as pl
import pytest

import opspan
from opspan.analysis import attribute
from opspan.trace import Trace
from tiers import RELEASE, before_release

pytestmark = [pytest.mark.nsys, pytest.mark.skipif(not nsys.available(), reason="nsys is not installed")]

FILES = ["train_fsdp_2gpu", "mpi_saxpy_2022", "dlprof_2022", "push_pop_and_start_end_2022", "pyprof_2024", "cudf_2020"]
FILES += ["torch_lm_2025", "nvfuser_2025", "nvfuser_2024", "infer_2gpu", "graph_nodes", "graph_trace_2024"]
FILES += ["open_ranges"]

Sums = dict[str, tuple[int, int]]  # name -> instances, total ns


@pytest.fixture(scope="module", params=FILES)
def export(request: pytest.FixtureRequest, traces_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = traces_dir / "nsys" / f"{request.param}.sqlite"
    if not path.is_file():
        pytest.skip(f"{path.name} is not among the recorded traces")
    # nsys stats writes into the file it reads.
    copy = tmp_path_factory.mktemp("stats") / path.name
    shutil.copyfile(path, copy)
    return copy


@pytest.fixture(scope="module")
def trace(export: Path) -> Trace:
    return opspan.load(export)


def report(export: Path, name: str) -> list[dict[str, str]]:
    out = export.with_suffix("")
    command = ["nsys", "stats", "--report", name, "--format", "csv", "--output", str(out), "--force-overwrite", "true"]
    subprocess.run([*command, str(export)], check=True, capture_output=True, timeout=300)
    with Path(f"{out}_{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def of_report(rows: list[dict[str, str]], name: str, count: str) -> Sums:
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for row in rows:
        counts[row[name]] += int(row[count])
        totals[row[name]] += 0 if row["Total Time (ns)"] == "None" else int(row["Total Time (ns)"])
    return {key: (counts[key], totals[key]) for key in counts}


def of_frame(frame: pl.DataFrame, name: pl.Expr) -> Sums:
    grouped = frame.group_by(name.cast(pl.String).alias("key")).agg(
        pl.len(), (pl.col("end_ns") - pl.col("start_ns")).sum().alias("total")
    )
    return {key: (count, total) for key, count, total in grouped.rows()}


def text_of_range() -> pl.Expr:
    text = pl.coalesce("text", pl.col("name").cast(pl.String))
    domain = pl.col("domain").cast(pl.String)
    has_name = domain.is_not_null() & ~domain.str.contains("^[0-9]+$")
    return pl.when(has_name).then(domain + ":" + text).otherwise(text)


def not_marks(trace: Trace) -> pl.DataFrame:
    return trace.ranges.filter(~pl.col("is_mark"))


def cuda_calls(trace: Trace) -> pl.DataFrame:
    return trace.calls.filter(pl.col("api").cast(pl.String).is_in(["cuda_runtime", "cuda_driver", "cuda_backtrace"]))


@pytest.mark.slow
def test_push_pop_ranges(export: Path, trace: Trace) -> None:
    expected = of_report(report(export, "nvtxppsum"), "Range", "Instances")
    assert of_frame(not_marks(trace).filter(~pl.col("is_async")), text_of_range()) == expected


def test_start_end_ranges(export: Path, trace: Trace) -> None:
    expected = of_report(report(export, "nvtxsesum"), "Range", "Instances")
    assert of_frame(not_marks(trace).filter("is_async"), text_of_range()) == expected


def test_kernels(export: Path, trace: Trace) -> None:
    kernels = trace.work.filter(pl.col("kind") == "kernel")
    assert of_frame(kernels, pl.col("full_name")) == of_report(report(export, "gpukernsum"), "Name", "Instances")


def test_calls_of_cuda(export: Path, trace: Trace) -> None:
    expected = of_report(report(export, "cudaapisum"), "Name", "Num Calls")
    # nsys takes off versions of four digits only: cudaLaunchKernel_v7000, not cudaStreamIsCapturing_v10000.
    renamed = {re.sub("_v[0-9]+$", "", name): sums for name, sums in expected.items()}
    assert of_frame(cuda_calls(trace), pl.col("name")) == renamed


def test_bytes_of_copies_and_fills(export: Path, trace: Trace) -> None:
    moved = trace.work.filter(pl.col("kind").is_in(["memcpy", "memset"]))
    sums = moved.group_by(pl.col("name").cast(pl.String)).agg(pl.len(), pl.col("bytes").sum())
    found = {name.removeprefix("Memcpy ").lower(): (count, size / 1e6) for name, count, size in sums.rows()}
    rows = report(export, "gpumemsizesum")
    expected = {
        row["Operation"].strip("[]").removeprefix("CUDA memcpy ").removeprefix("CUDA ").lower(): (
            int(row["Count"]),
            float(row["Total (MB)"]),
        )
        for row in rows
    }
    assert found.keys() == expected.keys()
    for name, (count, megabytes) in expected.items():
        assert found[name] == (count, pytest.approx(megabytes, abs=0.001))


def without_large(names: list[str], large: str) -> list[Any]:
    return [pytest.param(name, marks=RELEASE) if name == large else name for name in names]


WITH_KERNELS = [
    "train_fsdp_2gpu",
    "infer_2gpu",
    "pyprof_2024",
    "dlprof_2022",
    "cudf_2020",
    "torch_lm_2025",
    "nvfuser_2024",
    "nvfuser_2025",
    "mpi_saxpy_2022",
]


@pytest.mark.slow
@pytest.mark.parametrize("export", without_large(WITH_KERNELS, "train_fsdp_2gpu"), indirect=True)
def test_kernels_below_ranges(export: Path, trace: Trace) -> None:
    """nsys counts a kernel once in every text that encloses its call on its thread, however many ranges have it.

    One whose call is in no range is in `None`, on the thread of its call, or on `None` if the file lacks the call. And
    nsys adds its time for every row of its call: twice if that has a backtrace, though the kernel is counted once.
    """
    expected = {
        (row["NVTX Range"], row["TID"], row["Kernel Name"]): (
            int(row["NVTX Inst"]),
            int(row["Kern Inst"]),
            int(row["Total Time (ns)"]),
        )
        for row in report(export, "nvtxkernsum")
    }
    calls = trace.calls.filter(pl.col("correlation_id").is_not_null())
    calls = calls.select("pid", "tid", "correlation_id", call="start_ns", back="end_ns")
    kernels = trace.work.filter(pl.col("kind") == "kernel").drop("tid")
    kernels = kernels.join(calls, on=["pid", "correlation_id"], how="left")
    traces = trace.calls.filter(pl.col("api") == "cuda_backtrace").select("pid", "tid", "start_ns", "end_ns")
    again = kernels.join_where(
        traces,
        pl.col("pid") == pl.col("pid_right"),
        pl.col("tid") == pl.col("tid_right"),
        pl.col("call") >= pl.col("start_ns_right"),
        pl.col("back") <= pl.col("end_ns_right"),
    )
    took = pl.col("end_ns") - pl.col("start_ns")
    kernels = kernels.select(
        *("pid", "tid", "call", "back", "id"),
        kernel=pl.col("full_name").cast(pl.String),
        took=pl.when(pl.col("id").is_in(again["id"].implode())).then(2 * took).otherwise(took),
    )
    ranges = not_marks(trace).select("pid", "tid", "start_ns", "end_ns", range_id="id", text=text_of_range())
    pairs = kernels.join_where(
        ranges,
        pl.col("pid") == pl.col("pid_right"),
        pl.col("tid") == pl.col("tid_right"),
        pl.col("call") >= pl.col("start_ns"),
        pl.col("back") <= pl.col("end_ns"),
    )
    alone = kernels.join(pairs, on="id", how="anti").with_columns(
        text=pl.lit("None"), range_id=pl.lit(None, dtype=pairs["range_id"].dtype)
    )
    both = pl.concat([pairs.select(alone.columns), alone]).with_columns(pl.col("tid").cast(pl.String).fill_null("None"))
    counts = both.group_by("text", "tid", "kernel").agg(
        pl.col("range_id").drop_nulls().n_unique(), pl.n_unique("id"), pl.col("took").sum()
    )
    assert len(expected) > 0
    assert {row[:3]: row[3:] for row in counts.rows()} == expected


PROJECTED = [
    "pyprof_2024",
    "dlprof_2022",
    "cudf_2020",
    "torch_lm_2025",
    "nvfuser_2025",
    "train_fsdp_2gpu",
    "infer_2gpu",
]
# For these files only the first share of their ranges: nsys takes minutes to project a file of 4,000 kernels.
SHARES = {"train_fsdp_2gpu": 0.25, "infer_2gpu": 0.4}


def leave_the_first(path: Path, share: float) -> None:
    """Deletes all rows of a file after the time at which this share of its ranges has begun."""
    with closing(sqlite3.connect(path)) as database, database:
        (ranges,) = database.execute("SELECT count(*) FROM NVTX_EVENTS").fetchone()
        until = "SELECT start FROM NVTX_EVENTS ORDER BY start LIMIT 1 OFFSET ?"
        (until,) = database.execute(until, [int(share * ranges)]).fetchone()
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            if any(row[1] == "start" for row in database.execute(f"PRAGMA table_info({table})")):
                database.execute(f"DELETE FROM {table} WHERE start > ?", [until])


@pytest.mark.slow
@pytest.mark.parametrize("export", before_release(PROJECTED, kept=4), indirect=True)
def test_ranges_projected_on_the_gpu(export: Path, tmp_path: Path) -> None:
    """For each range from when to when what it launched ran, and how much that was: the attribution, and the tree."""
    part = Path(shutil.copy(export, tmp_path))
    if part.stem in SHARES:
        leave_the_first(part, SHARES[part.stem])
    attributed = attribute(opspan.load(part))
    parents = attributed.ranges["parent"].to_list()
    below: dict[int, tuple[int, int, int]] = {}  # row of a range -> start, end, pieces of work, of its children too
    done = attributed.work.filter(pl.col("kind").is_in(["kernel", "memcpy", "memset"]))
    for launched_in, start, end in done.select("launch_range", "start_ns", "end_ns").rows():
        place = launched_in
        while place is not None:
            first, last, count = below.get(place, (start, end, 0))
            below[place] = min(first, start), max(last, end), count + 1
            place = parents[place]
    keys = attributed.ranges.select("start_ns", "pid", "tid", text_of_range()).rows()
    found = {keys[place]: (start, end - start, count) for place, (start, end, count) in below.items()}

    rows = report(part, "nvtxgpuproj")
    expected = {
        (int(row["Orig Start (ns)"]), int(row["PID"]), int(row["TID"]), row["Name"]): (
            int(row["Projected Start (ns)"]),
            int(row["Projected Duration (ns)"]),
            int(row["NumGPUOps"]),
        )
        for row in rows
    }
    assert len(expected) == len(rows) > 0
    assert found == expected


# --- reports in nsys' own format


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPSPAN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "exports"


def test_a_report_is_exported_into_the_cache_once_and_nothing_appears_beside_it(
    traces_dir: Path, tmp_path: Path, cache: Path
) -> None:
    folder = tmp_path / "user"
    folder.mkdir()
    report_file = folder / "any name"
    shutil.copyfile(traces_dir / "nsys" / "nvtx_only.nsys-rep", report_file)

    first = opspan.load(report_file)
    made = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    second = opspan.load(report_file)

    assert (first.ranges.height, first.metadata.paths) == (1824, (str(report_file),))
    assert second.ranges.equals(first.ranges)
    assert len(made) == 1
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == made
    assert list(folder.iterdir()) == [report_file]


def test_a_changed_report_is_exported_again(traces_dir: Path, tmp_path: Path, cache: Path) -> None:
    report_file = tmp_path / "a.nsys-rep"
    shutil.copyfile(traces_dir / "nsys" / "nvtx_only.nsys-rep", report_file)
    assert opspan.load(report_file).work.is_empty()
    shutil.copyfile(traces_dir / "nsys" / "conductor.nsys-rep", report_file)
    assert opspan.load(report_file).work.filter(pl.col("kind") == "kernel").height == 187
    assert len(list(cache.iterdir())) == 2


def test_a_report_of_a_newer_nsys_names_both_versions(traces_dir: Path, cache: Path) -> None:
    installed = subprocess.run(["nsys", "--version"], capture_output=True, text=True, check=True).stdout
    if "2022.4" not in installed:
        pytest.skip(f"only an older nsys refuses the report, and this is {installed.strip()}")
    with pytest.raises(opspan.OpspanError, match=r"written by nsys 2026\.1\.2\.63 and the installed nsys is 2022\.4"):
        opspan.load(traces_dir / "nsys" / "too_new.nsys-rep")


def test_a_damaged_report_is_one_clear_line(traces_dir: Path, tmp_path: Path, cache: Path) -> None:
    report_file = tmp_path / "cut.nsys-rep"
    report_file.write_bytes((traces_dir / "nsys" / "nvtx_only.nsys-rep").read_bytes()[:5000])
    with pytest.raises(opspan.OpspanError, match="could not be exported by nsys") as caught:
        opspan.load(report_file)
    assert "\n" not in str(caught.value)


SECOND = os.environ.get("OPSPAN_SECOND_NSYS", "")  # the DIR/bin/nsys of `tools/vendor-tools --second DIR`


@pytest.mark.skipif(not Path(SECOND).is_file(), reason="OPSPAN_SECOND_NSYS names no nsys that can export folders")
@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
@pytest.mark.parametrize("name", ["nvtx_only", "conductor"])
def test_folders_hold_what_sqlite_holds(traces_dir: Path, tmp_path: Path, kind: str, name: str) -> None:
    source = traces_dir / "nsys" / f"{name}.nsys-rep"
    for export_type, out in ((kind, tmp_path / kind), ("sqlite", tmp_path / "x.sqlite")):
        command = [SECOND, "export", "--type", export_type, "--output", str(out), str(source)]
        subprocess.run(command, check=True, capture_output=True)
    folder, database = opspan.load(tmp_path / kind), opspan.load(tmp_path / "x.sqlite")
    for table, frame in database.frames.items():
        columns = pl.selectors.exclude("path")
        assert folder.frames[table].select(columns).equals(frame.select(columns)), table
