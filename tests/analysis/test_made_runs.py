"""Runs with a known answer: the model obeys physics, and the answers find what was planted in it, to the nanosecond."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders.training import ALL_REDUCE, run
from builders.training_files import load
from builders.training_plan import COMPUTE, Plan, Range, Run, Work, pid_of
from opspan.analysis.busy import devices
from opspan.analysis.compare import step_change
from opspan.views.diff import figures_of

US, MS = 1000, 1_000_000
SOURCES = ("kineto", "nsys")
ALL = Plan(
    ranks=3,
    straggler=(1, 1.3),
    stalls={2: MS},
    item_per_step=True,
    pageable=True,
    round_trips=1,
    fallbacks=1,
    recompiles=(1,),
    loop_optimizer=True,
    small_collectives=True,
    few_blocks=True,
    odd=True,
    fp32=True,
)
PLANS = {
    "healthy": Plan(),
    "eight ranks": Plan(ranks=8, straggler=(3, 1.5)),
    "exposed": Plan(ranks=2, exposed=True),
    "launch bound": Plan(launch_bound=True),
    "slow loader": Plan(slow_loader=5 * MS),
    "all at once": ALL,
}


def covered(spans: list[tuple[int, int]]) -> int:
    """How long at least one of them lasts, one after the other."""
    total, until = 0, -(2**63)
    for start, end in sorted(spans):
        total += max(end - max(start, until), 0)
        until = max(until, end)
    return total


def whole_ns(made: Run) -> int:
    rows = [*made.ranges, *made.calls, *made.work]
    return max(row.end for row in rows) - min(row.start for row in rows)


# --- the model


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_work_begins_after_its_launch_and_after_what_its_stream_did_before(plan: Plan) -> None:
    for rank in range(plan.ranks):
        made = run(plan).of(rank)
        calls = {row.correlation: row for row in made.calls}
        ends: Counter[int] = Counter()
        assert len({row.correlation for row in made.work}) == len(made.work)
        for row in made.work:
            assert row.end > row.start >= ends[row.stream]
            assert row.start > calls[row.correlation].start
            ends[row.stream] = row.end


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_ranges_and_calls_of_a_thread_nest(plan: Plan) -> None:
    made = run(plan)
    for rank, tid in {(row.rank, row.tid) for row in made.ranges}:
        rows = [row for row in (*made.ranges, *made.calls) if (row.rank, row.tid) == (rank, tid)]
        open_: list[int] = []
        for row in sorted(rows, key=lambda row: (row.start, -row.end)):
            while open_ and open_[-1] <= row.start:
                open_.pop()
            assert not open_ or row.end <= open_[-1]
            assert row.end > row.start
            open_.append(row.end)


def collectives(made: Run) -> list[list[Work]]:
    each = [[row for row in made.of(rank).work if row.collective] for rank in range(made.plan.ranks)]
    return [list(together) for together in zip(*each, strict=True)]


@pytest.mark.parametrize("plan", [plan for plan in PLANS.values() if plan.ranks > 1])
def test_a_collective_ends_for_all_ranks_at_once_after_the_last_has_come(plan: Plan) -> None:
    found = collectives(run(plan))
    assert found
    for together in found:
        assert len({row.end for row in together}) == 1
        assert max(row.start for row in together) < together[0].end


def test_the_same_plan_gives_the_same_run_and_another_seed_another() -> None:
    assert run(ALL) == run(ALL)
    assert run(Plan()).work != run(Plan(seed=1)).work


@pytest.mark.parametrize("ranks", [1, 8])
def test_the_device_of_a_healthy_run_is_busy_for_nine_tenths_of_it(ranks: int) -> None:
    for rank in range(ranks):
        made = run(Plan(ranks=ranks)).of(rank)
        assert covered([(row.start, row.end) for row in made.work]) > 0.9 * whole_ns(made)


# --- both sources


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], opspan.Trace]:
    """The run of a plan, in the files of a source: several tests look at it."""
    return cache(lambda name, source: load(tmp_path_factory.mktemp("run") / source, PLANS[name], source))


@pytest.mark.parametrize("name", PLANS)
def test_sources_that_hold_the_same_give_the_same_answers(
    loaded: Callable[[str, str], opspan.Trace], name: str
) -> None:
    one, other = (loaded(name, source) for source in SOURCES)
    moved = ["start_ns", "end_ns"]
    assert one.steps().drop(moved).equals(other.steps().drop(moved))
    assert one.idle("step").equals(other.idle("step"))
    for by in ("op", "phase", "step", "why"):
        assert one.waits(by).equals(other.waits(by))
    # torch.profiler's modules are functions: the host's time between their ops is in no range.
    launched = [
        trace.idle("op").filter(pl.col("launch_ns") + pl.col("queued_ns") > 0).drop("time_ns", "gaps", "host_ns")
        for trace in (one, other)
    ]
    assert launched[0].sort("op").equals(launched[1].sort("op"))
    busy = [devices(trace.analysed.complete, trace.analysed.iterations) for trace in (one, other)]
    assert busy[0].equals(busy[1])
    assert one.coverage == other.coverage


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", PLANS)
def test_how_long_devices_were_busy_is_what_the_model_says(
    loaded: Callable[[str, str], opspan.Trace], name: str, source: str
) -> None:
    plan = PLANS[name]
    trace, made = loaded(name, source), run(plan)
    found = devices(trace.analysed.complete, trace.analysed.iterations.clear())
    assert trace.issues.is_empty()
    assert found["rank"].to_list() == list(range(plan.ranks))
    for row in found.iter_rows(named=True):
        mine = made.of(row["rank"])
        kernels = [one for one in mine.work if one.kind == "kernel" and not one.collective]
        groups = {
            "busy_ns": mine.work,
            "computing_ns": kernels,
            "communicating_ns": [one for one in mine.work if one.collective],
            "copying_ns": [one for one in mine.work if one.sides],
        }
        assert {name: row[name] for name in groups} == {
            name: covered([(one.start, one.end) for one in rows]) for name, rows in groups.items()
        }
        assert row["time_ns"] == whole_ns(mine) == row["busy_ns"] + row["idle_ns"]
        assert (
            row["exposed_communicating_ns"]
            == covered([(one.start, one.end) for one in (*kernels, *groups["communicating_ns"])]) - row["computing_ns"]
        )


# --- what is planted is found


@pytest.mark.parametrize("source", SOURCES)
def test_a_stall_is_the_only_outlier_and_most_of_the_idle_time_is_there(tmp_path: Path, source: str) -> None:
    stall = 6 * MS
    healthy = load(tmp_path / "healthy", Plan(), source)
    trace = load(tmp_path / "stalled", Plan(stalls={5: stall}), source)
    steps = trace.steps()
    assert steps.filter("is_outlier")["step"].to_list() == ["ProfilerStep#5"]
    longer = (steps["time_ns"] - healthy.steps()["time_ns"]).to_list()
    assert longer == [0, 0, 0, 0, 0, stall, 0, 0]
    idle = trace.idle("step")
    assert idle["step"][0] == "ProfilerStep#5"
    assert 2 * idle["time_ns"][0] > idle["time_ns"].sum()
    gap = trace.idle("gap").row(0, named=True)
    assert gap["why"] == "host"
    assert 0.7 * stall < gap["time_ns"] < stall + MS
    assert not healthy.steps()["is_outlier"].any()


@pytest.mark.parametrize("source", SOURCES)
def test_a_loader_that_blocks_is_where_devices_are_idle(tmp_path: Path, source: str) -> None:
    plan = Plan(slow_loader=5 * MS)
    trace, made = load(tmp_path / "run", plan, source), run(plan)
    busy = [(row.start, row.end) for row in (*made.work, *made.calls)]
    for row, step in zip(trace.steps().iter_rows(named=True), steps_of(made), strict=True):
        loader = [one for one in made.ranges if "DataLoader" in one.name and step.start <= one.start < step.end]
        both = [(one.start, one.end) for one in loader]
        inside = [(max(start, both[0][0]), min(end, both[0][1])) for start, end in busy]
        assert row["loading_ns"] == covered(both) - covered([(a, b) for a, b in inside if a < b])
        assert 0.8 * plan.slow_loader < row["loading_ns"] < 1.1 * plan.slow_loader
        assert row["loading_ns"] == max(row[name] for name in row if name.endswith("ing_ns"))
    idle = trace.idle("phase").row(0, named=True)
    assert idle["phase"] == "data"
    assert idle["host_ns"] > 0.8 * plan.steps * plan.slow_loader


def steps_of(made: Run) -> list[Range]:
    return [row for row in made.ranges if row.name.startswith("ProfilerStep#")]


@pytest.mark.parametrize("op", ["aten::addmm", "aten::native_layer_norm", "aten::_foreach_sqrt"])
def test_an_op_that_is_a_fifth_slower_is_the_only_real_change(tmp_path: Path, op: str) -> None:
    # Another seed: the noise of the second run is not that of the first.
    one = load(tmp_path / "before", Plan(steps=12))
    other = load(tmp_path / "after", Plan(steps=12, seed=1, slower={op: 1.2}))
    found = one.compare(other)
    assert found.filter("is_real")["name"].to_list() == [op]
    first = found.row(0, named=True)
    assert (first["name"], first["time_of"]) == (op, "device")
    assert first["change"] == pytest.approx(0.2, abs=0.02)


def test_with_the_same_noise_nothing_else_changes_at_all(tmp_path: Path) -> None:
    one, other = load(tmp_path / "before", Plan()), load(tmp_path / "after", Plan(slower={"aten::gelu": 1.2}))
    found = one.compare(other)
    assert found.filter(pl.col("change_ns") != 0)["name"].to_list() == ["aten::gelu"]
    sums = [
        sum(row.end - row.start for row in run(plan).work if "gelu," in row.name)
        for plan in (Plan(), Plan(slower={"aten::gelu": 1.2}))
    ]
    row = found.row(0, named=True)
    assert [row["before_ns"], row["after_ns"]] == sums


@pytest.mark.parametrize("seed", range(1, 6))
def test_two_healthy_runs_do_not_differ(tmp_path: Path, seed: int) -> None:
    one, other = load(tmp_path / "before", Plan(steps=12)), load(tmp_path / "after", Plan(steps=12, seed=seed))
    assert not one.compare(other)["is_real"].any()
    found = step_change(*(figures_of(trace.analysed).steps for trace in (one, other)))
    assert found is not None
    assert found.is_real is False


@pytest.mark.parametrize("source", SOURCES)
def test_a_straggler_is_the_one_rank_that_does_not_wait_in_collectives(tmp_path: Path, source: str) -> None:
    plan = Plan(ranks=8, straggler=(3, 1.5))
    trace, made = load(tmp_path / "run", plan, source), run(plan)
    found = devices(trace.analysed.complete, trace.analysed.iterations.clear())
    of = {row["rank"]: row for row in found.iter_rows(named=True)}
    for rank, row in of.items():
        assert row["communicating_ns"] == sum(one.end - one.start for one in made.of(rank).work if one.collective)
    others = [row for rank, row in of.items() if rank != 3]
    assert all(4 * of[3]["communicating_ns"] < row["communicating_ns"] for row in others)
    assert all(of[3]["computing_ns"] > 1.45 * row["computing_ns"] for row in others)
    # All other ranks wait as long as this one computes longer.
    longer = of[3]["computing_ns"] - others[0]["computing_ns"]
    waited = others[0]["exposed_communicating_ns"] - of[3]["exposed_communicating_ns"]
    assert waited == pytest.approx(longer, rel=0.1)


@pytest.mark.parametrize("source", SOURCES)
def test_fetched_values_and_blocking_copies_are_what_the_host_waits_for(tmp_path: Path, source: str) -> None:
    plan = Plan(item_per_step=True, pageable=True)
    trace, made = load(tmp_path / "run", plan, source), run(plan)
    found = {row["why"]: (row["count"], row["wait_ns"]) for row in trace.waits("why").iter_rows(named=True)}
    calls = {row.correlation: row for row in made.calls}
    blocking = [calls[row.correlation] for row in made.work if row.sides == ("Pageable", "Device")]
    waits = {
        "item": [row for row in made.calls if row.name == "cudaStreamSynchronize"],
        "blocking copy": blocking,
        "synchronise": [row for row in made.calls if row.name == "cudaDeviceSynchronize"],
    }
    assert found == {why: (len(rows), sum(row.end - row.start for row in rows)) for why, rows in waits.items()}
    assert len(waits["item"]) == len(blocking) == plan.steps


@pytest.mark.parametrize("source", SOURCES)
def test_a_run_that_waits_for_launches_is_idle_in_the_host(tmp_path: Path, source: str) -> None:
    trace = load(tmp_path / "run", Plan(launch_bound=True), source)
    found = devices(trace.analysed.complete, trace.analysed.iterations).sum().row(0, named=True)
    assert found["idle_ns"] > 0.8 * found["time_ns"]
    idle = trace.idle("device").row(0, named=True)
    assert idle["host_ns"] > 0.7 * idle["time_ns"]


def test_without_tensor_cores_none_are_seen_and_with_few_blocks_most_of_the_device_is_free(tmp_path: Path) -> None:
    def of(plan: Plan) -> dict[str, float]:
        trace = load(tmp_path / str(hash(str(plan))), plan)
        return devices(trace.analysed.complete, trace.analysed.iterations.clear()).row(0, named=True)

    healthy, fp32, few = of(Plan()), of(Plan(fp32=True)), of(Plan(few_blocks=True))
    matrices = [row for row in run(Plan()).work if "gemm" in row.name]
    assert healthy["tensor_core_ns"] == sum(row.end - row.start for row in matrices) > 0
    assert fp32["tensor_core_ns"] == 0
    assert healthy["sm_ns"] == healthy["work_ns"]
    assert few["sm_ns"] == pytest.approx(few["work_ns"] * 4 / 132)


def test_both_sources_name_what_there_is(tmp_path: Path) -> None:
    for source in SOURCES:
        trace = load(tmp_path / source, Plan(ranks=2), source).analysed.complete
        assert {"forward", "backward", "optimizer", "data"} <= set(trace.ranges["phase"].drop_nulls().unique())
        assert trace.ranges["module"].is_not_null().any()
        assert trace.ranges["pid"].unique().sort().to_list() == [pid_of(0), pid_of(1)]
        reduced = trace.work.filter(pl.col("stream_id") != COMPUTE)
        assert reduced["name"].cast(pl.String).str.starts_with(ALL_REDUCE[:26]).all()
