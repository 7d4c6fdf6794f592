"""Ranges that torch's own machinery makes are recorded as torch.profiler records them, with torch's profiler off."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from opspan import load, profiler, record  # noqa: E402

HAS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles with g++")


def fast(*args: Any) -> Any:
    return torch._C._profiler._RecordFunctionFast(*args)


# Older versions of torch do not have all of these.
FIELDS = ("name", "input_shapes", "kwinputs", "is_user_annotation")
COMPARED = [name for name in FIELDS if hasattr(torch.autograd.profiler_util.FunctionEvent(0, "", 0, 0, 0), name)]


def rows(events: Any) -> list[Any]:
    ordered = sorted(events, key=lambda event: (event.time_range.start, -event.time_range.end))
    return [tuple(getattr(event, name) for name in COMPARED) for event in ordered]


def both(run: Callable[[], object], **options: Any) -> tuple[list[Any], list[Any]]:
    """Returns what opspan and torch record of the same run, one after the other."""
    with profiler.profile(**options) as ours:
        run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as theirs:
        run()
    return rows(ours.events()), rows(theirs.events())


# torch warns about its own use of TorchScript when it imports its compiler, and about an old driver.
IGNORED = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore:CUDA initialization:UserWarning")
BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=[HAS_COMPILER, pytest.mark.slow])]


@IGNORED
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_model_has_the_events_that_torch_lists(backend: str) -> None:
    torch._dynamo.reset()
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
    model, inputs = torch.compile(net, backend=backend), torch.ones(2, 4)
    for _ in range(2):  # later runs compile nothing
        model(inputs).sum().backward()

    ours, theirs = both(lambda: model(inputs).sum().backward(), record_shapes=True)

    assert ours == theirs
    names = [name for name, *_ in ours]
    assert any(name.startswith("Torch-Compiled Region") for name in names)
    if backend == "inductor" and torch.__version__ >= "2.13":
        assert "AOTDispatcher Runtime Wrapper Prologue" in names
        assert any(name.startswith("## Call CompiledFxGraph ") for name in names)


@pytest.mark.parametrize("shapes", [False, True])
def test_inputs_and_keyword_values(shapes: bool) -> None:
    keywords = {"text": 'a "b" \\ é\n', "count": 3, "rate": 2.0, "is_on": True, "scope": "user_scope"}

    def run() -> None:
        with fast("plain"), fast("full", [torch.ones(2, 3), 4, "x"], keywords):
            torch.ones(1)

    ours, theirs = both(run, record_shapes=shapes)

    assert ours == theirs


def test_values_that_json_does_not_have() -> None:
    with record(record_shapes=True) as recording, fast("odd", [], {"a": float("nan"), "b": float("-inf"), "c": -0.0}):
        pass
    assert recording.events()[0].kwinputs == {"a": "nan", "b": "-inf", "c": 0.0}
    assert recording.trace.ranges["payload_json"].to_list() == [
        json.dumps({"keywords": '{"a": "nan", "b": "-inf", "c": -0.0}'})
    ]


def test_the_class_is_torchs_outside_of_sessions() -> None:
    theirs = torch._C._profiler._RecordFunctionFast
    with record():
        assert torch._C._profiler._RecordFunctionFast is not theirs
        with record():
            made = fast("made in a session")
        assert torch._C._profiler._RecordFunctionFast is not theirs
    assert torch._C._profiler._RecordFunctionFast is theirs
    with made:  # it does nothing any more, as torch's
        pass


def test_a_class_that_somebody_else_put_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C._profiler, "_RecordFunctionFast", torch._C._profiler._RecordFunctionFast)
    with record():
        other = torch._C._profiler._RecordFunctionFast = type("Other", (), {})
    assert torch._C._profiler._RecordFunctionFast is other


def test_a_class_that_calls_ours_stays_and_does_not_end_in_a_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C._profiler, "_RecordFunctionFast", torch._C._profiler._RecordFunctionFast)
    with record():
        ours = torch._C._profiler._RecordFunctionFast

        def wrapper(*args: Any) -> Any:
            return ours(*args)

        torch._C._profiler._RecordFunctionFast = wrapper
    with record() as recording, fast("mine"):
        assert torch._C._profiler._RecordFunctionFast is wrapper
    assert recording.trace.ranges["name"].to_list() == ["mine"]


@pytest.mark.parametrize("shapes", [False, True])
def test_a_range_can_be_entered_again(shapes: bool) -> None:
    def run() -> None:
        again = fast("again", [torch.ones(2)], {"count": 3})
        for _ in range(3):
            with again:
                torch.ones(1)
            torch.zeros(1)  # the range ends before this op, though its object still exists

    with profiler.profile(record_shapes=shapes) as ours:
        run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=shapes) as theirs:
        run()

    children = [
        [[child.name for child in event.cpu_children] for event in prof.events() if event.name == "again"]
        for prof in (ours, theirs)
    ]
    assert children[0] == children[1] == [["aten::ones"]] * 3
    assert rows(ours.events()) == rows(theirs.events())


def test_errors_are_torchs() -> None:
    def message() -> str:
        with pytest.raises(TypeError) as error:  # torch aborts the process for a name that is not text
            fast()
        return str(error.value)

    theirs = message()
    with record():
        assert message() == theirs


def test_torchs_profiler_starts_inside_of_a_range() -> None:
    with record() as recording, fast("around"):
        assert not torch.autograd._profiler_enabled()
        with torch.profiler.profile() as theirs, fast("inside"):
            torch.ones(1)
    assert "inside" in [event.name for event in theirs.events()]
    assert [event.name for event in recording.events()][:2] == ["around", "inside"]


def test_a_chrome_trace_has_keyword_values_as_args(tmp_path: Path) -> None:
    keywords = {"stream": 0, "grid": "lambda x: x", "boolean": True, "range": 99, "Python id": 7}
    with profiler.profile(record_shapes=True) as ours, fast("mine", [torch.ones(2)], keywords):
        pass
    path = tmp_path / "trace.json"
    ours.export_chrome_trace(path)

    (event,) = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("name") == "mine"]
    args = event["args"]
    assert (args["stream"], args["grid"], args["boolean"]) == (0, "lambda x: x", True)
    # The keys by which opspan finds its rows stay its own.
    assert args["range"] != 99
    assert "Python id" not in args
    assert load(path).events()[-1].kwinputs == ours.events()[-1].kwinputs == keywords
