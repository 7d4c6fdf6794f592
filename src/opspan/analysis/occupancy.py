"""Estimates how much of a device a kernel can use, from the shape of its launch.

    blocks_per_sm(kernels, devices) -> Float64, blocks of the launch for each multiprocessor.
    occupancy(kernels, devices) -> Float64, the largest share of a multiprocessor's threads that the kernel can use.

Occupancy is what the TensorBoard plugin calls estimated achieved occupancy. It is the number of blocks on a
multiprocessor, times the threads of a block, divided by the threads that the multiprocessor can have. The number of
blocks is limited by the warps, registers and shared memory of a multiprocessor, and by a limit on blocks itself. These
depend on the device's compute capability (LIMITS).

torch.profiler's files have both figures. The file's occupancy is taken if it is not 0. It is 0 for kernels with more
than 48 KiB of shared memory, for example; in this case the occupancy is computed here. The file's blocks are taken only
if they cannot be computed. Occupancy is not computed for devices of other makers than NVIDIA, for capabilities that
LIMITS does not have, or if a number is missing. See docs/analysis.md, "Compared with other tools".
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import distinct, look_up

_col = pl.col
_WARP = 32
_REGISTER_UNIT = 256  # the registers of a warp are allocated in multiples of this number
_BLOCK = ("block_x", "block_y", "block_z")
_GRID = ("grid_x", "grid_y", "grid_z")
_LAUNCH = (*_GRID, *_BLOCK, "registers", "static_shared_bytes", "dynamic_shared_bytes")
SHAPE = (*_LAUNCH, "payload_json")  # the columns of kernels that are needed, besides rank and device_id
# Limits of one multiprocessor. all_registers: its registers; parts: how many equal parts they are divided into.
# shared_kib: its shared memory in KiB; shared_unit: shared memory is allocated in multiples of these bytes. reserved:
# the bytes of shared memory that the driver takes for each block.
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
_FILE_OCCUPANCY = r'"est\. achieved occupancy %":\s*([0-9.]+)'
_FILE_BLOCKS = r'"blocks per SM":\s*([0-9.]+)'
_FILE_SHARED = r'"shared memory":\s*([0-9]+)'
_OTHER_MAKERS = r"(?i)amd|radeon|instinct|gfx"  # devices of these makers have capabilities that look like NVIDIA's


def blocks_per_sm(kernels: pl.DataFrame, devices: pl.DataFrame) -> pl.Series:
    key = ["rank", "device_id"]
    sizes = devices.select(*key, "multiprocessors").unique(key, keep="first")
    rows = look_up(kernels.select(*key, *_GRID, "payload_json"), sizes, key)
    blocks = _product(_GRID)
    computed = pl.when(_col("multiprocessors") > 0, blocks > 0).then(blocks / _col("multiprocessors"))
    in_file = _number("payload_json", _FILE_BLOCKS)
    return rows.select(blocks_per_sm=pl.coalesce(computed, pl.when(in_file > 0).then(in_file)))["blocks_per_sm"]


def occupancy(kernels: pl.DataFrame, devices: pl.DataFrame) -> pl.Series:
    in_file = _number("payload_json", _FILE_OCCUPANCY) / 100
    rows = kernels.select("rank", "device_id", *_LAUNCH[:-2], in_file=in_file, shared=shared_bytes())
    key = [name for name in rows.columns if name != "in_file"]
    alike = distinct(rows.filter(_col("in_file").is_null() | (_col("in_file") == 0)), key)
    limited = alike.join(_limits(devices), on=["rank", "device_id"], nulls_equal=True)
    rows = look_up(rows, limited.select(*key, computed=_compute()), key)
    is_small = _col("shared") <= _COMMON_SHARED  # for these kernels, 0 in the file means an occupancy below 0.5 %
    either = pl.coalesce(pl.when(_col("in_file") > 0).then("in_file"), "computed", pl.when(is_small).then("in_file"))
    return rows.select(occupancy=either)["occupancy"]


def shared_bytes() -> pl.Expr:
    """Returns the bytes of shared memory of each block, from the columns SHAPE."""
    of_launch = _col("static_shared_bytes") + _col("dynamic_shared_bytes")
    in_file = _number("payload_json", _FILE_SHARED).cast(pl.Int64, strict=False)
    return pl.coalesce(of_launch, in_file).alias("shared_bytes")


# bytes of shared memory that every block can have; a kernel gets more only by a call that torch.profiler does not see
_COMMON_SHARED = 48 * 1024


def _limits(devices: pl.DataFrame) -> pl.DataFrame:
    limits = pl.DataFrame(LIMITS, schema=_COLUMNS, orient="row")
    names = ("capability", "name", "attributes_json")
    known = devices.select("rank", "device_id", "multiprocessors", *(_col(name).cast(pl.String) for name in names))
    is_others = _col("name").str.contains(_OTHER_MAKERS).fill_null(value=False)
    warp = _number("attributes_json", r'"warpSize":\s*([0-9]+)').fill_null(_WARP)
    known = known.filter(~is_others, warp == _WARP).unique(["rank", "device_id"], keep="first")
    return known.drop("name", "attributes_json").join(limits, on="capability")


def _compute() -> pl.Expr:
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
    # The kernel ran, so at least one block fits. If these numbers say that no block fits, some number is wrong.
    is_known &= (_col("shared") >= 0) & (most > 0)
    blocks = pl.min_horizontal(most, _product(_GRID) / _col("multiprocessors"))
    return pl.when(is_known).then(blocks * threads / (_col("warps") * _WARP))


def _product(names: tuple[str, ...]) -> pl.Expr:
    x, y, z = (_col(name).cast(pl.Int64) for name in names)
    return x * y * z


def _up(number: pl.Expr, unit: pl.Expr | int) -> pl.Expr:
    """Rounds up to the next multiple of the unit."""
    return (number + unit - 1) // unit * unit


def _number(column: str, pattern: str) -> pl.Expr:
    return _col(column).str.extract(pattern).cast(pl.Float64, strict=False)
