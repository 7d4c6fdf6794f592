"""The phases of a serving engine's steps, against sums in plain Python."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import kineto
from builders.serving import Run, engine_run
from opspan.analysis.parts import together
from opspan.questions import Options, question
from opspan.views import missing, step_phases
from opspan.views.page import overview_steps

DECODE, PREFILL = "step[DECODE bs=32]", "step[EXTEND bs=2 toks=4096]"
VERIFY, DRAFT = "step[TARGET_VERIFY bs=2]", "step[DRAFT_EXTEND bs=2]"
LABELS = [PREFILL, *[DECODE] * 6, VERIFY, DRAFT, *[DECODE] * 5, "step[EXTEND bs=1 toks=128]"]
TOKENS = {PREFILL: 4096, DECODE: 32, LABELS[-1]: 128}
PHASES = {PREFILL: "prefill", LABELS[-1]: "prefill", DECODE: "decode", VERIFY: "decode"}


@pytest.fixture(scope="module")
def run() -> Run:
    return engine_run(LABELS, seed=7)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    return kineto.write(tmp_path_factory.mktemp("serving") / "run.json", kineto.document(run.events))


def test_each_step_says_what_its_label_says(file: Path, run: Run) -> None:
    rows = opspan.load(file).steps()
    assert rows["took_ns"].to_list() == run.took_ns
    assert rows["time_ns"].to_list() == run.host_ns
    assert run.took_ns != run.host_ns  # the host runs ahead
    assert rows["how"].unique().to_list() == ["engine"]
    assert rows["phase"].to_list() == [PHASES.get(label) for label in LABELS]
    assert rows["tokens"].to_list() == [TOKENS.get(label) for label in LABELS]
    assert rows["requests"].to_list() == [2, *[32] * 6, 2, 2, *[32] * 5, 1]
    tokens = [TOKENS.get(label) for label in LABELS]
    for ns, count, each, rate in zip(run.took_ns, tokens, rows["token_ns"], rows["tokens_per_s"], strict=True):
        assert each == (None if count is None else pytest.approx(ns / count))
        assert rate == (None if count is None else pytest.approx(count * 1e9 / ns))


def test_phases_are_sums_of_their_steps(file: Path, run: Run) -> None:
    rows = step_phases.phases(step_phases.parts(opspan.load(file).steps()))
    assert rows["phase"].to_list() == ["prefill", "decode", ""]
    for row in rows.iter_rows(named=True):
        mine = [at for at, label in enumerate(LABELS) if PHASES.get(label, "") == row["phase"]]
        known = [at for at in mine if LABELS[at] in TOKENS]
        assert row["steps"] == len(mine)
        assert row["took_ns"] == pytest.approx(sum(run.took_ns[at] for at in mine) / len(mine))
        if not known:
            assert (row["tokens"], row["token_ns"], row["tokens_per_s"]) == (None, None, None)
            continue
        tokens, ns = sum(TOKENS[LABELS[at]] for at in known), sum(run.took_ns[at] for at in known)
        assert row["tokens"] == pytest.approx(tokens / len(known))
        assert row["token_ns"] == pytest.approx(ns / tokens)
        assert row["tokens_per_s"] == pytest.approx(tokens * 1e9 / ns)


def test_of_many_ranks_the_time_for_a_token_is_that_of_one() -> None:
    one = pl.DataFrame({"rank": [0], "pid": [1], "step": [DECODE], "took_ns": [3200]})
    parts = [step_phases.parts(one), step_phases.parts(one.with_columns(rank=pl.lit(1), took_ns=pl.lit(6400)))]
    both = {name: together([part[name] for part in parts]) for name in parts[0]}
    row = step_phases.phases(both).row(0, named=True)
    assert (row["steps"], row["took_ns"], row["token_ns"]) == (1, 4800, 150)


def test_nothing_is_said_of_steps_without_labels(tmp_path: Path) -> None:
    trace = opspan.load(kineto.write(tmp_path / "run.json"))
    rows = trace.steps()
    assert rows.select(*step_phases.SAYS, "token_ns", "tokens_per_s").null_count().row(0) == (rows.height,) * 6
    assert not step_phases.phases_texts(step_phases.parts(rows.drop_nulls("step")))


def test_texts_say_the_phases(file: Path) -> None:
    trace = opspan.load(file)
    steps = "\n".join(question("steps").answer_of(trace.analysed, Options()).notes)
    for text in ("Phases: prefill 2 x ", ", decode 12 x ", ", no phase 1 x ", "/token)"):
        assert text in steps
    summary = question("summary").answer_of(trace.analysed, Options()).notes
    for text in ("Prefill      2 x ", "Decode       12 x ", "No phase     1 x "):
        assert sum(line.startswith(text) for line in summary) == 1


def test_steps_that_the_user_names_have_labels_too(tmp_path: Path) -> None:
    labels = ["execute_context_1(9)_generation_2(2)", "execute_context_0(0)_generation_3(3)"]
    events = engine_run(labels).events
    torch = [kineto.span("user_annotation", f"ProfilerStep#{at}", kineto.MAIN, 1000 * at, 900) for at in range(2)]
    trace = opspan.load(kineto.write(tmp_path / "run.json", kineto.document([*torch, *events])))
    assert trace.steps()["how"].unique().to_list() == ["step"]
    named = trace.steps("execute_*")
    assert named.select("how", "phase", "tokens").rows() == [("named", "mixed", 11), ("named", "decode", 3)]


def test_the_page_has_the_phase_of_each_bar_and_a_table(file: Path) -> None:
    process = overview_steps.steps(opspan.load(file).analysed)["processes"][0]
    assert process["phase"] == [PHASES.get(label) for label in LABELS]
    titles = [column["name"] for column in process["phases"]["columns"]]
    assert titles == ["phase", "steps", "took_ns", "tokens", "token_ns", "tokens_per_s"]
    assert process["phases"]["values"][:2] == [["prefill", "decode", ""], [2, 12, 1]]
    assert json.dumps(process)


def test_a_server_misses_no_backward(file: Path) -> None:
    assert not [line for line in missing.lines(opspan.load(file).analysed, "phase") if "backward" in line]
