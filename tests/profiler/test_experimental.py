"""Each field of torch's _ExperimentalConfig does what it does in torch, or a warning names it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from emit import running
from opspan import load, profiler
from opspan.profiler import experimental

torch_profiler = pytest.importorskip("torch.profiler")
config = pytest.importorskip("torch._C._profiler")._ExperimentalConfig
VERSION = pytest.importorskip("torch").__version__
CPU = [torch_profiler.ProfilerActivity.CPU]
PLACES = experimental._places(config)

HEAD = """
import gc, json, threading, warnings
import torch
import torch.profiler
from torch._C._profiler import _ExperimentalConfig
from opspan import profiler
CPU = [torch.profiler.ProfilerActivity.CPU]
def train():
    x = torch.ones(3, requires_grad=True)
    (x * 2 + 1).sum(dim=0).backward()
    torch.ones(2).add_(3).to(torch.int32)
train()
"""


def lacks(field: str) -> pytest.MarkDecorator:
    """Skips a test of a field that an older torch does not have. torch 2.13 and newer has all of them."""
    is_there = f"{field}:" in str(config.__init__.__doc__)  # pybind writes the arguments there
    return pytest.mark.skipif(not is_there, reason=f"torch {VERSION} has no {field}")


def told(code: str) -> Any:
    return running.told(HEAD + code)


def other_than_by_default(name: str) -> Any:
    default = experimental._values(config())[PLACES[name]]
    return {False: True, "": "a: b"}.get(default, ["one", "two"]) if not isinstance(default, list) else ["one", "two"]


def test_the_fields_are_torchs() -> None:
    assert sorted(PLACES.values()) == list(range(len(experimental._values(config()))))
    assert {"profiler_metrics", "verbose", "performance_events"} <= set(PLACES)
    if "trace_only" in PLACES:  # torch 2.13 and newer has all of them
        assert {*experimental._ALWAYS, *experimental._DONE} <= set(PLACES)


@pytest.mark.parametrize("name", PLACES)
def test_each_field_is_used_or_named_in_a_warning_with_its_value(name: str) -> None:
    value = other_than_by_default(name)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        profiler.profile(activities=CPU, experimental_config=config(**{name: value}))
    is_used = name in (*experimental._ALWAYS, *experimental._DONE)
    ours = [str(one.message) for one in warned if one.filename == __file__]
    expected = f"opspan.profiler does not use these of experimental_config: {name}={value!r}"
    assert ours == ([] if is_used else [expected])


def test_nothing_is_said_of_what_is_not_asked_for() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        profiler.profile(activities=CPU, experimental_config=config())
        profiler.profile(activities=CPU, experimental_config=None)


def test_what_is_no_config_of_torchs_is_refused() -> None:
    with pytest.raises(TypeError, match="expected torch's _ExperimentalConfig"):
        profiler.profile(activities=CPU, experimental_config={"verbose": True})


@pytest.mark.slow
@lacks("capture_overload_names")
def test_overloads_are_torchs_in_the_list_and_in_averages() -> None:
    ours, theirs, columns = told("""
asked = dict(activities=CPU, experimental_config=_ExperimentalConfig(capture_overload_names=True))
def said(prof):
    listed = sorted(prof.events(), key=lambda event: (event.time_range.start, -event.time_range.end))
    averages = prof.key_averages(group_by_overload_name=True)
    assert "Overload Name" in averages.table()
    assert "Overload Name" not in prof.key_averages().table()
    by_overload = sorted([row.key, row.overload_name, row.count] for row in averages)
    return [[[event.name, event.overload_name] for event in listed], by_overload]
with torch.profiler.profile(**asked) as theirs, profiler.profile(**asked) as ours:
    train()
columns = ours.trace.ranges.filter(name="aten::add_")["overload"].to_list()
print(json.dumps([said(ours), said(theirs), columns]))
""")
    assert ours == theirs
    overloads = {name: overload for name, overload in theirs[0] if overload}
    assert overloads["aten::add_"] == "Tensor"
    assert overloads["aten::sum"] == "dim_IntList"
    assert set(columns) == {"Tensor"}


@pytest.mark.slow
@lacks("capture_overload_names")
def test_names_of_ops_in_a_chrome_trace_end_with_the_overload(tmp_path: Path) -> None:
    named = told(f"""
asked = dict(activities=CPU, experimental_config=_ExperimentalConfig(capture_overload_names=True))
with torch.profiler.profile(**asked) as theirs, profiler.profile(**asked) as ours:
    train()
named = []
for prof, path in [(ours, {str(tmp_path / "ours.json")!r}), (theirs, {str(tmp_path / "theirs.json")!r})]:
    prof.export_chrome_trace(path)
    events = json.load(open(path))["traceEvents"]
    events = sorted((event["ts"], -event["dur"], event["name"]) for event in events if event.get("cat") == "cpu_op")
    named.append([name for *_, name in events])
print(json.dumps(named))
""")
    assert named[0] == named[1]
    assert "aten::add_.Tensor" in named[0]
    for file in ("ours.json", "theirs.json"):  # and they are read back as two columns
        ops = load(tmp_path / file).ranges.filter(kind="op")
        assert set(ops.filter(name="aten::add_")["overload"]) == {"Tensor"}
        assert not ops["name"].cast(str).str.contains(".", literal=True).any()


def test_without_being_asked_for_there_are_none() -> None:
    names, overloads = told("""
with profiler.profile(activities=CPU) as prof:
    train()
print(json.dumps([[event.name for event in prof.events()], [event.overload_name for event in prof.events()]]))
""")
    assert "aten::add_" in names
    assert not any("." in name for name in names)
    assert set(overloads) == {""}


@pytest.mark.slow
@lacks("record_python_gc_info")
def test_collections_of_garbage_are_told_as_often_as_by_torch_and_no_longer_than_asked() -> None:
    ours, theirs, there = told("""
asked = dict(activities=CPU, with_stack=True, experimental_config=_ExperimentalConfig(record_python_gc_info=True))
def count(prof):
    return sum(event.name == "Python GC" for event in prof.events())
gc.disable()
before = list(gc.callbacks)
def collect():
    gc.collect()
    train()
    thread = threading.Thread(target=gc.collect)
    thread.start()
    thread.join()
found = []
for module in (profiler, torch.profiler):
    with module.profile(**asked) as prof:
        collect()
    collect()
    found.append(count(prof))
print(json.dumps([*found, gc.callbacks == before]))
""")
    assert ours == theirs == 2
    assert there


@pytest.mark.slow
@lacks("trace_only")
@pytest.mark.parametrize("with_stack", [False, True])
def test_a_trace_alone_has_no_events(with_stack: bool) -> None:
    ours, theirs = told(f"""
import os, tempfile
warnings.simplefilter("ignore")
found = []
asked = dict(activities=CPU, acc_events=True, with_stack={with_stack})
for module in (profiler, torch.profiler):
    with module.profile(**asked, experimental_config=_ExperimentalConfig(trace_only=True)) as prof:
        train()
    with tempfile.TemporaryDirectory() as folder:
        prof.export_chrome_trace(folder + "/trace.json")
        found.append(["aten::mul" in open(folder + "/trace.json").read()])
    for call in (prof.events, prof.key_averages):
        try:
            found[-1].append(len(call()) > 0)
        except RuntimeError as error:
            found[-1].append("trace_only=True" in str(error))
print(json.dumps(found))
""")
    assert ours == theirs == [True, True, True]
