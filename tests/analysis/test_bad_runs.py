"""Training runs whose rows make no sense: every answer is one that can be true, or a sentence why there is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import opspan
from builders.training import run
from builders.training_files import kineto_files, load, nsys_files
from builders.training_plan import Plan, Run
from emit.running import READING, forked
from opspan.analysis.busy import KINDS, devices
from opspan.questions import BY, Options, question
from tiers import RELEASE

US, MS, S = 1000, 1_000_000, 1_000_000_000
WRITE = {"kineto": kineto_files, "nsys": nsys_files}
VERBS = ("summary", "steps", "idle", "waits", "memory")
Change = Callable[[Any, int, Random], Any]
GOOD = Plan(ranks=2, steps=4, layers=2)


def changed(ranges: Change | None = None, calls: Change | None = None, work: Change | None = None) -> Run:
    """A healthy run of two ranks, with each row of these kinds changed: the row, its number, what is random."""
    made, random = run(GOOD), Random(0)
    parts = [
        [change(row, at, random) for at, row in enumerate(rows)] if change else rows
        for rows, change in ((made.ranges, ranges), (made.calls, calls), (made.work, work))
    ]
    return Run(made.plan, *parts)


def without_length(row: Any, *_: Any) -> Any:
    return row._replace(end=row.start)


def longer(row: Any, _: int, random: Random) -> Any:
    return row._replace(end=row.end + random.randrange(200 * US))


def backwards(row: Any, at: int, _: Random) -> Any:
    return row if at % 3 else row._replace(end=2 * row.start - row.end)


def nameless(row: Any, *_: Any) -> Any:
    return row if getattr(row, "sides", None) else row._replace(name="")


def steps_overlap(row: Any, *_: Any) -> Any:
    return row._replace(end=row.end + 4 * MS) if row.name.startswith("ProfilerStep#") else row


def moved(ns: int) -> Change:
    return lambda row, *_: row._replace(start=row.start + ns, end=row.end + ns)


BAD: dict[str, Callable[[], Run]] = {
    "no device work": lambda: run(replace(GOOD, no_device=True)),
    "no steps": lambda: run(replace(GOOD, no_steps=True)),
    "no sizes": lambda: run(replace(GOOD, no_sizes=True)),
    "no ranges": lambda: run(GOOD)._replace(ranges=[]),
    "no calls": lambda: run(GOOD)._replace(calls=[]),
    "work alone": lambda: run(GOOD)._replace(ranges=[], calls=[]),
    "no ops": lambda: run(GOOD)._replace(ranges=[row for row in run(GOOD).ranges if row.kind != "op"]),
    "clocks apart": lambda: run(replace(GOOD, ranks=3, apart={1: 5 * S, 2: -S // 2})),
    "cut at different steps": lambda: run(replace(GOOD, ranks=3, cut={1: (1, 2), 2: (0, 2)})),
    "ranges and work overlap": lambda: changed(ranges=longer, work=longer),
    "kernels without length": lambda: changed(work=without_length),
    "nothing has a length": lambda: changed(without_length, without_length, without_length),
    "ends before begins": lambda: changed(backwards, backwards, backwards),
    "no names": lambda: changed(nameless, nameless, nameless),
    "one correlation": lambda: changed(work=lambda row, *_: row._replace(correlation=7)),
    "work before its launch": lambda: changed(work=moved(-S // 2)),
    "work long after": lambda: changed(work=moved(S)),
    "steps overlap": lambda: changed(ranges=steps_overlap),
    "a kernel 73 years later": lambda: changed(work=lambda row, at, _: moved(2**61)(row, at, _) if at == 5 else row),
}


def marks(number: int, is_turn: bool) -> list[pytest.MarkDecorator]:
    if not is_turn:
        return RELEASE
    return [pytest.mark.slow] if number % 3 else []


def in_turn(turn: int) -> pytest.MarkDecorator:
    """Each bad run from one of the sources, which take turns; from the other one, too, before a release. All of them
    take minutes, so two of three are slow tests."""
    params = [
        pytest.param((name, source), marks=marks(number, (number + at) % 2 == turn), id=f"{name}-{source}")
        for number, name in enumerate(BAD)
        for at, source in enumerate(WRITE)
    ]
    return pytest.mark.parametrize("files", params, indirect=True)


@pytest.fixture(scope="module")
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    name, source = request.param
    return WRITE[source](tmp_path_factory.mktemp("bad"), BAD[name]())


def check(trace: opspan.Trace) -> None:
    """Checks statements that hold for any trace."""
    steps, whole = (devices(trace.analysed.complete, of) for of in (trace.analysed.iterations, no_steps(trace)))
    for found in (steps, whole):
        assert (found["busy_ns"] + found["idle_ns"] == found["time_ns"]).all()
        assert (found["tensor_core_ns"] <= found["work_ns"]).all()
        for name in ("computing_ns", "communicating_ns", "copying_ns", "exposed_communicating_ns"):
            assert (found[name] <= found["busy_ns"]).all()
        not_negative(found)
    parts = trace.steps()
    assert (parts.select(pl.sum_horizontal(f"{kind}_ns" for kind in KINDS)).to_series() == parts["time_ns"]).all()
    not_negative(parts.drop("start_ns", "end_ns"))
    streams = trace.idle("stream")
    assert (streams["time_ns"] >= streams["elsewhere_ns"]).all()
    of_devices = trace.idle("device").select("rank", "pid", "device_id", device_ns="time_ns")
    streams = streams.join(of_devices, on=["rank", "pid", "device_id"], how="left", nulls_equal=True)
    alone = streams["time_ns"] - streams["elsewhere_ns"]
    assert (alone == streams["device_ns"].fill_null(0)).all()
    for by in BY["idle"]:
        if by == "stream":  # each has its own gaps
            continue
        idle = trace.idle(by)
        assert idle["time_ns"].sum() == whole["idle_ns"].sum()
        not_negative(idle.drop("start_ns", "end_ns", strict=False))
    waited = {trace.waits(by)["wait_ns"].sum() for by in BY["waits"]}
    assert len(waited) == 1
    calls = trace.waits("call")
    assert (calls["busy_ns"] <= calls["wait_ns"]).all()
    not_negative(calls.drop("start_ns"))
    for by in BY["diff"]:
        same = trace.compare(trace, by)
        assert (same["change_ns"] == 0).all()
        assert not same["is_real"].any()
    row = question("summary").answer_of(trace.analysed, Options()).rows.row(0, named=True)
    assert row["busy_ns"] + row["idle_ns"] == row["device_time_ns"] == whole["time_ns"].sum()
    assert row["attributed"] is None or 0 <= row["attributed"] <= 1
    assert trace.memory_use().is_empty()
    assert (trace.analysed.queues["queued"] >= 0).all()
    assert trace.analysed.delays.height <= trace.work.height


def no_steps(trace: opspan.Trace) -> pl.DataFrame:
    return trace.analysed.iterations.clear()


def not_negative(found: pl.DataFrame) -> None:
    for name in found.columns:
        if name.endswith("_ns"):
            assert (found[name].drop_nulls() >= 0).all(), name


@in_turn(0)  # with the test below, each bad run is seen from each source
def test_answers_can_be_true(files: list[Path]) -> None:
    check(opspan.load(*files))
    check(opspan.load(files[1]))  # one of the ranks alone


@in_turn(1)
def test_verbs_say_something_and_do_not_fail(files: list[Path]) -> None:
    # All of them in one process: what they cost is to load polars.
    code = (
        "import sys\n"
        "from opspan.cli import main\n"
        "files = sys.argv[1:]\n"
        f"for verb in {VERBS}:\n"
        "    sys.argv = ['opspan', verb, *files]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as done:\n"
        "        print(f'{verb} ended with', done.code or 0, flush=True)\n"
    )
    done = forked(code, *files, imported=READING)
    said = done.stdout.splitlines()
    ends = [number for number, line in enumerate(said) if " ended with " in line]
    assert [said[number] for number in ends] in [[f"{verb} ended with 0" for verb in VERBS]], done.stderr
    for before, end in zip([-1, *ends], ends, strict=False):
        assert any(line.strip() for line in said[before + 1 : end])


@pytest.mark.parametrize("source", WRITE)
def test_clocks_that_are_apart_change_no_figure(tmp_path: Path, source: str) -> None:
    one, apart = (load(tmp_path / str(len(shift)), replace(GOOD, apart=shift), source) for shift in ({}, {1: 5 * S}))
    assert one.steps().drop("start_ns", "end_ns").equals(apart.steps().drop("start_ns", "end_ns"))
    assert one.idle().equals(apart.idle())
    assert one.waits().equals(apart.waits())
    assert (one.compare(apart)["change_ns"] == 0).all()


@pytest.mark.parametrize("source", WRITE)
def test_one_of_eight_ranks_has_its_own_figures(tmp_path: Path, source: str) -> None:
    made = run(replace(GOOD, ranks=8, straggler=(3, 1.5)))
    files = WRITE[source](tmp_path, made)
    everything, alone = opspan.load(*files), opspan.load(files[5])
    for answer in (opspan.Trace.steps, lambda trace: devices(trace.analysed.complete, trace.analysed.iterations)):
        of_all = answer(everything).filter(pl.col("rank") == 5).drop("start_ns", "end_ns", "rank", strict=False)
        assert of_all.equals(answer(alone).drop("start_ns", "end_ns", "rank", strict=False))


def test_ten_thousand_streams_are_quick_and_keep_their_figures(tmp_path: Path) -> None:
    made = run(Plan(steps=190))
    assert len(made.work) > 10_000
    apart = made._replace(work=[row._replace(stream=at) for at, row in enumerate(made.work)])
    files = [WRITE["nsys"](folder(tmp_path / name), some)[0] for name, some in (("one", made), ("many", apart))]
    one, many = map(opspan.load, files)
    started = time.process_time()
    assert many.analysed.queues["queued"].max() == 1
    assert time.process_time() - started < 3  # it was 7 s where each stream was looked at by itself
    check(many)
    assert one.idle().equals(many.idle())
    assert one.steps().equals(many.steps())


@pytest.mark.slow
def test_sixty_four_ranks_are_quick(tmp_path: Path) -> None:
    trace = load(tmp_path / "run", replace(GOOD, ranks=64, straggler=(17, 1.5)), "nsys")
    started = time.process_time()
    check(trace)
    assert time.process_time() - started < 30
    found = devices(trace.analysed.complete, no_steps(trace)).sort("communicating_ns")
    assert found["rank"][0] == 17


def folder(path: Path) -> Path:
    path.mkdir()
    return path
