"""The overview: its figures are those of the verbs, and its findings lead to the places that they are about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders.cycles import two_cycles
from builders.training_files import load
from builders.training_plan import Plan
from opspan.analysis import Analysis
from opspan.analysis.busy import KINDS
from opspan.questions import Options, question
from opspan.tables import Metadata, Tables
from opspan.views.page import overview, overview_steps
from opspan.views.page.document import head_of
from opspan.views.page.section import Subject
from opspan.views.table import table_of
from page.browser import SCHEMES, Browser
from page.faults import grave_faults
from views.sources import capture, nsys

PLAN = Plan(ranks=2, steps=12, straggler=(1, 1.3), stalls={5: 3_000_000}, slow_loader=900_000)


@pytest.fixture(scope="module")
def analysis(pages: Path) -> Analysis:
    return load(pages / "overview", PLAN).analysed


@pytest.fixture(scope="module")
def data(analysis: Analysis) -> dict[str, Any]:
    return made(analysis)


@pytest.fixture(scope="module")
def page(pages: Path, analysis: Analysis) -> Path:
    out = pages / "overview.html"
    opspan.load(*sorted((pages / "overview").iterdir())).report(out)
    return out


def made(analysis: Analysis) -> dict[str, Any]:
    data = overview.section(Subject(analysis)).data
    assert data is not None
    return data


def column(table: dict[str, Any], name: str) -> list[Any]:
    at = [one["name"] for one in table["columns"]].index(name)
    return list(table["values"][at])


def test_steps_are_those_of_opspan_steps(analysis: Analysis, data: dict[str, Any]) -> None:
    rows = question("steps").rows_of(analysis, Options())
    kinds = [kind["name"] for kind in data["steps"]["kinds"]]
    assert set(KINDS) >= set(kinds)
    assert [one["title"] for one in data["steps"]["processes"]] == ["rank 0", "rank 1"]
    for rank, process in enumerate(data["steps"]["processes"]):
        mine = rows.filter(rank=rank)
        assert process["step"] == mine["step"].to_list()
        assert process["ns"] == [mine[f"{kind}_ns"].to_list() for kind in kinds]
        assert process["is_outlier"] == mine["is_outlier"].to_list()
        assert process["time_ns"] == int(mine["time_ns"].mean()) == pytest.approx(sum(process["mean_ns"]), abs=1)
        assert process["median_ns"] == int(mine["time_ns"].median())
    assert sum(data["steps"]["processes"][0]["is_outlier"]) == 1


def test_many_steps_are_means_of_some_in_a_row(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_steps, "MOST_BARS", 5)
    shown = overview_steps.steps(analysis)
    process = shown["processes"][0]
    rows = question("steps").rows_of(analysis, Options()).filter(rank=0)
    assert (process["of_bar"], process["steps"], len(process["step"])) == (3, 12, 4)
    first = shown["kinds"][0]["name"]
    assert process["ns"][0][1] == pytest.approx(rows[f"{first}_ns"][3:6].mean())
    assert (process["step"][1], process["last"][1]) == ("ProfilerStep#3", "ProfilerStep#5")
    assert process["is_outlier"] == [False, True, False, False]


def test_findings_are_those_of_opspan_findings(analysis: Analysis, data: dict[str, Any]) -> None:
    rows = question("findings").rows_of(analysis, Options()).to_dicts()
    shown = data["findings"]["rows"]
    assert [one["id"] for one in shown] == [row["id"] for row in rows]
    assert {"straggler", "dominating-kernel"} <= {one["id"] for one in shown}
    for mine, row in zip(shown, rows, strict=True):
        assert (mine["severity"], mine["share"], mine["remedy"]) == (row["severity"], row["share"], row["remedy"])
        assert mine["sentence"].lower() == f"{row['sentence'].lower()}."
        assert mine["ops"] == row["ops"][:3]
        known = {(one["rank"], str(one["start_ns"]), str(one["end_ns"])) for one in row["ranges"]}
        assert {(one["rank"], one["from"], one["to"]) for one in mine["ranges"]} <= known
        assert len(mine["ranges"]) == min(3, len(row["ranges"]))


def test_devices_have_the_use_of_their_time(analysis: Analysis, data: dict[str, Any]) -> None:
    whole, table = analysis.whole_devices, data["devices"]["rows"]
    assert column(table, "rank") == [0, 1]
    assert column(table, "busy_ns") == whole["busy_ns"].to_list()
    used = (whole["kernel_ns"] / whole["time_ns"]).to_list()
    assert column(table, "utilisation") == pytest.approx(used)
    assert column(table, "tensor_core_share") == pytest.approx((whole["tensor_core_ns"] / whole["work_ns"]).to_list())
    assert column(table, "name") == ["Some GPU"] * 2


def test_idle_time_is_that_of_opspan_idle(analysis: Analysis, data: dict[str, Any]) -> None:
    rows = question("idle").rows_of(analysis, Options("device"))
    assert {one["name"]: one["ns"] for one in data["idle"]["causes"]} == {
        why: rows[f"{why}_ns"].sum() for why in ("host", "launch", "queued", "unknown")
    }
    ops = question("idle").rows_of(analysis, Options("op")).head(8)
    assert (data["idle"]["ops"]["name"], data["idle"]["ops"]["ns"]) == (ops["op"].to_list(), ops["time_ns"].to_list())


def test_top_ops_and_modules_are_the_first_of_their_tables(analysis: Analysis, data: dict[str, Any]) -> None:
    ops = table_of(analysis, Options()).rows.group_by("name").agg(pl.col("self_device_ns").sum())
    known = dict(ops.rows())
    assert data["ops"]["is_device"]
    assert [known[name] for name in data["ops"]["name"]] == data["ops"]["ns"]
    assert data["ops"]["ns"] == sorted(data["ops"]["ns"], reverse=True)
    modules = dict(table_of(analysis, Options("module")).rows.select("module", "self_device_ns").rows())
    assert [modules[name] for name in data["modules"]["name"]] == data["modules"]["ns"]


def test_it_says_where_and_when_it_was_recorded(tmp_path: Path) -> None:
    trace = opspan.load(nsys(tmp_path / "when.sqlite"))
    found = trace.analysed
    table = made(found)["ranks"]
    assert column(table, "began") == ["2023-11-14 22:13:20"]
    assert column(table, "files") == [str(tmp_path / "when.sqlite")]
    head = head_of(Subject(found), {})
    assert head["about"] == question("summary").answer_of(found, Options()).notes[0]
    assert "1 process · 1 device · 11 ranges" in head["about"]


def test_a_capture_has_issues_and_no_devices(tmp_path: Path) -> None:
    data = made(opspan.load(capture(tmp_path / "1-1.opspan")).analysed)
    assert data["devices"]["rows"] is None
    assert data["devices"]["command"]
    assert data["idle"] is None
    assert "could not be written" in " ".join(column(data["issues"], "message"))
    assert not data["ops"]["is_device"]


def test_a_trace_of_nothing_has_an_overview() -> None:
    data = made(Analysis(Tables((Metadata("capture"),))))
    assert data["steps"]["processes"] == []
    assert data["cards"] == []


# --- in a browser


def test_findings_lead_to_their_ops(browser: Browser, page: Path, data: dict[str, Any]) -> None:
    with browser.open(page) as opened:
        section = opened.at.locator("#section-overview .findings")
        for one in data["findings"]["rows"]:
            section.get_by_role("heading", name=one["title"]).wait_for()
        name = data["findings"]["rows"][0]["ops"][0]
        link = section.get_by_role("link", name=name).first
        assert (link.get_attribute("href") or "").startswith("#operators?name=")
        link.click()
        opened.at.locator("#section-operators").wait_for()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_fits_a_narrow_window_and_keeps_nobody_out(browser: Browser, page: Path, scheme: str) -> None:
    with browser.open(page, width=390, scheme=scheme) as opened:
        assert opened.at.evaluate("document.documentElement.scrollWidth") <= 390
        assert grave_faults(opened) == []


def test_another_process_has_its_own_steps(browser: Browser, page: Path, data: dict[str, Any]) -> None:
    with browser.open(page) as opened:
        average = opened.at.locator("#section-overview .average")
        before = average.inner_text()
        opened.at.get_by_label("Process").and_(opened.at.locator("select")).select_option("rank 1")
        assert average.inner_text() != before
        opened.at.get_by_role("img", name="Time of 12 steps by kind").wait_for()
        opened.at.get_by_text("longer than the other steps").wait_for()


def test_the_overview_is_drawn_before_what_is_large(browser: Browser, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    part = text.partition('id="part-overview">')[2].partition("<")[0]
    assert len(part) < 20_000
    with browser.open(page) as opened:
        opened.at.get_by_role("heading", name="Findings").wait_for()


def test_cycles_of_a_process_are_one_rank(tmp_path: Path) -> None:
    files = two_cycles(tmp_path)
    alone = [opspan.load(file) for file in files]

    data = made(opspan.load(*files).analysed)

    whole = sum(each.duration_ns() or 0 for each in alone)
    assert {name: column(data["ranks"], name) for name in ("rank", "processes", "cycles", "time_ns")} == {
        "rank": [0],
        "processes": [1],
        "cycles": [2],
        "time_ns": [whole],
    }
    assert column(data["devices"]["rows"], "time_ns") == [whole]
    assert {card["title"]: card["value"] for card in data["cards"]}["Recorded time"] == whole
    assert data["idle"]["device_ns"] == whole
