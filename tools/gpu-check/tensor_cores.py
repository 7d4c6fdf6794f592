"""Reads counters of the card to see which kernels use tensor cores. Checks opspan's rule, which uses names of kernels.

ncu measures every operation of operations.py once. The result lists the kernels for which opspan's rule is wrong.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import ncu
import operations
import processes

import gpu

OF_ALL_S = 140  # seconds for all runs of ncu, which is less than the limit of this part in __main__.py
OF_PROBE_S = 35
CHIP = "gh100"
PROGRAM = str(Path(__file__).with_name("operations.py"))


def main(pieces: gpu.Pieces) -> None:
    pieces.piece("facts", gpu.facts)
    if gpu.DRY:
        return
    listed = pieces.piece("metrics", metrics_of_card, pieces.folder)
    chosen = pieces.piece("probe", choice, pieces.folder, listed)
    left_s = OF_ALL_S - (time.monotonic() - pieces.began)
    found = pieces.piece("kernels", measured, pieces.folder, chosen["metrics"], left_s)
    pieces.piece("verdicts", verdicts, found["kernels"])


def metrics_of_card(folder: Path) -> dict[str, Any]:
    """Returns the tensor pipe's counters that ncu lists for this chip. metrics.txt gets the complete list."""
    log = folder / "metrics.txt"
    ended = processes.run([ncu.place() or "ncu", "--query-metrics", "--chip", CHIP], 30, log)
    text = log.read_text(encoding="utf-8", errors="replace")
    pipe = [line.split()[0] for line in text.splitlines() if "pipe_tensor" in line.partition(" ")[0]]
    return ended | {"pipe_tensor": pipe}


def choice(folder: Path, listed: dict[str, Any]) -> dict[str, Any]:
    """Returns a list of metrics that ncu can measure. First tries all metrics that the card has, then shorter lists."""
    text = "\n".join(listed.get("pipe_tensor", []))
    pipes = ncu.known([*ncu.PIPES, ncu.OF_NO_PRODUCT, *ncu.WHOLE_PIPE], text) or [ncu.WHOLE_PIPE[0]]
    tries = [
        [*pipes, ncu.DURATION, *ncu.OCCUPANCY, *ncu.LAUNCH],
        [*pipes, ncu.DURATION, ncu.OCCUPANCY[1]],
        [ncu.WHOLE_PIPE[0], ncu.DURATION],
    ]
    said = []
    for nth, metrics in enumerate(tries):
        log = folder / f"probe-{nth}.csv"
        ended = under_ncu(folder, log, metrics, OF_PROBE_S, 1)
        found = ncu.kernels(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else []
        said.append(ended | {"kernels": found, "log": tail(log)})
        if found and ncu.on_tensor_cores(found[-1]["metrics"]) is not None:
            return {"metrics": metrics, "tries": said}
    raise RuntimeError(f"ncu measured no kernel: {said}")


def under_ncu(folder: Path, log: Path, metrics: list[str], limit_s: float, most: int) -> dict[str, Any]:
    """Runs the program under ncu. The program stops 20 s before the limit, because ncu writes its table after the
    program has ended."""
    program = [sys.executable, PROGRAM, "ncu", str(folder), str(max(limit_s - 20, 5)), str(most)]
    command = ncu.command(metrics, log, program, "--profile-from-start", "off")
    return processes.run(command, limit_s, folder / f"{log.stem}.txt")


def tail(log: Path) -> list[str]:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return [line[:300] for line in lines if line.startswith("==")][-6:]


def measured(folder: Path, metrics: list[str], left_s: float) -> dict[str, Any]:
    log = folder / "kernels.csv"
    ended = under_ncu(folder, log, metrics, left_s, len(operations.OPERATIONS))
    if not log.exists():
        raise RuntimeError(f"ncu wrote no table: {ended}")
    found = ncu.kernels(log.read_text(encoding="utf-8", errors="replace"))
    for kernel in found:
        kernel["on_tensor_cores"] = ncu.on_tensor_cores(kernel["metrics"])
        kernel["operation"] = kernel.pop("ranges")[-1:] or None
    yes = sum(kernel["on_tensor_cores"] is True for kernel in found)
    print(f"{len(found)} kernels, {yes} on tensor cores", flush=True)
    done = operations.done(folder, "ncu")
    return {"ncu": ended, "log": tail(log), "operations": done, "on_tensor_cores": yes, "kernels": found}


def verdicts(kernels: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the kernels for which opspan's rule contradicts the card, and the names that the rule does not know."""
    import polars as pl

    from opspan.analysis.kernels import on_tensor_cores
    from opspan.formats.kernel_names import kernel_name

    whole = [kernel["name"] for kernel in kernels]
    names = pl.DataFrame({"whole": whole, "short": [kernel_name(name) for name in whole]})
    ruled = names.select(on_tensor_cores(pl.col("whole"), pl.col("short"))).to_series().to_list()
    pairs = [(kernel["on_tensor_cores"], rule) for kernel, rule in zip(kernels, ruled, strict=True)]
    wrong = [
        {"name": kernel["name"], "operation": kernel["operation"], "card": card, "rule": rule}
        for kernel, (card, rule) in zip(kernels, pairs, strict=True)
        if None not in (card, rule) and card != rule
    ]
    unknown = [kernel["name"] for kernel, rule in zip(kernels, ruled, strict=True) if rule is None]
    return {"kernels": len(pairs), "wrong": wrong, "unknown_to_the_rule": sorted(set(unknown))}
