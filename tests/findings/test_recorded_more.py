"""Other findings about recorded files, computed again from the rows of the files; and findings that must not come
back."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

import pytest

import opspan
from findings.recorded_rows import SYNCHRONISE, Rows, Work, rows_of
from findings.test_recorded import Spans, events_of, said, spans, sql, time_in, together
from findings.test_recorded_idle import exported, usual
from findings.test_recorded_work import alone
from opspan.findings import findings


def less(some: Spans, others: Spans) -> int:
    mine = together(some)
    return sum(end - begin for begin, end in mine) - time_in(others, mine)


def between_host_and_device(rows: Rows) -> tuple[list[Work], list[Work]]:
    """The copies, and all other work."""
    is_copy = ("CopyHostToDevice", "CopyDeviceToHost")
    copies = [one for one in rows.work if one.kind in is_copy or (one.kind == "memcpy" and len(set(one.sides)) == 2)]
    return copies, [one for one in rows.work if one not in copies]


def test_copies_of_a_file_that_does_not_say_of_what_memory(traces_dir: Path) -> None:
    name = "rocpd/matmul_result_large.rpd"
    found = said(traces_dir, name)["exposed-copies"].evidence
    rows = rows_of(traces_dir / name)
    copies, others = between_host_and_device(rows)
    calls = {one.id: one for one in rows.calls}
    # The host is in the call of each of them until it is done, and does nothing else meanwhile.
    # The first of them begins before any device does anything.
    first = min(one.begin for one in rows.work)
    in_calls = {(one.pid, max(one.begin, first), one.end) for one in (calls[one.call] for one in copies)}
    # Time in which the host waited there for kernels would be waited elsewhere, so it does not count.
    for_copies = alone([*in_calls], [(one.pid, one.begin, one.end) for one in others])
    assert for_copies <= (found.at_stake_ns or 0) <= sum(end - begin for _, begin, end in in_calls)
    assert (found.figures["copies"], found.figures["ns"]) == (len(copies), sum(one.end - one.begin for one in copies))
    assert sql(traces_dir / name, "SELECT DISTINCT pinned FROM rocpd_copyapi") == [(0,)]
    assert found.words["memory"] == "the file does not say of what kind it is"


def test_copies_that_a_stream_is_waited_for(traces_dir: Path) -> None:
    name = "nsys/profiler_overhead_ends.sqlite"
    found = said(traces_dir, name)["exposed-copies"].evidence
    rows = rows_of(traces_dir / name)
    copies, others = between_host_and_device(rows)
    assert found.figures["ns"] == sum(one.end - one.begin for one in copies)
    waits = [(one.begin, one.end) for one in rows.calls if re.search(SYNCHRONISE, one.name)]
    own = together([(one.begin, one.end) for one in copies])
    assert not time_in([(one.begin, one.end) for one in others], own)
    # The time is at least that which the host waited for the copies, and at most that of the copies and their calls.
    calls = {one.id: one for one in rows.calls}
    in_calls = sum(calls[one.call].end - calls[one.call].begin for one in copies)
    assert time_in(waits, own) <= (found.at_stake_ns or 0) <= found.figures["ns"] + in_calls


def test_inputs_and_results_of_one_size_do_not_go_there_and_back(traces_dir: Path) -> None:
    name = "nsys/mpi_saxpy_2022.sqlite"
    assert "there-and-back" not in said(traces_dir, name)
    query = "SELECT srcKind, dstKind, COUNT(*), COUNT(DISTINCT bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY 1, 2"
    # Two inputs come from other processes before each kernel, and its result goes to them.
    assert sql(traces_dir / name, query) == [(0, 2, 10, 1), (2, 0, 5, 1)]


def test_instrumentation_by_nvprof(traces_dir: Path) -> None:
    name = "nvprof/ort_markers.nvvp"
    found = said(traces_dir, name)["profiler-overhead"].evidence
    path = traces_dir / name
    rows = rows_of(path)
    first = rows.work[0].begin
    tables = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
    last = max(end for table in tables for ((end,),) in [sql(path, f"SELECT MAX(end) FROM {table}")])
    instrumentation = 2 << 16
    query = "SELECT start, end FROM CUPTI_ACTIVITY_KIND_OVERHEAD WHERE end > start AND overheadKind ="
    own = [(begin, min(end, last)) for begin, end in sql(path, f"{query} {instrumentation}") if first <= begin < last]
    assert (found.figures["times"], found.at_stake_ns) == (len(own), sum(end - begin for begin, end in together(own)))


def test_ranges_that_took_longer(traces_dir: Path, tmp_path: Path) -> None:
    name = "nsys/nvtx_only.nsys-rep"
    found = said(traces_dir, name)["step-outliers"].evidence
    query = "SELECT end - start FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id WHERE COALESCE(text, value) = "
    lengths = sorted(ns for (ns,) in sql(exported(traces_dir / name, tmp_path), f"{query} 'find_centers'"))
    longest = lengths[-int(found.figures["steps"]) :]
    assert found.figures["all_steps"] == len(lengths)
    assert found.figures["usual_ns"] == median(lengths)
    assert found.figures["more_ns"] == sum(longest) - len(longest) * median(lengths)


def test_a_step_whose_kernels_took_longer(traces_dir: Path) -> None:
    name = "kineto/resnet50_torch1.8.pt.trace.json.gz"
    found = said(traces_dir, name)["step-outliers"].evidence
    rows = rows_of(traces_dir / name)
    ends: dict[object, int] = {}
    for one in rows.work:
        ends[one.call] = max(one.end, ends.get(one.call, 0))
    took, before = [], None
    for begin, end in usual(traces_dir / name, None):
        done = max([end, *(ends.get(one.id, 0) for one in rows.calls if begin <= one.begin < end)])
        took.append(done - (before or begin))
        before = done
    # Times of this file are whole microseconds, and steps end a few of them after another.
    assert found.figures["more_ns"] == pytest.approx(took[0] - median(took), rel=0.005)
    # Its kernels took longer, and the host waited for them.
    assert found.at_stake_ns == pytest.approx(took[0] - median(took), rel=0.1)
    assert found.steps == ("ProfilerStep#5",)


def test_collectives_of_a_host_in_which_no_op_runs(traces_dir: Path) -> None:
    name = "kineto/cpu_only.pt.trace.json.gz"
    found = said(traces_dir, name)["communication-or-waiting"].evidence
    events = events_of(traces_dir / name)
    collectives = [one for one in events if one["name"].startswith("gloo:")]
    own = spans(collectives, "user_annotation")
    assert found.figures["communicating_ns"] == sum(end - begin for begin, end in own)
    assert found.at_stake_ns == pytest.approx(less(own, spans(events, "cpu_op")), rel=0.001)


def test_two_ranks_of_a_job_lose_what_one_of_them_does(traces_dir: Path) -> None:
    names = [f"kineto/rank{rank}_sampled.json.gz" for rank in (0, 1)]
    alone_ = [said(traces_dir, name) for name in names]
    both = {one.rule.id: one for one in findings(opspan.load(*(traces_dir / name for name in names)).analysed)}
    for rule in ("late-host", "queued"):
        assert both[rule].evidence.at_stake_ns == max(one[rule].evidence.at_stake_ns or 0 for one in alone_)
    # At stake is the exposed time of the rank that has less of it, without the time that it is known to have waited.
    exposed = min(one["communication-or-waiting"].evidence.at_stake_ns or 0 for one in alone_)
    found = both["communication-or-waiting"].evidence
    assert exposed - 2 * found.figures["waiting_ns"] <= (found.at_stake_ns or 0) <= exposed
    assert found.confidence == "possible"
