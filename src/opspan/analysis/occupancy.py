"""How much of a device a kernel can use: an estimate from its launch.

    blocks_per_sm(kernels, devices) -> Float64, blocks of the launch for each multiprocessor
    occupancy(kernels, devices)     -> Float64, share of the threads of a multiprocessor that the kernel has, at most

Occupancy is what the TensorBoard plugin calls estimated achieved occupancy: the blocks that a multiprocessor gets, or
as many as fit on it if those are fewer, times the threads of a block, divided by the threads that it can have. How many
fit is the least of what blocks, warps, registers and shared memory allow, by NVIDIA's rules for the capability.

torch.profiler's files have both figures, and then those are taken; but where they say that no block fits, as they do of
kernels with more than 48 KiB of shared memory, it is computed here. Null where anything is missing, for devices that
LIMITS does not know, and for those of others than NVIDIA. docs/analysis.md, "Compared with other tools".
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import distinct, looked_up

_col = pl.col
_WARP = 32
_REGISTER_UNIT = 256  # registers are given to warps in such pieces
_BLOCK = ("block_x", "block_y", "block_z")
_GRID = ("grid_x", "grid_y", "grid_z")
_LAUNCH = (*_GRID, *_BLOCK, "registers", "static_shared_bytes", "dynamic_shared_bytes")
SHAPE = (*_LAUNCH, "payload_json")  # columns of kernels that are needed, beside rank and device_id
# What one multiprocessor has: blocks, warps, registers, KiB of shared memory; pieces in which shared memory is given
# to blocks, what the driver takes of it for each, and parts that share the registers among them.
_COLUMNS = ("capability", "blocks", "warps", "all_registers", "shared_kib", "shared_unit", "reserved", "parts")
LIMITS = (
    ("3.5", 16, 64, 65536, 48, 256, 0, 4),
    ("3.7", 16, 64, 131072, 112, 256, 0, 4),
    ("5.0", 32, 64, 65536, 64, 256, 0, 4),
    ("5.2", 32, 64, 65536, 96, 256, 0, 4),
    ("6.0", 32, 64, 65536, 64, 256, 0, 2),
    ("6.1", 32, 64, 65536, 96, 256, 0, 4),
    ("7.0", 32, 64, 65536, 96, 256, 0, 4),
    ("7.5", 16, 32, 65536, 64, 256, 0, 4),
    ("8.0", 32, 64, 65536, 164, 128, 1024, 4),
    ("8.6", 16, 48, 65536, 100, 128, 1024, 4),
    ("8.7", 16, 48, 65536, 164, 128, 1024, 4),
    ("8.9", 24, 48, 65536, 100, 128, 1024, 4),
    ("9.0", 32, 64, 65536, 228, 128, 1024, 4),
    ("10.0", 32, 64, 65536, 228, 128, 1024, 4),
    ("12.0", 24, 48, 65536, 100, 128, 1024, 4),
)
_SAID_OCCUPANCY = r'"est\. achieved occupancy %":\s*([0-9.]+)'
_SAID_BLOCKS = r'"blocks per SM":\s*([0-9.]+)'
_SAID_SHARED = r'"shared memory":\s*([0-9]+)'
_OF_OTHERS = r"(?i)amd|radeon|instinct|gfx"  # their capabilities are numbers, too


def blocks_per_sm(kernels: pl.DataFrame, devices: pl.DataFrame) -> pl.Series:
    key = ["rank", "device_id"]
    sizes = devices.select(*key, "multiprocessors").unique(key, keep="first")
    rows = looked_up(kernels.select(*key, *_GRID, "payload_json"), sizes, key)
    blocks = _product(_GRID)
    computed = pl.when(_col("multiprocessors") > 0, blocks > 0).then(blocks / _col("multiprocessors"))
    said = _number("payload_json", _SAID_BLOCKS)
    return rows.select(blocks_per_sm=pl.coalesce(computed, pl.when(said > 0).then(said)))["blocks_per_sm"]


def occupancy(kernels: pl.DataFrame, devices: pl.DataFrame) -> pl.Series:
    said = _number("payload_json", _SAID_OCCUPANCY) / 100
    rows = kernels.select("rank", "device_id", *_LAUNCH[:-2], said=said, shared=shared_bytes())
    key = [name for name in rows.columns if name != "said"]
    alike = distinct(rows.filter(_col("said").is_null() | (_col("said") == 0)), key)
    found = alike.join(_limits(devices), on=["rank", "device_id"], nulls_equal=True).select(*key, computed=_computed())
    rows = looked_up(rows, found, key)
    is_small = _col("shared") <= _COMMON_SHARED  # then 0 is less than half of a percent
    either = pl.coalesce(pl.when(_col("said") > 0).then("said"), "computed", pl.when(is_small).then("said"))
    return rows.select(occupancy=either)["occupancy"]


def shared_bytes() -> pl.Expr:
    """What each block has of shared memory, of columns SHAPE."""
    of_launch = _col("static_shared_bytes") + _col("dynamic_shared_bytes")
    said = _number("payload_json", _SAID_SHARED).cast(pl.Int64, strict=False)
    return pl.coalesce(of_launch, said).alias("shared_bytes")


_COMMON_SHARED = 48 * 1024  # a block that has more asked for it, which torch.profiler does not know


def _limits(devices: pl.DataFrame) -> pl.DataFrame:
    limits = pl.DataFrame(LIMITS, schema=_COLUMNS, orient="row")
    names = ("capability", "name", "attributes_json")
    known = devices.select("rank", "device_id", "multiprocessors", *(_col(name).cast(pl.String) for name in names))
    is_others = _col("name").str.contains(_OF_OTHERS).fill_null(value=False)
    warp = _number("attributes_json", r'"warpSize":\s*([0-9]+)').fill_null(_WARP)
    known = known.filter(~is_others, warp == _WARP).unique(["rank", "device_id"], keep="first")
    return known.drop("name", "attributes_json").join(limits, on="capability")


def _computed() -> pl.Expr:
    threads = _product(_BLOCK)
    warps = _up(threads, _WARP) // _WARP
    of_warp = _up(_col("registers").cast(pl.Int64) * _WARP, _REGISTER_UNIT)
    fit = (
        _col("blocks"),
        _col("warps") // warps,
        _col("all_registers") // _col("parts") // of_warp * _col("parts") // warps,
        _col("shared_kib") * 1024 // _up(_col("shared") + _col("reserved"), _col("shared_unit")).clip(lower_bound=1),
    )
    is_known = (threads > 0) & (_product(_GRID) > 0) & (_col("registers") > 0) & (_col("multiprocessors") > 0)
    most = pl.min_horizontal(fit)
    # What ran did fit: that none does means that something here is not as it was there.
    is_known &= (_col("shared") >= 0) & (most > 0)
    blocks = pl.min_horizontal(most, _product(_GRID) / _col("multiprocessors"))
    return pl.when(is_known).then(blocks * threads / (_col("warps") * _WARP))


def _product(names: tuple[str, ...]) -> pl.Expr:
    x, y, z = (_col(name).cast(pl.Int64) for name in names)
    return x * y * z


def _up(number: pl.Expr, unit: pl.Expr | int) -> pl.Expr:
    """To the next multiple."""
    return (number + unit - 1) // unit * unit


def _number(column: str, pattern: str) -> pl.Expr:
    return _col(column).str.extract(pattern).cast(pl.Float64, strict=False)
