"""opspan.profiler does the same as torch.profiler between two steps, for any schedule and wherever it is stopped."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opspan import profiler
from opspan.emit.schedule import ProfilerAction

torch_profiler = pytest.importorskip("torch.profiler")
ACTIONS = [action for action in ProfilerAction if action is not ProfilerAction.DEVICE_STOPPED]


def told(kind: type[Any], actions: list[ProfilerAction], enum: Any) -> list[str]:
    """The calls and the warnings of a profiler that steps through the actions and is stopped then."""
    calls: list[str] = []

    class Told(kind):  # type: ignore[misc]
        def prepare_trace(self) -> None:
            calls.append("prepare")

        def start_trace(self) -> None:
            calls.append("start")

        def stop_trace(self) -> None:
            calls.append("stop")

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        made = Told(
            activities=[torch_profiler.ProfilerActivity.CPU],
            schedule=lambda step: enum[actions[step].name],
            on_trace_ready=lambda _: calls.append("ready"),
        )
        made.start()
        for _ in actions[1:]:
            made.step()
            calls.append(f"step {made.step_num}")
        made.stop()
    return calls + sorted(str(warning.message) for warning in warned)


@given(st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=12))
def test_any_schedule_does_what_it_does_in_torch(actions: list[ProfilerAction]) -> None:
    ours = told(profiler.profile, actions, ProfilerAction)

    assert ours == told(torch_profiler.profile, actions, torch_profiler.ProfilerAction)
    assert ours == told(profiler.profile, actions, torch_profiler.ProfilerAction), "torch's enum is as good as ours"


@given(st.integers(0, 4), st.integers(0, 3), st.integers(1, 4), st.integers(0, 3), st.integers(0, 4), st.integers(0, 2))
def test_a_schedule_answers_as_torchs(
    wait: int, warmup: int, active: int, repeat: int, skip: int, skipped: int
) -> None:
    arguments = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat, "skip_first": skip}
    if "skip_first_wait" in (torch_profiler.schedule.__kwdefaults__ or {}):
        arguments["skip_first_wait"] = skipped
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, where there is no warm-up
        theirs = torch_profiler.schedule(**arguments)
    ours = profiler.schedule(**arguments)

    assert [ours(step).name for step in range(40)] == [theirs(step).name for step in range(40)]


@pytest.mark.parametrize("answer", [ProfilerAction.DEVICE_STOPPED, None, 3])
def test_what_is_no_answer_is_refused_and_changes_nothing(answer: Any) -> None:
    with pytest.raises(ValueError, match="a schedule answered"):
        profiler.profile(activities=[torch_profiler.ProfilerActivity.CPU], schedule=lambda _: answer)

    late = profiler.profile(
        activities=[torch_profiler.ProfilerActivity.CPU],
        schedule=lambda step: ProfilerAction.NONE if step == 0 else answer,
    )
    late.start()
    with pytest.raises(ValueError, match="a schedule answered"):
        late.step()
    assert (late.step_num, late.current_action) == (0, ProfilerAction.NONE)
    late.stop()
