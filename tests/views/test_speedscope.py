"""Files for speedscope: every close matches its open, every span is there, and speedscope's own schema is met."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opspan
from npm import NPM, PATH
from once import made_once
from opspan.analysis.averages import on_device
from opspan.tables import Metadata
from opspan.trace import Trace
from opspan.views import speedscope
from readers.samples import samples
from views.sources import HOSTILE, capture, nsys

PACKAGE = "speedscope@1.25.0"
Span = tuple[str, int, int]


def spans_of(profile: dict[str, Any], frames: list[dict[str, Any]]) -> list[Span]:
    """Each frame that opens and closes; a stack that does not fit is an error."""
    open_frames, found, last = [], [], profile["startValue"]
    for event in profile["events"]:
        assert event["at"] >= last
        last = event["at"]
        if event["type"] == "O":
            open_frames.append((event["frame"], last))
        else:
            frame, start = open_frames.pop()
            assert frame == event["frame"]
            found.append((frames[frame]["name"], start, last))
    assert not open_frames
    assert last <= profile["endValue"]
    return found


def read(path: Path) -> dict[str, list[Span]]:
    document = json.loads(path.read_text())
    frames = document["shared"]["frames"]
    names = [profile["name"] for profile in document["profiles"]]
    assert len(set(names)) == len(names)
    assert document["activeProfileIndex"] < max(len(names), 1)
    return {profile["name"]: spans_of(profile, frames) for profile in document["profiles"]}


def expected(trace: Trace) -> Counter[Span]:
    """Returns the spans of threads and devices, counted from the begin of the first one."""
    found = trace.analysed.attributed
    ranges = found.ranges.filter(~pl.col("is_mark").fill_null(value=False))
    frames = [frame.select("name", "start_ns", "end_ns") for frame in (ranges, on_device(found.work))]
    if found.functions.height:
        raise NotImplementedError("functions are cut where ranges overlap them")
    rows = pl.concat(frames, how="vertical_relaxed").drop_nulls("start_ns")
    zero = rows["start_ns"].min()
    return Counter((name or "(no name)", start - zero, max(start, end) - zero) for name, start, end in rows.iter_rows())


def check(trace: Trace, out: Path) -> dict[str, list[Span]]:
    trace.export(out)
    found = read(out)
    assert Counter(span for spans in found.values() for span in spans) == expected(trace)
    return found


@pytest.fixture(scope="session")
def schema(shared_folder: Path) -> dict[str, Any]:
    """Returns the schema of files in speedscope's package."""
    if NPM is None:
        pytest.skip("npm is not there, which brings speedscope's schema")

    def fetch(to: Path) -> None:
        folder = to.with_name("speedscope.fetched")
        folder.mkdir(exist_ok=True)
        command = [NPM, "pack", "--silent", "--pack-destination", str(folder), PACKAGE]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, timeout=120, env={**os.environ, "PATH": PATH}
        )
        if done.returncode:
            pytest.skip(f"npm cannot get {PACKAGE}: {done.stderr.strip().splitlines()[-1:]}")
        with tarfile.open(next(folder.glob("*.tgz"))) as package:
            member = package.extractfile("package/dist/release/file-format-schema.json")
            assert member is not None
            to.write_bytes(member.read())

    return json.loads(made_once(shared_folder / "speedscope-schema.json", fetch).read_text())


