"""Time and possible occupancy of kernels, by name or by launch, against plain loops over the rows of a made run."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl
import pytest

from analysis.frames import table
from builders.training_files import load
from builders.training_plan import MULTIPROCESSORS, Plan
from opspan.analysis import averages
from opspan.analysis.kernel_use import KERNELS, figures, launched
from opspan.trace import Trace


@pytest.fixture(scope="module", params=["kineto", "nsys"])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return load(tmp_path_factory.mktemp("run") / request.param, Plan(ranks=2, steps=3), request.param)


@pytest.mark.parametrize("by", [("kind", "name"), ("kind", "name", "grid_x", "registers")])
def test_figures_are_sums_over_the_kernels_of_each_group(by: tuple[str, ...], trace: Trace) -> None:
    rows = launched(trace.analysed.attributed.work, trace.devices)
    groups: dict[tuple, list[dict[str, Any]]] = defaultdict(list)
    for row in rows.to_dicts():
        groups[tuple(row[name] for name in by)].append(row)

    found = {tuple(row[name] for name in by): row for row in figures(rows, by).to_dicts()}

    assert found.keys() == groups.keys()
    for key, some in groups.items():
        mine, took = found[key], [row["end_ns"] - row["start_ns"] for row in some]
        assert (mine["count"], mine["device_ns"]) == (len(some), sum(took))
        assert (mine["least_device_ns"], mine["most_device_ns"]) == (min(took), max(took))
        assert mine["average_device_ns"] == pytest.approx(sum(took) / len(some))
        if some[0]["kind"] == "kernel":
            blocks = sum(row["grid_x"] / MULTIPROCESSORS * ns for row, ns in zip(some, took, strict=True))
            assert mine["blocks_per_sm"] == pytest.approx(blocks / sum(took))
            assert mine["uses_tensor_cores"] == ("yes" if "xmma" in mine["name"] else "no")
        else:
            assert (mine["blocks_per_sm"], mine["occupancy"], mine["uses_tensor_cores"]) == (None, None, None)


def test_the_occupancy_of_all_is_that_of_the_devices(trace: Trace) -> None:
    rows = figures(launched(trace.analysed.attributed.work, trace.devices)).drop_nulls("occupancy")
    whole = trace.analysed.whole_devices
    ours = (rows["occupancy"] * rows["device_ns"]).sum()
    assert ours == pytest.approx(whole["occupancy_ns"].sum() or 0)
    tensor_cores = figures(launched(trace.analysed.attributed.work, trace.devices)).filter(uses_tensor_cores="yes")
    assert tensor_cores["device_ns"].sum() == whole["tensor_core_ns"].sum() > 0


def test_by_name_they_are_the_sums_of_averages(trace: Trace) -> None:
    found = trace.analysed.attributed
    ours = figures(launched(found.work, found.devices))
    assert ours.select("kind", "name", "count", "device_ns").equals(averages(found.ranges, found.work, "kernel"))
    assert set(KERNELS) > set(ours["kind"].cast(pl.String)) - {"memcpy"} == {"kernel"}


def test_nothing_known_is_null() -> None:
    work = table("work", [{"kind": "kernel", "name": "gemm", "start_ns": 5, "end_ns": 5}], rank=0, pid=1, device_id=0)
    (row,) = figures(launched(work, table("devices", []))).to_dicts()
    assert (row["device_ns"], row["blocks_per_sm"], row["occupancy"]) == (0, None, None)
    assert row["uses_tensor_cores"] == "unknown"
