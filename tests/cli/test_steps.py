"""opspan steps: in each form, with the user's own steps, on real files, and on what has none."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
from pathlib import Path

import pytest

import opspan as package
from builders import kineto
from cli.answers import rows
from emit.running import opspan
from opspan.analysis.busy import KINDS, devices

US = 1000


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps of 100 us and one of 300, each with a kernel of 40 us and a copy of 20 that overlap for 10."""
    events = []
    begin = 0
    for number, length in enumerate((100, 100, 300, 100)):
        events += [
            kineto.span("user_annotation", f"ProfilerStep#{number}", kineto.MAIN, begin, length),
            kineto.span("user_annotation", f"turn {number}", kineto.MAIN, begin + 1, 90),
            kineto.op("aten::mm", kineto.MAIN, begin + 5, 10),
            kineto.call("cudaLaunchKernel", kineto.MAIN, begin + 12, 8, number + 1),
            kineto.kernel("gemm", begin + 20, 40, number + 1),
            kineto.span("gpu_memcpy", "Memcpy HtoD", 7, begin + 50, 20, 0, device=0, stream=7, correlation=number + 1),
        ]
        begin += length
    return kineto.write(tmp_path_factory.mktemp("steps") / "run.json", kineto.document(events))


def test_each_moment_is_given_to_what_it_went_to(trained: Path) -> None:
    found = rows("steps", trained)
    assert [row["step"] for row in found] == [f"ProfilerStep#{number}" for number in range(4)]
    shares = {kind: found[0][f"{kind}_ns"] / US for kind in KINDS}
    assert shares == {
        "computing": 40,
        "copying": 10,
        "filling": 0,
        "communicating": 0,
        "calling": 8,
        "loading": 0,
        "ops": 7,
        "other": 35,
    }
    assert [row["is_outlier"] for row in found] == [False, False, True, False]


def test_as_text_a_star_is_at_the_step_that_took_longer(trained: Path) -> None:
    done = opspan("steps", trained)
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.startswith("ProfilerStep")}
    assert lines["ProfilerStep#0"] == ["ProfilerStep#0", "100.000us", "40.0%", "10.0%", "8.0%", "7.0%", "35.0%"]
    assert lines["ProfilerStep#2"][2] == "*"
    assert "Comm" not in done.stdout


def test_as_csv_and_as_frame_the_rows_are_the_same(trained: Path) -> None:
    done = opspan("steps", trained, "--format", "csv")
    assert [int(row["computing_ns"]) for row in csv.DictReader(io.StringIO(done.stdout))] == [40 * US] * 4
    assert package.load(trained).steps().to_dicts() == rows("steps", trained)


def test_steps_may_have_a_name_of_the_users(trained: Path) -> None:
    found = rows("steps", trained, "--step", "turn *")
    assert [(row["step"], row["time_ns"], row["how"]) for row in found] == [
        (f"turn {number}", 90 * US, "named") for number in range(4)
    ]


def test_some_steps_alone(trained: Path) -> None:
    assert [row["step"] for row in rows("steps", trained, "--step", "1-2")] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert len(rows("steps", trained, "--limit", "2")) == 2


def test_kernels_that_repeat_are_a_pattern_and_no_steps(tmp_path: Path) -> None:
    kernels = [kineto.kernel(name, 10 * number, 5, number) for number, name in enumerate(["fill", "gemm", "add"] * 4)]
    path = kineto.write(tmp_path / "run.json", kineto.document(kernels))
    found = rows("steps", path)
    assert [(row["step"], row["computing_ns"], row["how"]) for row in found] == [(None, 60 * US, None)]
    assert "a repeating pattern (4 x 30.000us)" in opspan("steps", path).stdout
    said = opspan("summary", path).stdout
    assert "Steps        none" in said
    assert "Kernels      a repeating pattern (4 x 30.000us)" in said
    row = rows("summary", path)[0]
    assert (row["steps"], row["step_ns"], row["pattern_turns"], row["pattern_ns"]) == (0, None, 4, 30 * US)


def test_without_steps_it_says_so(tmp_path: Path) -> None:
    path = kineto.write(tmp_path / "run.json", kineto.document([kineto.op("aten::mm", 1, 5, 9)]))
    done = opspan("steps", path)
    assert done.returncode == 0
    assert "No steps were found" in done.stdout
    assert [row["time_ns"] for row in rows("steps", path)] == [9 * US]


