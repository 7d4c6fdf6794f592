"""record_function is what torch's is: a class that torch's own listeners, TorchScript and tracing see."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import opspan  # noqa: E402
from emit.running import python, under_collectors  # noqa: E402
from opspan import profiler, record_function  # noqa: E402

# Older versions of torch do not have all of these.
FIELDS = ("name", "input_shapes", "is_async", "scope", "kwinputs", "concrete_inputs", "structured_input_shapes")
FIELDS += ("is_user_annotation",)
COMPARED = [name for name in FIELDS if hasattr(torch.autograd.profiler_util.FunctionEvent(0, "", 0, 0, 0), name)]


def rows(events: Any) -> list[Any]:
    ordered = sorted(events, key=lambda event: (event.time_range.start, -event.time_range.end))
    return [[getattr(event, field) for field in COMPARED] for event in ordered if event.name.startswith("my")]


class Mine(record_function):
    def __init__(self, number: int) -> None:
        super().__init__(f"my {number}")
        self.number = number


@record_function("my function")
def decorated() -> None:
    torch.ones(1)


def program() -> None:
    with record_function("my block", "with args"), record_function("my inner"):
        torch.ones(1)
    with Mine(3):
        decorated()


EXPECTED = ["my block", "my inner", "my 3", "my function"]


@pytest.mark.parametrize("shapes", [False, True])
def test_each_listener_has_each_range_once(shapes: bool) -> None:
    with torch.profiler.profile(record_shapes=shapes) as alone:
        program()
    with profiler.profile(record_shapes=shapes) as ours:
        program()
    with torch.profiler.profile(record_shapes=shapes) as outer, profiler.profile(record_shapes=shapes) as inside:
        program()
    with profiler.profile(record_shapes=shapes) as around, torch.profiler.profile(record_shapes=shapes) as inner:
        program()

    expected = rows(alone.events())
    assert [name for name, *_ in expected] == EXPECTED
    for profile in (ours, outer, inside, around, inner):
        assert rows(profile.events()) == expected


def test_the_class() -> None:
    made = record_function("a", "b")
    assert isinstance(made, torch.profiler.record_function)
    assert issubclass(record_function, torch.autograd.profiler.record_function)
    assert opspan.profiler.record_function is opspan.autograd_profiler.record_function is record_function
    assert (made.name, made.args, made.run_callbacks_on_exit) == ("a", "b", True)
    assert not hasattr(decorated, "_ref")
    assert decorated.__name__ == "decorated"


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies(how: Any) -> None:
    with opspan.record() as recording, Mine(4) as open_range:
        copied = how(open_range)
        with copied:
            pass
    assert (type(copied), copied.name, copied.number) == (Mine, "my 4", 4)
    assert recording.trace.ranges["name"].to_list() == ["my 4", "my 4"]


def test_an_execution_trace_has_it(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(file))
    observer.start()
    program()
    observer.stop()
    observer.unregister_callback()
    names = [node["name"] for node in json.loads(file.read_text())["nodes"]]
    assert sorted(name for name in names if name.startswith("my")) == sorted(EXPECTED)


@pytest.fixture
def future() -> Any:
    return torch.futures.Future()


@pytest.mark.parametrize("listener", ["torch", "opspan", "both", "nobody"])
def test_a_range_lasts_until_its_future_is_done(listener: str, future: Any) -> None:
    ours = profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    theirs = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    profiles = [one for one in (ours, theirs) if listener in ("both", "opspan" if one is ours else "torch")]
    for one in profiles:
        one.__enter__()
    with record_function("my call") as call, opspan.annotate("around"):
        pass
    with record_function("my call") as call:
        done = call._call_end_callbacks_on_future(future)
        with pytest.raises(RuntimeError, match="can only be called once"):
            call._call_end_callbacks_on_future(future)
    with record_function("my next"):
        torch.ones(1)
    setter = threading.Thread(target=lambda: future.set_result(5))
    setter.start()
    setter.join()
    assert done.wait() == 5
    for one in reversed(profiles):
        one.__exit__(None, None, None)

    for one in profiles:
        listed = [(event.name, event.is_async) for event in one.events() if event.name.startswith("my")]
        assert sorted(listed) == [("my call", False), ("my call", True), ("my next", False)]
        (call_event,) = [event for event in one.events() if event.is_async]
        (next_event,) = [event for event in one.events() if event.name == "my next"]
        assert call_event.time_range.end > next_event.time_range.end


def test_a_future_that_fails_ends_the_range_too(future: Any) -> None:
    with opspan.record() as recording:
        with record_function("my call") as call:
            done = call._call_end_callbacks_on_future(future)
        future.set_exception(ValueError("no answer"))
        with pytest.raises(ValueError, match="no answer"):
            done.wait()
    assert recording.trace.ranges.select("name", "end_ns").drop_nulls().height == 1


def test_dispatch_modes_and_tracing_see_it() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    def seen(kind: Any) -> list[str]:
        names.clear()
        with Names(), kind("my block"):
            torch.ones(1)
        return list(names)

    names: list[str] = []
    assert seen(record_function) == seen(torch.profiler.record_function)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_tracing_keeps_it() -> None:
    def graph(kind: Any) -> list[str]:
        def work(x: Any) -> Any:
            with kind("my block", "args"):
                return x + 1

        return [node.kind() for node in torch.jit.trace(work, torch.ones(1)).graph.nodes()]

    assert graph(record_function) == graph(torch.profiler.record_function)
    assert "profiler::_record_function_enter_new" in graph(record_function)


def test_exceptions_leave_no_range_open() -> None:
    def fail() -> None:
        with record_function("my block"):
            raise KeyError("mine")

    with torch.profiler.profile() as theirs, profiler.profile() as ours:
        with pytest.raises(KeyError):
            fail()
        decorated()
    for profile in (theirs, ours):
        assert [name for name, *_ in rows(profile.events())] == ["my block", "my function"]


@pytest.mark.slow
def test_torchs_emitter_without_a_compiler_makes_no_second_range(tmp_path: Path) -> None:
    body = """
import opspan, warnings
warnings.simplefilter("ignore")
with opspan.emit_itt(), opspan.record_function("mine"): pass
"""
    captured = tmp_path / "captured"
    env = {"PATH": "/nonexistent", "CXX": None, "OPSPAN_CACHE_DIR": str(tmp_path / "cache")}
    python(body, env={**under_collectors(captured), **env})
    ranges = opspan.load(captured).ranges
    assert [name for name in ranges["name"].to_list() if "mine" in name] == ["mine"]


@pytest.mark.slow
def test_without_torch_the_error_names_torch() -> None:
    body = """
import sys
sys.modules["torch"] = None
try:
    from opspan import record_function
except ImportError as error:
    print(error)
"""
    assert python(body).endswith("pip install torch, or use annotate\n")
