"""One figure for one word: what summary, steps, findings, idle, the page and the frames say of a run is the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders.training_files import load
from builders.training_plan import Plan
from opspan.questions import Options, question
from opspan.trace import Trace
from opspan.views.fields import time_text
from opspan.views.page import overview
from opspan.views.page.section import Subject
from readers.samples import samples
from real_files import in_parts, traces_of

SAMPLES = samples()
PLANS = {
    "healthy": Plan(),
    "two ranks": Plan(ranks=2, steps=6),
    "a long step": Plan(stalls={3: 30_000_000}),
    "no device": Plan(no_device=True),
    "no steps": Plan(no_steps=True),
}
_PROCESS = ["rank", "pid"]


class Said:
    """The figures of a trace in each output."""

    def __init__(self, trace: Trace) -> None:
        found = trace.analysed
        self.summary = question("summary").answer_of(found, Options())
        self.row: dict[str, Any] = self.summary.rows.row(0, named=True)
        self.steps = question("steps").answer_of(found, Options())
        self.each = self.steps.rows.filter(pl.col("step").is_not_null())
        self.findings = question("findings").rows_of(found, Options())
        self.page: dict[str, Any] = overview.section(Subject(found)).data or {}
        self.cards = {card["title"]: card["value"] for card in self.page["cards"]}
        self.text = "\n".join([*self.summary.notes, *self.steps.notes])


def assert_one_figure(trace: Trace) -> None:
    said = Said(trace)
    _steps(trace, said)
    _page_of_steps(said)
    _findings(trace, said)
    _times(trace, said)


def _steps(trace: Trace, said: Said) -> None:
    row, each = said.row, said.each
    assert said.steps.rows.equals(trace.steps())
    # The twin: the rows that `steps` prints, counted and averaged by polars.
    counts = each.group_by(_PROCESS).len()["len"]
    assert row["steps"] == (counts.max() or 0) == said.cards.get("Steps", 0)
    assert row["outliers"] == each["is_outlier"].sum()
    if not each.height:
        assert (row["step_ns"], row["step_mean_ns"], row["steps_are"]) == (None, None, None)
        assert "Steps        none" in said.text
        pattern = re.findall(r"repeating patterns? \(([^)]*)\)", said.text)
        assert len(set(pattern)) <= 1
        assert len(pattern) == 2 * (row["pattern_turns"] is not None)
        return
    assert row["pattern_turns"] is None
    assert "repeating pattern" not in said.text
    median, mean = int(each["time_ns"].median() or 0), int(each["time_ns"].mean() or 0)  # type: ignore[arg-type]
    assert (row["step_ns"], row["step_mean_ns"]) == (median, mean)
    assert said.cards["Median step"] == median
    assert said.cards.get("Mean step", mean) == mean
    if each.height > 1:
        number = f"{row['steps']:,} step{'s' if row['steps'] > 1 else ''}"
        assert said.text.count(f"median {time_text(median)}, mean {time_text(mean)}, ") == 2
        assert len(re.findall(rf"mean [^,]*, (?:up to )?{number}", said.text)) == 2
    for verb in ("path", "flops"):
        rows = question(verb).rows_of(trace.analysed, Options("step"))
        assert rows.filter(pl.col("step").is_not_null())["step"].to_list() == each["step"].to_list(), verb


def _page_of_steps(said: Said) -> None:
    for process, rows in zip(
        said.page["steps"]["processes"], said.steps.rows.partition_by(_PROCESS, maintain_order=True), strict=False
    ):
        assert process["steps"] == rows["step"].count()
        assert process["median_ns"] == int(rows["time_ns"].median() or 0)  # type: ignore[arg-type]
        assert process["time_ns"] == int(rows["time_ns"].mean() or 0)  # type: ignore[arg-type]
        assert sum(process["mean_ns"]) == pytest.approx(process["time_ns"], abs=1)
    assert set(said.steps.notes) <= set(said.page["steps"]["notes"])


def _findings(trace: Trace, said: Said) -> None:
    costs = said.findings.drop_nulls("at_stake_ns")
    assert said.row["findings"] == costs.height
    assert said.row["at_stake_ns"] == costs["at_stake_ns"].max()
    assert said.findings.equals(trace.findings())
    shown = said.page["findings"]["rows"]
    assert [one["id"] for one in shown] == said.findings["id"].to_list()
    assert [one["share"] for one in shown] == said.findings["share"].to_list()
    for id_, share in costs.select("id", "share").iter_rows():
        assert f"{id_} {share:.1%}" in "\n".join(summary_of(said)), id_
    for figures in said.findings.filter(pl.col("id") == "step-outliers")["figures"]:
        usual = [one["value"] for one in figures if one["name"] == "usual_ns"]
        # It compares how long steps took until they were done, which is no figure of `steps`.
        lasted = trace.analysed.iterations_until_done
        medians = lasted.group_by(_PROCESS).agg(pl.col("took_ns").median().cast(pl.Int64))["took_ns"].to_list()
        assert set(usual) <= set(medians)


def summary_of(said: Said) -> list[str]:
    from opspan.text_columns import Layout

    assert said.summary.fitted_notes is not None
    return said.summary.fitted_notes(Layout(width=None, whole_names=True))


def _times(trace: Trace, said: Said) -> None:
    row = said.row
    assert said.cards.get("Recorded time", 0) == row["time_ns"]
    whole = trace.analysed.whole_devices
    assert (row["busy_ns"], row["idle_ns"]) == (whole["busy_ns"].sum(), whole["idle_ns"].sum())
    assert row["busy_ns"] + row["idle_ns"] == row["device_time_ns"]
    if row["device_time_ns"]:
        assert said.cards["Busy, of the whole time of devices"] == pytest.approx(row["busy_ns"] / row["device_time_ns"])
    if said.page["idle"] is not None:
        of_devices = question("idle").rows_of(trace.analysed, Options("device"))
        assert of_devices["time_ns"].sum() == sum(cause["ns"] for cause in said.page["idle"]["causes"])
        assert said.page["idle"]["device_ns"] == row["device_time_ns"]


@pytest.mark.parametrize("name", PLANS)
def test_of_made_runs(name: str, tmp_path: Path) -> None:
    assert_one_figure(load(tmp_path / "run", PLANS[name]))


@pytest.mark.parametrize("name", SAMPLES)
def test_of_each_source(name: str, tmp_path: Path) -> None:
    assert_one_figure(opspan.load(SAMPLES[name](tmp_path)))


def test_of_small_real_files(traces_dir: Path) -> None:
    for name in ("kineto/rank0_sampled.json.gz", "kineto/compare_base.json.gz", "nvprof/lm_emit_nvtx.sql"):
        assert_one_figure(opspan.load(traces_dir / name))


@pytest.mark.slow
@in_parts
def test_of_every_real_file(part: int, traces_dir: Path) -> None:
    for trace in traces_of(traces_dir, part):
        assert_one_figure(trace)
