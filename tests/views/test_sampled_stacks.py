"""Stacks of samples against a twin that looks at one sample after the other, and against the sums by function."""

from __future__ import annotations

import gzip
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import opspan
from builders import compile_log as log
from builders import kineto
from emit.running import opspan as opspan_command
from opspan.analysis.hardware_events import is_ns
from opspan.analysis.stacks import DEEPEST
from opspan.errors import UsageError
from opspan.tables import Metadata
from opspan.trace import Trace
from opspan.views import merged_stacks

ADDRESS = re.compile(r"0x[0-9a-f]+|\[unknown\]|\?|")  # what stands for a function without a name
OUTPUTS = ("svg", "stacks", "speedscope.json", "pb.gz")
FILES = (
    "nsys/torch_lm_2025.sqlite",
    "nsys/mpi_saxpy_2022.sqlite",
    "vtune/r010hs_tasks/r010hs",
    "vtune/r000cc_2015",
    "vtune/r000hs_2022/r000hs",
    "vtune/r001hs_2013/r001hs",
)
NAMES = ("main", "run", "leaf", "std::less<a>", "0x7f00", "outer")  # "outer" is a range, too
LIBRARIES = ("/lib/libtorch.so", "/opt/libtorch.so", "/usr/bin/python")
SAMPLE = {
    "rank": pl.Int32,
    "pid": pl.Int64,
    "tid": pl.Int64,
    "time_ns": pl.Int64,
    "weight": pl.Int64,
    "event": pl.Categorical,
    "stack": pl.Categorical,
    "libraries": pl.Categorical,
}


def table_of_samples(rows: list[dict[str, Any]]) -> pl.DataFrame:
    place = {"rank": 0, "pid": 1, "tid": 1, "event": None, "libraries": None, "weight": 1}
    return pl.DataFrame([place | row for row in rows], schema=SAMPLE)


def spans(rows: list[tuple[Any, ...]], **more: object) -> pl.DataFrame:
    values = {name: pl.lit(value) for name, value in ({"rank": 0, "pid": 1, "tid": 1} | more).items()}
    frame = pl.DataFrame(rows, schema=["name", "start_ns", "end_ns"], orient="row")
    return frame.with_columns(**values).with_row_index("id")


RANGES = [("outer", 10, 110), ("aten::mm", 20, 60), ("inner", 30, 40), ("aten::mm", 70, 90), ("", 95, 99)]
FUNCTIONS = [("train.py(3): main", 0, 115), ("train.py(9): step", 22, 58), ("open", 80, 85)]


@pytest.fixture(params=[(seed, event) for seed in range(3) for event in (None, "cpu-clock", "instructions")])
def made(request: pytest.FixtureRequest) -> Trace:
    """Random samples on two threads; one of them has ranges and, with two of the seeds, Python functions."""
    seed, event = request.param
    random = Random(seed)
    rows = []
    for _ in range(400):
        stack = [random.choice(NAMES) for _ in range(random.randrange(5))]
        libraries = [random.choice(LIBRARIES) for _ in stack]
        rows.append(
            {
                "tid": random.choice((1, 1, 2, None)),
                "time_ns": random.randrange(130),
                "weight": random.choice((None, 0, 1, 10)),
                "event": random.choice((event, event, event and "other")),
                "stack": ";".join(stack) or None,
                "libraries": random.choice((";".join(libraries), "/lib/x")) or None,
            }
        )
    functions = {"functions": spans(FUNCTIONS)} if seed else {}
    return Trace((Metadata("test"),), ranges=spans(RANGES, kind="op"), samples=table_of_samples(rows), **functions)


def frames_of(row: dict[str, Any]) -> list[str]:
    """The functions of a sample's own stack, as they are shown."""
    if row["stack"] is None:
        return []
    names = row["stack"].split(";")
    libraries = (row["libraries"] or "").split(";")
    libraries = [path.rpartition("/")[2] for path in libraries] if len(libraries) == len(names) else [""] * len(names)
    return [
        (f"(unresolved) in {library}" if library else "(unresolved)") if ADDRESS.fullmatch(name) else name
        for name, library in zip(names, libraries, strict=True)
    ]


