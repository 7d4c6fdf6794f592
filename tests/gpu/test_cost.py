"""The cost of watching a launch. Figures are kept but not judged; tests assert that all launches ran and were
recorded."""

from __future__ import annotations

import pytest

import opspan
from gpu.children import fact
from gpu.conftest import Runs

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.usefixtures("gpu")]


@pytest.mark.parametrize("mode", ["plain", "record", "device", "nvtx", "profile", "torch"])
def test_every_launch_is_done_and_those_that_are_watched_are_there(runs: Runs, mode: str) -> None:
    run = runs("cost", mode)
    told = run.ended.told
    recorded = run.folder / "recorded"
    trace = opspan.load(recorded) if recorded.is_dir() else None
    counts = None
    if trace is not None:
        counts = [trace.ranges.filter(name="aten::add_").height, trace.work.filter(kind="kernel").height]
    fact("cost", **told, ops_and_kernels=counts, bytes=sum(each.stat().st_size for each in run.folder.rglob("*.*")))

    watched = told["launches"] * told["turns"]
    assert told["sum"] == 32 * told["launches"] * (told["turns"] + 3)
    assert min(told["launched_us"]) > 0
    if counts is not None:
        assert counts == [watched, watched if mode != "record" else 0]
