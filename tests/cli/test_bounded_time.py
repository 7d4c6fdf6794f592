"""Files with a device, or a process, for each of tens of thousands of events are answered in seconds, not minutes."""

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


def processes(many: int) -> list[Any]:
    return [kineto.span("cpu_op", "aten::mm", n + 1, 3 * n, 2, n + 1) for n in range(many)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "events", "many"), [("summary", devices, 30_000), ("comm", devices, 30_000), ("path", processes, 60_000)]
)
def test_many_devices_or_processes_take_seconds(verb: str, events: Any, many: int, tmp_path: Path) -> None:
    file = kineto.write(tmp_path / "run.json", {"schemaVersion": 1, "traceEvents": events(many)})
    command = [sys.executable, "-m", "opspan", verb, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
