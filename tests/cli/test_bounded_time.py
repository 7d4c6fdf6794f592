"""Files with a device, a process or a name for each of thousands of events are answered in seconds, not minutes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builders import kineto

LIMIT_S = 45  # each takes 2 s on a busy machine; a loop over devices or processes takes minutes


def devices(many: int) -> list[Any]:
    return [kineto.span("kernel", f"k{n % 7}", 7, 3 * n, 2, n, device=n, stream=7) for n in range(many)]


def launched(many: int) -> list[Any]:
    """A thread that launches on one device after the other: all of them are idle until then."""
    ops = [kineto.op("aten::mm", 1, 10 * n, 8) for n in range(many)]
    calls = [kineto.call("cudaLaunchKernel", 1, 10 * n + 1, 2, n + 1) for n in range(many)]
    kernel = ("kernel", "k", 7)
    return [*ops, *calls, *(kineto.span(*kernel, 10 * n + 4, 3, n, device=n, correlation=n + 1) for n in range(many))]


def processes(many: int) -> list[Any]:
    return [kineto.span("cpu_op", "aten::mm", n + 1, 3 * n, 2, n + 1) for n in range(many)]


def allocations(many: int) -> list[Any]:
    """An op for each allocation, each of which is on a device of its own."""
    ops = [kineto.op(f"aten::op{n % 7}", kineto.MAIN, 3 * n, 2) for n in range(many)]
    return ops + [kineto.allocation(3 * n + 1, 512, device=n) for n in range(many)]


def nested_allocations(many: int) -> list[Any]:
    """One op in the other, each of its own name, and the innermost of them takes memory."""
    ops = [kineto.op(f"aten::op{n}", kineto.MAIN, n, 2 * (many - n)) for n in range(many)]
    return [*ops, kineto.allocation(many, 512, device=0)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "events", "many"),
    [
        ("summary", devices, 30_000),
        ("summary", launched, 20_000),
        ("findings", launched, 20_000),
        ("comm", devices, 30_000),
        ("path", processes, 60_000),
        ("path", devices, 60_000),
        ("memory", allocations, 30_000),
        ("memory", nested_allocations, 10_000),
        ("report", allocations, 60_000),
    ],
)
def test_many_devices_or_processes_take_seconds(verb: str, events: Any, many: int, tmp_path: Path) -> None:
    file = kineto.write(tmp_path / "run.json", {"schemaVersion": 1, "traceEvents": events(many)})
    out = ["-o", str(tmp_path / "run.html")] if verb == "report" else []
    command = [sys.executable, "-m", "opspan", verb, str(file), *out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
