"""Samples of processors: the range, call and idle time that each belongs to, and sums by function, against a twin that
looks at one sample after the other, and against SQL."""

from __future__ import annotations

import sqlite3
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import opspan
from analysis.frames import table
from builders import nsys
from opspan.analysis import samples as samples_module
from opspan.analysis.samples import BROKEN, by_function, by_library, distinct_stacks, figures_of, left_out
from opspan.errors import UsageError
from opspan.questions import Options, question

PID, THREADS = 100, (100, 101)
NAMES = ("main", "run", "leaf", "step", "0x7f00", "std::less<a;b>", BROKEN)
LIBRARIES = ("/usr/bin/python", "/lib/libtorch.so", "/opt/libtorch.so")


def range_(start: int, end: int, text: str, thread: int = PID) -> dict[str, Any]:
    times = {"start": start, "end": end, "eventType": nsys.PUSH_POP, "text": text}
    return {**times, "globalTid": nsys.tid(PID, thread), "domainId": 0}


@pytest.fixture(scope="module", params=range(4))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> opspan.Trace:
    """Random samples on two threads; nested ranges on one of them; kernels on two devices."""
    random = Random(request.param)
    texts = nsys.strings(*NAMES, *LIBRARIES)
    count = 300
    samples = [
        {
            "id": number,
            "start": random.randrange(120),
            "cpu": 0,
            "globalTid": nsys.tid(PID, random.choice(THREADS)),
            "cpuCycles": random.choice((1, 10)),
        }
        for number in range(count)
    ]
    frames = [
        {
            "id": number,
            "symbol": random.randint(1, len(NAMES)),
            "module": len(NAMES) + random.randint(1, 3),
            "stackDepth": d,
        }
        for number in range(count)
        for d in range(random.randrange(5))
    ]
    kernels = [
        nsys.kernel(start=start, end=end, pid=PID, correlation=1, device=d)
        for start, end, d in ((20, 40, 0), (30, 60, 1), (50, 70, 0), (65, 90, 1))
    ]
    tables = {
        "StringIds": texts,
        "COMPOSITE_EVENTS": samples,
        "SAMPLING_CALLCHAINS": frames,
        "NVTX_EVENTS": [
            range_(0, 100, "whole"),
            range_(10, 50, "aten::mm"),
            range_(20, 30, "inner"),
            range_(60, 80, "aten::mm"),
        ],
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
    }
    return opspan.load(nsys.export(tmp_path_factory.mktemp("samples") / "run.sqlite", tables))


def is_in(row: dict[str, Any], span: dict[str, Any]) -> bool:
    return bool(row["tid"] == span["tid"] and span["start_ns"] <= row["time_ns"] < span["end_ns"])


def test_each_sample_is_in_the_innermost_range_of_its_thread(made: opspan.Trace) -> None:
    ranges = list(enumerate(made.ranges.to_dicts()))
    expected = []
    for row in made.samples.to_dicts():
        around = [(span["start_ns"], number) for number, span in ranges if is_in(row, span)]
        expected.append(max(around)[1] if around else None)
    assert made.analysed.sample_places["range"].to_list() == expected
    assert 0 < made.analysed.sample_places["range"].null_count() < made.samples.height


def test_a_device_is_idle_if_none_of_its_kernels_runs(made: opspan.Trace) -> None:
    def idle(at: int) -> bool | None:
        if not 0 <= at < 100:
            return None
        busy = {row["device_id"] for row in made.work.to_dicts() if row["start_ns"] <= at < row["end_ns"]}
        return len(busy) < 2

    assert made.analysed.sample_places["is_idle"].to_list() == [idle(at) for at in made.samples["time_ns"]]


def expected_sums(samples: pl.DataFrame, which: int | None) -> dict[Any, list[int]]:
    """Sums by function and library, or by library (1), one sample after the other."""
    sums: dict[Any, list[int]] = {}
    for row in samples.to_dicts():
        if row["stack"] is None:
            pairs = [(None, None)]
        else:
            names = ["(unresolved)" if name == "0x7f00" else name for name in row["stack"].split(";")]
            libraries = [path.rpartition("/")[2] for path in row["libraries"].split(";")]
            pairs = [pair for pair in zip(names, libraries, strict=True) if pair[0] != BROKEN]
        keys = pairs if which is None else [(pair[which],) for pair in pairs]
        for key in set(keys):
            into = sums.setdefault(key, [0, 0, 0, 0])
            into[2] += 1
            into[3] += row["weight"]
        if keys:
            sums[keys[-1]][0] += 1
            sums[keys[-1]][1] += row["weight"]
    return sums


