"""Idle time divided among the functions that were sampled, against a twin that divides one gap after the other."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest
from hypothesis import strategies as st

import opspan
from analysis.frames import nested_rows, table
from analysis.test_idle import LAST, calls_and_work, trace_of
from cli.answers import rows as printed
from emit.running import opspan as command
from opspan.analysis.idle import gaps, in_sampled_functions, parts
from opspan.analysis.samples import BROKEN
from properties import property_of

STACKS = {
    None: None,
    "main;f": "f",
    "main;g": "g",
    f"f;{BROKEN}": "f",
    BROKEN: None,
    "main;0x12": "(unresolved) in b",
    "main;": "(unresolved) in b",
    "0x12": "(unresolved)",
}
samples = st.lists(
    st.fixed_dictionaries(
        {
            "tid": st.sampled_from([1, 1, 2, None]),
            "time_ns": st.integers(0, LAST),
            "stack": st.sampled_from(list(STACKS)),
            "event": st.sampled_from(["cycles", "cycles", "cache-misses"]),
        }
    ),
    max_size=25,
)


@property_of(nested_rows(), calls_and_work, samples, few=60, many=400)
def test_each_sample_of_the_launching_thread_has_an_equal_part_of_a_gap(
    marked: list[dict], launched: list[dict], sampled: list[dict]
) -> None:
    rows = [row | {"libraries": "/lib/a;/lib/b" if ";" in (row["stack"] or "") else None} for row in sampled]
    trace = trace_of(marked, launched)
    trace = trace.replace(samples=table("samples", rows, rank=0, pid=1, weight=1))
    found = gaps(trace)
    pieces = in_sampled_functions(trace, found)

    sums = [
        one.group_by("gap", "why").agg(pl.col("ns").sum()).sort("gap", "why") for one in (pieces, parts(trace, found))
    ]
    assert sums[0].equals(sums[1])
    host = pieces.filter(pl.col("why") == "host")
    assert (
        pieces.filter(pl.col("why") != "host").select("sample", "function").null_count().row(0)
        == (pieces.height - host.height,) * 2
    )
    divided = defaultdict(list)
    for row in host.to_dicts():
        divided[row["gap"]].append((row["sample"], row["function"], row["ns"]))
    for number, gap in enumerate(found.to_dicts()):
        taken = [
            (at, STACKS[row["stack"]])
            for at, row in enumerate(rows)
            if row["event"] == "cycles"
            and row["tid"] == gap["tid"]
            and gap["start_ns"] <= row["time_ns"] < gap["start_ns"] + gap["host_ns"]
        ]
        got = sorted(divided[number], key=str)
        if not taken:
            assert got == ([(None, None, gap["host_ns"])] if gap["host_ns"] else [])
            continue
        assert sorted(((at, function) for at, function, _ in got), key=str) == sorted(taken, key=str)
        assert all(abs(ns - Fraction(gap["host_ns"], len(taken))) < 1 for _, _, ns in got)


@pytest.mark.parametrize("name", ["torch_lm_2025", "mpi_saxpy_2022"])
def test_the_functions_of_a_real_file_have_its_idle_time(name: str, traces_dir: Path) -> None:
    path = traces_dir / f"nsys/{name}.sqlite"
    trace = opspan.load(path)
    by_function, by_device = trace.idle("function"), trace.idle("device")
    times = ["time_ns", *(f"{why}_ns" for why in ("host", "launch", "queued", "unknown"))]
    assert by_function.select(times).sum().rows() == by_device.select(times).sum().rows()
    nobody = pl.col("function").is_null()
    assert by_function.filter(~nobody).select(pl.sum("host_ns"), pl.sum("time_ns")).row(0)[0] > 0
    assert by_function.filter(~nobody)["time_ns"].sum() == by_function.filter(~nobody)["host_ns"].sum()
    assert by_function["function"].n_unique() == by_function.height
    # The thread that launches must have been sampled while it was late, and by this many samples.
    late = trace.analysed.gaps.select("tid", "start_ns", until=pl.col("start_ns") + pl.col("host_ns"))
    moments = trace.samples.select("tid", "time_ns", "stack").with_row_index("row")
    pairs = moments.join_where(
        late.rename({"tid": "launching"}),
        pl.col("time_ns") >= pl.col("start_ns"),
        pl.col("time_ns") < pl.col("until"),
        pl.col("tid") == pl.col("launching"),
    ).filter(pl.col("stack").cast(pl.String) != BROKEN)
    done = command("idle", path, "--by", "function", "--limit", "1")
    assert f"The functions are those of {pairs['row'].n_unique():,} samples" in done.stdout


def test_traced_functions_come_before_samples_and_many_files_add_up(traces_dir: Path, tmp_path: Path) -> None:
    path = traces_dir / "nsys/mpi_saxpy_2022.sqlite"
    other = tmp_path / "other.sqlite"
    other.write_bytes(path.read_bytes())
    one, two = printed("idle", path, "--by", "function"), printed("idle", path, other, "--by", "function")
    assert {row["function"]: row["time_ns"] for row in two} == {row["function"]: 2 * row["time_ns"] for row in one}
    trace = opspan.load(traces_dir / "kineto/b200_eager.json.gz")
    (place,) = trace.ranges.select("rank", "pid", "tid", time_ns="start_ns").drop_nulls().head(1).to_dicts()
    sampled = trace.replace(samples=table("samples", [place | {"stack": "f", "weight": 1}]))
    assert sampled.idle("function").equals(trace.idle("function"))
