"""The section on kernels: its rows are those of `opspan table --by kernel`, and sums of the launches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders.training_files import load
from builders.training_plan import Plan
from opspan.analysis import Analysis
from opspan.questions import Options
from opspan.views.page import kernels
from opspan.views.page.section import Subject
from opspan.views.table import table_of
from page.browser import Browser
from page.faults import grave_faults
from views.sources import capture, nsys


@pytest.fixture(scope="module", params=["kineto", "nsys"])
def analysis(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return load(tmp_path_factory.mktemp("run") / "files", Plan(steps=3), request.param).analysed


@pytest.fixture(scope="module")
def page(pages: Path) -> Path:
    out = pages / "kernels.html"
    load(pages / "kernels", Plan(steps=3)).report(out)
    return out


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = [column["name"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in zip(*table["values"], strict=True)]


def made(analysis: Analysis) -> dict[str, Any]:
    data = kernels.section(Subject(analysis)).data
    assert data is not None
    return data


def test_by_name_it_is_the_table_by_kernel(analysis: Analysis) -> None:
    data = made(analysis)
    expected = table_of(analysis, Options("kernel")).rows.filter(kind="kernel")
    shown = rows_of(data["tables"][0]["rows"])
    for mine, row in zip(shown, expected.to_dicts(), strict=True):
        assert {name: row[name] for name in mine if name != "share"} == {
            name: value for name, value in mine.items() if name != "share"
        }
    assert sum(row["share"] for row in shown) == pytest.approx(1)
    assert data["total_ns"] == expected["device_ns"].sum()
    with_tensor_cores = sum(row["device_ns"] for row in shown if "xmma" in row["name"])
    by_use = {part["uses"]: part["ns"] for part in data["tensor_cores"]}
    assert by_use == {"yes": with_tensor_cores, "no": data["total_ns"] - with_tensor_cores, "unknown": 0}
    assert with_tensor_cores > 0


def test_launches_and_ops_of_a_kernel_add_up_to_it(analysis: Analysis) -> None:
    data = made(analysis)
    counts: Counter[str] = Counter()
    for row, name in zip(rows_of(data["tables"][1]["rows"]), data["tables"][1]["names"], strict=True):
        counts[name] += row["count"]
        assert row["grid"].endswith("x 1 x 1")
        assert row["op"].startswith("aten::")
    by_name = {row["name"]: row["count"] for row in rows_of(data["tables"][0]["rows"])}
    assert counts == by_name
    for row, ops in zip(rows_of(data["tables"][0]["rows"]), data["ops"], strict=True):
        assert (sum(ops["count"]), sum(ops["ns"]), ops["more"]) == (row["count"], row["device_ns"], 0)
        assert ops["ns"] == sorted(ops["ns"], reverse=True)


def test_copies_are_apart(analysis: Analysis) -> None:
    data = made(analysis)
    (copy,) = rows_of(data["copies"])
    assert copy["count"] == analysis.tables.work.filter(pl.col("kind") == "memcpy").height == 3
    assert data["fills"] is None
    assert all("Memcpy" not in name for name in data["tables"][0]["names"])


def test_what_the_source_does_not_have_is_said_and_no_column(tmp_path: Path) -> None:
    data = made(opspan.load(nsys(tmp_path / "plain.sqlite")).analysed)
    titles = {column["name"] for table in data["tables"] for column in table["rows"]["columns"]}
    assert titles.isdisjoint({"occupancy", "blocks_per_sm"})
    assert "does not have: blocks per multiprocessor, occupancy" in data["notes"][1]


def test_copies_alone_are_no_kernels(analysis: Analysis) -> None:
    tables = analysis.tables
    alone = made(Analysis(tables.replace(work=tables.work.filter(pl.col("kind") == "memcpy"))))
    assert (alone["tables"], alone["top"], alone["total_ns"]) == ([], [], 0)
    assert rows_of(alone["copies"])[0]["count"] == 3


def test_without_devices_it_says_what_records_them(tmp_path: Path) -> None:
    section = kernels.section(Subject(opspan.load(capture(tmp_path / "1-1.opspan")).analysed))
    assert section.data is None
    assert section.command == "opspan.record(device=True)"


# --- in a browser


def test_it_groups_by_name_or_by_launch(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        opened.goto("kernels")
        opened.at.get_by_role("region", name="Kernels by name").wait_for()
        opened.at.locator("#section-kernels").get_by_label("Group by").select_option("launch")
        launches = opened.at.get_by_role("region", name="Kernels by launch")
        launches.get_by_text("1,024 x 1 x 1").or_(launches.get_by_text("1024 x 1 x 1")).first.wait_for()
        launches.get_by_role("button", name="Registers").wait_for()


def test_a_kernel_opens_on_its_ops(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        opened.goto("kernels")
        opened.at.get_by_role("region", name="Kernels by name").get_by_role("button", name="Details").first.click()
        ops = opened.at.get_by_role("table", name="Launched in")
        assert ops.get_by_role("link", name="aten::mm").get_attribute("href") == "#operators?name=aten%3A%3Amm"
        assert grave_faults(opened) == []


def test_a_bar_leads_to_its_kernel(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        opened.goto("kernels")
        opened.at.get_by_role("list", name="Kernels with most time").get_by_role("link").nth(1).click()
        rows = opened.at.get_by_role("region", name="Kernels by name").locator("tbody tr")
        opened.at.locator("#section-kernels").get_by_text("1 of ").wait_for()
        assert rows.count() == 1
