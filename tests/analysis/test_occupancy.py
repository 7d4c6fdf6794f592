"""How much of a device a kernel can use, against blocks placed one by one and what torch.profiler's files say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opspan
from analysis.frames import table
from opspan.analysis.busy import devices, use
from opspan.analysis.occupancy import LIMITS, SHAPE, blocks_per_sm, occupancy

KEY = ["rank", "device_id"]
DEVICES = [
    {"rank": 0, "device_id": number, "multiprocessors": 80, "capability": row[0]} for number, row in enumerate(LIMITS)
]
launches = st.fixed_dictionaries(
    {
        "device_id": st.integers(0, len(LIMITS) - 1),
        "grid_x": st.sampled_from([1, 40, 80, 81, 100_000]),
        "block_x": st.sampled_from([1, 32, 33, 128, 256, 1000, 1024]),
        "block_y": st.sampled_from([1, 1, 2]),
        "registers": st.sampled_from([1, 16, 31, 32, 33, 64, 168, 255]),
        "static_shared_bytes": st.sampled_from([0, 0, 1, 4096]),
        "dynamic_shared_bytes": st.sampled_from([0, 0, 17_000, 49_152, 100_000]),
    }
)


def shapes(*rows: dict[str, Any]) -> pl.DataFrame:
    defaults = {"rank": 0, "device_id": 6, "grid_x": 80, "grid_y": 1, "grid_z": 1, "block_x": 256, "block_y": 1}
    defaults |= {"block_z": 1, "registers": 32, "static_shared_bytes": 0, "dynamic_shared_bytes": 0}
    return table("work", list(rows), **defaults).select(*KEY, *SHAPE)


def placed(launch: dict[str, Any]) -> float | None:
    """Puts block after block onto a multiprocessor until something is used up."""
    _, blocks, warps, registers, shared_kib, unit, reserved, parts = LIMITS[launch["device_id"]]
    threads = launch["block_x"] * launch["block_y"]
    of_block = -(-threads // 32)
    of_warp = -(-launch["registers"] * 32 // 256) * 256
    slots = 0  # warps for which there are registers
    for _ in range(parts):
        left = registers // parts
        while left >= of_warp:
            left, slots = left - of_warp, slots + 1
    shared = launch["static_shared_bytes"] + launch["dynamic_shared_bytes"] + reserved
    shared = -(-shared // unit) * unit
    fit, left_warps, left_shared = 0, warps, shared_kib * 1024
    while fit < blocks and left_warps >= of_block and slots >= of_block and left_shared >= shared:
        fit, left_warps, slots, left_shared = fit + 1, left_warps - of_block, slots - of_block, left_shared - shared
    return min(fit, launch["grid_x"] / 80) * threads / (warps * 32) if fit else None


@given(st.lists(launches, min_size=1, max_size=8))
def test_as_many_blocks_as_can_be_placed(rows: list[dict[str, Any]]) -> None:
    found = occupancy(shapes(*rows), table("devices", DEVICES))
    assert found.to_list() == pytest.approx([placed(row) for row in rows])


@pytest.mark.parametrize(
    "missing", ["grid_y", "block_z", "registers", "static_shared_bytes", "dynamic_shared_bytes", "device_id"]
)
def test_what_is_missing_is_not_guessed(missing: str) -> None:
    known = table("devices", DEVICES)
    assert occupancy(shapes({}, {missing: None}), known).is_null().to_list() == [False, True]


@pytest.mark.parametrize(
    "other",
    [
        {"capability": None},
        {"capability": "99.0"},
        {"multiprocessors": None},
        {"multiprocessors": 0},
        {"name": "AMD Radeon RX 9070"},  # gfx1200 is capability 12.0 to torch
        {"attributes_json": '{"warpSize": 64}'},
    ],
)
def test_of_other_devices_nothing_is_known(other: dict[str, Any]) -> None:
    known = table("devices", [{**DEVICES[6], **other}])
    assert occupancy(shapes({}), known).to_list() == [None]


def test_limits_are_those_that_nvidia_publishes() -> None:
    """CUDA C++ Programming Guide, technical specifications per compute capability; the Occupancy Calculator's units."""
    published = """
        3.5 16 64  64  48
        3.7 16 64 128 112
        5.0 32 64  64  64
        5.2 32 64  64  96
        6.0 32 64  64  64
        6.1 32 64  64  96
        7.0 32 64  64  96
        7.5 16 32  64  64
        8.0 32 64  64 164
        8.6 16 48  64 100
        8.7 16 48  64 164
        8.9 24 48  64 100
        9.0 32 64  64 228
        10.0 32 64 64 228
        12.0 24 48 64 100
    """
    rows = [line.split() for line in published.strip().splitlines()]
    assert [row[0] for row in LIMITS] == [row[0] for row in rows]
    for (capability, *limits), (_, blocks, warps, registers_k, shared_kib) in zip(LIMITS, rows, strict=True):
        assert limits[:4] == [int(blocks), int(warps), int(registers_k) * 1024, int(shared_kib)]
        has_new_units = float(capability) >= 8
        assert limits[4:6] == ([128, 1024] if has_new_units else [256, 0])
        assert limits[6] == (2 if capability == "6.0" else 4)


