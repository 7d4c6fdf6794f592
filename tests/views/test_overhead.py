"""Work of the profiler itself, before and after a run: each view shows it apart, and it does not count as time of the
run."""

from __future__ import annotations

from pathlib import Path

import opspan
from builders import kineto
from opspan.questions import Options, question
from opspan.trace import Trace
from opspan.views.page import timeline
from opspan.views.page.section import Subject

BEFORE, AFTER = ("Instrumentation", 100.0, 400.0), ("Buffer Flush", 2500.0, 5000.0)  # in microseconds


def overhead(name: str, start: float, duration: float) -> dict:
    return kineto.span("overhead", name, 0, start, duration, pid=-1)


def both(folder: Path) -> tuple[Trace, Trace]:
    """A run, and the same with a profiler that was at work before and after."""
    more = [overhead(*BEFORE), overhead(*AFTER)]
    return (
        opspan.load(kineto.write(folder / "a.json", kineto.events())),
        opspan.load(kineto.write(folder / "b.json", kineto.events() + more)),
    )


def test_no_figure_of_the_run_changes(tmp_path: Path) -> None:
    run, with_overhead = both(tmp_path)

    one, other = (question("summary").answer_of(trace.analysed, Options()) for trace in (run, with_overhead))

    assert other.rows["overhead_outside_ns"].item() == 5_400_000
    assert other.rows.drop("overhead_outside_ns").equals(one.rows.drop("overhead_outside_ns"))
    assert set(other.notes) - set(one.notes) == {"Profiler     5.400ms at work before and after the run: not counted"}
    assert with_overhead.idle().equals(run.idle())
    assert with_overhead.flops("step").equals(run.flops("step"))
    assert with_overhead.duration_ns() == run.duration_ns()
    assert with_overhead.findings().equals(run.findings())


def test_the_timeline_shows_the_run(tmp_path: Path) -> None:
    run, with_overhead = both(tmp_path)

    one, other = (timeline.section(Subject(trace.analysed)).data for trace in (run, with_overhead))

    assert one is not None
    assert other is not None
    assert other["length"] == one["length"]
    assert int(other["begin"]) - int(one["begin"]) in (0, 900_000)  # the file's first time is its zero
    said = "2 pieces of the profiler's own work, before and after the run, are not drawn"
    assert [note for note in other["notes"] if note not in one["notes"]] == [said]


def test_a_chrome_trace_keeps_it_apart(tmp_path: Path) -> None:
    _, trace = both(tmp_path)

    trace.export(tmp_path / "back.json")

    back = opspan.load(tmp_path / "back.json")
    assert back.work["is_overhead"].sum() == 2
    assert back.duration_ns() == trace.duration_ns()
