"""opspan.profiler.profile does what torch.profiler.profile does with the same program, and its result is a Trace."""

from __future__ import annotations

import gzip
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import opspan
from emit import running
from emit.running import forked
from opspan import profiler

torch_profiler = pytest.importorskip("torch.profiler")
CPU = torch_profiler.ProfilerActivity.CPU

HEAD = """
import torch, json, sys, warnings
from torch.profiler import ProfilerActivity
CPU = [ProfilerActivity.CPU]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    optimizer.zero_grad()
    model(torch.ones(3, 8)).sum().backward()
    optimizer.step()
train()
"""
BOTH = """
from opspan import profiler
import torch.profiler
"""


def told(code: str, *arguments: str) -> Any:
    return running.told(HEAD + BOTH + code, *arguments)


def test_the_names_are_all_that_torch_has() -> None:
    assert set(torch_profiler.__all__) <= set(profiler.__all__)
    for name in profiler.__all__:
        assert getattr(profiler, name) is not None


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (profiler.profile, torch_profiler.profile),
        (profiler.tensorboard_trace_handler, torch_profiler.tensorboard_trace_handler),
        (profiler._KinetoProfile, torch_profiler._KinetoProfile),
    ],
)
def test_every_argument_of_torchs_is_taken(ours: Any, theirs: Any) -> None:
    assert set(inspect.signature(theirs).parameters) <= set(inspect.signature(ours).parameters)
    if not inspect.isclass(theirs):
        return
    public = {name for name in vars(theirs) if not name.startswith("_")}
    assert {name for name in public if not hasattr(ours, name)} == set()
    for name in public:
        parameters = list(inspect.signature(getattr(ours, name)).parameters)
        assert parameters[: len(inspect.signature(getattr(theirs, name)).parameters)] == list(
            inspect.signature(getattr(theirs, name)).parameters
        ), name


def test_the_same_ops_as_often_and_with_the_same_shapes_as_in_torch() -> None:
    ours, theirs = told("""
def counts(prof):
    rows = prof.key_averages(group_by_input_shape=True)
    return sorted([row.key, str(row.input_shapes), row.count] for row in rows if not row.key.startswith("Optimizer."))
found = []
for kind in (profiler.profile, torch.profiler.profile):
    with kind(activities=CPU, record_shapes=True) as prof:
        train()
    found.append(counts(prof))
print(json.dumps(found))
""")
    assert len(theirs) > 20
    # torch's own ranges around zero_grad and step are told to both.
    assert ours == theirs


def test_what_torch_has_since_2_14_is_there_with_every_torch(tmp_path: Path) -> None:
    pending, with_functions, without = told(
        """
with profiler.profile(activities=CPU, with_stack=True) as prof:
    train()
prof.export_chrome_trace(sys.argv[1])
prof.wait_for_exports()
counts = [
    {row.key: row.count for row in prof.key_averages(include_python_functions=wanted)} for wanted in (True, False)
]
print(json.dumps([prof.take_pending_cupti_export(), *counts]))
""",
        str(tmp_path / "trace.json"),
    )

    assert pending is None
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert with_functions == without  # functions are the stacks of ops, and no events
    assert without["aten::addmm"] == 2


def test_each_cycle_is_a_trace_of_its_own(tmp_path: Path) -> None:
    cycles, kept = told(
        """
cycles = []
def ready(prof):
    names = prof.trace.ranges["name"].cast(str)
    steps = names.filter(names.str.starts_with("ProfilerStep")).to_list()
    cycles.append([prof.step_num, steps, prof.trace.ranges.height > 20, prof.get_trace_id()])
ids = iter("abc")
with profiler.profile(
    activities=CPU, schedule=profiler.schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready,
    path=sys.argv[1], custom_trace_id_callback=lambda: next(ids),
) as prof:
    for _ in range(10):
        train()
        prof.step()
print(json.dumps([cycles, prof.trace.ranges.height]))
""",
        str(tmp_path / "kept"),
    )

    assert cycles == [
        [4, ["ProfilerStep#2", "ProfilerStep#3"], True, "a"],
        [8, ["ProfilerStep#6", "ProfilerStep#7"], True, "b"],
    ]
    assert kept > 20
    files = sorted((tmp_path / "kept").glob("*.opspan"))
    assert len(files) == 2
    names = [set(opspan.load(file).ranges["name"].cast(str)) for file in files]
    assert sorted(min(name for name in found if name.startswith("ProfilerStep")) for found in names) == [
        "ProfilerStep#2",
        "ProfilerStep#6",
    ]


