"""Ranges as stacks, as in stacks.py, with the device time of what each launched itself."""

from __future__ import annotations

from pathlib import Path

from opspan.trace import Trace
from opspan.views.stacks import write_stacks


def write(trace: Trace, path: Path) -> list[str]:
    return write_stacks(trace, path, "self_device_ns", "device time")
