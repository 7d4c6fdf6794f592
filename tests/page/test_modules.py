"""The section on modules: its figures are those of the analyses, and what a reader does in its tree and flame graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opspan
from builders.capture import BACKWARD, MODULE, STEP, Capture
from builders.training_files import load
from builders.training_plan import Plan
from opspan.trace import Trace
from opspan.views.page.modules import section
from opspan.views.page.section import Subject
from page.browser import WIDTHS, Browser, Opened
from page.faults import grave_faults
from views.sources import nsys


def model(path: Path) -> Path:
    """net > blocks (a list) > 0, 1 > fc; backward of the first; the optimizer in no module."""
    made = Capture(pid=1)
    main, back = made.thread(1, "main"), made.thread(2, "autograd")
    main.range("ProfilerStep#0", 0, 100_000, source=2, category=STEP)
    main.range("net", 1_000, 50_000, source=2, category=MODULE)
    for number, took in enumerate((20_000, 10_000)):
        at = 2_000 + 21_000 * number
        main.range(f"net.blocks.{number}", at, at + took, source=2, category=MODULE)
        main.range(f"net.blocks.{number}.fc", at + 100, at + took - 100, source=2, category=MODULE)
        main.torch("aten::linear", at + 200, at + took - 200, seq=number, op_id=number + 1, sizes="[[2, 4], [3, 4]]")
    back.torch("AddmmBackward0", 60_000, 66_000, seq=0, op_id=9, category=BACKWARD)
    main.range("Optimizer.step#SGD.step", 70_000, 75_000, source=2)
    return made.write(path)


@pytest.fixture(scope="module")
def page(pages: Path) -> Path:
    out = pages / "modules.html"
    opspan.load(model(pages / "model.opspan")).report(out)
    return out


def data_of(trace: Trace) -> dict[str, Any]:
    data = section(Subject(trace.analysed)).data
    assert data is not None
    return data


def columns_of(tree: dict[str, Any]) -> dict[str, list[Any]]:
    return dict(zip((column["name"] for column in tree["columns"]), tree["values"], strict=True))


class TestData:
    @pytest.mark.parametrize("ranks", [1, 2])
    def test_what_modules_took_themselves_is_what_the_table_says(self, ranks: int, tmp_path: Path) -> None:
        self._check(load(tmp_path / "run", Plan(ranks=ranks, steps=2)))

    @pytest.mark.slow
    def test_a_recorded_run(self, traces_dir: Path) -> None:
        self._check(opspan.load(traces_dir / "kineto" / "mi300_ddp_resnet18.json.gz"))

    def _check(self, trace: Trace) -> None:
        tree = data_of(trace)["tree"]
        columns = columns_of(tree)
        assert not any(tree["is_range"])  # torch.profiler has calls of modules as functions of Python
        for row in trace.table("module").rows.iter_rows(named=True):
            at = tree["whole"].index(row["module"])
            assert columns["count"][at] == row["count"]
            assert columns["self_cpu_ns"][at] == row["self_cpu_ns"]
            assert columns["self_device_ns"][at] == row["self_device_ns"]
        whole = trace.table("phase").rows
        roots = [at for at, parent in enumerate(tree["parent"]) if parent is None]
        for name in ("cpu_ns", "device_ns"):
            assert sum(columns[name][at] for at in roots) == whole[f"self_{name}"].sum()
        for row in whole.drop_nulls("phase").iter_rows(named=True):
            if row["self_device_ns"]:
                shown = columns[f"{row['phase']}_device_ns"]
                assert sum(shown[at] for at in roots) == row["self_device_ns"]

    def test_the_largest_modules_are_shown_and_those_that_they_are_in(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("opspan.views.page.modules.MOST_ROWS", 4)
        tree = data_of(opspan.load(model(tmp_path / "run.opspan")))["tree"]
        assert [name for name in tree["whole"] if name] == ["net", "net.blocks", "net.blocks.0"]
        assert tree["parent"] == [None, 0, 1, None]
        assert tree["notes"] == ["3 more modules are not in this page: `opspan table --by module` shows all"]

    def test_flame_graphs_hold_all_the_time_there_is(self, tmp_path: Path) -> None:
        trace = load(tmp_path / "run", Plan(steps=2))
        whole = trace.table("phase").rows["self_device_ns"].sum()
        data = data_of(trace)
        assert [flame["of"] for flame in data["flames"]] == ["modules", "calls"]
        assert [sum(flame["own"]["device_ns"]) for flame in data["flames"]] == [whole, whole]

    def test_a_trace_without_modules_says_why_and_has_the_flame_graph_of_calls(self, tmp_path: Path) -> None:
        data = data_of(opspan.load(nsys(tmp_path / "run.sqlite")))
        assert data["tree"] is None
        assert "modules=True" in data["why"]
        assert [flame["title"] for flame in data["flames"]] == ["ranges, as they were nested"]

    def test_a_trace_without_time_is_empty_and_says_what_fills_it(self, tmp_path: Path) -> None:
        exported = opspan.load(nsys(tmp_path / "run.sqlite"))
        found = section(Subject(Trace(exported.ranks, work=exported.work).analysed))
        assert found.data is None
        assert found.why
        assert "--modules" in found.command


def rows(opened: Opened) -> list[str]:
    return [text.strip() for text in opened.at.locator(".modules tbody th").all_inner_texts()]


class TestTree:
    def test_keys_open_close_and_move(self, browser: Browser, page: Path) -> None:
        with browser.open(page) as opened:
            opened.goto("modules")
            assert len(rows(opened)) == 7
            first = opened.at.locator(".modules tbody tr").first
            assert (first.get_attribute("aria-level"), first.get_attribute("aria-expanded")) == ("1", "true")
            first.focus()
            opened.at.keyboard.press("ArrowLeft")
            assert first.get_attribute("aria-expanded") == "false"
            assert len(rows(opened)) == 2
            opened.at.keyboard.press("ArrowRight")
            opened.at.keyboard.press("ArrowDown")
            focused = opened.at.locator(".modules tr:focus")
            assert "blocks" in focused.inner_text()
            assert focused.get_attribute("aria-level") == "2"
            opened.at.keyboard.press("ArrowLeft")
            opened.at.keyboard.press("ArrowLeft")
            assert "net" in focused.inner_text()

    def test_a_filter_keeps_what_is_around(self, browser: Browser, page: Path) -> None:
        with browser.open(page) as opened:
            opened.goto("modules")
            opened.at.locator(".modules").get_by_label("Filter").fill("1")
            assert [row.split()[-1] for row in rows(opened)] == ["net", "blocks", "1"]

    def test_times_are_those_of_the_trace(self, browser: Browser, page: Path) -> None:
        with browser.open(page) as opened:
            opened.goto("modules")
            cells = opened.at.locator(".modules tbody tr").first.locator("td").all_inner_texts()
            # calls; total, self, forward, backward, optimizer
            assert cells[:6] == ["1", "55.000 µs", "19.000 µs", "49.000 µs", "6.000 µs", "0 ns"]

    def test_an_address_names_a_module(self, browser: Browser, page: Path) -> None:
        with browser.open(page) as opened:
            opened.goto("modules")
            opened.at.get_by_role("button", name="Close all").click()
            opened.goto("modules?name=net.blocks.1.fc")
            opened.at.locator(".modules tr:focus").wait_for()
            assert "fc" in opened.at.locator(".modules tr:focus").inner_text()
            link = opened.at.locator(".modules tr:focus a")
            assert link.get_attribute("href") == "#timeline?name=net.blocks.1.fc"


class TestFlame:
    def test_a_click_goes_in_and_escape_goes_out(self, browser: Browser, page: Path) -> None:
        with browser.open(page) as opened:
            opened.goto("modules")
            frames = opened.at.locator(".flame-frame")
            block = frames.filter(has_text="blocks").first
            narrow = block.bounding_box()
            block.click()
            path = opened.at.locator(".flame-path button")
            assert path.all_inner_texts() == ["All", "net", "blocks"]
            wide = frames.filter(has_text="blocks").first.bounding_box()
            assert narrow is not None
            assert wide is not None
            assert wide["width"] > narrow["width"]
            opened.at.locator('.flame-frame[tabindex="0"]').focus()
            opened.at.keyboard.press("Escape")
            assert path.all_inner_texts() == ["All", "net"]
            path.first.click()
            assert path.all_inner_texts() == ["All"]

    def test_arrows_move_and_enter_opens(self, browser: Browser, page: Path) -> None:
        with browser.open(page) as opened:
            opened.goto("modules")
            opened.at.locator('.flame-frame[tabindex="0"]').focus()
            for key in ("ArrowDown", "ArrowRight", "ArrowLeft", "ArrowDown", "Enter"):
                opened.at.keyboard.press(key)
            assert opened.at.locator(".flame-path button").all_inner_texts() == ["All", "net", "blocks"]
            assert "36.000 µs" in opened.at.locator(".flame-said").inner_text()

    def test_a_switch_shows_the_other_side(self, browser: Browser, pages: Path) -> None:
        from playwright.sync_api import expect

        out = pages / "both sides.html"
        trace = load(pages / "both sides", Plan(steps=2))
        trace.report(out)
        whole = trace.table("phase").rows
        with browser.open(out) as opened:
            opened.goto("modules")
            said = opened.at.locator(".flame-said")
            assert f"{whole['self_device_ns'].sum() / 1e6:.3f} ms" in said.inner_text()
            opened.at.get_by_label("Time on").select_option("host")
            expect(said).to_contain_text(f"{whole['self_cpu_ns'].sum() / 1e6:.3f} ms")
            opened.at.locator("select", has_text="the ops in each").select_option(index=1)
            expect(opened.at.locator(".flame-frame", has_text="ProfilerStep*")).to_have_count(1)

    def test_it_is_as_wide_as_its_place_and_keeps_nobody_out(self, browser: Browser, page: Path) -> None:
        width = min(WIDTHS)
        with browser.open(page, width=width) as opened:
            opened.goto("modules")
            opened.at.locator(".flame-frame").first.wait_for()
            assert opened.at.evaluate("document.documentElement.scrollWidth") <= width
            assert grave_faults(opened) == []
