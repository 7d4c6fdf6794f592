"""Profiles as pprof's own tool reads them, against the .stacks and .device.stacks of the same trace."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import opspan
from builders.capture import Capture
from opspan.errors import MissingPackage
from opspan.tables import Metadata
from opspan.trace import Trace
from opspan.views import merged_stacks
from readers.samples import samples
from views.sources import capture, nsys

# Number, name, and file and line where the name has them.
LOCATION = re.compile(r"\s*(\d+): 0x0 M=1 ((?:(.+?)\(\d+\): )?.*) (?(3)\3|):\d+ s=\d+\(\)")


@pytest.fixture(scope="session")
def go() -> Callable[..., str]:
    """Debian's golang-go has the tool; what it prints, for options and a file."""
    if shutil.which("go") is None or subprocess.run(["go", "tool", "-n", "pprof"], capture_output=True).returncode:
        pytest.skip("go tool pprof is not there (apt-get install golang-go)")

    def run(*arguments: object) -> str:
        command = ["go", "tool", "pprof", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert not done.stderr
        return done.stdout

    return run


Found = tuple[Counter[str], Counter[str], int]  # host time and device time by stack, the sum of all counts


def read(go: Callable[..., str], path: Path) -> Found:
    samples, locations = re.search(
        r"\nSamples:\n(.*?)\nLocations\n(.*?)\n?Mappings\n", go("-raw", path), re.DOTALL
    ).groups()  # type: ignore[union-attr]
    matches = [LOCATION.fullmatch(line) for line in locations.split("\n") if line]
    names = {int(match[1]): match[2] for match in matches if match}
    assert len(names) == len(matches)
    said = samples.split("\n")
    assert re.match(r"count/count host/nanoseconds(\[dflt\])? device/nanoseconds(\[dflt\])?$", said[0])
    host: Counter[str] = Counter()
    device: Counter[str] = Counter()
    counted = 0
    for line, labels in zip(said[1::2], said[2::2], strict=True):
        values, _, places = line.partition(":")
        count, host_ns, device_ns = map(int, values.split())
        process, thread = re.search(r"process:\[(.*?)\] thread:\[(.*?)\]$", labels).groups()  # type: ignore[union-attr]
        frames = [names[int(place)] for place in reversed(places.split())]
        stack = ";".join(re.sub(r"[;\x00-\x1f\u2028]", "_", frame) for frame in (process, thread, *frames))
        counted += count
        host[stack] += host_ns
        device[stack] += device_ns
    return +host, +device, counted


def lines(path: Path) -> Counter[str]:
    found = (line.rpartition(" ") for line in path.read_text().splitlines())
    return Counter({stack: int(ns) for stack, _, ns in found})


def check(go: Callable[..., str], trace: Trace, folder: Path) -> Found:
    for suffix in (".pb.gz", ".stacks", ".device.stacks"):
        trace.export(folder / f"out{suffix}")
    found = read(go, folder / "out.pb.gz")
    assert found[:2] == (lines(folder / "out.stacks"), lines(folder / "out.device.stacks"))
    return found


def named_without_lines(trace: Trace) -> Trace:
    """pprof's text has a line for each name, so that one with line ends in it cannot be read back from there."""
    return trace.replace(ranges=trace.ranges.with_columns(trace.ranges["name"].cast(str).str.replace_all("\n", "_")))


@pytest.mark.parametrize("make", [nsys, capture])
def test_made_traces(make: Callable[[Path], Path], go: Callable[..., str], tmp_path: Path) -> None:
    trace = named_without_lines(opspan.load(make(tmp_path / "source")))

    host, device, count = check(go, trace, tmp_path)

    assert bool(device) == (make is nsys)
    in_stacks = trace.analysed.attributed.ranges.filter(is_async=False, is_mark=False).height
    assert count == in_stacks + trace.work.filter(trace.work["kind"].cast(str) != "sync").height
    top = go("-top", "-sample_index=host", "-unit=ns", tmp_path / "out.pb.gz")
    assert f"Total samples = {host.total()}ns" in top
    labels = go("-tags", tmp_path / "out.pb.gz")
    assert {"op", "backward"} <= set(re.findall(r": (\w+)$", labels, re.MULTILINE))


@pytest.mark.parametrize("what", samples())
def test_every_source(what: str, go: Callable[..., str], tmp_path: Path) -> None:
    check(go, opspan.load(samples()[what](tmp_path)), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "nsys/train_fsdp_2gpu.sqlite",
        "nvprof/lm_emit_nvtx.sql",
        "kineto/b200_eager.json.gz",
        "rocpd/torch_autograd.rpd",
        "vtune/r010hs_tasks/r010hs",
    ],
)
def test_real_traces(name: str, traces_dir: Path, go: Callable[..., str], tmp_path: Path) -> None:
    check(go, opspan.load(traces_dir / name), tmp_path)