def test_functions_and_libraries_have_the_sums_of_a_loop(made: opspan.Trace) -> None:
    for rows, which, width in ((by_function(made.samples), None, 2), (by_library(made.samples), 1, 1)):
        found = {row[:width]: list(row[width + 1 :]) for row in rows.rows()}
        assert found == expected_sums(made.samples, which)


def test_what_is_inside_adds_up(made: opspan.Trace) -> None:
    every = made.sampled_functions("op")
    inside = made.sampled_functions("op", inside=("op", "aten::mm"))
    assert every["samples"].sum() == made.samples.height
    of_op = every.filter(pl.col("op").is_in(["aten::mm", "inner"]))
    assert inside.sort("op")["weight"].to_list() == of_op.sort("op")["weight"].to_list()
    assert (
        made.sampled_functions("op", inside=("range", "wh*"))["samples"].sum()
        == every.drop_nulls("op")["samples"].sum()
    )
    idle = made.sampled_functions("op", idle=True)["samples"].sum()
    assert idle == made.analysed.sample_places["is_idle"].sum()
    assert made.sampled_functions(inside=("op", "nothing")).is_empty()


def test_samples_are_in_the_innermost_call_of_their_thread(made: opspan.Trace) -> None:
    spans = [(PID, 10, 60, "outer"), (PID, 20, 45, "launch"), (PID, 22, 30, "inner"), (PID, 70, None, "blocked")]
    spans += [(101, 0, 50, "launch"), (101, 40, 55, None)]
    rows = [dict(zip(("tid", "start_ns", "end_ns", "name"), span, strict=True)) for span in spans]
    trace = made.replace(calls=table("calls", rows, rank=0, pid=PID))

    def around(row: dict[str, Any]) -> list[dict[str, Any]]:
        """The calls around a sample. One that did not return lasts until the end of the trace."""
        return [span for span in rows if is_in(row, span | {"end_ns": span["end_ns"] or 100})]

    samples = made.samples.to_dicts()
    innermost = [max(around(row), key=lambda span: span["start_ns"], default={"name": None}) for row in samples]
    by_call = trace.sampled_functions("call")
    assert dict(by_call.select("call", "samples").iter_rows()) == Counter(span["name"] for span in innermost)
    for name in ("launch", "inner", "out*"):
        expected = sum(any(fnmatchcase(span["name"] or "", name) for span in around(row)) for row in samples)
        assert trace.sampled_functions("op", inside=("call", name))["samples"].sum() == expected
    assert made.sampled_functions("call")["call"].to_list() == [None]


@pytest.mark.parametrize("name", ["torch_lm_2025", "mpi_saxpy_2022"])
def test_the_calls_of_samples_in_a_real_file_are_those_of_its_sql(traces_dir: Path, name: str) -> None:
    path = traces_dir / f"nsys/{name}.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
        database.execute(
            "CREATE TEMP TABLE calls AS SELECT globalTid AS thread, start, end, value "
            "FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds s ON s.id = nameId"
        )
        database.execute("CREATE INDEX temp.of_thread ON calls (thread, start)")
        names = database.execute(
            "SELECT (SELECT value FROM calls c WHERE c.thread = s.globalTid AND c.start <= s.start AND s.start < c.end "
            "ORDER BY c.start DESC LIMIT 1) FROM COMPOSITE_EVENTS s"
        ).fetchall()
    expected = Counter(text and text.partition("_v")[0] for (text,) in names)
    rows = opspan.load(path).sampled_functions("call")
    assert dict(rows.select("call", "samples").iter_rows()) == expected
    assert len(expected) > 3


def test_few_samples_have_no_share(made: opspan.Trace) -> None:
    rows = made.sampled_functions("thread")
    assert rows["share"].sum() == pytest.approx(1)
    few = made.sampled_functions().filter(pl.col("samples") < 30)
    assert few.height
    assert few["share"].null_count() == few.height
    with pytest.raises(UsageError, match="there is no answer by 'kernel'"):
        made.sampled_functions("kernel")
    with pytest.raises(UsageError, match="samples cannot be inside 'kernel'; expected one of op, module, range, call"):
        made.sampled_functions(inside=("kernel", "gemm"))


