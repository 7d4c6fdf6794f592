"""docs/json.md against what the command line prints, and the code of docs/python.md, which runs as it stands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders import kineto
from emit.running import opspan as command
from house.tree import REPO
from opspan.errors import MissingPackage
from opspan.questions import BY
from opspan.views.table import SCHEMA
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


@pytest.fixture(scope="module")
def with_memory(sources: tuple[Path, Path]) -> Path:
    trace = opspan.load(sources[0])
    memory = pl.DataFrame({"time_ns": [1_200_000], "event": ["alloc"], "bytes": [64], "pid": [100], "rank": [0]})
    folder = sources[0].with_name("saved.trace")
    opspan.Trace(trace.ranks, **{**trace.frames, "memory": memory}).save(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("by", BY["table"])
def test_every_column_of_the_json_is_documented_and_every_documented_one_is_there(
    by: str, sources: tuple[Path, Path], with_memory: Path
) -> None:
    title = next(
        line for line in re.findall(r"^### by (.*)$", JSON.read_text(), re.MULTILINE) if by in line.split(", ")
    )
    documented = names(section(f"by {title}"))
    every = [document(sources[0], "--by", by), document(*sources, "--by", by)]
    if by not in ("kernel", "stream"):
        every.append(document(with_memory, "--by", by, "--memory"))
    found = {name for one in every for row in one["rows"] for name in row}
    keys = {"name": {"name"}, "shape": {"name", "sizes"}, "stack": {"name", "stack"}, "kernel": {"kind", "name"}}
    keys |= {"stream": {"rank", "device_id", "context_id", "stream_id"}}
    others = {
        "sizes",
        "stack",
        "module",
        "step",
        "phase",
        "kind",
        "name",
        "rank",
        "device_id",
        "context_id",
        "stream_id",
    }

    assert found <= documented
    of_kernels = {"least_device_ns", "most_device_ns", "blocks_per_sm", "occupancy", "uses_tensor_cores"}
    left_out = {"phase": {"count"}, "stream": of_kernels}.get(by, set())
    missing = documented - found - (others - keys.get(by, {by})) - left_out
    assert not missing
    assert all((one["schema"], one["by"]) == (SCHEMA, by) for one in every)


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
    assert example["schema"] == real["schema"]
    (row,) = (row for row in real["rows"] if row["name"] == "aten::linear")
    assert list(example["rows"][0]) == list(row)
    assert set(example["coverage"]) <= set(real["coverage"])
    assert example["coverage"]["work_with_call"].keys() == real["coverage"]["work_with_call"].keys()


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with work, a wait and memory."""
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
    return kineto.write(tmp_path_factory.mktemp("waiting") / "run.json", kineto.document(events))


def ways(by: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [(), *(("--by", each) for each in by)]


ANSWERS = {
    "steps": [()],
    "summary": [()],
    "findings": [()],
    "idle": ways(BY["idle"]),
    "launches": ways(BY["launches"]),
    "waits": ways(BY["waits"]),
    "path": [*ways(BY["path"]), ("--what-if", "computing=0.5")],
    "memory": ways(BY["memory"]),
    "flops": ways(BY["flops"]),
    "comm": ways(BY["comm"]),
    "diff": ways(BY["diff"]),
}


@pytest.mark.parametrize("verb", ANSWERS)
def test_an_answer_has_the_columns_of_the_page(verb: str, waiting: Path) -> None:
    files = [waiting, waiting] if verb == "diff" else [waiting]
    answers = [json.loads(command(verb, *files, *way, "--format", "json").stdout) for way in ANSWERS[verb]]
    page = JSON.read_text().split("## Answers")[1]
    examples = map(json.loads, re.findall(r"```json\n(.*?)```", page, re.DOTALL))
    (example,) = (one for one in examples if one["answer"] == verb)

    assert list(example) == list(answers[0])
    assert list(example["rows"][0]) == list(answers[0]["rows"][0])
    assert names(section(verb)) == {name for answer in answers for name in answer["rows"][0]}
    assert names(page.split("### ")[0]) == set(answers[0])


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
