"""Ops by their stacks: against torch's way to group events by whole stacks, event by event."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import opspan
from analysis.frames import ranges, table
from builders.capture import BACKWARD, Capture
from opspan.analysis import nest, stacks
from opspan.analysis.call_stacks import call_stacks
from opspan.trace import Trace

ONE = "/srv/train.py(9): <module>\n/srv/train.py(5): step\n/srv/net.py(3): forward"
OTHER = "/srv/train.py(9): <module>\n/srv/train.py(6): check\n/srv/net.py(3): forward"


def written(path: Path) -> Trace:
    made = Capture(pid=1)
    main, back = made.thread(1, "main"), made.thread(2, "autograd")
    for number, stack in enumerate((ONE, ONE, OTHER)):
        at = 10_000 * number
        main.torch("aten::linear", at, at + 3_000, seq=number, op_id=number * 3 + 1, stack=stack)
        main.torch("aten::addmm", at + 100, at + 2_000, seq=number, op_id=number * 3 + 2, stack=stack)
        back.torch("AddmmBackward0", at + 5_000, at + 6_000, seq=number, op_id=number * 3 + 3, category=BACKWARD)
    return opspan.load(made.write(path))


def found(trace: Trace) -> Counter[tuple[str, ...]]:
    frames, rows = call_stacks(trace.analysed.attributed.ranges, trace.analysed.attributed.functions)
    sums: Counter[tuple[str, ...]] = Counter()
    for row in rows.iter_rows(named=True):
        stack, at = [], row["frame"]
        while at is not None:
            stack.append(frames["name"][at])
            at = frames["parent"][at]
        key = (row["name"], *stack)
        assert (*key, "count") not in sums  # each op once for each stack
        sums |= {(*key, of): row[of] for of in ("count", "cpu_ns", "self_cpu_ns", "device_ns", "self_device_ns")}
    return sums


def of_events(trace: Trace) -> Counter[tuple[str, ...]]:
    sums: Counter[tuple[str, ...]] = Counter()
    for event in trace.events():
        if not event.stack or event.is_async:
            continue
        key = (event.trace_name or event.name, *event.stack)
        times = {
            "cpu_ns": event.cpu_time_total,
            "self_cpu_ns": event.self_cpu_time_total,
            "device_ns": event.device_time_total,
            "self_device_ns": event.self_device_time_total,
        }
        sums[(*key, "count")] += 1
        for of, us in times.items():
            sums[(*key, of)] += round(us * 1000)
    return sums


def test_an_op_is_there_once_for_each_stack(tmp_path: Path) -> None:
    trace = written(tmp_path / "run.opspan")
    rows = found(trace)
    assert rows == of_events(trace)
    one = ("aten::addmm", *reversed(ONE.split("\n")))
    assert (rows[(*one, "count")], rows[(*one, "self_cpu_ns")]) == (2, 3_800)


def test_a_backward_op_has_the_stack_of_its_forward(tmp_path: Path) -> None:
    rows = found(written(tmp_path / "run.opspan"))
    assert rows[("AddmmBackward0", *reversed(OTHER.split("\n")), "count")] == 1


def test_of_deep_stacks_the_outermost_frames_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "DEEPEST", 2)
    monkeypatch.setattr("opspan.analysis.call_stacks.DEEPEST", 2)
    rows = found(written(tmp_path / "run.opspan"))
    assert rows[("aten::addmm", "/srv/train.py(5): step", "/srv/train.py(9): <module>", "count")] == 2


def test_without_stacks_there_are_none(tmp_path: Path) -> None:
    made = Capture(pid=1)
    made.thread(1, "main").torch("aten::relu", 1, 2)
    assert found(opspan.load(made.write(tmp_path / "run.opspan"))) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["norm_layers.json.gz", "mi300_ddp_resnet18.json.gz"])
def test_recorded_stacks(traces_dir: Path, name: str) -> None:
    trace = opspan.load(traces_dir / "kineto" / name)
    assert found(trace) == of_events(trace)


def test_the_stack_with_most_time_of_devices_comes_first_then_that_with_most_of_the_host() -> None:
    """A page shows the first of many."""
    times = (("aten::a", 3, 10), ("aten::b", 9, 0), ("aten::c", 4, 20), ("aten::d", 5, 0))
    made = ranges(
        *(
            {"name": name, "start_ns": 10 * at, "end_ns": 10 * at + cpu, "stack": ONE}
            for at, (name, cpu, _) in enumerate(times)
        )
    )
    timed = nest(made).with_columns(
        pl.Series([device for *_, device in times]).alias(name) for name in ("device_ns", "self_device_ns")
    )
    assert call_stacks(timed, table("functions", []))[1]["name"].to_list() == [
        "aten::c",
        "aten::a",
        "aten::b",
        "aten::d",
    ]