@pytest.mark.slow
@pytest.mark.parametrize("what", [*samples(), "empty", "hostile"])
def test_every_source_is_what_speedscopes_schema_asks_for(what: str, schema: dict[str, Any], tmp_path: Path) -> None:
    others = {"empty": lambda _: None, "hostile": lambda folder: nsys(folder / "run.sqlite")}
    source = {**samples(), **others}[what](tmp_path)
    trace = Trace((Metadata("test"),)) if source is None else opspan.load(source)

    trace.export(tmp_path / "out.speedscope.json")

    document = json.loads((tmp_path / "out.speedscope.json").read_text())
    jsonschema.validate(document, schema)
    broken = {**document, "profiles": [{"type": "evented"}]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nsys/torch_lm_2025.sqlite", "vtune/r001hs_2013/r001hs"])
def test_stacks_of_samples_are_what_speedscopes_schema_asks_for(
    name: str, schema: dict[str, Any], traces_dir: Path, tmp_path: Path
) -> None:
    opspan.load(traces_dir / name).export(tmp_path / "out.speedscope.json", samples=True)

    document = json.loads((tmp_path / "out.speedscope.json").read_text())
    jsonschema.validate(document, schema)
    assert document["profiles"]


@pytest.mark.parametrize("make", [nsys, capture])
def test_made_traces(make: Any, tmp_path: Path) -> None:
    found = check(opspan.load(make(tmp_path / "source")), tmp_path / "out.speedscope.json")

    assert any(name == HOSTILE for spans in found.values() for name, _, _ in spans)
    if make is nsys:
        thread = "process 100, thread 100 python"
        assert {"device 0, stream 7 of context 1", thread, f"{thread}, overlapping 1"} <= {*found}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["nsys/train_fsdp_2gpu.sqlite", "nsys/graph_nodes.sqlite", "nvprof/lm_emit_nvtx.sql", "nvprof/nccl_4gpu.nvvp"],
)
def test_real_traces(name: str, traces_dir: Path, tmp_path: Path) -> None:
    check(opspan.load(traces_dir / name), tmp_path / "out.speedscope.json")


@pytest.mark.parametrize(
    "name", ["kineto/norm_layers.json.gz", "kineto/mi300_ddp_resnet18.json.gz", "vtune/r010hs_tasks/r010hs"]
)
def test_functions_stand_around_ranges(name: str, traces_dir: Path, tmp_path: Path) -> None:
    trace = opspan.load(traces_dir / name)
    trace.export(tmp_path / "out.speedscope.json")
    trace.export(tmp_path / "out.stacks")

    found = read(tmp_path / "out.speedscope.json")

    of_device = sum(
        end - start for name, spans in found.items() if name.startswith("device") for _, start, end in spans
    )
    busy = on_device(trace.work)
    assert of_device == (busy["end_ns"] - busy["start_ns"]).sum()
    # The outermost spans of a thread are as long as all of its stacks together.
    lines = [line.rpartition(" ") for line in (tmp_path / "out.stacks").read_text().splitlines()]
    stacks: Counter[str] = Counter()
    for stack, _, ns in lines:
        stacks[", ".join(stack.split(";")[:2])] += int(ns)
    assert {name: open_ns(spans) for name, spans in found.items() if name in stacks} == stacks


def open_ns(spans: list[Span]) -> int:
    """How long any of them was open."""
    total, until = 0, 0
    for _, start, end in sorted(spans, key=lambda span: span[1:]):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


TIMES = st.integers(min_value=0, max_value=12)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from([1, 2]), TIMES, TIMES), max_size=25))
def test_whatever_overlaps_every_close_matches_its_open(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]]
) -> None:
    ranges = [(str(number), tid, min(times), max(times)) for number, (tid, *times) in enumerate(rows)]
    out = tmp_path_factory.getbasetemp() / "overlapping.speedscope.json"
    frame = pl.DataFrame(ranges, schema=["name", "tid", "start_ns", "end_ns"], orient="row")
    frame = frame.with_columns(rank=0, pid=1, kind=pl.lit("op")).with_row_index("id")
    work = frame.select("id", "name", "start_ns", "end_ns", stream_id="tid", device_id=0, kind=pl.lit("kernel"))
    trace = Trace((Metadata("test"),), ranges=frame, work=work)

    trace.export(out, overwrite=True)

    found = Counter(span for spans in read(out).values() for span in spans)
    zero = min((start for _, _, start, _ in ranges), default=0)
    assert found == Counter({(name, start - zero, end - zero): 2 for name, _, start, end in ranges})


def test_of_too_many_spans_the_longest_are_there_with_those_around_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speedscope, "MOST_SPANS", 12)
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))
    every = expected(trace)

    said = trace.export(tmp_path / "out.speedscope.json")

    found = Counter(span for spans in read(tmp_path / "out.speedscope.json").values() for span in spans)
    assert found.total() == 12
    assert found <= every
    least = min(end - start for _, start, end in found)
    assert all(end - start <= least for _, start, end in every - found)
    assert said[0].startswith(f"{every.total() - 12} spans were left out, none of which takes more than {least} ns")


def test_what_is_no_span_is_said(tmp_path: Path) -> None:
    said = opspan.load(nsys(tmp_path / "run.sqlite")).export(tmp_path / "out.speedscope.json")

    assert said == ["speedscope shows spans only: 1 mark, 6 calls are not in it; .json has them"]
