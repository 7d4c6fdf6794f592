"""Compare: the rows of `opspan diff`, and what was made slower at the top of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opspan
from builders.training_files import load
from builders.training_plan import Plan
from opspan.analysis import Analysis
from opspan.views.diff import answer, figures_of
from opspan.views.page.compare import section
from opspan.views.page.section import Subject
from page.browser import Browser

SLOWER = {"aten::gelu": 3.0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[opspan.Trace, opspan.Trace]:
    folder = tmp_path_factory.mktemp("runs")
    return load(folder / "base", Plan(ranks=2)), load(folder / "new", Plan(ranks=2, slower=SLOWER, seed=1))


@pytest.fixture(scope="module")
def page(pages: Path, runs: tuple[opspan.Trace, opspan.Trace]) -> Path:
    out = pages / "compare.html"
    before, after = runs
    after.report(out, against=before)
    return out


def files(analysis: Analysis) -> tuple[Path, ...]:
    return tuple(Path(path) for rank in analysis.tables.ranks for path in rank.paths)


def shown(before: opspan.Trace, after: opspan.Trace) -> dict[str, Any]:
    one, other = before.analysed, after.analysed
    data = section(Subject(other, files(other), one, files(one))).data
    assert data is not None
    return data


def column(part: dict[str, Any], name: str) -> list[Any]:
    rows = part["rows"]
    names = [column["name"] for column in rows["columns"]]
    return list(rows["values"][names.index(name)]) if name in names else [None] * len(rows["values"][0])


def test_what_was_made_slower_is_at_the_top_and_alone_is_real(runs: tuple[opspan.Trace, opspan.Trace]) -> None:
    data = shown(*runs)
    assert data["verdict"] == "Slower."
    ops = data["tables"][0]
    assert ops["largest"]["label"][0] == column(ops, "name")[0] == "aten::gelu"
    real = [name for name, is_real in zip(column(ops, "name"), column(ops, "real"), strict=True) if is_real == "real"]
    assert real == ["aten::gelu"]
    assert column(ops, "change")[0] == pytest.approx(2, rel=0.05)  # three times as long: 200 % more


def test_the_rows_are_those_of_opspan_diff(runs: tuple[opspan.Trace, opspan.Trace]) -> None:
    before, after = runs
    data = shown(before, after)
    same = {"real": {True: "real", False: "noise", None: None}, "state": {"new": "new", "gone": "gone", "same": None}}
    ways = [part["by"] for part in data["tables"]]
    assert ways == ["op", "module", "kernel", "step", "shape", "phase", "place"]
    for part in data["tables"]:
        if part["by"] == "step":
            continue
        rows = before.compare(after, part["by"])
        for head in part["rows"]["columns"]:
            name = head["name"]
            was = rows["is_real" if name == "real" else name].to_list()
            if name in ("name", "module", "phase"):
                was = ["(in none)" if value is None else value for value in was]
            assert column(part, name) == [same[name][value] for value in was] if name in same else was, name
    said = answer(*(figures_of(run.analysed) for run in runs)).notes[0]
    assert data["said"] == said


def test_the_steps_add_up_to_the_difference_of_both_runs(runs: tuple[opspan.Trace, opspan.Trace]) -> None:
    steps = next(part for part in shown(*runs)["tables"] if part["by"] == "step")
    assert column(steps, "number") == list(range(1, 9))
    totals = [sum(run.analysed.iterations_until_done["took_ns"]) / 2 for run in runs]
    assert column(steps, "accumulated_ns")[-1] == pytest.approx(totals[1] - totals[0], abs=8)


def test_the_other_way_round_it_is_faster(runs: tuple[opspan.Trace, opspan.Trace]) -> None:
    before, after = runs
    data = shown(after, before)
    assert data["verdict"] == "Faster."
    assert data["tables"][0]["largest"]["change_ns"][0] < 0


def test_a_run_compared_with_itself_is_neither(runs: tuple[opspan.Trace, opspan.Trace]) -> None:
    data = shown(runs[0], runs[0])
    assert data["verdict"].startswith("Neither slower nor faster")
    assert all(part["largest"]["label"] == [] for part in data["tables"])


def test_files_of_one_name_are_told_apart_by_their_folders(runs: tuple[opspan.Trace, opspan.Trace]) -> None:
    data = shown(*runs)
    assert data["before"] == "base/rank00.json, base/rank01.json"
    assert data["after"] == "new/rank00.json, new/rank01.json"


def test_files_are_told_apart_by_folders_far_above_them(runs: tuple[opspan.Trace, opspan.Trace]) -> None:
    one, other = (run.analysed for run in runs)
    inside = "jobs/1/out/logs/rank.json"
    data = section(Subject(other, (Path("/new") / inside,), one, (Path("/base") / inside,))).data
    assert data is not None
    assert (data["before"], data["after"]) == (f"base/{inside}", f"new/{inside}")


def test_runs_without_steps_are_compared_as_a_whole(tmp_path: Path) -> None:
    plan = Plan(no_steps=True, steps=1, layers=1)
    data = shown(load(tmp_path / "a", plan), load(tmp_path / "b", plan))
    assert data["no_steps"].startswith("No steps were found in the run before and in the run after")
    assert "step" not in [part["by"] for part in data["tables"]]
    assert data["said"].startswith("There are no steps in both")


def test_one_run_alone_says_how_to_compare_it(runs: tuple[opspan.Trace, opspan.Trace]) -> None:
    alone = section(Subject(runs[0].analysed, files(runs[0].analysed)[:1]))
    assert alone.data is None
    assert "no other was named" in alone.why
    assert alone.command.endswith("rank00.json --against BEFORE -o compared.html")


def test_the_page_says_which_run_is_which_and_what_is_slower(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        opened.goto("compare")
        section = opened.at.locator("#section-compare")
        assert section.locator("dd").all_text_contents() == [
            "base/rank00.json, base/rank01.json",
            "new/rank00.json, new/rank01.json",
        ]
        assert "Slower." in section.locator("strong").all_text_contents()
        first = section.locator("tbody tr").first
        assert "aten::gelu" in first.inner_text()
        assert "real" in first.inner_text()
        section.locator(".largest text", has_text="aten::gelu").first.wait_for()
        first.get_by_role("link").click()
        assert opened.at.evaluate("location.hash") == "#operators?name=aten%3A%3Agelu"


def test_the_switch_changes_chart_and_table(browser: Browser, page: Path) -> None:
    with browser.open(page, width=390) as opened:
        opened.goto("compare")
        section = opened.at.locator("#section-compare")
        section.get_by_role("combobox", name="By").select_option("kernel")
        assert "vectorized_elementwise_kernel" in section.locator("tbody tr").first.inner_text()
        section.get_by_role("combobox", name="By").select_option("step")
        assert section.locator("tbody tr").count() == 8
        assert section.locator(".largest text", has_text="ProfilerStep#").count()


@pytest.mark.slow
def test_files_of_torch_profiler_compare(browser: Browser, traces_dir: Path, tmp_path: Path) -> None:
    before, after = (opspan.load(traces_dir / f"kineto/compare_{which}.json.gz") for which in ("base", "test"))
    data = shown(before, after)
    assert (data["before"], data["after"]) == ("compare_base.json.gz", "compare_test.json.gz")
    assert data["verdict"] == "Faster, unless it is noise."  # two steps show no noise
    ops = data["tables"][0]
    new = {name for name, state in zip(column(ops, "name"), column(ops, "state"), strict=True) if state == "new"}
    assert new == {"AddmmBackward0", "All2All_Pooled_Req", "CatBackward0"}
    after.report(tmp_path / "out.html", against=before)
    with browser.open(tmp_path / "out.html") as opened:
        opened.goto("compare")
        opened.at.get_by_text("Faster, unless it is noise.").wait_for()
