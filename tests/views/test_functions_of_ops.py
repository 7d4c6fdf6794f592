"""Ops by their innermost function: `opspan table --by function` and other answers, against what a loop finds."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from analysis.frames import table
from builders.capture import BACKWARD, Capture
from emit.running import opspan as command
from opspan.trace import Trace

STACKS = ("train.py(9): <module>\nnet.py(3): forward", "train.py(9): <module>", None)


@pytest.fixture
def with_stacks(tmp_path: Path) -> Trace:
    """Ops with stacks, two of whose backward runs on another thread, and an op without a stack."""
    made = Capture(pid=1)
    main, back = made.thread(1, "main"), made.thread(2, "autograd")
    for number, stack in enumerate(STACKS):
        at = 10_000 * number
        main.torch("aten::linear", at, at + 3_000, seq=number, op_id=number * 3 + 1, stack=stack)
        main.torch("aten::addmm", at + 100, at + 2_000, seq=number, op_id=number * 3 + 2, stack=stack)
        back.torch("AddmmBackward0", at + 5_000, at + 6_000, seq=number, op_id=number * 3 + 3, category=BACKWARD)
    return opspan.load(made.write(tmp_path / "1.opspan"))


def test_a_backward_op_counts_for_the_function_of_its_forward_op(with_stacks: Trace) -> None:
    rows = (
        with_stacks.table("function").rows.select("function", "ranges", "self_cpu_ns", "backward_cpu_ns").sort("ranges")
    )
    assert set(rows.rows()) == {
        ("net.py(3): forward", 3, 4_000, 1_000),
        ("train.py(9): <module>", 3, 4_000, 1_000),
        (None, 3, 4_000, 1_000),
    }


def test_of_one_op_the_times_are_whole(with_stacks: Trace) -> None:
    rows = with_stacks.table("function", op="aten::linear").rows
    assert rows.select("function", "count", "cpu_ns", "self_cpu_ns").sort("function", nulls_last=True).rows() == [
        ("net.py(3): forward", 1, 3_000, 1_100),
        ("train.py(9): <module>", 1, 3_000, 1_100),
        (None, 1, 3_000, 1_100),
    ]


def innermost_functions(events: list[dict[str, Any]]) -> Counter[str | None]:
    """The number of ranges whose innermost function has each name. Functions and ops of a thread nest properly."""
    of_thread: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "python_function":
            of_thread[event["pid"], event["tid"]].append(event)
    found: Counter[str | None] = Counter()
    for functions in of_thread.values():
        functions.sort(key=lambda event: (event["ts"], -event["dur"]))
    for op in events:
        if op.get("cat") not in ("cpu_op", "user_annotation"):
            continue
        functions = of_thread[op["pid"], op["tid"]]
        at = bisect_right(functions, op["ts"], key=lambda event: event["ts"]) - 1
        while at >= 0 and functions[at]["ts"] + functions[at]["dur"] <= op["ts"]:
            at -= 1
        found[functions[at]["name"] if at >= 0 else None] += 1
    return found


def test_functions_of_a_real_file_are_those_around_its_ops(traces_dir: Path) -> None:
    path = traces_dir / "kineto/b200_eager.json.gz"  # it has no backward
    expected = innermost_functions(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"])
    trace = opspan.load(path)
    rows = trace.table("function").rows
    assert dict(rows.select("function", "ranges").iter_rows()) == expected
    assert rows["self_device_ns"].sum() == trace.analysed.attributed.ranges["self_device_ns"].sum() > 0


def test_the_device_is_idle_in_the_functions_of_stacks(with_stacks: Trace) -> None:
    where = {"rank": 0, "pid": 1}
    launched = [12_500, 2_500]  # in the op of the second stack, and of the first
    calls = [{"start_ns": at, "end_ns": at + 10, "correlation_id": at, "tid": 1} for at in launched]
    work = [
        {"start_ns": at, "end_ns": at + 400, "device_id": 0, "kind": "kernel", "correlation_id": at} for at in launched
    ]
    trace = with_stacks.replace(calls=table("calls", calls, **where), work=table("work", work, **where))
    sample = {"tid": 1, "time_ns": 5, "stack": "sampled", "weight": 1}
    trace = trace.replace(samples=table("samples", [sample], **where))

    by_function = dict(trace.idle("function").select("function", "host_ns").iter_rows())

    by_op = trace.analysed.idle.filter(pl.col("why") == "host")
    stacks = trace.ranges["stack"].cast(pl.String)
    expected: Counter[str | None] = Counter()
    for row in by_op.iter_rows(named=True):
        stack = None if row["range"] is None else stacks[row["range"]]
        expected[stack and stack.rpartition("\n")[2]] += row["ns"]
    assert {name: ns for name, ns in by_function.items() if ns} == dict(expected)
    assert by_function["net.py(3): forward"] > 0
    launches = trace.launches("function")
    assert set(launches["function"]) == {"net.py(3): forward", "train.py(9): <module>"}


def test_without_functions_a_sentence_says_where_sampled_ones_are(traces_dir: Path) -> None:
    for name, is_sampled in (("torch_lm_2025", True), ("infer_2gpu", False)):
        done = command("table", traces_dir / f"nsys/{name}.sqlite", "--by", "function")
        assert done.returncode == 0
        (note,) = [line for line in done.stdout.splitlines() if line.startswith("No op has a function: ")]
        assert ("`opspan functions`" in note) == is_sampled
