"""Under the real nsys a recording leaves the devices to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nsys
import pytest

pytestmark = [pytest.mark.nsys, pytest.mark.skipif(not nsys.available(), reason="nsys is not installed")]


@pytest.mark.slow
def test_it_is_known_by_what_it_sets(tmp_path: Path) -> None:
    asks = [sys.executable, "-c", "from opspan.emit.device import other_tool; print('left to', other_tool())"]
    options = ["--trace=nvtx", "--sample=none", "--cpuctxsw=none", f"--output={tmp_path / 'report'}"]
    under = subprocess.run(
        ["nsys", "profile", *options, *asks], capture_output=True, text=True, check=True, timeout=300
    )
    alone = subprocess.run(asks, capture_output=True, text=True, check=True, timeout=300)
    assert "left to nsys" in under.stdout
    assert "left to None" in alone.stdout