def test_odd_launches() -> None:
    odd = [{"grid_x": 0}, {"grid_x": -1}, {"block_x": 0}, {"registers": 0}, {"dynamic_shared_bytes": -5}]
    odd += [{"block_x": 4096}, {"dynamic_shared_bytes": 2**62}, {"grid_x": 2**31 - 1, "grid_y": 2**31 - 1}]
    assert occupancy(shapes(*odd), table("devices", DEVICES)).to_list() == [None] * 7 + [1.0]


def test_what_the_file_says_counts_unless_it_is_nothing() -> None:
    texts = [json.dumps({"est. achieved occupancy %": said, "shared memory": 60_000}) for said in (31, 0)]
    rows = [{"payload_json": text, "static_shared_bytes": None} for text in texts]
    known = table("devices", DEVICES)
    assert occupancy(shapes(*rows), known).to_list() == [0.31, 256 / 2048]
    # Without a device nobody knows how many did fit; little shared memory and 0 is less than half of a percent.
    small = texts[1].replace("60000", "0")
    rows += [{"payload_json": small, "static_shared_bytes": None}]
    assert occupancy(shapes(*rows), known.clear()).to_list() == [0.31, None, 0.0]


def test_blocks_come_from_the_grid_or_from_the_file() -> None:
    said = '{"blocks per SM": 2.962963, "warps per SM": 3}'
    rows = [{"grid_x": 40}, {"payload_json": said}, {"payload_json": said, "grid_x": None}, {"grid_x": None}]
    assert blocks_per_sm(shapes(*rows), table("devices", DEVICES)).to_list() == [0.5, 1.0, 2.962963, None]
    assert blocks_per_sm(shapes(*rows), table("devices", [])).to_list() == [None, 2.962963, 2.962963, None]


@pytest.mark.parametrize("name", ["ns_resolution.pt.trace", "resnet50_memory_without_category.pt.trace"])
def test_as_torch_estimated_it_for_its_own_files(name: str, traces_dir: Path) -> None:
    path = traces_dir / "kineto" / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"{name} is not among the recorded traces")
    trace = opspan.load(path)
    kernels = trace.work.filter(pl.col("kind") == "kernel")
    texts = [json.loads(text) for text in kernels["payload_json"]]
    shared = pl.Series([text["shared memory"] for text in texts], dtype=pl.Int64)
    bare = kernels.with_columns(
        payload_json=pl.lit(None, dtype=pl.String), static_shared_bytes=shared, dynamic_shared_bytes=pl.lit(0)
    )
    found = occupancy(bare.select(*KEY, *SHAPE), trace.devices)
    said = [text["est. achieved occupancy %"] for text in texts]
    assert len(said) > 4000
    assert (found * 100).to_list() == pytest.approx(said, abs=0.5 + 1e-6)  # the file has whole percents
    blocks = blocks_per_sm(bare.select(*KEY, *SHAPE), trace.devices)
    assert blocks.to_list() == pytest.approx([text["blocks per SM"] for text in texts], rel=1e-5)


def test_of_a_process_it_is_the_mean_over_its_devices() -> None:
    rows = {
        "rank": [0, 0, 0],
        "pid": [1, 1, 2],
        "step": ["a", "a", "a"],
        "time_ns": [100, 100, 100],
        "kernel_ns": [50, 10, 0],
        "sm_ns": [40.0, None, None],
        "occupancy_ns": [5.0, None, None],
        "with_occupancy_ns": [20, None, None],
        "work_ns": [60, 20, 0],
        "tensor_core_ns": [20, 20, 0],
        "unknown_core_ns": [8, 0, 0],
    }
    assert use(pl.DataFrame(rows)).rows() == [
        (0, 1, "a", 0.3, 0.4, 0.25, 0.5),
        (0, 2, "a", 0.0, None, None, None),
    ]


def test_kernels_at_the_same_time_use_no_more_than_all(traces_dir: Path) -> None:
    path = traces_dir / "kineto" / "rank0_sampled.json.gz"
    if not path.exists():
        pytest.skip("rank0_sampled is not among the recorded traces")
    found = opspan.load(path).analysed
    rows = devices(found.complete, found.iterations)
    assert rows["sm_ns"].null_count() == 0
    assert (rows["sm_ns"] <= rows["kernel_ns"]).all()
