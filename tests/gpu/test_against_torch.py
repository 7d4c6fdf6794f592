"""opspan's recordings of a GPU, and its reading of torch's traces, agree with torch.profiler: six programs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median

import pytest

import opspan
from gpu.children import differences, fact
from gpu.conftest import Run, Runs
from gpu.work_rows import Row, of_chrome, of_trace
from opspan.analysis.analysed import Analysis
from opspan.analysis.device_part import TOLERANCE_NS

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.usefixtures("gpu")]

NAMES = ("mlp", "conv_net", "transformer_amp", "two_streams", "copies", "optimizers")
RECORDERS = ("record", "profile")
LEAST = 5  # kernels, copies and fills: each program has more
OWN_WORK = "Activity Buffer Request"


def torchs(runs: Runs, name: str) -> Path:
    run = runs("watched", name, "torch")
    assert run.ended.told["has_gpu"], run.ended.text
    return run.folder / "torch.json"


def recorded(runs: Runs, name: str, recorder: str) -> tuple[Run, Analysis]:
    run = runs("watched", name, recorder)
    told = run.ended.told
    assert not [text for text in told["warnings"] if "not recorded" in text], told["warnings"]
    return run, opspan.load(run.folder / "recorded").analysed


def described(rows: list[Row]) -> list[tuple[str, str, str | None, str | None]]:
    return [(row.kind, row.name, row.call, row.op) for row in rows]


def where_told(ours: list[Row], theirs: list[Row]) -> list[tuple[str, str, str | None, str | None]]:
    """Ours, without the ops where torch's file names none; how many that are, `tell` keeps as without_op."""
    if len(ours) != len(theirs):
        return described(ours)
    pairs = zip(ours, theirs, strict=True)
    return described([row._replace(op=None) if other.op is None else row for row, other in pairs])


def tell(what: str, rows: list[Row], **more: object) -> None:
    """Keeps what is known of a run before anything of it is asserted."""
    delays = [row.start_ns - row.call_ns for row in rows if row.start_ns is not None and row.call_ns is not None]
    fact(
        what,
        kinds=Counter(row.kind for row in rows),
        device_us=sum(row.time_ns or 0 for row in rows) / 1000,
        without_call=sum(row.call is None for row in rows),
        without_op=sum(row.op is None for row in rows),
        without_time=sum(row.start_ns is None for row in rows),
        streams=sorted({row.stream for row in rows if row.stream is not None}),
        calls=Counter(row.call for row in rows),
        least_delay_us=min(delays) / 1000 if delays else None,
        median_delay_us=median(delays) / 1000 if delays else None,
        **more,
    )


@pytest.mark.parametrize("name", NAMES)
def test_torchs_trace_is_read_as_it_says(runs: Runs, name: str) -> None:
    file = torchs(runs, name)
    theirs = of_chrome(file)
    found = opspan.load(file).analysed
    ours = of_trace(found)
    tell("torch", theirs, program=name, issues=found.tables.issues.to_dicts())

    assert len(theirs) > LEAST, theirs
    assert where_told(ours, theirs) == described(theirs), differences(where_told(ours, theirs), described(theirs))
    times, own = ([(row.time_ns, row.stream, row.correlation) for row in rows] for rows in (theirs, ours))
    assert own == times, differences(own, times)


@pytest.mark.parametrize("name", NAMES)
def test_device_time_by_op_is_what_torch_says_of_the_same_run(runs: Runs, name: str) -> None:
    """Torch's sums are doubles of microseconds, opspan's are of nanoseconds. Torch counts its own work on buffers as
    device time of the op that it lies in, and of those around that; opspan does not."""
    run = runs("watched", name, "torch")
    said = {
        key: (count, self_us, total_us)
        for key, device, count, self_us, total_us, is_annotation in run.ended.told["averages"]
        if device == "CPU" and not is_annotation
    }
    found = {
        one.key: (one.count, one.self_device_time_total, one.device_time_total)
        for one in opspan.load_kineto(run.folder / "torch.json").key_averages()
        if str(one.device_type).endswith("CPU")
    }
    ours = [(key, found.get(key)) for key in said]
    _, own_us, _ = said.get(OWN_WORK, (0, 0.0, 0.0))

    def is_as_said(mine: tuple[int, float, float] | None, theirs: tuple[int, float, float]) -> bool:
        near = 0.002 * (1 + theirs[0])
        if mine is None or mine[0] != theirs[0] or mine[1] != pytest.approx(theirs[1], abs=near):
            return False
        return -near <= theirs[2] - mine[2] <= own_us + near

    wrong = [
        f"{key}: ours {mine}, theirs {theirs}"
        for (key, mine), theirs in zip(ours, said.values(), strict=True)
        if key != OWN_WORK and not is_as_said(mine, theirs)
    ]
    fact("key_averages", program=name, keys=len(said), self_us=sum(one[1] for one in said.values()), wrong=wrong)

    assert sum(one[1] for one in said.values()) > 0
    of_ops = [text for text in wrong if not text.startswith("cu")]  # torch's lines of calls are kept as facts
    assert not of_ops, "\n".join(of_ops[:10])


