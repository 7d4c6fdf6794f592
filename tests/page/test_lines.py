"""Lines of the program in the page: a table of ops by line and by op of the program, and a column of kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opspan
from builders import compile_log as log
from builders import kineto
from opspan.trace import Trace
from opspan.views.page import kernels, operators
from opspan.views.page.section import Subject
from page.browser import Browser
from page.faults import grave_faults

CALL, KERNEL = "## Call CompiledFxGraph None ##", "triton_poi_fused_add_mul_0"
HOSTILE = "<img src=x onerror=alert(1)>.py"


def compiled(folder: Path, *, with_log: bool = True) -> Trace:
    events: list[Any] = [kineto.op(CALL, kineto.MAIN, 0, 100), kineto.op("aten::relu", kineto.MAIN, 200, 10)]
    for number, (name, length) in enumerate(((KERNEL, 22), ("plain", 9)), 1):
        events += [
            kineto.call("cudaLaunchKernel", kineto.MAIN, 10 * number, 1, number),
            kineto.kernel(name, 1_000 * number, length, number),
        ]
    texts = [log.stack((f"src/{name}", 3, "forward")) for name in ("model.py", HOSTILE)]
    path = log.write(folder / "x_torch_trace_a.log", log.stacks({f"{KERNEL}:1": texts}))
    file = kineto.write(folder / "trace.json", kineto.document(events))
    return opspan.load(file, compiled=path if with_log else None)


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = [column["name"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in zip(*table["values"], strict=True)]


def tables_of(trace: Trace) -> dict[str, dict[str, Any]]:
    data = operators.section(Subject(trace.analysed)).data
    assert data is not None
    return {one["by"]: one for one in data["tables"]}


@pytest.mark.parametrize(("by", "column"), [("line", "line"), ("source-op", "source_op")])
def test_rows_are_those_of_the_table(by: str, column: str, tmp_path: Path) -> None:
    trace = compiled(tmp_path)
    table = trace.table(by).rows

    shown = rows_of(tables_of(trace)[by]["rows"])
    expected = table.select(column, "self_device_ns", "self_cpu_ns", kernels="count").to_dicts()
    assert [{name: row[name] for name in expected[0]} for row in shown] == expected
    assert sum(row["self_device_ns"] for row in shown) == 31_000


def test_without_stacks_and_log_there_is_no_such_table(tmp_path: Path) -> None:
    assert not tables_of(compiled(tmp_path, with_log=False)).keys() & {"line", "source-op"}


def test_kernels_have_their_lines(tmp_path: Path) -> None:
    data = kernels.section(Subject(compiled(tmp_path).analysed)).data
    assert data is not None

    lines = {row["name"]: row["lines"] for row in rows_of(data["tables"][0]["rows"])}
    assert lines == {KERNEL: f"{HOSTILE}:3 forward; model.py:3 forward", "plain": None}


def test_kernels_without_lines_have_no_such_column(tmp_path: Path) -> None:
    data = kernels.section(Subject(compiled(tmp_path, with_log=False).analysed)).data
    assert data is not None

    assert "lines" not in rows_of(data["tables"][0]["rows"])[0]


# --- in a browser


@pytest.mark.parametrize(
    ("title", "name"), [("line of the program", "model.py:3 forward"), ("op that the program called", "aten::add")]
)
def test_a_reader_chooses_lines_and_ops(browser: Browser, pages: Path, tmp_path: Path, title: str, name: str) -> None:
    page = pages / f"{name[:4]}.html"
    compiled(tmp_path).report(page)
    with browser.open(page) as opened:
        opened.goto("operators")
        opened.at.locator("#section-operators").get_by_label("Group by").select_option(title)
        rows = opened.at.get_by_role("region", name=f"Ops by {title}")
        rows.get_by_text(name).wait_for()
        assert rows.get_by_role("link").count() == 0
        assert "11" in rows.inner_text()
        opened.at.get_by_label("Times per call").check()
        assert "11" not in rows.inner_text()  # how often a line is called is not known
        assert grave_faults(opened) == []


def test_a_finding_names_lines(browser: Browser, pages: Path, tmp_path: Path) -> None:
    page = pages / "finding.html"
    trace = compiled(tmp_path)
    assert trace.findings()["lines"].list.len().sum()
    trace.report(page)
    with browser.open(page) as opened:
        opened.goto("overview")
        opened.at.locator(".places .mono").get_by_text("model.py:3 forward").first.wait_for()
        assert grave_faults(opened) == []
