"""Arguments and switches of torch.profiler mean here what they mean there: run side by side where torch says it."""

from __future__ import annotations

import json
import logging
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch", "2.13", reason="activity filters and timeouts are in torch 2.13 and later")

from torch.profiler import ProfilerActivity  # noqa: E402

import opspan  # noqa: E402
from emit.running import python  # noqa: E402
from opspan import profiler  # noqa: E402

CPU = ProfilerActivity.CPU
BOTH = pytest.mark.parametrize("module", [torch.profiler, profiler], ids=["torch", "opspan"])


def program(module: Any) -> None:
    with module.record_function("mine"):
        torch.ones(1)


def outcome(module: Any, **options: Any) -> Any:
    """Returns the names of the events, or the error's class and the beginning of its text."""
    try:
        with module.profile(**options) as profile:
            program(module)
    except (RuntimeError, ValueError, AssertionError) as error:
        kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
        return kinds[0], str(error).partition(";")[0].partition(":")[0]
    return [event.name for event in profile.events()]


@pytest.mark.parametrize(
    "options",
    [
        {"activities": [{CPU: ["CPU_OP"]}]},
        {"activities": [{CPU: ["USER_ANNOTATION"]}]},
        {"activities": [{CPU: ["NOPE"]}]},
        {"activities": [{CPU: ["cpu_op"]}]},
        {"activities": [{CPU: ["KERNEL"]}]},
        {"activities": {CPU: ["CPU_OP"]}},
        {"activities": [{CPU: ["CPU_OP"]}, CPU]},
        {"activities": []},
        {"post_processing_timeout_s": 0},
        {"post_processing_timeout_s": 60},
    ],
    ids=str,
)
def test_what_torch_does(options: dict[str, Any]) -> None:
    theirs, ours = outcome(torch.profiler, **options), outcome(profiler, **options)
    if isinstance(theirs, tuple):
        assert ours[0] == theirs[0]
    else:
        assert ours == theirs


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["CPU_OP"], {"cpu_op"}),
        (["USER_ANNOTATION"], {"user_annotation"}),
        (["CPU_OP", "CPU_INSTANT_EVENT"], {"cpu_op", "cpu_instant_event"}),
    ],
)
@BOTH
def test_filters_choose_what_a_chrome_trace_has(
    module: Any, kinds: list[str], expected: set[str], tmp_path: Path
) -> None:
    with module.profile(activities=[{CPU: kinds}], profile_memory=True) as profile:
        program(module)
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kinds_there = {event["cat"] for event in events if "cat" in event and event["ph"] in "Xi"} - {"Trace"}
    assert kinds_there == expected


def test_a_filter_of_one_activity_leaves_the_others_alone() -> None:
    from opspan.profiler.activities import left_out, parse_activities

    cuda = ProfilerActivity.CUDA
    assert left_out(parse_activities([{CPU: ["CPU_OP"]}, cuda])) == {
        "user_annotation",
        "cpu_instant_event",
        "python_function",
        "external_correlation",
    }
    assert left_out(parse_activities([CPU, {cuda: ["CONCURRENT_KERNEL"]}])) >= {"gpu_memcpy", "gpu_memset", "overhead"}
    assert left_out(parse_activities([CPU, cuda])) == set()


@BOTH
def test_a_timeout_warns_in_torchs_words(module: Any, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("torch.autograd.profiler")
    logger.addHandler(caplog.handler)
    try:
        with module.profile(post_processing_timeout_s=0) as profile:
            program(module)
        assert list(profile.events()) == []
    finally:
        logger.removeHandler(caplog.handler)
    (message,) = {record.getMessage() for record in caplog.records if "timed out" in record.getMessage()}
    assert message.endswith("timed out after 0.000 seconds, returning partial results with 0 events")


def test_an_error_while_reading_in_time_is_raised() -> None:
    from opspan.profiler.time_limit import within

    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0)


class Pipe(torch.utils.data.IterDataPipe):  # type: ignore[misc]
    def __iter__(self) -> Iterator[int]:
        yield from range(2)


@BOTH
def test_datapipes_name_their_ranges(module: Any) -> None:
    with module.profile() as profile:
        list(Pipe())
    assert "Pipe()" in {event.name for event in profile.events()}


def test_profiler_enabled_is_true_while_a_profile_is_on() -> None:
    theirs = torch.autograd._profiler_enabled
    kept = []
    assert not torch.autograd._profiler_enabled()
    with profiler.profile(schedule=profiler.schedule(wait=1, warmup=0, active=1, repeat=1)) as profile:
        assert not torch.autograd._profiler_enabled()
        profile.step()
        kept.append(torch.autograd._profiler_enabled)
        assert torch.autograd._profiler_enabled()
        with profiler.profile():
            pass
        assert torch.autograd._profiler_enabled()
        profile.step()
        assert not torch.autograd._profiler_enabled()
    assert torch.autograd._profiler_enabled is theirs
    assert not kept[0]()
    with torch.profiler.profile():
        assert kept[0]()


def test_rpc_is_not_told() -> None:
    asking = compile("answer = torch.autograd._profiler_enabled()", "api.py", "exec")
    names = {"__name__": "torch.distributed.rpc.api", "torch": torch}
    with profiler.profile():
        exec(asking, names)
    assert names["answer"] is False


