"""docs/json.md against what the command line prints, and the code of docs/python.md, which runs as it stands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders import kineto
from emit.running import opspan as command
from house.tree import REPO
from opspan.analysis import Analysis
from opspan.errors import MissingPackage
from opspan.questions import BY, Options, question
from opspan.views import diff
from opspan.views.answer import Answer
from opspan.views.answer_columns import COLUMNS, units
from opspan.views.table import table_of
from views.sources import capture, nsys

JSON, PYTHON = (REPO / "docs" / f"{name}.md" for name in ("json", "python"))


def section(title: str) -> str:
    return re.split(r"^#+ ", JSON.read_text().split(f" {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def names(text: str) -> set[str]:
    """The names in the first column of a table."""
    return {
        name for line in re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)
    }


def document(*arguments: str | Path) -> dict[str, Any]:
    done = command("table", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sources")
    return nsys(folder / "run.sqlite", scale=1000), capture(folder / "1-1.opspan")


def test_keys_of_the_document_and_of_coverage_are_those_there_are(sources: tuple[Path, Path]) -> None:
    found = document(sources[1])
    (issue, *_) = found["issues"]

    page = JSON.read_text()
    assert names(page.split("## Rows")[0]) == set(found)
    assert set(re.findall(r"`(\w+)`", re.search(r"^\| `issues` .*$", page, re.MULTILINE)[0].split(": ", 1)[1])) == set(
        issue
    )
    assert names(section("Coverage")) == set(found["coverage"])


def test_the_example_has_the_names_of_a_real_one(sources: tuple[Path, Path]) -> None:
    example = json.loads(re.search(r"```json\n(.*?)```", JSON.read_text(), re.DOTALL)[1])
    real = document(sources[0], "--by", "shape")

    assert list(example) == list(real)
    assert (example["schema"], example["by"]) == (real["schema"], real["by"])
    (row,) = (row for row in real["rows"] if row["name"] == "aten::linear")
    assert list(example["rows"][0]) == list(row)
    assert set(example["coverage"]) <= set(real["coverage"])
    assert example["coverage"]["work_with_call"].keys() == real["coverage"]["work_with_call"].keys()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The traces of two ranks, with work, a wait, a collective and memory."""
    memory = {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": kineto.PID,
        "tid": kineto.MAIN,
        "s": "t",
    }
    taken = {"Device Type": 1, "Device Id": 0, "Addr": 64, "Bytes": 512, "Total Allocated": 512}
    events = [
        *kineto.events(),
        kineto.call("cudaDeviceSynchronize", kineto.MAIN, 900, 50, 77),
        kineto.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1700, 20, 93),
        {**memory, "tid": kineto.MAIN, "ts": 3, "args": taken},
    ]
    folder = tmp_path_factory.mktemp("ranks")
    return [kineto.write(folder / f"rank{rank}.json", kineto.document(events)) for rank in (0, 1)]


