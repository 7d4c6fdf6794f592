"""native.replay does what plain loops do: for graphs of simulated runs, of real files, and of made numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import opspan
from analysis.replay_twin import LEAST, MOST, NONE, replay
from builders.job import Job, Slower
from builders.job_program import rows_of
from builders.training_files import kineto_files
from builders.training_plan import Run
from opspan import native
from opspan.findings import findings
from opspan.questions import Options
from opspan.views import path

Asked = list[tuple[pl.DataFrame, pl.DataFrame, int]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Collects the arguments of native.replay; each answer is compared with that of the twin."""
    frames: Asked = []
    real = native.replay

    def compared(work: pl.DataFrame, joins: pl.DataFrame, count: int) -> pl.DataFrame:
        frames.append((work, joins, count))
        found = real(work, joins, count)
        assert_frame_equal(found, replay(work, joins, count))
        return found

    monkeypatch.setattr(native, "replay", compared)
    return frames


LATE = (Slower(1.6, ranks=frozenset([1])),)
JOBS = {
    "a full queue": Job(steps=8, kernel=2.0, depth=20, load_ns=1_000_000),
    "streams and values": Job(steps=8, side_ns=400_000, items=4, synchronises=2),
    "ranks": Job(steps=8, ranks=4, layers=2, slower=LATE),
    "a pipeline": Job(steps=8, ranks=2, layers=2, pipeline=True, micro=4, slower=LATE),
}


@pytest.mark.parametrize("name", JOBS)
def test_graphs_of_simulated_runs(name: str, asked: Asked, tmp_path: Path) -> None:
    job = JOBS[name]
    found = opspan.load(*kineto_files(tmp_path, Run(job, *rows_of(job)[:4]))).analysed
    findings(found)
    path.parts(found, Options("op", factors={"computing": 0.5, "host": 0.8}))
    assert len(asked) >= 2
    if job.ranks > 1:
        assert any(work["meeting"].count() for work, _, _ in asked)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["nsys/torch_lm_2025.sqlite", "nsys/graph_nodes.sqlite", "kineto/ns_resolution.pt.trace.json.gz"]
)
def test_graphs_of_real_files(name: str, asked: Asked, traces_dir: Path) -> None:
    found = opspan.load(traces_dir / name).analysed
    findings(found)
    path.parts(found, Options("op", factors={"computing": 0.0}))
    assert asked


TIMES = st.one_of(st.integers(-50, 50), st.sampled_from([LEAST, LEAST + 1, MOST - 1, MOST]))
FLAGS = st.booleans()


@st.composite
def graphs(draw: Any) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Work that waits for what comes before it; joins in turn."""
    count, joined = draw(st.integers(0, 8)), draw(st.integers(0, 6))
    work, edges = [], []
    for node in range(count):
        before = st.integers(NONE, node - 1)
        several = draw(st.lists(st.integers(0, node - 1), min_size=2, max_size=3)) if node and draw(FLAGS) else []
        first = count + len(edges)
        edges += [
            {"other": one, "next": first + place + 1 if place + 1 < len(several) else NONE}
            for place, one in enumerate(several)
        ]
        other = -first if several and first > 1 else draw(before)
        row = {"bound": draw(before), "other": other, "next": NONE, "is_alone": draw(FLAGS)}
        row |= {"meeting": draw(st.sampled_from([None, None, 3, 70])), "join": draw(st.integers(NONE, joined - 1))}
        work.append(row | {name: draw(TIMES) for name in ("delay_ns", "launch_ns", "took_ns", "tail_ns")})
    rows, left = [], count
    for join, walked in enumerate(draw(st.permutations(range(joined)))):
        between = draw(st.integers(0, left))
        left -= between
        row = {"in_order": walked, "work_between": between}
        row |= {"what": draw(st.integers(0, 3) if count else st.integers(1, 2))}
        row |= {"work": draw(st.integers(0, count - 1)) if count else NONE}
        row |= {name: draw(st.integers(NONE, joined - 1)) for name in ("entry", "own_entry")}
        row |= {name: draw(TIMES) for name in ("target_ns", "lag_ns", "own_ns", "clock_ns")}
        row |= {name: draw(FLAGS) for name in ("has_own", "is_free", "binds")} | {"is_first": join == 0 or draw(FLAGS)}
        rows.append(row)
    numbers = ("bound", "delay_ns", "join", "launch_ns", "other", "next", "took_ns", "meeting", "tail_ns")
    schema = dict.fromkeys(numbers, pl.Int64) | {"is_alone": pl.Boolean}
    blank = dict.fromkeys(numbers, 0) | {"meeting": None, "is_alone": False}
    named = ("in_order", "work_between", "what", "work", "entry", "own_entry")
    named += ("target_ns", "lag_ns", "own_ns", "clock_ns")
    flags = dict.fromkeys(("has_own", "is_free", "binds", "is_first"), pl.Boolean)
    return (
        pl.DataFrame([*work, *(blank | edge for edge in edges)], schema=schema, orient="row"),
        pl.DataFrame(rows, schema=dict.fromkeys(named, pl.Int64) | flags, orient="row"),
        count,
    )


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_graphs_of_any_numbers(graph: tuple[pl.DataFrame, pl.DataFrame, int]) -> None:
    assert_frame_equal(native.replay(*graph), replay(*graph))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), TIMES)), st.lists(st.tuples(st.integers(0, 4), st.none() | TIMES)), FLAGS)
def test_what_came_last_before(known: list[Any], asked: list[Any], strict: bool) -> None:
    known.sort()

    def last(by: int, time: int | None) -> int:
        rows = [row for row, (of, at) in enumerate(known) if of == by and time is not None and at <= time - strict]
        return max(rows, default=NONE)

    schema = {"by": pl.Int64, "time_ns": pl.Int64}
    frames = (pl.DataFrame(rows, schema=schema, orient="row") for rows in (asked, known))
    assert native.latest(*frames, strict=strict).to_list() == [last(*one) for one in asked]
