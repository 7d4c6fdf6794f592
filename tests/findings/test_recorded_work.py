"""Findings about the work of devices in recorded files, against sums of the files' own rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from findings.test_recorded import Spans, events_of, said, sql, time_in, together

HOST, DEVICE = (0, 1), 2  # kinds of memory: pageable, pinned
COPIES = "SELECT globalPid >> 24, start, end, srcKind, dstKind, bytes, correlationId FROM CUPTI_ACTIVITY_KIND_MEMCPY"
KERNELS = "SELECT globalPid >> 24, start, end, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"
CALLS = "SELECT globalTid >> 24, start, end, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"


def alone(copies: list[tuple[int, int, int]], others: list[tuple[int, int, int]]) -> int:
    """For how long any of these copies ran on its own, in the process where that is longest."""
    found = []
    for pid in {pid for pid, *_ in copies}:
        mine = together([(begin, end) for one, begin, end in copies if one == pid])
        theirs: Spans = [(begin, end) for one, begin, end in others if one == pid]
        found.append(sum(end - begin for begin, end in mine) - time_in(theirs, mine))
    return max(found)


def of_host_and_device(path: Path) -> tuple[list[tuple], list[tuple[int, int, int]]]:
    """The copies between host and device, and all else that ran on devices."""
    rows = [row for row in sql(path, COPIES) if row[2] > row[1]]
    chosen = [row for row in rows if (row[3] in HOST and row[4] == DEVICE) or (row[3] == DEVICE and row[4] in HOST)]
    others = [row[:3] for row in rows if row not in chosen] + [row[:3] for row in sql(path, KERNELS)]
    return chosen, others


def waited_at_the_end(path: Path) -> int:
    """How long calls took, of a process, whose work ran after the recording."""
    known = {(row[0], row[-1]) for query in (KERNELS, COPIES) for row in sql(path, query)}
    calls = sql(path, CALLS)
    last = {pid: max(row[1] for row in calls if row[0] == pid and (pid, row[3]) in known) for pid, *_ in calls}
    return max(sum(row[2] - row[1] for row in calls if row[0] == pid and row[1] > last[pid]) for pid in last)


def test_a_device_that_copies_nearly_all_the_time(traces_dir: Path) -> None:
    name = "nsys/infer_2gpu.sqlite"
    found = said(traces_dir, name)["exposed-copies"].evidence
    copies, others = of_host_and_device(traces_dir / name)
    assert (found.figures["copies"], found.figures["bytes"]) == (len(copies), sum(row[5] for row in copies))
    assert found.figures["pinned_ns"] == sum(row[2] - row[1] for row in copies if 1 in row[3:5])
    # There was something behind the copies nearly all the time. What the last launches waited for is not in the file,
    # as what they launched is not: they are taken to take as long without the copies.
    ns = alone([row[:3] for row in copies], others)
    assert 0.9 * (ns - waited_at_the_end(traces_dir / name)) <= (found.at_stake_ns or 0) <= ns


def test_copies_that_the_host_waits_for(traces_dir: Path) -> None:
    name = "nsys/mpi_saxpy_2022.sqlite"
    found = said(traces_dir, name)["exposed-copies"].evidence
    copies, others = of_host_and_device(traces_dir / name)
    calls = {(pid, correlation): (begin, end) for pid, begin, end, correlation in sql(traces_dir / name, CALLS)}
    # The host does nothing else while it is in their calls, and no device while it copies.
    in_calls = [calls[row[0], row[-1]] for row in copies]
    assert alone([row[:3] for row in copies], others) < sum(end - begin for begin, end in in_calls)
    assert found.at_stake_ns == pytest.approx(sum(end - begin for begin, end in in_calls), rel=0.01)
    assert found.words["memory"] == "in all of them it is pageable"


def test_products_of_a_program_without_labels_for_its_ops(traces_dir: Path) -> None:
    name = "nsys/torch_lm_2025.sqlite"
    found = said(traces_dir, name)["tf32-off"].evidence
    query = """SELECT COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON demangledName = id
        WHERE (value LIKE '%_sgemm_%' OR value LIKE '%f32f32_f32f32%') AND value NOT LIKE '%splitKreduce%'"""
    ((count, ns),) = sql(traces_dir / name, query)
    assert (found.figures["kernels"], found.figures["ns"]) == (count, ns)
    assert 0.8 * ns / 2 < (found.at_stake_ns or 0) <= ns / 2


@pytest.mark.parametrize("name", ["compiled_flux_step", "rank0_sampled", "b200_eager"])
def test_casts_are_few(name: str, traces_dir: Path) -> None:
    assert "casts" not in said(traces_dir, f"kineto/{name}.json.gz")
    events = events_of(traces_dir / f"kineto/{name}.json.gz")
    whole = max(one["end"] for one in events if one["cat"] == "kernel") - min(
        one["begin"] for one in events if one["cat"] == "kernel"
    )
    copies = {
        one["args"]["External id"]
        for one in events
        if one["name"] == "aten::copy_" and len(set(one["args"].get("Input type", ["", ""])[:2])) == 2
    }
    casts = [one for one in events if one["cat"] == "kernel" and one["args"].get("External id") in copies]
    assert sum(one["end"] - one["begin"] for one in casts) < 0.05 * whole
