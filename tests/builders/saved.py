"""A saved trace. Only opspan writes those, so this is what it wrote of another source."""

from __future__ import annotations

from pathlib import Path

import opspan
from builders import nsys


def run(folder: Path) -> Path:
    opspan.load(nsys.run(folder / "run.sqlite", "2026")).save(folder / "run.trace")
    return folder / "run.trace"


# Every source goes through the tests of tests/readers/samples.py with these files.
SAMPLES = {"of an nsys export": run}