@pytest.mark.slow
def test_without_a_schedule_all_is_recorded_and_the_callback_comes_at_the_end() -> None:
    calls, steps, heights = told("""
calls = []
with profiler.profile(activities=CPU, on_trace_ready=lambda prof: calls.append(prof.trace.ranges.height)) as prof:
    for _ in range(3):
        train()
        prof.step()
    before = list(calls)
print(json.dumps([before, prof.step_num, calls]))
""")
    assert (calls, steps, len(heights)) == ([], 3, 1)
    assert heights[0] > 60


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace.pt"])
def test_a_chrome_trace_has_what_was_said_of_the_run(name: str, tmp_path: Path) -> None:
    told(
        """
with profiler.profile(activities=CPU, record_shapes=True, with_modules=True) as prof:
    prof.add_metadata("who", 'an "unusual" name')
    prof.add_metadata_json("batch", "[3, 8]")
    train()
prof.add_metadata("late", "said after the end")
prof.export_chrome_trace(sys.argv[1])
prof.export_chrome_trace(sys.argv[1])  # again
print("[]")
""",
        str(tmp_path / name),
    )
    raw = (tmp_path / name).read_bytes()
    document = json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)

    said = {key: document[key] for key in ("who", "batch", "late", "record_shapes", "with_modules")}
    assert said == {
        "who": 'an "unusual" name',
        "batch": [3, 8],
        "late": "said after the end",
        "record_shapes": 1,
        "with_modules": 1,
    }
    names = {event.get("name") for event in document["traceEvents"]}
    assert {"aten::addmm", "Sequential.0"} <= names
    if name != "trace.pt":
        back = opspan.load(tmp_path / name)
        assert "aten::addmm" in set(back.ranges["name"].cast(str))


@pytest.mark.slow
def test_the_handler_writes_a_file_for_each_cycle(tmp_path: Path) -> None:
    told(
        """
handler = profiler.tensorboard_trace_handler(sys.argv[1] + "/a/b", "worker", use_gzip=True)
with profiler.profile(activities=CPU, schedule=profiler.schedule(wait=0, warmup=0, active=1, repeat=2),
                      on_trace_ready=handler) as prof:
    for _ in range(4):
        train()
        prof.step()
print("[]")
""",
        str(tmp_path),
    )
    names = sorted(path.name for path in (tmp_path / "a" / "b").iterdir())
    assert len(names) == 2
    assert all(name.startswith("worker.") and name.endswith(".pt.trace.json.gz") for name in names)


@pytest.mark.slow
def test_trouble_in_the_body_or_a_callback_reaches_the_user_and_leaves_nothing_on() -> None:
    found = told("""
found = []
def fail(prof):
    raise ValueError("of the callback")
for ready, body in ((None, "of the body"), (fail, None)):
    try:
        with profiler.profile(activities=CPU, on_trace_ready=ready):
            train()
            if body:
                raise ValueError(body)
    except ValueError as error:
        found.append(str(error))
with profiler.profile(activities=CPU) as prof:  # nothing is on any more: another can begin
    train()
found.append(prof.trace.ranges.height > 20)
print(json.dumps(found))
""")
    assert found == ["of the body", "of the callback", True]


@pytest.mark.slow
def test_what_comes_too_early_is_an_error_of_one_sentence() -> None:
    found = told("""
found = []
prof = profiler.profile(activities=CPU)
for early in (prof.events, prof.key_averages, lambda: prof.export_chrome_trace("x.json")):
    try:
        early()
    except RuntimeError as error:
        found.append(str(error))
prof.start()
try:
    prof.trace
except RuntimeError as error:
    found.append(str(error))
prof.stop()
found.append(len(prof.events()))
print(json.dumps(found))
""")
    assert len(found) == 5
    assert all("start it before" in text for text in found[:3])
    assert "still recording" in found[3]