@pytest.fixture(scope="module")
def sampled(ranks: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of a rank, with samples of its processors."""
    trace = opspan.load(ranks[0])
    (op,) = trace.ranges.filter(pl.col("name") == "aten::linear").head(1).to_dicts()
    place = {name: op[name] for name in ("rank", "pid", "tid")}
    rows = [
        {**place, "time_ns": op["start_ns"], "weight": 5, "event": "cpu-clock", "stack": "main;f", "libraries": "a;b"}
    ]
    path = tmp_path_factory.mktemp("sampled") / "run"
    trace.replace(samples=pl.DataFrame(rows * 40)).save(path)
    return path


@pytest.fixture(scope="module")
def analyses(ranks: list[Path], sampled: Path) -> dict[str, Analysis]:
    """An analysis for each answer that needs its own, and one for all others, whose key is ""."""
    trace, samples = opspan.load(*ranks), opspan.load(sampled).samples
    by_name = {"by name, shape, stack": trace.replace(samples=samples).analysed}
    return {"": trace.analysed, "functions": opspan.load(sampled).analysed, **by_name}


def answers(title: str, analysis: Analysis) -> Iterator[tuple[str, Answer]]:
    """Yields the answers whose columns the section of the page declares. Each has the grouping that it is the plain
    answer of, or ""."""
    if title.startswith("by "):
        for by in title.removeprefix("by ").split(", "):
            yield by, table_of(analysis, Options(by, memory=by not in ("kernel", "stream", "line", "source-op")))
            yield "", table_of(analysis, Options(by, op="aten::*"))
    elif title == "diff":
        yield from ((by, diff.answer(diff.figures_of(analysis, by), diff.figures_of(analysis, by))) for by in BY[title])
    else:
        yield from ((by, question(title).answer_of(analysis, Options(by))) for by in BY[title] or ("",))
    if title == "path":
        yield "", question(title).answer_of(analysis, Options(factors={"computing": 0.5}))


@pytest.mark.parametrize("title", COLUMNS)
def test_answers_have_the_columns_that_are_declared(title: str, analyses: dict[str, Analysis]) -> None:
    analysis = analyses.get(title, analyses[""])
    found = [(by, answer.document([analysis], -1)["rows"]) for by, answer in answers(title, analysis)]

    assert all(rows for _, rows in found)
    assert {name for _, rows in found for row in rows for name in row} == set(units(title))
    for group, meaning in COLUMNS[title].items():
        groupings = {by for by, _ in found if by}
        only = re.match(r"by ([\w, ]+): ", meaning)  # "by step and run: ...", "by group and by call: ..."
        never = re.search(r"; not by ([\w, ]+)", meaning)  # "...; not by why, nor by call"
        if only or never:
            said = {by for by in groupings if re.search(rf"\b{by}\b", (only or never)[1])}
            for name in group.split():
                has = {by for by, rows in found if by and name in rows[0]}
                assert has == (said if only else groupings - said), name


def test_the_page_has_a_table_for_all_that_is_declared() -> None:
    page = JSON.read_text()
    made = re.findall(
        r"<!-- Made by .* from src/opspan/views/answer_columns.py -->\n\n(\| column .*\n(?:\|.*\n)*)", page
    )

    assert len(made) == page.count("| column | meaning |") == len(COLUMNS)
    assert all(names(section(title)) == set(units(title)) for title in COLUMNS)


@pytest.mark.parametrize("verb", [title for title in COLUMNS if not title.startswith("by ")])
def test_the_example_of_an_answer_has_the_names_of_what_is_printed(verb: str, ranks: list[Path], sampled: Path) -> None:
    files = {"diff": ranks, "functions": [sampled]}.get(verb, ranks[:1])
    done = command(verb, *files, "--format", "json")
    printed = json.loads(done.stdout)
    page = JSON.read_text().split("## Answers")[1]
    examples = map(json.loads, re.findall(r"```json\n(.*?)```", page, re.DOTALL))
    (example,) = (one for one in examples if one["answer"] == verb)

    assert list(example) == list(printed)
    assert list(example["rows"][0]) == list(printed["rows"][0])
    assert names(page.split("### ")[0]) == set(printed)


def test_json_is_json_even_where_a_report_says_nan(sources: tuple[Path, Path], tmp_path: Path) -> None:
    trace = opspan.load(sources[0]).with_metrics(pl.DataFrame({"Task Type": ["aten::linear"], "ratio": [float("nan")]}))
    trace.save(tmp_path / "saved")
    done = command("table", tmp_path / "saved", "--format", "json")
    assert "NaN" not in done.stdout
    assert json.loads(done.stdout)["rows"]


def blocks() -> list[tuple[str, str]]:
    """Returns, for each block of Python, the comment before it, "" without one, and its code."""
    return re.findall(r"(?:<!-- ([^>]*) -->\n)?```python\n(.*?)^```$", PYTHON.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_code_of_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    assert PYTHON.read_text().count("```python\n") == len(blocks())
    nsys(tmp_path / "report.sqlite")
    # A source of one's own first: the other block reads what it writes.
    for said, code in sorted(blocks(), key=lambda block: block[0]):
        needed = said.removeprefix("needs: ").split(", ") if said.startswith("needs: ") else []
        if any(find_spec(package) is None for package in needed):
            continue
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if said == "example: own source":
            lines = [line.split() for line in done.stdout.splitlines()]
            (op,) = (line for line in lines if line[:1] == ["aten::mm"])
            assert op[6:8] == ["8.000us", "100.00%"]

    rows = document(tmp_path / "mine.trace", "--by", "kernel", "--op", "aten::mm")["rows"]
    assert [(row["name"], row["count"], row["device_ns"]) for row in rows] == [("gemm", 2, 8000)]
    rows = document(tmp_path / "mine.trace", "--by", "step", "--step", "step")["rows"]
    assert [(row["step"], row["count"], row["ranges"]) for row in rows] == [("step", 1, 3)]
    assert document(tmp_path / "mine.trace")["coverage"]["work_in_range"]["fraction"] == 1


def test_packages_that_are_not_there_are_named_in_one_line(sources: tuple[Path, Path], monkeypatch: Any) -> None:
    trace = opspan.load(sources[0])
    monkeypatch.setattr("opspan.tables.tables.find_spec", lambda _: None)
    with pytest.raises(MissingPackage) as raised:
        trace.to_pandas()
    assert str(raised.value) == "to_pandas needs pandas and pyarrow: pip install 'opspan[pandas]'"
    assert "pip install 'opspan[pandas]'" in PYTHON.read_text()


def test_a_table_as_pandas_has_it(sources: tuple[Path, Path]) -> None:
    trace = opspan.load(sources[0])
    frame = trace.to_pandas("work")
    assert frame["end_ns"].tolist() == trace.work["end_ns"].to_list()
