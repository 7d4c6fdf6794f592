"""The section on ops: its figures are those of the analyses, and what a reader does in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders.capture import BACKWARD, Capture
from builders.training_files import load
from builders.training_plan import Plan
from opspan.analysis.averages import averages
from opspan.analysis.backward import pairs
from opspan.questions import Options, question
from opspan.trace import Trace
from opspan.views.page.columns import values
from opspan.views.page.operators import section
from opspan.views.page.section import Subject
from page.browser import Browser
from views.sources import capture, nsys

_OUTSIDE = ("(in no module)", "(in no phase)", "(in no step)")
STACK = "/srv/a b/train.py(9): <module>\n/srv/net.py(3): forward"
HOSTILE = [
    "javascript:alert(1)(1): f",
    "//evil.example/x.py(2): f",
    "relative.py(3): f",
    "<built-in method mm>",
    '/srv/"><img src=x onerror=alert(1)>?a#b%/x.py(4): "quoted"',
    "C:\\code\\net.py(5): forward",
]


def data_of(trace: Trace) -> dict[str, Any]:
    data = section(Subject(trace.analysed)).data
    assert data is not None
    return data


def tables_of(data: dict[str, Any]) -> dict[str, dict[str, list[Any]]]:
    return {
        one["by"]: {
            column["name"]: cells for column, cells in zip(one["rows"]["columns"], one["rows"]["values"], strict=True)
        }
        for one in data["tables"]
        if not one["why"]
    }


def stacked(path: Path) -> Path:
    made = Capture(pid=1)
    main, back = made.thread(1, "main"), made.thread(2, "autograd")
    for number, stack in enumerate((STACK, STACK, "\n".join(HOSTILE))):
        at = 10_000 * number
        main.torch("aten::linear", at, at + 3_000, seq=number, op_id=number * 3 + 1, stack=stack)
        back.torch("AddmmBackward0", at + 5_000, at + 6_000, seq=number, op_id=number * 3 + 2, category=BACKWARD)
    return made.write(path)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return load(tmp_path_factory.mktemp("training"), Plan(steps=2))


@pytest.fixture(scope="module")
def page(pages: Path) -> Path:
    out = pages / "operators.html"
    opspan.load(stacked(pages / "stacked.opspan")).report(out)
    return out


class TestData:
    @pytest.mark.parametrize("make", [nsys, capture, stacked])
    def test_rows_are_those_of_the_table_in_its_order(self, make, tmp_path: Path) -> None:
        trace = opspan.load(make(tmp_path / ("run.sqlite" if make is nsys else "run.opspan")))
        self._check(trace)

    def test_rows_of_several_ranks(self, tmp_path: Path) -> None:
        tables = self._check(load(tmp_path / "run", Plan(ranks=2, steps=2)))
        assert set(tables["name"]["rank"]) == {0, 1}

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["kineto/mi300_ddp_resnet18.json.gz", "nsys/train_fsdp_2gpu.sqlite"])
    def test_rows_of_recorded_runs(self, traces_dir: Path, name: str) -> None:
        self._check(opspan.load(traces_dir / name))

    def _check(self, trace: Trace) -> dict[str, dict[str, list[Any]]]:
        tables = tables_of(data_of(trace))
        for by, columns in tables.items():
            rows = trace.table(by).rows
            assert len(columns["self_cpu_ns"]) == rows.height
            for name, cells in columns.items():
                if name in rows.columns:
                    shown = [None if cell in _OUTSIDE else cell for cell in cells]
                    assert shown == values(rows[name])
        return tables

    def test_a_way_to_group_that_finds_one_group_says_why(self, tmp_path: Path) -> None:
        data = data_of(opspan.load(nsys(tmp_path / "run.sqlite")))
        why = {one["by"]: one["why"] for one in data["tables"] if one["why"]}
        assert set(why) == {"stack", "module"}
        assert "modules=True" in why["module"]
        assert "with_stack=True" in data["stacks"]["why"]

    def test_bars_and_the_rest_are_all(self, training: Trace) -> None:
        rows = training.table().rows
        for one, column in zip(data_of(training)["bars"], ("self_device_ns", "self_cpu_ns"), strict=True):
            assert len(one["names"]) == 10
            assert one["total"] == rows[column].sum() == sum(one["ns"]) + one["others_ns"]
            assert one["ns"] == rows[column].sort(descending=True).head(10).to_list()

    def test_backward_is_beside_forward(self, training: Trace) -> None:
        data = data_of(training)
        found = training.analysed.attributed
        rows = pairs(found.ranges)
        assert sum(data["pairs"]["backward_device_ns"]) == rows["backward_device_ns"].sum()
        assert len(set(zip(data["pairs"]["op"], data["pairs"]["backward"], strict=True))) == len(data["pairs"]["op"])
        sums = averages(found.ranges, found.work).filter(pl.col("backward_device_ns") > 0)
        expected = dict(sums.select(pl.col("name").cast(str), "backward_device_ns").iter_rows())
        columns = tables_of(data)["name"]
        shown = {name: ns for name, ns in zip(columns["name"], columns["backward_device_ns"], strict=True) if ns}
        assert shown == expected

    def test_costs_are_those_of_the_answer(self, training: Trace) -> None:
        rows = question("flops").rows_of(training.analysed, Options("shape"))
        expected = {(op, sizes): rate for op, sizes, rate in rows.select("op", "sizes", "flops_per_s").iter_rows()}
        columns = tables_of(data_of(training))["shape"]
        shown = {
            (op, sizes): rate
            for op, sizes, rate in zip(columns["name"], columns["sizes"], columns["flops_per_s"], strict=True)
            if rate is not None
        }
        assert shown == {key: rate for key, rate in expected.items() if rate is not None}
        assert shown

    def test_tensor_cores_are_said_of_what_can_use_them(self, training: Trace) -> None:
        columns = tables_of(data_of(training))["name"]
        shown = dict(zip(columns["name"], columns["tensor_cores"], strict=True))
        assert shown["aten::addmm"] == 1
        assert shown["aten::gelu"] is None

    def test_stacks_are_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        trace = opspan.load(stacked(tmp_path / "run.opspan"))
        whole = data_of(trace)["stacks"]
        assert (len(whole["rows"]["name"]), whole["more"]) == (4, 0)
        monkeypatch.setattr("opspan.views.page.operators.MOST_STACKS", 1)
        stacks = data_of(trace)["stacks"]
        assert (stacks["rows"]["name"], stacks["more"]) == (["aten::linear"], 3)
        frames = [stacks["names"][name] for name in stacks["frames"]["name"]]
        assert sorted(frames) == sorted(STACK.split("\n"))
        assert stacks["frames"]["parent"] == [None, 0]

    def test_a_trace_of_kernels_alone_is_empty_and_says_what_fills_it(self, tmp_path: Path) -> None:
        exported = opspan.load(nsys(tmp_path / "run.sqlite"))
        found = section(Subject(Trace(exported.ranks, work=exported.work).analysed))
        assert found.data is None
        assert found.why
        assert "nsys profile" in found.command


class TestPage:
    def test_an_op_opens_to_its_backward_and_its_stacks(self, browser: Browser, page: Path) -> None:
        with browser.open(page) as opened:
            opened.goto("operators")
            row = opened.at.locator("tbody tr", has=opened.at.get_by_text("aten::linear", exact=True))
            row.get_by_role("button", name="Details").click()
            detail = opened.at.locator(".operator-detail")
            assert "AddmmBackward0: 3 calls" in detail.inner_text()
            assert "Called in 2 stacks" in detail.inner_text()
            assert "2 calls; host: 6.000 µs itself, 6.000 µs in total" in detail.inner_text()

    def test_a_frame_leads_to_its_line_and_to_nothing_else(self, browser: Browser, page: Path) -> None:
        with browser.open(page) as opened:
            opened.goto("operators")
            opened.at.get_by_role("button", name="Details").first.click()
            frames = opened.at.locator(".frames li")
            links = {link.inner_text(): link.get_attribute("href") for link in frames.locator("a").all()}
            assert links == {
                "/srv/a b/train.py(9): <module>": "vscode://file//srv/a%20b/train.py:9",
                "/srv/net.py(3): forward": "vscode://file//srv/net.py:3",
                HOSTILE[4]: "vscode://file//srv/%22%3E%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%3Fa%23b%25/x.py:4",
                HOSTILE[5]: "vscode://file/C:/code/net.py:5",
            }
            shown = [frame.inner_text() for frame in frames.all()]
            assert set(HOSTILE) <= set(shown)
            assert opened.at.locator(".frames img").count() == 0

    def test_the_editor_is_the_users(self, browser: Browser, page: Path, tmp_path: Path) -> None:
        from opspan.views.page.report import write

        out = tmp_path / "page.html"
        found = opspan.load(stacked(tmp_path / "run.opspan")).analysed
        write(Subject(found, editor="idea://open?file={file}&line={line}"), out, overwrite=False)
        with browser.open(out) as opened:
            opened.goto("operators")
            opened.at.get_by_role("button", name="Details").first.click()
            link = opened.at.locator(".frames a", has_text="net.py(3)").first
            assert link.get_attribute("href") == "idea://open?file=/srv/net.py&line=3"

    def test_times_per_call(self, browser: Browser, page: Path) -> None:
        with browser.open(page) as opened:
            opened.goto("operators")
            row = opened.at.locator("tbody tr", has=opened.at.get_by_text("aten::linear", exact=True))
            assert "9.000 µs" in row.inner_text()
            opened.at.get_by_label("Times per call").check()
            assert "3.000 µs" in row.inner_text()
            assert "9.000 µs" not in row.inner_text()

    def test_an_address_names_an_op(self, browser: Browser, page: Path) -> None:
        with browser.open(page) as opened:
            opened.goto("operators?name=AddmmBackward0")
            opened.at.locator(".operator-rows tbody tr").nth(1).wait_for(state="detached")
            link = opened.at.locator(".operator-rows tbody a")
            assert link.inner_text() == "AddmmBackward0"
            assert link.get_attribute("href") == "#timeline?name=AddmmBackward0"

    def test_a_way_to_group_that_the_trace_does_not_have_says_why(self, browser: Browser, page: Path) -> None:
        with browser.open(page) as opened:
            opened.goto("operators")
            opened.at.get_by_label("Group by").select_option("module")
            assert "modules=True" in opened.at.locator(".operator-rows .empty").inner_text()
