"""Workbooks as openpyxl reads them: the figures of the verbs as numbers, and texts that stay texts."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl
import pytest

import opspan
from builders.capture import Capture
from opspan.errors import MissingPackage
from opspan.tables import Metadata
from opspan.trace import Trace
from opspan.views import workbook
from readers.samples import samples
from tiers import before_release
from views.sources import HOSTILE, capture, nsys

Sheets = dict[str, list[dict[str, Any]]]
MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "{=1+1}", "\t=1", "=HYPERLINK(A1)"]
LINKS = ["http://example.org", "mailto:a@b.c", "internal:A1", "file:///etc/passwd"]
NUMBERS = ["00012", "1e5", "-5", "TRUE", "nan"]
ODD = [HOSTILE, "_x0041_", "<r>", "<b>&amp;</b>", "'quoted", " spaces ", "\u202egnp.exe", "\x1b[31m\x07"]


def read(path: Path) -> Sheets:
    """Each sheet but the first as rows by title; nothing in it is a formula, a link or a control character."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            ET.fromstring(archive.read(name))
    found: Sheets = {}
    for sheet in openpyxl.load_workbook(path):
        assert not any(cell.data_type == "f" or cell.hyperlink for row in sheet.rows for cell in row)
        if sheet.title != "summary":
            titles, *rows = sheet.iter_rows(values_only=True)
            found[sheet.title] = [dict(zip(titles, row, strict=True)) for row in rows]
    return found


def texts(path: Path) -> set[str]:
    """All that stand in cells, each as ECMA-376 says that it is written (22.9.2.19): openpyxl leaves its escapes."""
    with zipfile.ZipFile(path) as archive:
        strings = ET.fromstring(archive.read("xl/sharedStrings.xml"))
    written = ("".join(part.text or "" for part in item.iter(f"{MAIN}t")) for item in strings)
    return {re.sub("_x([0-9A-F]{4})_", lambda found: chr(int(found[1], 16)), text) for text in written}


@pytest.mark.slow
@pytest.mark.parametrize("what", before_release(samples(with_ranges=True), kept=4))
def test_sheets_have_the_rows_of_the_verbs(what: str, tmp_path: Path) -> None:
    trace = opspan.load(samples()[what](tmp_path))
    said = trace.export(tmp_path / "out.xlsx")
    sheets = read(tmp_path / "out.xlsx")

    has_memory = bool(trace.memory.height)
    ops = trace.analysed.attributed.ranges.filter(~pl.col("is_mark").fill_null(value=False))
    of_tables = {"ops": "name", "kernels": "kernel", "streams": "stream"}
    expected = {sheet: trace.table(by, memory=has_memory and by == "name").rows for sheet, by in of_tables.items()}
    expected |= {"idle": trace.idle(), "launches": trace.launches(), "waits": trace.waits(), "comm": trace.comm()}
    expected |= {"flops": trace.flops(), "memory": trace.memory_use(), "findings": trace.findings()}
    for sheet, rows in expected.items():
        assert (sheet in sheets) == bool(rows.height)
        numbers = [column.name for column in rows.iter_columns() if column.dtype.is_numeric()]
        for number, row in enumerate(sheets.get(sheet, [])):
            for name in numbers:
                value = rows[name][number]
                assert row[name] == (value if value is None else pytest.approx(value, rel=1e-14)), name
    if ops.height:
        assert sum(row["self_cpu_ns"] for row in sheets["ops"]) == ops["self_ns"].sum()
    left_out = [name for name in workbook._SHEETS if name not in sheets]
    assert not left_out or f"There are no sheets for {', '.join(left_out)}, which have no rows" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "nsys/train_fsdp_2gpu.sqlite",
        "nvprof/lm_emit_nvtx.sql",
        "kineto/norm_layers.json.gz",
        "rocpd/rocprofv3.db",
        "vtune/r000hs_2022/r000hs",
    ],
)
def test_real_traces(name: str, traces_dir: Path, tmp_path: Path) -> None:
    trace = opspan.load(traces_dir / name)

    trace.export(tmp_path / "out.xlsx")

    kernels = trace.table("kernel").rows
    found = read(tmp_path / "out.xlsx").get("kernels", [])
    assert [(row["name"], row["device_ns"]) for row in found] == kernels.select("name", "device_ns").rows()


def named(names: list[str], folder: Path) -> Trace:
    made = Capture(pid=1)
    thread = made.thread(1)
    for number, name in enumerate(names):
        thread.range(name, number * 1000, number * 1000 + 500)
    return opspan.load(made.write(folder / "1-1.opspan"))


def test_a_text_is_a_text_whatever_it_begins_with(tmp_path: Path) -> None:
    names = [*FORMULAS, *LINKS, *NUMBERS, *ODD]

    named(names, tmp_path).export(tmp_path / "out.xlsx")

    found = read(tmp_path / "out.xlsx")["ops"]
    assert set(names) <= texts(tmp_path / "out.xlsx")
    assert sorted(row["name"] for row in found if row["name"] in FORMULAS) == sorted(FORMULAS)
    assert len(found) == len(names)


def test_a_text_that_looks_like_the_xml_of_xlsxwriter_is_a_text(tmp_path: Path) -> None:
    # xlsxwriter would write these as they are, whatever that makes of the file.
    names = ["<r><t>a</t></r>", "<r></si></sst></r>", "<r>\n</r>"]

    named(names, tmp_path).export(tmp_path / "out.xlsx")

    assert sorted(row["name"] for row in read(tmp_path / "out.xlsx")["ops"]) == sorted(f" {name}" for name in names)


