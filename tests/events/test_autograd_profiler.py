"""Changing an import line is all a user does."""

from __future__ import annotations

import importlib
import random
from copy import copy

import pytest

import opspan
from opspan import autograd_profiler


@pytest.mark.parametrize("name", [name for name in autograd_profiler.__all__ if name in opspan.__all__])
def test_what_opspan_has_is_the_same_here(name: str) -> None:
    pytest.importorskip("torch", reason="some of it labels torch")
    assert getattr(autograd_profiler, name) is getattr(opspan, name)


def test_the_classes_are_those_of_events() -> None:
    from opspan import events

    for name in ("EventList", "FunctionEvent", "MemRecordsAcc", "EnforceUnique"):
        assert getattr(autograd_profiler, name) is getattr(events, name)


@pytest.mark.parametrize("name", autograd_profiler.__all__)
def test_every_name_is_there(name: str) -> None:
    assert callable(getattr(autograd_profiler, name))


def test_names_of_torchs_module_are_all_here() -> None:
    torchs = pytest.importorskip("torch.autograd.profiler", reason="torch's module is the model")

    assert set(torchs.__all__) <= set(autograd_profiler.__all__)


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        importlib.import_module("opspan.autograd_profiler").other  # noqa: B018


def test_keys_are_seen_once() -> None:
    unique = autograd_profiler.EnforceUnique()
    unique.see("a", 1)
    unique.see("a", 2)

    with pytest.raises(RuntimeError, match="duplicate key"):
        unique.see("a", 1)


@pytest.mark.parametrize("seed", range(20))
def test_steps_are_counted_as_torch_counts_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torchs = pytest.importorskip("torch.autograd.profiler", reason="torch's class is the model").KinetoStepTracker
    trackers = (autograd_profiler.KinetoStepTracker, torchs)
    for tracker in trackers:
        monkeypatch.setattr(tracker, "_current_step", 0)
        monkeypatch.setattr(tracker, "_step_dict", copy(tracker._step_dict))
        tracker._step_dict.clear()
    chance = random.Random(seed)

    for _ in range(200):
        verb = chance.choice(["init_step_count", "erase_step_count", *["increment_step"] * 4])
        who = chance.choice(["ProfilerStep", "SGD", "Adam", "mine"])
        ours, theirs = (getattr(tracker, verb)(who) for tracker in trackers)
        assert ours == theirs
        assert trackers[0].current_step() == trackers[1].current_step()
        assert trackers[0]._step_dict == dict(trackers[1]._step_dict)
    assert trackers[0].current_step() > 10
