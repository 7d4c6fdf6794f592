"""opspan.autograd_profiler.profile against torch.autograd.profiler.profile."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import pytest

from emit import running
from opspan import autograd_profiler

torch = pytest.importorskip("torch")
torch_profiler = pytest.importorskip("torch.autograd.profiler")

HEAD = """
import json, sys, warnings
import torch
import torch.autograd.profiler
from opspan import autograd_profiler
BOTH = (autograd_profiler, torch.autograd.profiler)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
def train():
    model(torch.ones(3, 8)).sum().backward()
train()
"""


def told(code: str, cwd: Path | None = None) -> Any:
    return running.told(HEAD + code, cwd=cwd)


def test_the_names_are_all_that_torch_has() -> None:
    assert set(torch_profiler.__all__) <= set(autograd_profiler.__all__)
    for name in autograd_profiler.__all__:
        assert getattr(autograd_profiler, name) is not None


def test_every_argument_and_method_of_torchs_is_there() -> None:
    ours, theirs = autograd_profiler.profile, torch_profiler.profile
    gone = {"use_mtia"}  # from torch after 2.4
    assert set(inspect.signature(theirs).parameters) - gone <= set(inspect.signature(ours).parameters)
    inner = {"config", "create_trace_id", "default_trace_id"}  # belong to Kineto's configuration
    public = {name for name in vars(theirs) if not name.startswith("_")} - inner
    assert {name for name in public if not hasattr(ours, name)} == set()
    for name in public:
        method = getattr(theirs, name)
        if callable(method):
            wanted = list(inspect.signature(method).parameters)
            assert list(inspect.signature(getattr(ours, name)).parameters)[: len(wanted)] == wanted, name


def test_the_same_rows_as_torchs() -> None:
    ours, theirs = told("""
found = []
for module in BOTH:
    with module.profile(record_shapes=True, with_flops=True, profile_memory=True) as prof:
        train()
    rows = prof.key_averages(group_by_input_shape=True)
    found.append(sorted(
        [row.key, row.count, str(row.input_shapes), row.flops or 0, row.cpu_memory_usage] for row in rows
    ))
    assert prof.total_average().count == len([event for event in prof.function_events])
    assert prof.self_cpu_time_total > 0
# torch's own tables fail here: its events of memory alone have no flops.
with autograd_profiler.profile(with_flops=True, profile_memory=True) as prof:
    train()
assert "FLOPs" in prof.key_averages().table()
assert "aten::addmm" in prof.table(sort_by="self_cpu_time_total", row_limit=5)
assert "aten::addmm" in str(prof)
print(json.dumps(found))
""")
    assert ours == theirs


@pytest.mark.slow
def test_before_the_end_while_off_and_twice() -> None:
    ours, theirs = told("""
found = []
for module in BOTH:
    said = []
    with module.profile(enabled=False) as nothing:
        train()
    said.append(nothing is None)
    prof = module.profile()
    said.append(str(prof))
    with prof as entered:
        said.append(entered is prof)
        try:
            prof.__enter__()
        except RuntimeError as error:
            said.append(str(error))
        train()
    for call in (lambda: module.profile(use_cpu=False), lambda: prof.export_stacks("stacks.txt")):
        try:
            call()
        except AssertionError:
            said.append("AssertionError")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        module.profile(use_device="abacus")
    said.append([warning.category.__name__ for warning in warned])
    found.append(said)
print(json.dumps(found))
""")
    assert ours == theirs


@pytest.mark.filterwarnings("ignore:CUDA initialization")  # the driver may be too old for this build of torch
def test_use_cuda_is_taken_with_torchs_warning() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a device here")
    ours = use_cuda_of(autograd_profiler)
    assert [category.__name__ for category in ours] == ["FutureWarning", "UserWarning"]  # and there is no CUDA
    if "use_cuda" in inspect.signature(torch_profiler.profile).parameters:  # before 2.14
        assert use_cuda_of(torch_profiler) == ours


def use_cuda_of(module: Any) -> list[type[Warning]]:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        module.profile(use_cuda=True)
    return [one.category for one in warned if "CUDA initialization" not in str(one.message)]


@pytest.mark.slow
def test_figures_of_the_profiler_itself_and_the_trace(tmp_path: Path) -> None:
    told(
        """
with autograd_profiler.profile(custom_trace_id_callback=lambda: "mine") as prof:
    train()
events = prof.function_events
stats = prof.stats
assert stats.number_of_events == len(events) > 20
assert 0 < stats.profiling_window_duration_sec < 60
assert stats.profiler_enable_call_duration_us > 0 and stats.profiler_disable_call_duration_us > 0
assert stats.parse_kineto_call_duration_us > 0
assert prof.trace.ranges.height >= len(events)
assert prof.trace_id == "mine"
prof.export_chrome_trace("trace.json", metadata={"key": "value"})
assert json.load(open("trace.json"))["key"] == "value"
print(1)
""",
        tmp_path,
    )


@pytest.mark.slow
@pytest.mark.skipif(
    "acc_events" not in inspect.signature(torch.profiler.profile.__init__).parameters,
    reason="this torch has no acc_events",
)
def test_events_accumulate_over_cycles_if_asked_to() -> None:
    ours, theirs, last = told("""
import torch.profiler
from opspan import profiler
CPU = [torch.profiler.ProfilerActivity.CPU]
found = []
for module, acc in ((profiler, True), (torch.profiler, True), (profiler, False)):
    schedule = torch.profiler.schedule(wait=1, warmup=0, active=1, repeat=2)
    with module.profile(activities=CPU, schedule=schedule, acc_events=acc) as prof:
        for _ in range(4):
            train()
            prof.step()
    found.append(sorted([row.key, row.count] for row in prof.key_averages() if "ProfilerStep" not in row.key))
print(json.dumps(found))
""")
    assert ours == theirs
    assert [[name, count // 2] for name, count in ours] == last