@pytest.mark.parametrize(
    ("name", "types", "total"),
    [
        ("nsys/mpi_saxpy_2022.sqlite", "samples/count weight/count[dflt]", "5451"),
        ("vtune/r010hs_tasks/r010hs", "samples/count CPU_CLK_UNHALTED.REF_TSC/count[dflt]", "1562000000"),
        ("vtune/r000cc_2015", "samples/count cpu/nanoseconds[dflt]", "5437991959ns"),
    ],
)
def test_pprof_reads_samples(
    name: str, types: str, total: str, traces_dir: Path, go: Callable[..., str], tmp_path: Path
) -> None:
    opspan.load(traces_dir / name).export(tmp_path / "out.pb.gz", samples=True)

    assert f"Samples:\n{types}\n" in go("-raw", tmp_path / "out.pb.gz")
    assert f"Total samples = {total}" in go("-top", "-unit=ns", tmp_path / "out.pb.gz")


def test_functions_of_python_have_a_file_and_a_line(go: Callable[..., str], tmp_path: Path) -> None:
    place = {"rank": 0, "pid": 1, "tid": 1}
    trace = made_of_functions([("train.py(12): step", 0, 50, place), ("<built-in function len>", 10, 20, place)])

    trace.export(tmp_path / "out.pb.gz")

    text = go("-raw", tmp_path / "out.pb.gz")
    assert "M=1 train.py(12): step train.py:12 s=12()" in text
    assert "M=1 <built-in function len> :0 s=0()" in text
    # pprof would shorten this name if it took it for C++.
    assert "<built-in function len>" in go("-top", "-nodefraction=0", tmp_path / "out.pb.gz")


def made_of_functions(rows: list[tuple[str, int, int, dict[str, int]]]) -> Trace:
    import polars as pl

    functions = [
        {"id": at, "name": name, "start_ns": start, "end_ns": end, **place}
        for at, (name, start, end, place) in enumerate(rows)
    ]
    return Trace((Metadata("test"),), functions=pl.DataFrame(functions))


def test_of_too_many_frames_the_stacks_that_take_most_are_there(
    go: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_stacks, "MOST_FRAMES", 20)
    made = Capture(pid=1)
    thread = made.thread(1)
    for number in range(30):
        thread.range(f"step {number}", number * 1000, number * 1000 + 500 + number)
        thread.range("inside", number * 1000, number * 1000 + 10)
    trace = opspan.load(made.write(tmp_path / "1-1.opspan"))

    said = trace.export(tmp_path / "out.pb.gz")

    host, _, count = read(go, tmp_path / "out.pb.gz")
    trace.export(tmp_path / "out.stacks")
    own = lines(tmp_path / "out.stacks")
    assert said[0].startswith("40 stacks that take less than the others are one for each thread")
    assert len(host) == 21
    largest = dict(own.most_common(20))
    assert +(host - own) == {"python 1;thread 1;(stacks that take less)": own.total() - sum(largest.values())}
    assert largest.items() <= host.items()
    assert count == 60


def test_an_empty_trace_is_a_profile(go: Callable[..., str], tmp_path: Path) -> None:
    said = Trace((Metadata("test"),)).export(tmp_path / "out.pb.gz")

    assert said[0].startswith("No range has CPU time")
    assert read(go, tmp_path / "out.pb.gz") == (Counter(), Counter(), 0)


def test_equal_traces_make_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        opspan.load(nsys(tmp_path / f"{name}.sqlite").rename(tmp_path / "run.sqlite")).export(
            tmp_path / f"{name}.pb.gz"
        )

    assert (tmp_path / "a.pb.gz").read_bytes() == (tmp_path / "b.pb.gz").read_bytes()


def test_without_protobuf_the_command_that_installs_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))
    monkeypatch.setitem(sys.modules, "google.protobuf", None)

    with pytest.raises(MissingPackage, match=r"needs protobuf: pip install 'opspan\[pprof\]'"):
        trace.export(tmp_path / "out.pb.gz")

    assert not (tmp_path / "out.pb.gz").exists()