@pytest.mark.slow
def test_collecting_can_be_turned_off_for_a_while() -> None:
    names = told("""
with profiler.profile(activities=CPU) as prof:
    torch.ones(2).neg()
    prof.toggle_collection_dynamic(False, CPU)
    torch.ones(2).exp()
    prof.toggle_collection_dynamic(True, CPU)
    torch.ones(2).log()
print(json.dumps([event.name for event in prof.events()]))
""")
    assert {"aten::neg", "aten::log"} <= set(names)
    assert "aten::exp" not in names


def test_what_is_not_recorded_yet_is_said() -> None:
    found = told("""
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    profiler.profile(activities=[*CPU, ProfilerActivity.CUDA])
print(json.dumps([str(one.message) for one in warned]))
""")
    assert found == ["CUDA is not available, disabling CUDA profiling"]


@pytest.mark.parametrize("value", ["{", "nothing", None])
def test_metadata_that_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        profiler.profile(activities=[CPU]).add_metadata_json("key", value)


@pytest.mark.parametrize(
    ("activities", "error"),
    [
        ([CPU] * 2, ValueError),
        ([{CPU: []}, CPU], ValueError),
        (["cpu"], TypeError),
    ],
)
def test_activities_are_checked_as_torch_checks_them(activities: list[Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        profiler.profile(activities=activities)


@pytest.mark.slow
def test_beside_torchs_own_profiler_both_see_the_ops() -> None:
    ours, theirs, after = told("""
with torch.profiler.profile(activities=CPU) as outer, profiler.profile(activities=CPU) as prof:
    train()
counts = [sum(event.name == "aten::addmm" for event in one.events()) for one in (prof, outer)]
with torch.profiler.profile(activities=CPU) as alone:
    train()
print(json.dumps([*counts, sum(event.name == "aten::addmm" for event in alone.events())]))
""")
    assert ours == theirs == after == 2


@pytest.mark.slow
def test_a_killed_program_leaves_what_it_recorded(tmp_path: Path) -> None:
    code = """
import os
prof = profiler.profile(activities=CPU, path=sys.argv[1])
prof.start()
train()
os.kill(os.getpid(), 9)
"""
    done = forked(HEAD + BOTH + code, str(tmp_path / "kept"))

    assert done.returncode == -9
    assert opspan.load(tmp_path / "kept").events().key_averages().total_average().count > 20


@pytest.mark.slow
def test_forks_inside_are_recorded_too() -> None:
    pids = told("""
with profiler.profile(activities=CPU) as prof:
    train()
    loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=2, num_workers=1)
    assert len(list(loader)) == 4
    train()
print(json.dumps(prof.trace.ranges["pid"].n_unique()))
""")
    assert pids == 2


@pytest.mark.slow
def test_an_exported_trace_has_inputs_as_torchs_has_and_reads_back_whole(tmp_path: Path) -> None:
    found, same = told(
        """
import opspan
found = []
for kind, name in ((profiler.profile, "ours.json"), (torch.profiler.profile, "theirs.json")):
    with kind(activities=CPU, record_shapes=True) as prof:
        train()
        torch.full((2, 3), 0.5).sum(dim=[0, 1], keepdim=True)
    prof.export_chrome_trace(sys.argv[1] + "/" + name)
    args = [
        (event["name"], *(event["args"].get(key) for key in ("Input Dims", "Input type", "Input Strides")))
        for event in json.load(open(sys.argv[1] + "/" + name))["traceEvents"]
        if event.get("cat") == "cpu_op" and event["name"].startswith("aten::")
    ]
    found.append(sorted(map(str, args)))
    if kind is profiler.profile:
        columns = ["name", "sizes", "input_types", "input_strides", "inputs"]
        again = opspan.load(sys.argv[1] + "/" + name)
        same = again.ranges.select(columns).rows() == prof.trace.ranges.select(columns).rows()
print(json.dumps([found, same]))
""",
        str(tmp_path),
    )
    ours, theirs = found
    assert ours == theirs
    assert same
    values = [
        json.loads(event["args"]["Concrete Inputs"][1])
        for event in json.loads((tmp_path / "ours.json").read_text())["traceEvents"]
        if event["name"] == "aten::fill_" and event["args"]["Concrete Inputs"][1] == "0.5"
    ]
    assert values == [0.5]