def counted(trace: Trace) -> tuple[str | None, pl.DataFrame]:
    """The event that the sums by function count, and its samples."""
    names = trace.samples["event"].cast(str).unique().to_list()
    known = [name for name in names if name in ("cpu-clock", "Samples", "CPU_CLK_UNHALTED.REF_TSC")]
    event = known[0] if known else None if None in names else trace.samples["event"].cast(str).mode()[0]
    return event, trace.samples.filter(pl.col("event").cast(str).eq_missing(pl.lit(event, dtype=pl.String)))


def twin(trace: Trace) -> Counter[tuple[str, ...]]:
    """The weight of each stack below its process and thread."""
    found: Counter[tuple[str, ...]] = Counter()
    analysed = trace.analysed.attributed
    rows = [row for frame in (analysed.functions, analysed.ranges) for row in frame.to_dicts()]
    is_apart = {number for number, row in enumerate(rows) if row.get("is_async") or row.get("is_mark")}
    for sample in counted(trace)[1].to_dicts():
        key = ("rank", "pid", "tid")
        around = [
            (row["start_ns"], -row["end_ns"], number, row["name"] or "(no name)")
            for number, row in enumerate(rows)
            if number not in is_apart
            and all(row[name] == sample[name] for name in key)
            and row["start_ns"] <= sample["time_ns"] < row["end_ns"]
        ]
        outer = [name for *_, name in sorted(around)] or ["(in no range)"]
        found[tuple(outer + frames_of(sample))] += sample["weight"] or 0
    return +found


def safe(frame: str) -> str:
    return frame.replace(";", "_")