def test_a_fifth_profile_says_so_and_records_nothing() -> None:
    profiles = [profiler.profile() for _ in range(5)]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for profile in profiles:
            profile.start()
        program(profiler)
        for profile in profiles:
            profile.stop()
    assert [str(warning.message).partition(":")[0] for warning in seen] == ["nothing is recorded"]
    assert ["mine" in [event.name for event in profile.events()] for profile in profiles] == [True] * 4 + [False]
    with opspan.record() as recording:  # its places are free again
        program(profiler)
    assert recording.trace.ranges.height


@BOTH
def test_torch_profiler_starts_and_stops_inside_and_around(module: Any) -> None:
    other = profiler if module is torch.profiler else torch.profiler
    names = []
    with module.profile() as outer:
        program(module)
        with other.profile() as inner:
            program(module)
        program(module)
    for profile in (outer, inner):
        names.append([event.name for event in profile.events() if event.name == "mine"])
    assert [len(found) for found in names] == [3, 1]


def test_steps_of_one_profiler_are_no_steps_of_the_other() -> None:
    with torch.profiler.profile(schedule=lambda _: torch.profiler.ProfilerAction.RECORD) as theirs:
        with profiler.profile(schedule=lambda _: profiler.ProfilerAction.RECORD) as ours:
            program(profiler)
            ours.step()
        theirs.step()
    for profile in (theirs, ours):
        names = [event.trace_name for event in profile.events()]
        steps = sorted(name for name in names if name.startswith("ProfilerStep"))
        assert steps == ["ProfilerStep#0", "ProfilerStep#1"]


def test_profilers_of_several_threads_each_see_what_is_theirs() -> None:
    seen = []

    def work() -> None:
        with torch.profiler.profile() as profile:
            program(profiler)
        seen.append(profile)

    with profiler.profile() as ours, torch.profiler.profile() as theirs:
        program(torch.profiler)
    thread = threading.Thread(target=work)
    with profiler.profile() as around:
        thread.start()
        program(profiler)
        thread.join()

    def count(profile: Any) -> int:
        return [event.name for event in profile.events()].count("mine")

    assert (count(ours), count(theirs), count(around), [count(profile) for profile in seen]) == (1, 1, 2, [1])


@pytest.mark.parametrize("extras", ["0", "1"])
@pytest.mark.parametrize("module", ["torch.profiler", "opspan.profiler"])
def test_the_environment_attaches_an_execution_trace(module: str, extras: str, tmp_path: Path) -> None:
    code = f"""
    import torch, {module} as profiler, json
    with profiler.profile() as profile: torch.ones(3)
    observer = profile.execution_trace_observer
    print("aten::ones" in open(observer.get_output_file_path()).read(), observer.extra_resources_collection)
    """
    env = {"ENABLE_PYTORCH_EXECUTION_TRACE": "1", "ENABLE_PYTORCH_EXECUTION_TRACE_EXTRAS": extras}
    assert python(code, env={**env, "TMPDIR": str(tmp_path)}) == f"True {extras == '1'}\n"


def test_a_chrome_trace_has_torchs_members(tmp_path: Path) -> None:
    def written(module: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        path = tmp_path / f"{module.__name__}.json"
        options = {"record_shapes": True, "profile_memory": True, "custom_trace_id_callback": lambda: "my id"}
        with module.profile(**options) as profile:
            program(module)
        profile.export_chrome_trace(str(path))
        content = json.loads(path.read_text())
        assert content.pop("traceName") == str(path)
        return content, content.pop("traceEvents")

    (theirs, their_events), (ours, our_events) = written(torch.profiler), written(profiler)

    assert ours["trace_id"] == theirs["trace_id"] == "my id"
    assert ours["host_name"] == theirs["host_name"]
    assert set(theirs) - set(ours) == set()
    for category in ("user_annotation", "cpu_op", "cpu_instant_event"):
        keys = [
            {key for event in events if event.get("cat") == category for key in event["args"]}
            for events in (their_events, our_events)
        ]
        # An annotation without a text has no inputs; the index and `finished` are of Kineto's own list.
        assert keys[0] - keys[1] <= {
            "Ev Idx",
            "finished",
            "Concrete Inputs",
            "Input type",
            "Input Strides",
            "Input Dims",
        }
    ids = [event["args"]["External id"] for event in our_events if event.get("cat") in ("user_annotation", "cpu_op")]
    assert len(set(ids)) == len(ids) == 4
    read_back = opspan.load(tmp_path / "opspan.profiler.json").ranges
    assert read_back.filter(source="user")["op_id"].to_list() == [None]


@BOTH
def test_a_negative_timeout_is_refused_with_torchs_words(module: Any) -> None:
    with pytest.raises(ValueError, match="post_processing_timeout_s must be non-negative"):
        module.profile(activities=[CPU], post_processing_timeout_s=-1).start()


@BOTH
def test_trace_only_beside_stacks_warns_that_it_is_not_used(module: Any) -> None:
    config = torch._C._profiler._ExperimentalConfig(trace_only=True)
    with (
        pytest.warns(UserWarning, match="trace_only"),
        module.profile(activities=[CPU], with_stack=True, experimental_config=config) as prof,
    ):
        program(module)
    assert "mine" in [event.name for event in prof.events()]