def test_titles_of_reports_are_texts_and_no_two_are_the_same(tmp_path: Path) -> None:
    trace = named(["a"], tmp_path)
    titles = ["=1+1", "\x1b[31m", "CPU", "cpu", "Name", "<r></r>", "x" * 300]
    report = pl.DataFrame({"Task Type": ["a"], **{title: [1.5] for title in titles}})

    trace.with_metrics(report).export(tmp_path / "out.xlsx")

    (row,) = read(tmp_path / "out.xlsx")["ops"]
    assert {
        "=1+1": 1.5,
        r"\x1b[31m": 1.5,
        "CPU": 1.5,
        "cpu (2)": 1.5,
        "Name (2)": 1.5,
        " <r></r>": 1.5,
    }.items() <= row.items()
    assert max(map(len, row)) < 255


def test_a_text_too_long_for_a_cell_is_cut_which_is_said(tmp_path: Path) -> None:
    names = ["x" * 40_000, "🔥" * 20_000, "y" * 32_767]

    said = named(names, tmp_path).export(tmp_path / "out.xlsx")

    assert {"x" * 32_767, "🔥" * 16_383, "y" * 32_767} <= texts(tmp_path / "out.xlsx")
    assert "2 texts of ops were cut: a cell has 32,767 characters" in said


def test_rows_past_the_last_of_a_sheet_are_left_out_which_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbook, "MOST_ROWS", 3)
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))

    said = trace.export(tmp_path / "out.xlsx")

    ops = trace.table().rows
    assert [row["name"] for row in read(tmp_path / "out.xlsx")["ops"]] == ops["name"].head(3).to_list()
    assert f"The last {ops.height - 3} rows of ops were left out: a sheet has 3 here. JSON has all" in said


def test_numbers_are_numbers_and_what_is_no_double_is_a_text() -> None:
    rows = pl.DataFrame({"a": [2**53, None], "b": [2**53 + 1, -1], "c": [float("nan"), 0.1], "d": [True, None]})

    cells = rows.select(workbook._cells(column) for column in rows.iter_columns())

    assert cells.rows() == [(2**53, "9007199254740993", None, True), (None, "-1", 0.1, None)]


def test_times_count_from_the_begin_of_the_trace(tmp_path: Path) -> None:
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))
    trace.export(tmp_path / "out.xlsx")

    begin = trace.steps()["start_ns"].min()
    expected = [(start - begin, end - begin) for start, end in trace.steps().select("start_ns", "end_ns").rows()]
    assert [(row["start_ns"], row["end_ns"]) for row in read(tmp_path / "out.xlsx")["steps"]] == expected


def test_an_empty_trace_has_a_summary(tmp_path: Path) -> None:
    Trace((Metadata("test"),)).export(tmp_path / "out.xlsx")

    cells = openpyxl.load_workbook(tmp_path / "out.xlsx")["summary"].iter_rows(max_row=4, max_col=2, values_only=True)
    assert list(cells) == [("tools", "test"), ("ranks", 1), ("cycles", 1), ("processes", 0)]


def test_a_summary_has_the_figures_of_the_verb(tmp_path: Path) -> None:
    trace = opspan.load(capture(tmp_path / "1.opspan"))
    trace.export(tmp_path / "out.xlsx")

    rows = dict(openpyxl.load_workbook(tmp_path / "out.xlsx")["summary"].iter_rows(max_col=2, values_only=True))
    assert rows["ranges"] == trace.ranges.height
    assert any(str(line).startswith("Known ") for line in rows)


def test_numbers_are_written_as_their_unit_says(tmp_path: Path) -> None:
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))
    trace.with_metrics(pl.DataFrame({"Task Type": ["aten::linear"], "occupancy": [40.0]})).export(tmp_path / "out.xlsx")

    book = openpyxl.load_workbook(tmp_path / "out.xlsx")
    ops, kernels, steps = (
        {title.value: cell.number_format for title, cell in zip(*book[name].iter_rows(max_row=2), strict=True)}
        for name in ("ops", "kernels", "steps")
    )
    summary = {name.value: cell.number_format for name, cell in book["summary"].iter_rows(max_col=2)}
    assert (kernels["device_ns"], kernels["count"], kernels["occupancy"]) == ("#,##0", "General", "0.0%")
    assert (steps["time_ns"], steps["utilisation"]) == ("#,##0", "0.0%")
    assert (summary["time_ns"], summary["ranges"], summary["attributed"]) == ("#,##0", "General", "0.0%")
    assert ops["occupancy"] == "General"  # a report's metric: its unit is not known


def test_equal_traces_make_equal_files(tmp_path: Path) -> None:
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))
    for name in ("a", "b"):
        trace.export(tmp_path / f"{name}.xlsx")

    assert (tmp_path / "a.xlsx").read_bytes() == (tmp_path / "b.xlsx").read_bytes()


def test_without_xlsxwriter_the_command_that_installs_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)

    with pytest.raises(MissingPackage, match=r"needs xlsxwriter: pip install 'opspan\[excel\]'"):
        trace.export(tmp_path / "out.xlsx")

    assert not (tmp_path / "out.xlsx").exists()
