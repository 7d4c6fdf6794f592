"""Many files, each analysed by itself, give the same answers as when they are read as one trace."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import opspan
from builders.training import run
from builders.training_files import kineto_files, nsys_files
from builders.training_plan import Plan
from emit.running import opspan as command_line
from opspan.errors import UsageError
from opspan.findings import RULES
from opspan.many.ranks import Ranks
from opspan.many.task import FileAnswer, ReadOptions, Request, Task, answered
from opspan.questions import BY, Options, question
from opspan.views.answer import as_text
from opspan.views.diff import figures_of
from read_once import ReadOnce
from readers.samples import samples
from tiers import before_release

WRITERS: dict[str, Callable[..., list[Path]]] = {"kineto": kineto_files, "nsys": nsys_files}
PLAN = Plan(ranks=3, steps=4, straggler=(1, 1.5), apart={2: 5_000_000}, item_per_step=True, stalls={2: 9_000_000})
# Method of a trace -> its question.
VIEWS = {
    name: name.removesuffix("_use") for name in ("idle", "launches", "waits", "flops", "path", "comm", "memory_use")
}
ASKED = [(name, by) for name in VIEWS for by in BY[VIEWS[name]]]


@pytest.fixture(scope="module", params=WRITERS)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return WRITERS[request.param](tmp_path_factory.mktemp(request.param), run(PLAN))


@pytest.fixture(scope="module")
def whole(files: list[Path]) -> opspan.Trace:
    return opspan.load(*files)


@pytest.fixture(scope="module")
def ranks(files: list[Path]) -> Ranks:
    return opspan.load_many(*files, executor=ReadOnce())


@pytest.fixture(scope="module")
def slower(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Ranks, opspan.Trace]:
    """Another run of the same program, by ranks and as one trace."""
    write = WRITERS["kineto" if files[0].suffix == ".json" else "nsys"]
    written = write(tmp_path_factory.mktemp("slower"), run(replace(PLAN, seed=1, slower={"aten::mm": 2.0})))
    return opspan.load_many(*written, executor=ReadOnce()), opspan.load(*written)


def texts(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col(pl.Categorical).cast(pl.String))


@pytest.mark.parametrize(("name", "by"), ASKED)
def test_answers_are_those_of_one_trace(name: str, by: str, ranks: Ranks, whole: opspan.Trace) -> None:
    assert_frame_equal(getattr(ranks, name)(by), getattr(whole, name)(by))


def test_steps_are_those_of_one_trace(ranks: Ranks, whole: opspan.Trace) -> None:
    assert_frame_equal(ranks.steps(), whole.steps())
    assert ranks.steps()["rank"].n_unique() == PLAN.ranks


def test_what_if_is_that_of_each_file_and_nothing_is_said_of_the_whole_run(
    ranks: Ranks, whole: opspan.Trace, files: list[Path]
) -> None:
    """Only a trace of several ranks knows the waits between them."""
    factors = {"aten::mm": 0.5, "launch": 0}

    each = pl.concat([opspan.load(file).path(what_if=factors) for file in files])
    assert_frame_equal(ranks.path(what_if=factors), each, check_column_order=True)
    assert not each["after_ns"].equals(whole.path(what_if=factors)["after_ns"])
    command = ("path", *files, "--what-if", "aten::mm=0.5", "--what-if", "launch=0")
    assert "The whole run would take" in command_line(*command).stdout
    assert "would take is unknown: ranks wait for each other" in command_line(*command, "--processes", "1").stdout


def test_peaks_that_were_given_are_those_of_all_ranks(ranks: Ranks, whole: opspan.Trace) -> None:
    peak = ["bf16=989e12", "bandwidth=3.35e12"]

    assert_frame_equal(ranks.flops("run", peak=peak), whole.flops("run", peak=peak))


@pytest.mark.parametrize("by", BY["table"])
@pytest.mark.parametrize("op", [None, "aten::*"])
def test_tables_are_those_of_one_trace(by: str, op: str | None, ranks: Ranks, whole: opspan.Trace) -> None:
    ours, theirs = ranks.table(by, op=op), whole.table(by, op=op)

    # Rows of ops that are alike in what they are sorted by stand in order of time in the one, of ranks in the other.
    alike = by in ("name", "shape", "stack")
    # Names are text in the one; in the other they may be categories.
    assert_frame_equal(ours.rows, texts(theirs.rows), check_row_order=not alike)
    assert ours.notes == theirs.notes
    lines = [as_text(one, -1).splitlines() for one in (ours, theirs)]
    assert lines[0] == lines[1] if not alike else sorted(lines[0]) == sorted(lines[1])


def test_the_summary_is_that_of_one_trace(ranks: Ranks, whole: opspan.Trace) -> None:
    one = question("summary").answer_of(whole.analysed, Options())
    of_findings = ("findings", "at_stake_ns")  # rules look at each rank for itself

    assert_frame_equal(ranks.summary().drop(of_findings), one.rows.drop(of_findings))


def test_rules_that_compare_ranks_say_the_same(ranks: Ranks, whole: opspan.Trace) -> None:
    over_ranks = [rule.id for rule in RULES if rule.is_over_ranks]

    ours, theirs = (run.findings().filter(pl.col("id").is_in(over_ranks)) for run in (ranks, whole))

    assert_frame_equal(ours, theirs)
    assert ours["ranks"].to_list() == [[1]]


def test_a_finding_names_the_ranks_that_have_it(ranks: Ranks, whole: opspan.Trace) -> None:
    ours, theirs = (run.findings().sort("id") for run in (ranks, whole))

    assert ours["id"].to_list() == theirs["id"].to_list()
    # A cost that is a small share of one rank's time is not a finding about that rank.
    assert (ours["ranks"].list.set_difference(theirs["ranks"]).list.len() == 0).all()
    of_each = ours.filter(pl.col("ranks").list.len() == PLAN.ranks)
    assert of_each["sentence"].str.ends_with("3 of 3 ranks)").all()
    assert of_each.height


def test_who_is_there_is_known(ranks: Ranks, whole: opspan.Trace, files: list[Path]) -> None:
    assert ranks.ranks == whole.ranks
    assert ranks.coverage == whole.coverage
    assert_frame_equal(ranks.issues, whole.issues)
    alone = ranks.open(2)
    assert alone.paths == [str(files[2])]
    assert alone.ranges.height == whole.ranges.filter(rank=2).height
    with pytest.raises(UsageError, match="no rank 3; expected one from 0 to 2"):
        ranks.open(3)


def test_processes_and_threads_answer_as_this_process_does(files: list[Path], ranks: Ranks) -> None:
    seen: list[tuple[int, int]] = []
    with ThreadPoolExecutor(2) as executor:
        threads = opspan.load_many(*files, executor=executor).idle()
    done = opspan.load_many(files[0].parent, processes=2, progress=lambda *each: seen.append(each)).idle()

    assert_frame_equal(threads, ranks.idle())
    assert_frame_equal(done, ranks.idle())
    assert sum(count for count, _ in seen) == len(files)
    assert sum(size for _, size in seen) == sum(file.stat().st_size for file in files)


@pytest.mark.slow
@pytest.mark.parametrize("turn", before_release([0, 1], kept=1))
@pytest.mark.parametrize("source", samples(with_ranges=True))
def test_of_every_source_answers_are_those_of_one_trace(source: str, turn: int, tmp_path: Path) -> None:
    """With every other table, of which the other half comes before a release."""
    first = samples()[source](tmp_path)
    second = tmp_path / f"again-{first.name}"
    (shutil.copytree if first.is_dir() else shutil.copy)(first, second)
    whole, ranks = opspan.load(first, second), opspan.load_many(first, second, executor=ReadOnce())

    asked: list[tuple[str, dict[str, Any]]] = [(name, {"by": BY[VIEWS[name]][0]}) for name in VIEWS]
    for name, options in [*asked, ("steps", {})]:
        assert_frame_equal(getattr(ranks, name)(**options), getattr(whole, name)(**options))
    for by in list(BY["table"])[(list(samples()).index(source) + turn) % 2 :: 2]:
        assert_frame_equal(ranks.table(by).rows, texts(whole.table(by).rows), check_row_order=False)
    assert_frame_equal(ranks.issues, whole.issues)


def test_a_part_is_that_of_one_trace(files: list[Path]) -> None:
    whole, ranks = opspan.load(*files, step=(1, 2)), opspan.load_many(*files, step=(1, 2), processes=1)

    assert_frame_equal(ranks.steps(), whole.steps())
    assert_frame_equal(ranks.idle(), whole.idle())


@pytest.mark.parametrize("asked", [("comm", Options("kind")), ("findings", Options()), ("waits", Options("op"))])
def test_collectives_are_sent_once(asked: Request, files: list[Path]) -> None:
    (one,) = answered(Task((str(files[0]),), ReadOptions(), (asked,)))

    assert isinstance(one, FileAnswer)
    sent = [part for part in (*one.parts[0].values(), one.collectives) if part and "own_rank" in part.rows.columns]
    assert len(sent) == 1
    assert sent[0].rows.height


def test_a_formula_of_ones_own_stays_in_this_process(files: list[Path]) -> None:
    opspan.register_flops("aten::gelu", lambda _sizes, _inputs: 7)
    try:
        with pytest.raises(UsageError, match=r"aten::gelu is known to this program alone.*expected processes=1"):
            opspan.load_many(*files, processes=2).flops()
        found = opspan.load_many(*files, processes=1).flops().filter(op="aten::gelu").row(0, named=True)
        assert found["flops"] == 7 * found["count"]
    finally:
        opspan.register_flops("aten::gelu", None)


@pytest.mark.parametrize("by", ["op", "shape", "module", "phase", "kernel", "place"])
def test_comparisons_are_those_of_two_traces(
    by: str, ranks: Ranks, whole: opspan.Trace, slower: tuple[Ranks, opspan.Trace]
) -> None:
    later, after = slower

    expected = whole.compare(after, by)

    assert_frame_equal(ranks.compare(later, by), expected)
    assert_frame_equal(ranks.compare(after, by), expected)
    assert ranks.figures(by).steps == pytest.approx(figures_of(whole.analysed, by).steps)
    assert expected["change_ns"].abs().max() > 0


def test_places_of_a_rank_without_steps_are_outside_of_those_of_others(tmp_path: Path) -> None:
    def written(name: str, *steps: int) -> Path:
        """Two ops in each step; outside of steps where there are none."""
        begins = [1000 * step for step in steps or (1, 2)]
        events = [
            {"ph": "X", "name": op, "cat": "cpu_op", "pid": 7, "tid": 7, "ts": begin + at, "dur": 10 + begin / 100}
            for begin in begins
            for at, op in ((10, "aten::mm"), (200, "aten::add"))
        ]
        events += [
            {"ph": "X", "name": f"ProfilerStep#{step}", "cat": "user_annotation"}
            | {"pid": 7, "tid": 7, "ts": 1000 * step, "dur": 900}
            for step in steps
        ]
        (tmp_path / name).write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        return tmp_path / name

    before = [written("rank0.json"), written("rank1.json", 1, 2, 3), written("rank2.json", 1, 2, 3)]
    after = [written("new-rank0.json", 1, 2, 3), written("new-rank1.json"), written("new-rank2.json", 1, 2, 3, 4)]
    expected = opspan.load(*before).compare(opspan.load(*after), "place")

    ours = [opspan.load_many(*files, processes=1) for files in (before, after)]

    assert_frame_equal(ours[0].compare(ours[1], "place"), expected)
    assert expected["place_before"].null_count()
    assert expected["place_before"].max() == 1


def test_what_no_rank_has_is_said_once(ranks: Ranks) -> None:
    with pytest.raises(UsageError, match="no op or range is called 'aten::nothing'"):
        ranks.table(op="aten::nothing")
    with pytest.raises(UsageError, match="no op of this trace is called 'aten::nothing'"):
        ranks.path(what_if={"aten::nothing": 0.5})
    with pytest.raises(UsageError, match="there is no answer by 'planet'"):
        ranks.idle("planet")