def test_libraries_of_another_length_than_the_stack_are_unknown() -> None:
    samples = pl.DataFrame({"stack": ["a;b"], "libraries": ["x"], "event": [None], "weight": [3]})
    assert by_function(samples).select("function", "library", "weight", "total_weight").rows() == [
        ("a", None, 0, 3),
        ("b", None, 3, 3),
    ]


@pytest.mark.parametrize("name", ["torch_lm_2025", "mpi_saxpy_2022"])
def test_the_sums_of_a_real_file_are_those_of_its_sql(traces_dir: Path, name: str) -> None:
    path = traces_dir / f"nsys/{name}.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
        own = database.execute(
            "SELECT f.value, m.value FROM SAMPLING_CALLCHAINS JOIN StringIds f ON f.id = symbol "
            "JOIN StringIds m ON m.id = module WHERE stackDepth = 0"
        ).fetchall()
    expected = Counter((function, library.rpartition("/")[2]) for function, library in own)
    rows = opspan.load(path).sampled_functions()
    nameless = {pair for pair in expected if not pair[0] or pair[0].startswith("0x")}
    known = {pair: count for pair, count in expected.items() if pair not in nameless and pair[0] != BROKEN}
    found = {(row["function"], row["library"]): row["samples"] for row in rows.to_dicts() if row["samples"]}
    assert {pair: count for pair, count in found.items() if pair[0] != "(unresolved)"} == known
    unresolved = sum(count for pair, count in found.items() if pair[0] == "(unresolved)")
    assert unresolved == sum(expected[pair] for pair in nameless)


def test_stacks_are_summed_in_parts(made: opspan.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = by_function(made.samples), by_library(made.samples)
    for frames in (4, 17):  # a stack has up to 4 functions
        monkeypatch.setattr(samples_module, "_FRAMES_AT_ONCE", frames)
        for rows, at_once in zip((by_function(made.samples), by_library(made.samples)), expected, strict=True):
            assert rows.sort(pl.all()).equals(at_once.sort(pl.all()))


@pytest.mark.parametrize("limit", ["MOST_FRAMES", "_FRAMES_AT_ONCE"])
@pytest.mark.parametrize("deepest", [1, 2, 3, 4])
def test_outer_functions_of_too_large_stacks_are_left_out(
    limit: str, deepest: int, made: opspan.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = made.samples
    inner = samples.with_columns(
        pl.col(name).cast(pl.String).str.split(";").list.tail(deepest).list.join(";").cast(pl.Categorical)
        for name in ("stack", "libraries")
    )
    expected = by_function(inner).sort(pl.all())
    stacks = samples.select("stack", "libraries").unique()
    lengths = stacks["stack"].cast(pl.String).str.split(";").list.len().fill_null(1).to_list()
    assert left_out(distinct_stacks(samples)) == 0

    shown = sum(min(length, deepest) for length in lengths)
    monkeypatch.setattr(samples_module, limit, shown if limit == "MOST_FRAMES" else deepest)
    assert by_function(samples).sort(pl.all()).equals(expected)
    assert left_out(distinct_stacks(samples)) == sum(lengths) - shown
    answer = question("functions").answer_of(made.analysed, Options())
    assert any("are left out" in note for note in answer.notes) == (deepest < 4)


def test_a_count_that_is_added_to_a_larger_one_may_be_small() -> None:
    # cycles of cores: 100 / 2 * (1 + 10 / 40)
    events = {"CPU_CLK_UNHALTED.THREAD": 100, "CPU_CLK_UNHALTED.ONE_THREAD_ACTIVE": 10}
    events |= {"CPU_CLK_UNHALTED.REF_XCLK": 40, "UOPS_RETIRED.RETIRE_SLOTS": 50}
    sums = pl.DataFrame(
        [{"op": "mm", "event": event, "samples": count, "weight": count} for event, count in events.items()]
    )
    assert figures_of(sums, ["op"], 4)["retiring"].to_list() == [50 / (4 * 62.5)]
    assert figures_of(sums, ["op"])["retiring"].to_list() == [None]
    few = sums.with_columns(samples=pl.when(pl.col("event") == "CPU_CLK_UNHALTED.REF_XCLK").then(29).otherwise(50))
    assert figures_of(few, ["op"], 4)["retiring"].to_list() == [None]
