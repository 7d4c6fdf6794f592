"""Checks which ranges of opspan are seen by ncu, and by the nsys that comes with ncu, and which texts they have."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import collector
import ncu
import processes

import gpu

FORMS = ("auto", "payload", "text", "torch")
# The first filter looks for ranges in opspan's domain, the second for ranges without a domain, such as those of torch.
FILTERS = ("regex:opspan@.*addmm.*/", "regex:.*addmm.*/")
OF_TOOL_S = 40
OF_ALL_S = 64  # seconds for all tools, which is less than the limit of this part in __main__.py
MOST_BYTES = 8 << 20


def main(pieces: gpu.Pieces) -> None:
    program = [sys.executable, collector.PROGRAM, *FORMS]
    folder = pieces.folder
    filters = [word for one in FILTERS for word in ("--nvtx-include", one)]
    metrics = [ncu.DURATION]
    pieces.piece("facts", gpu.facts)
    if gpu.DRY:
        pieces.piece("program", processes.run, program, OF_TOOL_S, folder / "program.out.txt")
        return
    for name, options in (("ncu", []), ("ncu, with a filter", filters)):
        log = folder / f"{name.replace(', ', '-').replace(' ', '-')}.csv"
        within(pieces, name, ncu.command(metrics, log, program, *options))
        pieces.piece(f"{name}: ranges", ranges_in, log)
    for place in sorted(collector.NSIGHT.glob("*/host/target-linux-x64/nsys"))[-1:]:
        options = "-t cuda,nvtx -s none --cpuctxsw=none --force-overwrite=true".split()
        within(pieces, "nsys", [str(place), "profile", *options, "-o", str(folder / "nsys"), *program])
        pieces.piece("nsys: files", written, folder)


def within(pieces: gpu.Pieces, name: str, command: list[str]) -> None:
    left_s = min(OF_TOOL_S, OF_ALL_S - (time.monotonic() - pieces.began))
    pieces.piece(
        name, processes.run, command, max(left_s, 1), pieces.folder / f"{name.split(',')[0]}-{left_s:.0f}.out.txt"
    )


def ranges_in(log: Path) -> dict[str, Any]:
    """Returns for each kernel the ranges that ncu saw around it, and the first lines of the table that ncu wrote."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    found = ncu.kernels(text)
    if not found:
        return {"failed": "ncu wrote no kernel: " + " | ".join(text.splitlines()[-4:])}
    return {
        "kernels": [{"name": one["name"][:120], "ranges": one["ranges"]} for one in found],
        "without_ranges": sum(not one["ranges"] for one in found),
        "first_lines": [line[:1500] for line in text.splitlines() if not line.startswith("==")][:4],
    }


def written(folder: Path) -> dict[str, Any]:
    """Returns the sizes of the files that nsys wrote, and removes the files that are too large to be kept."""
    sizes = {path.name: path.stat().st_size for path in folder.glob("nsys.*")}
    for name, size in sizes.items():
        if size > MOST_BYTES:
            (folder / name).unlink()
    return {"bytes": sizes}
