"""opspan.schedule against torch.profiler.schedule."""

from __future__ import annotations

import inspect
import itertools
import warnings

import pytest

import opspan
from opspan.emit.schedule import is_active

profiler = pytest.importorskip("torch.profiler")

PARAMETERS = list(itertools.product([0, 1, 3], [0, 2], [1, 2, 4], [0, 1, 3], [0, 5], [0, 1]))


@pytest.mark.parametrize(("wait", "warmup", "active", "repeat", "skip_first", "skip_first_wait"), PARAMETERS)
def test_every_step_is_as_in_torch(
    wait: int, warmup: int, active: int, repeat: int, skip_first: int, skip_first_wait: int
) -> None:
    chosen = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat, "skip_first": skip_first}
    if "skip_first_wait" in inspect.signature(profiler.schedule).parameters:
        chosen["skip_first_wait"] = skip_first_wait
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of warmup=0, which matters to its profiler only
        theirs = profiler.schedule(**chosen)

    ours = opspan.schedule(**chosen)

    assert [ours(step).name for step in range(60)] == [theirs(step).name for step in range(60)]
    assert [is_active(ours(step)) for step in range(60)] == [is_active(theirs(step)) for step in range(60)]


def test_the_actions_are_torchs() -> None:
    ours = {action.name: action.value for action in opspan.ProfilerAction}
    theirs = {action.name: action.value for action in profiler.ProfilerAction}

    assert theirs.items() <= ours.items()
    assert ours.keys() - theirs.keys() <= {"DEVICE_STOPPED"}  # older releases of torch lack it


@pytest.mark.parametrize("wrong", [{"wait": -1}, {"warmup": -1}, {"active": 0}, {"repeat": -1}, {"skip_first": -1}])
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="active > 0"):
        opspan.schedule(**{"wait": 0, "warmup": 0, "active": 1, **wrong})


def test_a_negative_step_is_refused() -> None:
    action_of = opspan.schedule(wait=0, warmup=0, active=1)

    with pytest.raises(ValueError, match="from 0"):
        action_of(-1)
