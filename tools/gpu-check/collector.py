"""Lists the vendors' tools on this machine, and captures a small program on the GPU with opspan's own collector."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ncu
import processes

import gpu

NSIGHT = Path("/opt/nvidia/nsight-compute")
WANTED = ("nsys", "QdstrmImporter", "libcupti.so", "libToolsInjection64.so", "libInterceptorInjectionTarget64.so")
PROGRAM = str(Path(__file__).with_name("labelled.py"))


def main(pieces: gpu.Pieces) -> None:
    folder = pieces.folder
    capture = str(folder / "capture")
    opspan = [sys.executable, "-m", "opspan"]
    labelled = [*opspan, "run", "--emit", "nvtx", "--record-shapes", "-o", capture, "--", sys.executable, PROGRAM]
    pieces.piece("facts", gpu.facts)
    pieces.piece("doctor", processes.run, [*opspan, "doctor", "--fix"], 60, folder / "doctor.out.txt")
    pieces.piece("tools", tools)
    pieces.piece("capture", processes.run, labelled, 60, folder / "run.out.txt")
    pieces.piece("summary", processes.run, [*opspan, "summary", capture], 20, folder / "summary.out.txt")


def tools() -> dict[str, Any]:
    """Returns the path of ncu, its folders, the paths of files whose names begin with a name in `WANTED`, and the names
    of the files in its folders for targets."""
    folders = [path for version in NSIGHT.glob("*") for path in (version, *version.glob("*"), *version.glob("*/*"))]
    found = {name: [str(path) for path in NSIGHT.rglob(f"{name}*")][:5] for name in WANTED}
    targets = list(NSIGHT.glob("*/*/target-linux-x64"))
    return {
        "ncu": ncu.place(),
        "folders": [str(path) for path in folders if path.is_dir()][:120],
        "found": found,
        "files_of_targets": {str(path): sorted(file.name for file in path.iterdir())[:200] for path in targets},
    }
