"""A notebook that is run, by the interpreter that runs the tests, and what its cells have as outputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import opspan
from html_tables import Shown
from opspan.views.findings import Findings
from views.sources import HOSTILE, nsys

SHOWN = {
    "trace": "trace",
    "events": "trace.events()",
    "averages": "trace.events().key_averages()",
    "table": "trace.table('module')",
    "findings": "trace.findings()",
    "rows": "trace.steps()",  # a frame as any other: polars shows it
    "broken": "opspan.Trace(())",
    "many": "many.events()",
}
REPORT = "trace.report()"
BEGIN = """
import sys, opspan, polars as pl
trace = opspan.load({path!r})
names = pl.int_range(200_000, eager=True)
many = opspan.Trace((opspan.Metadata("mine"),), ranges=pl.DataFrame(
    {{"start_ns": names * 10, "end_ns": names * 10 + 5, "pid": 1, "tid": 1, "name": "x"}}
))
print(sys.executable)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nsys(tmp_path_factory.mktemp("nsys") / "run.sqlite", scale=1000)


@pytest.fixture(scope="module")
def outputs(path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Returns the output of a notebook's cells, by their source. The kernel, its settings and its files are in one
    folder."""
    import nbformat  # only here: with its client it takes long to import
    from nbclient import NotebookClient

    folder = tmp_path_factory.mktemp("notebook")
    kernel = folder / "JUPYTER_DATA_DIR" / "kernels" / "of-the-tests"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "of the tests", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))

    cells = [BEGIN.format(path=str(path)), *SHOWN.values(), REPORT]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            patch.setenv(name, str(folder / name))
        NotebookClient(
            notebook, kernel_name=kernel.name, timeout=300, resources={"metadata": {"path": folder}}
        ).execute()
    nbformat.write(notebook, folder / "run.ipynb")
    read = nbformat.read(folder / "run.ipynb", as_version=4)
    return {cell.source: cell.outputs for cell in read.cells}


def html(outputs: dict[str, Any], what: str) -> str:
    (output,) = outputs[SHOWN[what]]
    assert output.output_type == "execute_result"
    return str(output.data["text/html"])


pytestmark = pytest.mark.slow


def test_the_kernel_is_the_interpreter_of_the_tests(path: Path, outputs: dict[str, Any]) -> None:
    (printed,) = outputs[BEGIN.format(path=str(path))]
    assert printed.text.strip() == sys.executable


@pytest.mark.parametrize("what", [what for what in SHOWN if what != "rows"])
def test_a_cell_shows_a_small_table_and_nothing_goes_wrong(what: str, outputs: dict[str, Any]) -> None:
    found = html(outputs, what)
    assert Shown(found).sentences
    assert len(found) < 10_000
    assert len(outputs[SHOWN[what]][0].data["text/plain"]) < 10_000
    assert HOSTILE not in found


def test_it_is_what_the_object_says_of_itself(path: Path, outputs: dict[str, Any]) -> None:
    trace = opspan.load(path)
    assert html(outputs, "trace") == trace._repr_html_()
    assert html(outputs, "events") == trace.events()._repr_html_()
    assert html(outputs, "averages") == trace.events().key_averages()._repr_html_()
    assert html(outputs, "table") == trace.table("module")._repr_html_()
    assert html(outputs, "findings") == trace.findings()._repr_html_()


def test_beside_it_there_is_text_for_terminals(path: Path, outputs: dict[str, Any]) -> None:
    plain = {what: outputs[SHOWN[what]][0].data["text/plain"] for what in SHOWN}
    trace = opspan.load(path)
    assert plain["trace"] == repr(trace)
    assert plain["table"] == str(trace.table("module"))
    assert plain["events"].startswith(trace.events().table(row_limit=10))
    assert plain["many"].endswith("199,990 more: .table() has 100 of them, .table(row_limit=-1) all")


def test_other_frames_stay_polars_own(outputs: dict[str, Any]) -> None:
    assert "shape: (" in html(outputs, "rows")
    assert not isinstance(opspan.Trace(()).steps(), Findings)


def test_a_report_is_the_page_in_a_frame(outputs: dict[str, Any]) -> None:
    (output,) = outputs[REPORT]
    shown = output.data["text/html"]
    assert shown.startswith("<iframe srcdoc=")
    assert "part-operators" in shown
    assert HOSTILE not in shown