def lines(path: Path) -> Counter[tuple[str, ...]]:
    """The stacks of a .stacks file, without process and thread."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in path.read_text().splitlines():
        stack, _, weight = line.rpartition(" ")
        found[tuple(stack.split(";")[2:])] += int(weight)
    return found


def of_speedscope(path: Path) -> Counter[tuple[str, ...]]:
    document = json.loads(path.read_text())
    names = [frame["name"] for frame in document["shared"]["frames"]]
    found: Counter[tuple[str, ...]] = Counter()
    for profile in document["profiles"]:
        assert profile["type"] == "sampled"
        assert profile["endValue"] == sum(profile["weights"])
        for stack, weight in zip(profile["samples"], profile["weights"], strict=True):
            found[tuple(safe(names[frame]) for frame in stack)] += weight
    return found


def of_pprof(path: Path) -> tuple[Counter[tuple[str, ...]], list[str], int]:
    """The weights of stacks, the types of the values, and the number of samples."""
    from opspan.views.pprof_messages import new_profile

    profile = new_profile()
    profile.ParseFromString(gzip.decompress(path.read_bytes()))
    text = profile.string_table
    names = {location.id: text[profile.function[location.id - 1].name] for location in profile.location}
    found: Counter[tuple[str, ...]] = Counter()
    for sample in profile.sample:
        found[tuple(safe(names[place]) for place in reversed(sample.location_id))] += sample.value[-1]
    types = [f"{text[value.type]}/{text[value.unit]}" for value in profile.sample_type]
    return found, types, sum(sample.value[0] for sample in profile.sample)


def boxes(path: Path, attribute: str) -> list[tuple[str, int, int]]:
    """Class, y and weight of each box."""
    elements = [element for element in ET.parse(path).getroot() if attribute in element.attrib]
    return [(element.attrib["class"], int(element.attrib["y"]), int(element.attrib[attribute])) for element in elements]


def check(trace: Trace, folder: Path) -> Counter[tuple[str, ...]]:
    """All outputs have the stacks of the twin."""
    event, samples = counted(trace)
    total = int(samples["weight"].sum())
    expected: Counter[tuple[str, ...]] = Counter()
    for stack, weight in twin(trace).items():
        expected[tuple(map(safe, stack))] += weight
    for suffix in OUTPUTS:
        trace.export(folder / f"out.{suffix}", samples=True)
    assert lines(folder / "out.stacks") == expected
    assert expected.total() == total
    assert of_speedscope(folder / "out.speedscope.json") == expected
    weights, types, count = of_pprof(folder / "out.pb.gz")
    assert +weights == expected
    of_weights = "cpu/nanoseconds" if is_ns(event) else f"{event or 'weight'}/count"
    assert (types, count) == (["samples/count", of_weights], samples.height)
    drawn = boxes(folder / "out.svg", "data-ns" if is_ns(event) else "data-weight")
    first = min(y for _, y, _ in drawn)
    assert sum(weight for _, y, weight in drawn if y == first) <= total
    assert sum(weight for _, y, weight in drawn if y == first) >= 0.99 * total
    return expected


def test_all_outputs_have_the_stacks_of_the_twin(made: Trace, tmp_path: Path) -> None:
    stacks = check(made, tmp_path)

    assert any(stack[:1] == ("(in no range)",) for stack in stacks)
    assert any("(unresolved) in libtorch.so" in stack for stack in stacks)
    title = ET.parse(tmp_path / "out.svg").getroot()[0].text
    event = counted(made)[0]
    assert (
        title
        == {
            "cpu-clock": "Flame graph: CPU time of samples",
            "instructions": "Flame graph: weight of samples of instructions",
            None: "Flame graph: weight of samples",
        }[event]
    )


@pytest.mark.parametrize("name", FILES)
def test_real_files(name: str, traces_dir: Path, tmp_path: Path) -> None:
    trace = opspan.load(traces_dir / name)
    if trace.functions.height:
        raise NotImplementedError("functions are cut where ranges overlap them")

    stacks = check(trace, tmp_path)

    own: Counter[str] = Counter()
    for stack, weight in stacks.items():
        own[stack[-1]] += weight
    sums: Counter[str] = Counter()
    for row in trace.sampled_functions().to_dicts():
        frame = row["function"]
        if frame == "(unresolved)" and row["library"]:
            frame = f"(unresolved) in {row['library']}"
        sums[safe(frame or "(no name)")] += row["weight"]
    assert own == +sums


def sampled(trace: Trace, rows: list[dict[str, Any]]) -> Trace:
    return trace.replace(samples=table_of_samples(rows))


def bare(rows: list[dict[str, Any]], ranges: Sequence[tuple[Any, ...]] = ()) -> Trace:
    tables = {"ranges": spans(list(ranges), kind="op")} if ranges else {}
    return Trace((Metadata("test"),), samples=table_of_samples(rows), **tables)


def test_only_the_innermost_functions_of_a_very_deep_stack_are_shown(tmp_path: Path) -> None:
    ranges = [(f"range {number}", number, 2000 - number) for number in range(600)]
    deep = ";".join(f"f{number}" for number in range(700))
    trace = bare([{"time_ns": 1000, "stack": deep}, {"time_ns": 5, "stack": deep, "weight": 3}], ranges)

    notes = trace.export(tmp_path / "out.stacks", samples=True)

    stacks = lines(tmp_path / "out.stacks")
    assert sorted(stacks.values()) == [1, 3]
    assert {stack[-1] for stack in stacks} == {"f699"}
    assert {len(stack) for stack in stacks} == {DEEPEST}
    assert f"2 stacks would have more than {DEEPEST} frames: outer functions were left out" in notes


@pytest.mark.parametrize(
    ("weights", "title", "numbers"),
    [
        ((None, None), "Number of samples", (1, 1)),
        ((0, 0), "Number of samples", (1, 1)),
        ((2**62, 2**62), "Number of samples", (1, 1)),
        ((-5, 7), "Weight of samples", (0, 7)),
    ],
)
def test_weights_that_cannot_be_added(
    weights: tuple[Any, Any], title: str, numbers: tuple[int, int], tmp_path: Path
) -> None:
    rows = [{"time_ns": at, "stack": f"f{at}", "weight": weight} for at, weight in enumerate(weights)]
    trace = bare(rows)

    notes = {suffix: trace.export(tmp_path / f"out.{suffix}", samples=True) for suffix in OUTPUTS}["svg"]

    expected = +Counter({("(in no range)", f"f{at}"): weight for at, weight in enumerate(numbers)})
    assert lines(tmp_path / "out.stacks") == expected
    assert of_speedscope(tmp_path / "out.speedscope.json") == expected
    assert f"{title}: {sum(numbers)}" in (tmp_path / "out.svg").read_text()
    assert of_pprof(tmp_path / "out.pb.gz")[1] == ["samples/count", "weight/count"][: 1 + (sum(numbers) == 7)]
    assert any("negative weight" in note for note in notes) == (-5 in weights)


def test_more_stacks_than_a_file_has_room_for_are_merged(
    made: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_stacks, "MOST_FRAMES", 60)
    total = counted(made)[1]["weight"].sum()

    for suffix, read in (("speedscope.json", of_speedscope), ("pb.gz", lambda path: of_pprof(path)[0])):
        notes = made.export(tmp_path / f"out.{suffix}", samples=True)
        stacks = read(tmp_path / f"out.{suffix}")
        assert stacks.total() == total
        assert stacks[("(stacks that take less)",)]
        assert sum(len(stack) for stack in stacks) <= 60 + 3
        assert "(stacks that take less)" in notes[0]


def test_samples_in_a_compiled_kernel_are_below_its_lines(tmp_path: Path) -> None:
    kernel, block, head = "triton_poi_fused_add_0", ("src/model.py", 3, "block"), ("src/model.py", 9, "head")
    call = "## Call CompiledFxGraph None ##"
    path = log.write(
        tmp_path / "dedicated_log_torch_trace_a.log",
        log.stacks({f"{kernel}:1": [log.stack(block), log.stack(head)]}),
    )
    events = [kineto.op(call, kineto.MAIN, 0, 100), kineto.op(kernel, kineto.MAIN, 10, 20)]
    file = kineto.write(tmp_path / "trace.json", kineto.document(events))
    trace = opspan.load(file, compiled=path)
    place = trace.ranges.row(0, named=True)
    at = place["start_ns"] + 15_000
    thread = {name: place[name] for name in ("rank", "pid", "tid")}
    rows = [{**thread, "time_ns": at, "stack": "main;launch", "weight": 7}]

    sampled(trace, rows).export(tmp_path / "out.stacks", samples=True)

    assert lines(tmp_path / "out.stacks") == {
        (call, "src/model.py(3): block", kernel, "main", "launch"): 4,
        (call, "src/model.py(9): head", kernel, "main", "launch"): 3,
    }


def test_names_are_escaped(tmp_path: Path) -> None:
    trace = bare([{"time_ns": 0, "stack": "<b>&\u202e\n\x1b;", "libraries": "x"}])

    for suffix in OUTPUTS:
        trace.export(tmp_path / f"out.{suffix}", samples=True)

    assert lines(tmp_path / "out.stacks") == {("(in no range)", "<b>&____"[:-1], "(unresolved)"): 1}
    assert r"<b>&\u202e\n\x1b" in "".join(ET.parse(tmp_path / "out.svg").getroot().itertext())


def test_a_trace_without_samples_and_outputs_without_stacks_are_errors(made: Trace, tmp_path: Path) -> None:
    empty = made.replace(samples=made.samples.clear())
    with pytest.raises(UsageError, match=r"the trace has no samples of the host's processors, so .* cannot show them"):
        empty.export(tmp_path / "out.svg", samples=True)
    with pytest.raises(UsageError, match=r"cannot be written to .*; expected one of .stacks, .svg, .speedscope.json, "):
        made.export(tmp_path / "out.json", samples=True)
    assert not list(tmp_path.iterdir())


def test_the_command_line_has_the_option(traces_dir: Path, tmp_path: Path) -> None:
    file, out = traces_dir / "nsys/mpi_saxpy_2022.sqlite", tmp_path / "out.stacks"

    done = opspan_command("export", file, out, "--samples")
    refused = opspan_command("export", file, tmp_path / "out.csv", "--samples")
    without = opspan_command("export", traces_dir / "nsys/dlprof_2022.sqlite", tmp_path / "out.svg", "--samples")

    assert done.stdout.startswith(f"Wrote {out} (5,451 samples, ")
    assert lines(out).total() == 5451
    assert (refused.returncode, without.returncode) == (2, 2)
    assert "error: stacks of samples cannot be written to" in refused.stderr
    assert "error: the trace has no samples of the host's processors" in without.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out.stacks"]
