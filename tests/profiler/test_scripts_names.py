"""Names and arguments of torch.profiler that scripts use beside the well-known ones, side by side with torch."""

from __future__ import annotations

from typing import Any

import pytest

import opspan
from emit import running
from opspan import errors, profiler
from opspan.emit.schedule import ProfilerAction

torch_profiler = pytest.importorskip("torch.profiler")
pytest.importorskip("torch", "2.13", reason="events of older torch lack what is compared")

HEAD = """
import json, tempfile, warnings
import torch, opspan
import torch.profiler, torch.autograd.profiler
from opspan import autograd_profiler, profiler
BOTH = (profiler, torch.profiler)
CPU = [torch.profiler.ProfilerActivity.CPU]
weight = torch.ones(4, 4, requires_grad=True)
def train():
    (weight @ weight).sum().backward()
train()
def arrows(prof):
    with tempfile.TemporaryDirectory() as folder:
        prof.export_chrome_trace(f"{folder}/trace.json")
        with open(f"{folder}/trace.json") as file:
            events = json.load(file)["traceEvents"]
    names = {(event["tid"], event["ts"]): event["name"] for event in events if event.get("cat") == "cpu_op"}
    arrows = [event for event in events if event.get("cat") == "fwdbwd"]
    return sorted([event["ph"], event["id"], names[event["tid"], event["ts"]]] for event in arrows)
def raised(call):
    try:
        call()
    except Exception as error:
        return [kind.__name__ for kind in type(error).__mro__]
    return None
"""


def told(code: str) -> Any:
    return running.told(HEAD + code)


@pytest.mark.parametrize("action", list(torch_profiler.ProfilerAction))
def test_an_action_equals_torchs_in_both_directions(action: Any) -> None:
    ours = ProfilerAction[action.name]
    assert ours == action
    assert action == ours
    assert {ours: 1}[action] == {action: 1}[ours] == 1
    assert [other for other in ProfilerAction if other == action] == [ours]


def test_a_schedule_answers_with_torchs_actions() -> None:
    arguments = {"wait": 1, "warmup": 1, "active": 2, "repeat": 1}
    ours, theirs = (module.schedule(**arguments) for module in (profiler, torch_profiler))
    assert [ours(step) for step in range(6)] == [theirs(step) for step in range(6)]
    assert ours(1) is torch_profiler.ProfilerAction.WARMUP


def test_a_wrong_schedule_is_the_error_of_both() -> None:
    for module in (profiler, torch_profiler):
        with pytest.raises(AssertionError):
            module.schedule(wait=-1, warmup=0, active=1)
    with pytest.raises(ValueError, match="a schedule needs wait"):
        opspan.schedule(wait=-1, warmup=0, active=1)
    assert issubclass(errors.BadSchedule, opspan.OpspanError)


def test_errors_are_of_the_kinds_that_torch_raises() -> None:
    found = told("""
found = []
for module in BOTH:
    new = module.profile(activities=CPU)
    found.append([
        raised(new.events),
        raised(new.key_averages),
        raised(lambda: new.export_chrome_trace("none.json")),
        raised(lambda: module.profile(activities=CPU, post_processing_timeout_s=-1).start()),
        raised(lambda: module.profile(activities=[torch.profiler.ProfilerActivity.CUDA]).start()),
    ])
print(json.dumps(found))
""")
    ours, theirs = found
    for own, kinds in zip(ours, theirs, strict=True):
        assert kinds[0] in own


def test_the_list_is_empty_while_it_is_recorded() -> None:
    assert (
        told("""
found = []
for module in BOTH:
    with module.profile(activities=CPU) as prof:
        train()
        found.append(len(prof.events()))
    found.append(len(prof.events()) > 10)
print(json.dumps(found))
""")
        == [0, True] * 2
    )


def test_the_arrows_from_forward_to_backward_are_torchs() -> None:
    ours, theirs = told("""
found = []
for module in BOTH:
    with module.profile(activities=CPU) as prof:
        train()
    events = prof.events()
    ends = {event.flow_id: event for event in events if event.flow_id and not event.flow_start}
    found.append([
        [[event.name, event.flow_type, bool(event.flow_id), event.fwd_thread != 0] for event in events],
        [[event.name, ends[event.flow_id].name] for event in events if event.flow_start],
        [event.flow_id for event in events],
        arrows(prof),
    ])
print(json.dumps(found))
""")
    assert ours == theirs
    assert ["aten::mm", "MmBackward0"] in ours[1]
    assert sorted(set(ours[2])) == [0, 1, 2]
    assert len(ours[3]) == 4