@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_recording_has_what_torch_has_with_the_same_ops(runs: Runs, name: str, recorder: str) -> None:
    run, found = recorded(runs, name, recorder)
    ours, theirs = of_trace(found), of_chrome(torchs(runs, name))
    tell(recorder, ours, program=name, issues=found.tables.issues.to_dicts(), coverage=str(found.coverage))

    assert len(ours) > LEAST, (ours, run.ended.text)
    assert where_told(ours, theirs) == described(theirs), differences(where_told(ours, theirs), described(theirs))


@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.parametrize("name", NAMES)
def test_recorded_work_has_a_call_an_op_and_a_time_after_the_call_began(runs: Runs, name: str, recorder: str) -> None:
    _, found = recorded(runs, name, recorder)
    rows = of_trace(found)
    assert len(rows) > LEAST
    incomplete = [row for row in rows if None in row]
    assert not incomplete, incomplete[:5]
    early = [row for row in rows if (row.start_ns or 0) < (row.call_ns or 0) - TOLERANCE_NS]
    assert not early, [(row, (row.start_ns or 0) - (row.call_ns or 0)) for row in early[:5]]


def links(analysis: Analysis) -> list[tuple[str, str | None]]:
    """Each backward op that launched something, with its forward op."""
    ranges = analysis.complete.ranges
    names, kinds, parents, forwards = (ranges[name].to_list() for name in ("name", "kind", "parent", "forward"))
    backward = set()
    for row in analysis.complete.work["launch_range"].drop_nulls().unique():
        while row is not None and kinds[row] != "backward":
            row = parents[row]
        if row is not None:
            backward.add(row)
    pairs = [(names[row], None if forwards[row] is None else names[forwards[row]]) for row in backward]
    return sorted(pairs, key=str)


@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.parametrize("name", ["mlp", "conv_net", "transformer_amp", "optimizers"])
def test_backward_kernels_lead_to_the_forward_op_that_torch_says(runs: Runs, name: str, recorder: str) -> None:
    ours = links(recorded(runs, name, recorder)[1])
    theirs = links(opspan.load(torchs(runs, name)).analysed)
    fact("links", program=name, recorder=recorder, linked=sum(to is not None for _, to in ours), pairs=len(ours))

    assert ours == theirs, differences(ours, theirs)
    without = [op for op, forward in ours if forward is None and not op.endswith("AccumulateGrad")]
    assert len(ours) > 1
    assert not without, without


@pytest.mark.parametrize("name", NAMES)
def test_profile_exports_and_sums_up_what_it_recorded(runs: Runs, name: str) -> None:
    run, found = recorded(runs, name, "profile")
    rows = of_trace(found)
    exported = [(row.kind, row.name) for row in of_chrome(run.folder / "opspan.json")]
    assert sorted(exported) == sorted((row.kind, row.name) for row in rows)
    of_host = [one for one in run.ended.told["averages"] if one[1] == "CPU"]
    assert sum(one[3] for one in of_host) == pytest.approx(sum(row.time_ns or 0 for row in rows) / 1000, abs=0.1)

    ours, theirs = (
        Counter({one[0]: one[2] for one in averages if one[1] == "CPU" and not one[0].startswith("cu")})
        for averages in (run.ended.told["averages"], runs("watched", name, "torch").ended.told["averages"])
    )
    fact("names by key_averages", program=name, ours_alone=ours - theirs, theirs_alone=theirs - ours)
    ops = {key: count for key, count in theirs.items() if key.startswith("aten::")}
    assert {key: count for key, count in ours.items() if key.startswith("aten::")} == ops