@pytest.mark.parametrize("content", ["", "{", '{"schemaVersion": 1, "traceEvents": []}'])
def test_what_is_no_trace_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(content)
    done = opspan("steps", path)
    if done.returncode == 0:
        assert "There is nothing in this trace" in done.stdout
    else:
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1


def test_a_name_that_no_range_has(trained: Path) -> None:
    done = opspan("steps", trained, "--step", "epoch *")
    assert done.returncode == 2
    assert "no range is called 'epoch *'" in done.stderr


# Kernels of a process that overlap or touch are one stretch. A stretch begins where all earlier kernels have ended.
_UNION = """
WITH one AS (SELECT globalPid, deviceId, start, end, max(end) OVER (PARTITION BY globalPid, deviceId ORDER BY start, end
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM ({source}) WHERE end > start)
SELECT globalPid / 0x1000000 % 0x1000000, deviceId, sum(end - max(start, ifnull(before, start)))
FROM one WHERE before IS NULL OR end > before GROUP BY 1, 2
"""


@pytest.mark.parametrize("name", ["train_fsdp_2gpu", "infer_2gpu", "graph_nodes", "torch_lm_2025"])
def test_real_files_of_nsys_are_busy_as_sql_says(name: str, traces_dir: Path) -> None:
    path = traces_dir / f"nsys/{name}.sqlite"
    found = package.load(path).analysed
    of_devices = devices(found.complete, found.iterations.clear())
    kernels = "SELECT globalPid, deviceId, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL"
    copies = " UNION ALL ".join(
        f"SELECT globalPid, deviceId, start, end FROM CUPTI_ACTIVITY_KIND_{kind}" for kind in ("MEMCPY", "MEMSET")
    )
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        for column, source in (
            ("kernel_ns", kernels),
            ("copying_ns", copies),
            ("busy_ns", f"{kernels} UNION ALL {copies}"),
        ):
            expected = {row[:2]: row[2] for row in database.execute(_UNION.format(source=source))}
            ours = {(row["pid"], row["device_id"]): row[column] for row in of_devices.to_dicts()}
            assert {key: ns for key, ns in ours.items() if ns} == expected


def test_a_real_torch_trace_has_the_plugins_utilisation(traces_dir: Path) -> None:
    """Time in which a kernel runs, by the json's own events, within the steps."""
    path = traces_dir / "kineto/ns_resolution.pt.trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    steps = [
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep#")
    ]
    kernels = sorted((event["ts"], event["ts"] + event["dur"]) for event in events if event.get("cat") == "kernel")
    busy = 0.0
    for begin, end in steps:
        until = begin
        for start, stop in kernels:
            start, stop = max(start, until), min(stop, end)
            if stop > start:
                busy, until = busy + stop - start, stop
    found = package.load(path).analysed
    ours = devices(found.complete, found.iterations)["kernel_ns"].sum()
    assert ours / 1000 == pytest.approx(busy, rel=1e-4)


def test_what_is_in_no_step_is_told_with_its_share(tmp_path: Path) -> None:
    """100 us of start-up, steps of 100 us, and an evaluation of 200 us before the third."""
    events = [kineto.op("aten::rand", kineto.MAIN, 0, 50)]
    for number, begin in enumerate((100, 200, 500)):
        events += [
            kineto.span("user_annotation", f"ProfilerStep#{number}", kineto.MAIN, begin, 100),
            kineto.op("aten::mm", kineto.MAIN, begin + 5, 10),
        ]
    events.append(kineto.span("user_annotation", "evaluate", kineto.MAIN, 310, 180))
    path = kineto.write(tmp_path / "run.json", kineto.document(events))
    said = "start-up before the first step 100.000us (16.7% of the run), between steps 200.000us (33.3%"
    assert f"In no step: {said}; evaluate 180.000us)" in opspan("steps", path).stdout
    assert (
        "No step      start-up before the first step 100.000us (16.7% of the run), b" in opspan("summary", path).stdout
    )
    row = rows("summary", path)[0]
    assert (row["startup_ns"], row["between_ns"], row["after_ns"]) == (100 * US, 200 * US, 0)
