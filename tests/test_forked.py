"""Reading in processes that were forked after polars had started its threads."""

from __future__ import annotations

import pickle
import sys
import warnings
from pathlib import Path

import polars as pl
import pytest

import opspan
from emit.running import python
from opspan import forked, workers

LIMIT_S = 120

# `said(function)`: what it returns in a fork, which is ended when it takes too long.
FORK = f"""
import os, pickle, signal, sys, traceback
import torch, opspan
from opspan.profiler import profile, schedule, tensorboard_trace_handler

torch.set_num_threads(1)
x = torch.ones(20, 20)

def said(function):
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(hear)
        signal.alarm({LIMIT_S})
        try:
            answer = function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        with os.fdopen(tell, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(tell)
    with os.fdopen(hear, "rb") as pipe:
        answer = pipe.read()
    status = os.waitpid(pid, 0)[1]
    assert status == 0, f"it hung, or failed: {{status}}"
    return pickle.loads(answer)

def work():
    return torch.relu(x + x).reshape(-1).sum()

def profiled(profiler=profile):
    work()
    with profiler(record_shapes=True) as prof:
        work()
    return prof

def rows(events):
    return [
        (e.name, e.input_shapes, [c.name for c in e.cpu_children], e.cpu_parent and e.cpu_parent.name, e.sequence_nr)
        for e in events
    ]

def averages(prof):
    found = prof.key_averages(group_by_input_shape=True)
    assert "Self CPU" in found.table(sort_by="self_cpu_time_total")
    return sorted((a.key, str(a.input_shapes), a.count) for a in found)

def answer():
    prof = profiled()
    return rows(prof.events()), averages(prof)
"""


def test_a_fork_lists_the_events_that_its_parent_and_torch_list() -> None:
    python(
        FORK
        + """
theirs = profiled(torch.profiler.profile)
ours = answer()
for function in (answer, lambda: said(answer)):  # a fork, and a fork of a fork
    assert said(function) == ours, said(function)
assert [row[:2] for row in ours[0]] == [(e.name, e.input_shapes) for e in theirs.events()]
assert said(answer)[1] == sorted(
    (a.key, str(a.input_shapes), a.count) for a in theirs.key_averages(group_by_input_shape=True)
)
"""
    )


def test_what_the_parent_has_read_can_be_asked_in_a_fork() -> None:
    python(
        FORK
        + """
prof = profiled()
def asked():
    return rows(prof.events()), averages(prof), prof.trace.table().rows["name"].to_list(), str(prof.trace.table())
assert said(asked) == asked()
"""
    )


def test_every_way_to_read_works_in_a_fork(tmp_path: Path) -> None:
    python(
        FORK
        + """
import pathlib

def ways(folder):
    with profile(path=folder / "kept") as prof:
        work()
    prof.export_chrome_trace(folder / "trace.json")
    tensorboard_trace_handler(folder / "log")(prof)
    trace = opspan.load(folder / "kept")
    trace.export(folder / "trace.sqlite")
    with opspan.record() as rec:
        work()
    try:
        opspan.load("none")
    except opspan.errors.NotReadable as error:
        missing = str(error)
    return (
        sorted(trace.ranges["name"].to_list()),
        rows(opspan.load_kineto(folder / "trace.json")),
        sorted(opspan.load_many(folder / "kept", folder / "trace.json").table().rows["name"]),  # not by their times
        rows(rec.events()),
        trace.steps().columns,
        sorted(path.name.split(".")[-1] for path in folder.rglob("*")),
        missing,
    )

answer()
folder = pathlib.Path(sys.argv[1])
for name in ("there", "here"):
    (folder / name).mkdir()
for theirs, ours in zip(said(lambda: ways(folder / "there")), ways(folder / "here")):
    assert theirs == ours, (theirs, ours)
""",
        str(tmp_path),
    )


def test_workers_of_a_pool_and_of_a_dataloader_profile_and_read() -> None:
    python(
        FORK
        + f"""
import multiprocessing
ours = answer()

def answer_for(_):
    return answer()

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return answer()

signal.alarm({2 * LIMIT_S})
with multiprocessing.get_context("fork").Pool(4) as pool:
    assert pool.map(answer_for, range(4)) == [ours] * 4
loader = torch.utils.data.DataLoader(Data(), batch_size=None, num_workers=2, collate_fn=lambda one: one)
assert list(loader) == [ours] * 4
"""
    )


def test_a_fork_of_a_process_that_has_not_used_polars_reads_by_itself() -> None:
    python(
        FORK
        + """
import polars
from opspan import forked
def alone():
    forked.ask = None
    return answer()[0]
assert said(alone) == rows(profiled().events())
"""
    )


def test_opspan_that_was_imported_after_the_fork_knows() -> None:
    python(
        """
import os, sys, polars
polars.DataFrame({"a": [2, 1]}).sort("a")
pid = os.fork()
from opspan import forked
if pid == 0:
    os._exit(10 + forked.is_cut_off())
assert not forked.is_cut_off()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 11
"""
    )


@pytest.mark.parametrize("program", ["", "/usr/bin/blender", "/opt/app/main"])
def test_what_is_no_python_is_never_started(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setattr(forked, "is_cut_off", lambda: True)
    with pytest.raises(opspan.OpspanError, match="is no Python: read in the parent"):
        opspan.load("trace.json")
    assert not workers.has_python()


def test_a_formula_goes_to_the_other_process_and_one_that_cannot_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "is_cut_off", lambda: True)
    monkeypatch.setattr(forked, "carried", {})
    opspan.register_flops("mine::op", len)  # type: ignore[arg-type]
    try:
        assert pickle.loads(pickle.dumps(list(forked.carried.values())))
        opspan.register_flops("mine::op", lambda *_: 1)
        with pytest.raises(opspan.OpspanError, match="cannot be handed to another process"):
            opspan.load("trace.json")
    finally:
        opspan.register_flops("mine::op", None)


def test_an_analysis_without_a_way_around_is_an_error_and_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    from opspan import native

    monkeypatch.setattr(forked, "is_cut_off", lambda: True)
    with pytest.raises(opspan.OpspanError, match="forked after polars had started its threads"):
        native.nearest(pl.DataFrame({"parent": [], "marked": []}))


def test_what_another_process_warns_of_is_warned_of_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match="seen there"):
        forked.ask(_warning)


def _warning() -> None:
    warnings.warn("seen there", UserWarning, stacklevel=1)