def test_an_op_with_two_backward_ops_has_the_number_of_the_first() -> None:
    ours, theirs = told("""
found = []
for module in BOTH:
    with module.profile(activities=CPU) as prof:
        total = (weight @ weight).sum()
        total.backward(retain_graph=True)
        total.backward()
    flows = [[event.name, event.flow_id, event.flow_start] for event in prof.events() if event.flow_id]
    found.append([flows, arrows(prof)])
print(json.dumps(found))
""")
    assert [flow for flow in ours[0] if flow[1] <= 2] == theirs[0]  # torch draws the first arrow alone
    assert [arrow for arrow in ours[1] if arrow[1] <= 2] == theirs[1]
    assert [flow for flow in ours[0] if flow[1] > 2] == [["SumBackward0", 3, False], ["MmBackward0", 4, False]]


def test_times_of_events_count_from_the_start_of_the_trace() -> None:
    for starts, first in told("""
found = []
for module in BOTH:
    with module.profile(activities=CPU):
        train()
    with module.profile(activities=CPU) as prof:
        train()
    results = prof.profiler.kineto_results
    starts = [event.start_ns() - results.trace_start_ns() for event in results.events()]
    found.append([starts, [round(event.time_range.start * 1000) for event in prof.events()]])
print(json.dumps(found))
"""):
        assert set(first) <= set(starts)
        assert 0 < min(first) < 10**9


def test_the_inner_profiler_has_what_scripts_use() -> None:
    ours, theirs = told("""
found = []
for module in BOTH:
    prof = module.profile(activities=CPU, record_shapes=True)
    assert prof.profiler is None
    with prof:
        train()
    inner = prof.profiler
    results = inner.kineto_results
    events = results.events()
    assert all(results.trace_start_ns() <= event.start_ns() <= event.end_ns() for event in events)
    assert all(event.duration_ns() == event.end_ns() - event.start_ns() for event in events)
    found.append([
        inner.entered,
        inner.use_device,
        inner.total_average().count,
        len(inner.function_events),
        sorted([row.key, row.count] for row in inner.key_averages()),
        "aten::mm" in inner.table(),
        inner.self_cpu_time_total > 0,
        sorted(
            [event.name(), event.shapes(), event.sequence_nr() >= 0, event.scope(), event.flow_type()]
            for event in events if event.name() in ("aten::mm", "MmBackward0", "aten::matmul")
        ),
        [[root.name, [child.name for child in root.children]]
         for root in results.experimental_event_tree() if root.name == "aten::matmul"],
        prof.use_device,
        prof.step_rec_fn,
        sorted([[last.name, following and following.name, sum("warn" not in str(call) for call in calls)]
                for (last, following), calls in prof.action_map.items()
                if "DEVICE_STOPPED" not in (last.name, following and following.name)], key=str),
    ])
print(json.dumps(found))
""")
    assert ours == theirs


def test_what_is_torchs_own_names_the_way_of_opspan() -> None:
    assert (
        told("""
with profiler.profile(activities=CPU) as prof:
    train()
texts = []
for call in (
    lambda: prof.mem_tl,
    lambda: prof.profiler.kineto_results.save,
    lambda: prof.profiler.kineto_results.events()[0].metadata_json,
    lambda: prof.profiler.kineto_results.experimental_event_tree()[0].typed,
):
    try:
        call()
    except AttributeError as error:
        texts.append("prof." in str(error))
print(json.dumps(texts))
""")
        == [True] * 4
    )


def test_chrome_traces_have_the_ids_of_annotations_and_the_numbers_of_engine_ranges() -> None:
    ours, theirs = told("""
import os, tempfile
found = []
for module in BOTH:
    with module.profile(activities=CPU) as prof:
        with module.record_function("region"):
            train()
    path = os.path.join(tempfile.mkdtemp(), "trace.json")
    prof.export_chrome_trace(path)
    written = json.load(open(path))["traceEvents"]
    numbers = [e["args"]["External id"] for e in written if e.get("name") == "region"]
    listed = [event.external_id for event in prof.events() if event.name == "region"]
    engine = [e for e in written if e.get("name", "").startswith("autograd::engine::evaluate_function")]
    found.append([
        numbers == listed,
        len(listed) == 1 and listed[0] > 0,
        [[e["name"], "Sequence number" in e["args"]] for e in engine],
    ])
print(json.dumps(found))
""")
    assert ours == theirs
    assert ours[:2] == [True, True]
    assert ["autograd::engine::evaluate_function: MmBackward0", True] in ours[2]


def test_dynamo_takes_profiler_enabled_as_a_constant() -> None:
    ours, theirs = told("""
warnings.simplefilter("ignore")
def program(x):
    return torch.cos(x) if torch.autograd._profiler_enabled() else torch.sin(x)
found = []
for module in BOTH:
    with module.profile(activities=CPU):
        traced = torch._dynamo.export(program)(torch.ones(2)).graph_module
        found.append([bool(torch.equal(traced(torch.ones(2)), torch.cos(torch.ones(2))))])
print(json.dumps(found))
""")
    assert ours == theirs == [True]
