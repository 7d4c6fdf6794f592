"""The line of the summary about compiling, and the same figures as JSON, of one process and of several."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan as package
from builders import compile_log as log
from builders import kineto
from cli.answers import rows
from emit.running import opspan
from opspan.questions import Options, question

FIGURES = ("compilations", "compiled_again", "compile_ns", "graph_breaks")
BACKWARD = "bwd_compilation_metrics"


def summary(folder: Path, *entries: str) -> tuple[list[str], tuple[int | None, ...]]:
    """Returns the line, if there is one, and the figures of JSON."""
    content = kineto.document()
    content["traceEvents"].append(kineto.op("aten::relu", 9, 10.0, 1.0) | {"pid": 9})  # another process of the trace
    trace = kineto.write(folder / "trace.json", content)
    path = log.write(folder / "a.log", *(entries or (log.code(""),)))
    text = opspan("summary", trace, "--compiled", path).stdout
    (row,) = rows("summary", trace, "--compiled", path)
    return [line for line in text.splitlines() if line.startswith("Compiled")], tuple(row[name] for name in FIGURES)


@pytest.mark.parametrize(
    ("entries", "line", "figures"),
    [
        ((log.metrics(),), "1 compilation, 2.000s", (1, 0, 2_000_000_000, 0)),
        (
            (log.metrics(), log.metrics(name=BACKWARD, duration_us=500_000), log.graph_break(4)),
            "2 compilations (1 of a backward), 2.500s, 1 graph break at 1 line",
            (2, 0, 2_500_000_000, 1),
        ),
        (
            (
                *(log.metrics(f"0/{number}") for number in range(3)),
                *(log.graph_break(4, compile_id=f"0/{number}") for number in range(3)),
                log.graph_break(7),
            ),
            "3 compilations (2 again), 6.000s, 4 graph breaks at 2 lines",
            (3, 2, 6_000_000_000, 4),
        ),
        (
            (log.metrics(), log.metrics("0/1"), log.metrics(pid=9), log.graph_break(4)),
            "2 processes: 3 compilations (1 again), up to 4.000s, 1 graph break",
            (3, 1, 4_000_000_000, 1),
        ),
    ],
)
def test_the_summary_has_a_line(tmp_path: Path, entries: tuple[str, ...], line: str, figures: tuple[int, ...]) -> None:
    assert summary(tmp_path, *entries) == ([f"Compiled     {line}"], figures)


def test_without_compilations_there_is_no_line(tmp_path: Path) -> None:
    assert summary(tmp_path) == ([], (None, None, None, None))


def test_a_log_of_all_ranks_counts_once_however_the_ranks_are_loaded(tmp_path: Path) -> None:
    traces = [kineto.write(tmp_path / f"{name}.json") for name in "ab"]
    path = log.write(tmp_path / "a.log", log.metrics(), log.metrics("0/1"))
    one = package.load(*traces, compiled=path)
    many = package.load_many(*traces, compiled=path, processes=1)

    assert one.compilations.height == 4
    for row in (question("summary").rows_of(one.analysed, Options()), many.summary()):
        assert row.select(FIGURES).rows() == [(2, 1, 4_000_000_000, 0)]
