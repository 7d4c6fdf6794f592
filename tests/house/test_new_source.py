"""A source is one file and one line: the reader that CONTRIBUTING.md shows is one, beside those that there are."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import click.testing
import pytest

import opspan
from house.tree import REPO
from opspan import sources
from opspan.cli import main
from opspan.errors import ReadError

SPANS = "name,thread,start_us,end_us\naten::mm,7,1.5,4\nouter,7,0,10\naten::mm,7,5,6.25\n,,,\n"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    page = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- a source -->\n```python\n(.*?)```", page, re.DOTALL)
    assert found
    module = ModuleType("opspan.readers.spans")
    exec(found[1], vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sources, "SOURCES", (*sources.SOURCES, sources.Source("spans", "span lists")))
    file = tmp_path / "run.txt"
    file.write_text(SPANS)
    return file


def test_it_is_told_by_its_content_and_read(path: Path) -> None:
    trace = opspan.load(path)

    assert trace.metadata.source == "spans"
    assert trace.ranges["name", "start_ns", "end_ns"].rows() == [
        ("aten::mm", 1500, 4000),
        ("outer", 0, 10000),
        ("aten::mm", 5000, 6250),
    ]
    assert [(issue["code"], issue["count"]) for issue in trace.issues.iter_rows(named=True)] == [("no_time", 1)]


def test_all_that_works_for_a_trace_works_for_it(path: Path) -> None:
    (average,) = (event for event in opspan.load(path).events().key_averages() if event.key == "aten::mm")
    assert (average.count, average.cpu_time_total) == (2, 3.75)

    shown = click.testing.CliRunner().invoke(main, ["table", str(path)], catch_exceptions=False)
    assert "aten::mm" in shown.output
    assert "outer" in shown.output


def test_what_is_wrong_with_it_is_one_error(path: Path) -> None:
    path.write_text(SPANS + '"')
    with pytest.raises(ReadError, match="is a damaged span list"):
        opspan.load(path)
