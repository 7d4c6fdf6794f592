"""Facts from names and launches of kernels, against the counters of a card for the same kernels."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.frames import table
from opspan.analysis.kernels import with_facts
from opspan.analysis.occupancy import SHAPE, occupancy
from opspan.formats.kernel_names import kernel_name

CARD: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data/tensor_cores_h100.json").read_text("utf-8"))
KERNELS: list[dict[str, Any]] = CARD["kernels"]
IN_C = {"product_kernel", "sum_kernel"}  # kernels of Triton, with tl.dot and without; their names do not tell
DEVICE = {"rank": 0, "device_id": 0, "multiprocessors": CARD["multiprocessors"], "capability": CARD["capability"]}


@pytest.mark.parametrize("spelling", ["name", "ncu_name"])
def test_names_say_what_the_card_counted_or_nothing(spelling: str) -> None:
    """Each tool spells names of C++ in its own way."""
    full = [kernel.get(spelling, kernel["name"]) for kernel in KERNELS]
    rows = [{"kind": "kernel", "name": kernel_name(name), "full_name": name} for name in full]

    found = with_facts(table("work", rows))["on_tensor_cores"].to_list()

    expected = [None if name in IN_C else kernel["on_tensor_cores"] for name, kernel in zip(full, KERNELS, strict=True)]
    wrong = [(name, one) for name, one, right in zip(full, found, expected, strict=True) if one is not right]
    assert not wrong
    assert sum(kernel["on_tensor_cores"] for kernel in KERNELS) > 60


def test_products_on_tensor_cores_have_short_names_of_their_own() -> None:
    full = {kernel["name"] for kernel in KERNELS if kernel["on_tensor_cores"]}
    assert len({kernel_name(name) for name in full}) == len(full)


def shapes(grid_x: int | None = None) -> pl.DataFrame:
    rows = []
    for kernel in KERNELS:
        (gx, gy, gz), (x, y, z) = kernel["grid"], kernel["block"]
        row = {name: kernel[name] for name in ("registers", "static_shared_bytes", "dynamic_shared_bytes")}
        grid = {"grid_x": grid_x or gx, "grid_y": gy, "grid_z": gz}
        rows.append({"rank": 0, "device_id": 0, **grid, "block_x": x, "block_y": y, "block_z": z, **row})
    return table("work", rows).select("rank", "device_id", *SHAPE)


def test_as_many_warps_fit_as_the_card_says() -> None:
    """ncu counts warps, and does not look at how many blocks there are; opspan counts their threads."""
    found = occupancy(shapes(grid_x=1_000_000), table("devices", [DEVICE]))

    of_warps = [-(-prod(kernel["block"]) // 32) * 32 / prod(kernel["block"]) for kernel in KERNELS]
    percent = [100 * share * more for share, more in zip(found, of_warps, strict=True)]
    assert percent == pytest.approx([kernel["occupancy_pct"] for kernel in KERNELS], abs=0.01)


def test_torch_estimated_the_same_of_kernels_with_little_shared_memory() -> None:
    found = occupancy(shapes(), table("devices", [DEVICE]))

    pairs = [(100 * share, kernel["torch_occupancy_pct"]) for share, kernel in zip(found, KERNELS, strict=True)]
    is_large = [kernel["static_shared_bytes"] + kernel["dynamic_shared_bytes"] > 48 * 1024 for kernel in KERNELS]
    known = [pair for pair, large in zip(pairs, is_large, strict=True) if not large]
    assert [one for one, _ in known] == pytest.approx([said for _, said in known], abs=0.5 + 1e-6)  # whole percents
    assert {said for (_, said), large in zip(pairs, is_large, strict=True) if large} == {0}
