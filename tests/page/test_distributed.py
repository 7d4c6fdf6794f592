"""Distributed: the rows of `opspan comm`, the rank that was made late by name, and what is said where nothing is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders.training_files import load
from builders.training_plan import Plan
from opspan.analysis import Analysis
from opspan.views.page.distributed import section
from opspan.views.page.section import Section, Subject
from page.browser import Browser
from views.sources import nsys

RANKS, LATE, STEPS = 8, 3, 4


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> opspan.Trace:
    plan = Plan(ranks=RANKS, straggler=(LATE, 1.5), steps=STEPS, layers=2)
    return load(tmp_path_factory.mktemp("ranks") / "made", plan)


@pytest.fixture(scope="module")
def page(pages: Path, ranks: opspan.Trace) -> Path:
    out = pages / "distributed.html"
    ranks.report(out)
    return out


def made(analysis: Analysis) -> Section:
    return section(Subject(analysis, tuple(Path(path) for rank in analysis.tables.ranks for path in rank.paths)))


def shown(trace: opspan.Trace) -> dict[str, Any]:
    data = made(trace.analysed).data
    assert data is not None
    return data


def frame(part: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(dict(zip((one["name"] for one in part["columns"]), part["values"], strict=True)), strict=False)


def test_who_was_late_is_said_in_a_sentence(ranks: opspan.Trace) -> None:
    share, late = shown(ranks)["said"]
    assert "was waiting for others" in share
    assert late.startswith(f"Rank {LATE} came last to ")
    assert late.endswith("100.0% of all waiting")


def test_ranks_and_collectives_are_those_of_opspan_comm(ranks: opspan.Trace) -> None:
    data = shown(ranks)
    by_rank = ranks.comm("rank")
    rows = frame(data["ranks"]["rows"])
    assert rows["place"].to_list() == [f"rank {rank}" for rank in range(RANKS)]
    for name in set(rows.columns) & set(by_rank.columns):
        assert rows[name].to_list() == by_rank[name].to_list(), name
    assert by_rank["waited_for_ns"].sum() == by_rank["waiting_ns"].sum() > 0
    assert by_rank.filter(pl.col("waited_for_ns") > 0)["rank"].to_list() == [LATE]
    for table in data["tables"]:
        of_all, *of_ranks = table["parts"]
        expected = ranks.comm(table["by"])
        rows = frame(of_all["rows"])
        for name in rows.columns:
            assert rows[name].to_list() == expected[name].to_list(), name
        assert [part["of"] for part in of_ranks] == [f"rank {rank}" for rank in range(RANKS)]
        for name in ("count", "time_ns", "transfer_ns", "waiting_ns", "bytes"):
            parts = sum(frame(part["rows"])[name].sum() for part in of_ranks)
            assert parts == expected[name].sum(), name
    calls = frame(data["calls"]["rows"])
    assert calls["time_ns"].sum() == ranks.comm("call")["time_ns"].sum()


def test_means_are_of_one(ranks: opspan.Trace) -> None:
    for by in ("kind", "size", "rank"):
        rows = ranks.comm(by)
        for mean, total in (("mean_time_ns", "time_ns"), ("mean_bytes", "bytes"), ("mean_transfer_ns", "transfer_ns")):
            assert (rows[mean] * rows["count"]).to_list() == pytest.approx(rows[total].to_list())


def test_each_bar_is_as_long_as_its_step(ranks: opspan.Trace) -> None:
    load = shown(ranks)["load"]
    steps = ranks.steps()
    whole = ranks.comm("rank")["span_ns"].to_list()
    sums = [sum(kind["ns"][row] for kind in load["kinds"]) for row in range(len(load["place"]))]
    assert load["steps"] == steps["step"].unique(maintain_order=True).to_list()
    for place, step, ns in zip(load["place"], load["step"], sums, strict=True):
        if not step:
            assert ns == whole[place]
            continue
        assert ns == steps.filter(pl.col("rank") == place, pl.col("step") == load["steps"][step - 1])["time_ns"].item()
    computing = next(kind["ns"] for kind in load["kinds"] if kind["name"] == "computing")
    longest = max(
        (ns, place) for place, step, ns in zip(load["place"], load["step"], computing, strict=True) if not step
    )
    assert longest[1] == LATE


def test_each_collective_leads_to_its_time(ranks: opspan.Trace) -> None:
    data = shown(ranks)
    first = ranks.comm("call").sort("time_ns", descending=True, maintain_order=True).row(0, named=True)
    for part in (data["calls"], data["tables"][0]["parts"][0]):
        assert (part["from"][0], part["to"][0]) == (str(first["start_ns"]), str(first["end_ns"]))
        assert part["rank"][0] == first["rank"]


def test_hosts_list_each_rank_with_its_file_and_device(ranks: opspan.Trace) -> None:
    rows = frame(shown(ranks)["hosts"])
    assert rows["own_rank"].to_list() == list(range(RANKS))
    assert rows["file"].to_list() == [f"rank{rank:02}.json" for rank in range(RANKS)]
    assert rows["device"].unique().to_list() == ["Some GPU"]


def test_one_rank_of_many_has_no_waiting_time(tmp_path: Path) -> None:
    paths = [path for rank in load(tmp_path / "two", Plan(ranks=2, steps=2, layers=1)).ranks for path in rank.paths]
    data = shown(opspan.load(paths[0]))
    assert data["said"] == []
    assert any("what of their time was waiting for others is not known" in note for note in data["notes"])
    assert set(frame(data["ranks"]["rows"])["waiting_ns"]) == {None}
    assert set(data["ranks"]["bars"]["waiting_ns"]) == {0}
    assert data["ranks"]["bars"]["unmatched_ns"] == frame(data["ranks"]["rows"])["time_ns"].to_list()


def test_no_collectives_are_said_and_are_no_time_of_zero(tmp_path: Path) -> None:
    alone = made(opspan.load(nsys(tmp_path / "a.sqlite")).analysed)
    assert alone.data is None
    assert "no collective was found in it" in alone.why
    assert alone.command == "opspan report RANK0 RANK1 ... -o run.html"
    two = shown(opspan.load(nsys(tmp_path / "b.sqlite"), nsys(tmp_path / "c.sqlite")))
    assert "ranks" not in two
    assert two["load"]["places"] == ["rank 0", "rank 1"]
    assert two["notes"] == ["No collective was found in this trace: no kernel, range or record of one"]


def test_ranks_without_devices_show_what_the_host_did(tmp_path: Path) -> None:
    alone = [load(tmp_path / name, Plan(steps=3, layers=1, no_device=True)) for name in ("a", "b")]
    trace = opspan.load(*(path for one in alone for path in one.ranks[0].paths))
    data = shown(trace)["load"]
    assert not data["has_device"]
    whole = trace.analysed.whole_breakdown
    assert [sum(kind["ns"][row] for kind in data["kinds"]) for row in range(2)] == whole["time_ns"].to_list()


def test_the_page_names_the_late_rank_and_leads_to_the_timeline(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        opened.goto("distributed")
        section = opened.at.locator("#section-distributed")
        section.get_by_text(f"Rank {LATE} came last to").wait_for()
        assert section.locator(".ranks tbody tr").first.inner_text().startswith(f"rank {LATE}")
        link = section.locator(".collectives tbody a").first
        assert (link.get_attribute("href") or "").startswith("#timeline?from=")
        section.get_by_role("combobox", name="By").select_option("each one, the longest first")
        section.get_by_text(f"{3 * STEPS * RANKS} rows").wait_for()


def test_a_step_and_a_rank_are_chosen(browser: Browser, page: Path) -> None:
    with browser.open(page, width=390) as opened:
        opened.goto("distributed")
        section = opened.at.locator("#section-distributed")
        bars = section.locator(".load figure svg")
        before = bars.inner_html()
        section.get_by_role("combobox", name="Step").select_option("ProfilerStep#1")
        assert bars.inner_html() != before
        count = section.locator(".collectives tbody td.number").first
        assert count.inner_text() == str(3 * STEPS * RANKS)
        section.get_by_role("combobox", name="On").select_option(f"rank {LATE}")
        assert count.inner_text() == str(3 * STEPS)


REAL = {
    "two ranks of torch.profiler": (("kineto/rank0_sampled.json.gz", "kineto/rank1_sampled.json.gz"), "rank 1"),
    "two processes of nsys": (("nsys/train_fsdp_2gpu.sqlite",), "process 145"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_ranks(browser: Browser, traces_dir: Path, tmp_path: Path, name: str) -> None:
    files, late = REAL[name]
    trace = opspan.load(*(traces_dir / file for file in files))
    data = shown(trace)
    assert late in data["said"][1].lower()
    assert any("matched on no other rank" in note for note in data["notes"])
    assert frame(data["ranks"]["rows"])["time_ns"].sum() == trace.comm()["time_ns"].sum()
    trace.report(tmp_path / "out.html")
    with browser.open(tmp_path / "out.html") as opened:
        opened.goto("distributed")
        opened.at.get_by_text("Matched with no other rank").wait_for()


@pytest.mark.slow
def test_a_rank_without_collectives_says_so(traces_dir: Path) -> None:
    alone = made(opspan.load(traces_dir / "kineto/mi300_ddp_resnet18.json.gz").analysed)
    assert alone.data is None
    assert "no collective was found" in alone.why
