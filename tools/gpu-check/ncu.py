"""Builds the command line of Nsight Compute (ncu), and reads the table that it writes.

    command(metrics, log, program) -> the command that measures a program's kernels between cudaProfilerStart and Stop
    kernels(text)                  -> the kernels of the table that `--csv --page raw` writes

    "ID","Process ID","thread Domain:Push/Pop_Range:PL_Type:...","Kernel Name",...,"gpu__time_duration.sum"
    "","","","",...,"ns"
    "0","77","77  ""<default domain>:mm.bf16:none:none:none:none:none:none"" ","nvjet_tst_64x64",...,"2,336"

The first line has the names of columns, and the second line has their units. Messages of ncu, which begin with ==, may
stand before these lines.
"""

from __future__ import annotations

import csv
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# On sm_90 only gmma counts the products of warp groups (wgmma). hmma also counts hfma2, which is not a matrix product,
# so the value of hfma2's counter is subtracted.
PIPES = tuple(
    f"sm__inst_executed_pipe_tensor_op_{kind}.sum" for kind in ("hmma", "gmma", "imma", "dmma", "qmma", "bmma")
)
OF_NO_PRODUCT = "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum"
WHOLE_PIPE = ("sm__inst_executed_pipe_tensor.sum", "sm__pipe_tensor_cycles_active.sum")
DURATION = "gpu__time_duration.sum"
OCCUPANCY = ("sm__maximum_warps_per_active_cycle_pct", "sm__warps_active.avg.pct_of_peak_sustained_active")
LAUNCH = (
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
    "launch__occupancy_limit_blocks",
)
_RANGE = re.compile(r'"([^"]*)"')
_DETAILS = re.compile(r"(:[^:]*){6}$")  # after the name of a range: the types and values of payload, colour, message


def place() -> str | None:
    """Returns the path of ncu."""
    others = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"))
    return shutil.which("ncu") or (str(others[-1]) if others else None)


def command(metrics: Sequence[str], log: Path, program: Sequence[str], *options: str) -> list[str]:
    """Returns the command line of ncu. Its options leave clocks and caches as they are, and make ncu write a metric
    always in the same unit, for example ns."""
    said = "--clock-control none --cache-control none --print-units base --target-processes application-only --nvtx"
    written = ["--csv", "--page", "raw", "--log-file", str(log)]
    return [place() or "ncu", *said.split(), *written, "--metrics", ",".join(metrics), *options, *program]


def known(names: Sequence[str], listed: str) -> list[str]:
    """Returns the names of those metrics whose counters are in `listed`, the output of `ncu --query-metrics`."""
    counters = {line.split()[0] for line in listed.splitlines() if line[:1].isalpha()}
    return [name for name in names if name.partition(".")[0] in counters]


def kernels(text: str) -> list[dict[str, Any]]:
    """Returns for each kernel its name, grid and block as ncu writes them, its ranges (the outermost first), and its
    metrics."""
    lines = text.splitlines(keepends=True)
    first = next((nth for nth, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        return []
    names, _, *rows = csv.reader(lines[first:])
    found = []
    for row in rows:
        if len(row) != len(names):
            continue  # a message of ncu
        values = dict(zip(names, row, strict=True))
        found.append(
            {
                "name": values.get("Kernel Name", ""),
                "grid": values.get("Grid Size", ""),
                "block": values.get("Block Size", ""),
                "ranges": [one for name in names if "Push/Pop_Range" in name for one in ranges(values[name])],
                "metrics": {name: number(values[name]) for name in names if "__" in name},
            }
        )
    return found


def ranges(cell: str) -> list[str]:
    """Returns the names of the ranges in a cell.

    `77  "<default domain>:mm.bf16:none:none:none:none:none:none"` -> ["<default domain>:mm.bf16"]
    """
    return [_DETAILS.sub("", one) for one in _RANGE.findall(cell)]


def number(text: str) -> float | None:
    """Returns the value of a metric as a number. Returns None if ncu wrote n/a, nan or an empty text, because it could
    not measure the metric."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def on_tensor_cores(metrics: dict[str, float | None]) -> bool | None:
    """Returns whether tensor cores computed a product. Returns None if no counter of the tensor pipe has a value."""
    by_kind = [value for name in PIPES if (value := metrics.get(name)) is not None]
    if by_kind:
        return sum(by_kind) > (metrics.get(OF_NO_PRODUCT) or 0)
    whole = metrics.get(WHOLE_PIPE[0])
    return None if whole is None else whole > 0
