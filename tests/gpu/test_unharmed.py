"""A program that is recorded with its device does what it does without: results, errors, exit codes, workers."""

from __future__ import annotations

import pytest

import opspan
from gpu.children import differences, fact
from gpu.conftest import Runs
from gpu.test_against_torch import NAMES
from gpu.work_rows import of_chrome, of_trace

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.usefixtures("gpu")]


@pytest.mark.parametrize("watcher", ["torch", "record", "profile"])
@pytest.mark.parametrize("name", NAMES)
def test_results_are_equal_bit_for_bit(runs: Runs, name: str, watcher: str) -> None:
    plain, watched = (runs("watched", name, each).ended.told for each in ("plain", watcher))
    assert watched["digest"] == plain["digest"]
    assert not watched["profiles_on"]


@pytest.mark.parametrize("case", ["oom_caught", "oom_leaves"])
def test_an_out_of_memory_error_is_the_programs_and_nothing_is_left(runs: Runs, case: str) -> None:
    plain, watched = (runs("trouble", case, watcher).ended.told for watcher in ("plain", "record"))
    fact(case, plain=plain, watched=watched)
    assert plain["kind"] == "OutOfMemoryError"
    assert not [text for text in watched.pop("warnings") if "opspan" in text or "not recorded" in text]
    assert watched == {name: value for name, value in plain.items() if name != "warnings"}
    assert (watched["profiles_on"], watched["hooks"], watched["ops_after"]) == (False, 0, 1)


@pytest.mark.parametrize(("case", "code"), [("oom_ends_it", 1), ("exits", 7), ("never_ended", 0)])
def test_exit_codes_are_the_programs(runs: Runs, case: str, code: int) -> None:
    plain, watched = (runs("trouble", case, watcher).ended for watcher in ("plain", "record"))
    assert plain.code == code, plain.text
    assert watched.code == code, watched.text
    if case == "oom_ends_it":
        for ended in (plain, watched):
            assert "torch.OutOfMemoryError: CUDA out of memory" in ended.err, ended.text


@pytest.mark.parametrize("case", ["oom_caught", "exits"])
def test_what_ran_before_the_end_is_recorded(runs: Runs, case: str) -> None:
    run = runs("trouble", case, "record")
    rows = of_trace(opspan.load(run.folder / "recorded").analysed)
    assert [row for row in rows if row.kind == "kernel"], run.ended.text


def test_where_torch_profiles_already_one_sentence_says_so_and_torch_has_all(runs: Runs) -> None:
    run = runs("trouble", "torch_is_on", "record")
    told = run.ended.told["warnings"]
    assert [text for text in told if "torch.profiler is on, and it cannot be on twice" in text], told
    ours, theirs = (
        [(row.kind, row.name) for row in of_chrome(folder / "torch.json")]
        for folder in (run.folder, runs("watched", "mlp", "torch").folder)
    )
    assert ours == theirs, differences(ours, theirs)
    recorded = opspan.load(run.folder / "recorded")
    assert recorded.ranges.filter(name="aten::addmm").height == 2
    assert not recorded.work.height


def test_profilers_that_take_turns_in_a_process_all_see_the_same(runs: Runs) -> None:
    run = runs("trouble", "one_after_another", "record")
    assert run.ended.told["has_gpu"]
    found = {}
    for turn in range(2):
        found[f"torch{turn}"] = of_chrome(run.folder / f"torch{turn}.json")
        trace = opspan.load(run.folder / f"recorded{turn}")
        found[f"record{turn}"] = of_trace(trace.analysed)
        fact("turn", turn=turn, issues=trace.issues.to_dicts())
    named = {who: [(row.kind, row.name, row.op) for row in rows] for who, rows in found.items()}
    fact("turns", counts={who: len(rows) for who, rows in named.items()})
    for who, rows in named.items():
        assert rows == named["torch0"], f"{who}: {differences(rows, named['torch0'])}"


def test_forked_loaders_that_pin_memory_work(runs: Runs) -> None:
    plain, run = (runs("trouble", "loader", watcher) for watcher in ("plain", "record"))
    watched = run.ended.told
    assert watched["sums"] == plain.ended.told["sums"]
    assert len(watched["sums"]) == 8
    assert not [text for text in watched["warnings"] if "not recorded" in text], watched["warnings"]
    trace = opspan.load(run.folder / "recorded")
    copies = trace.work.filter(kind="memcpy").group_by("name", "copy_from", "copy_to").len().rows()
    fact("loader", copies=copies, processes=trace.ranges["pid"].n_unique())
    assert sum(count for _, source, _, count in copies if source == "pinned") >= 8, copies


def test_the_peak_in_torchs_profile_is_the_allocators(runs: Runs) -> None:
    """opspan's own recordings have no memory of devices (docs/profiler.md): what there is, is kept as a fact."""
    run, ours = (runs("trouble", "memory", watcher) for watcher in ("plain", "record"))
    peak = run.ended.told["allocated_bytes.all"]
    trace = opspan.load(run.folder / "memory.json")
    peaks = trace.memory_use("device")
    on_device = trace.memory.filter(trace.memory["device_id"].is_not_null())
    own = opspan.load(ours.folder / "recorded").memory
    fact(
        "memory",
        allocator=run.ended.told,
        events=on_device.height,
        highest_total=on_device["total_bytes"].max(),
        peaks=peaks.to_dicts(),
        profile_beside=ours.ended.told,
        profile_events={str(device): count for device, count in own.group_by("device_id").len().rows()},
    )
    assert ours.ended.told["allocated_bytes.all"] == peak
    assert on_device["total_bytes"].max() == peak
