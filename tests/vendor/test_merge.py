"""One process under the real nsys and under opspan.record at once: merged, every op is there once."""

from __future__ import annotations

from pathlib import Path

import nsys
import polars as pl
import pytest

import opspan
from opspan.analysis import ops

pytestmark = [pytest.mark.nsys, pytest.mark.skipif(not nsys.available(), reason="nsys is not installed")]


@pytest.mark.slow
@pytest.mark.parametrize("program", ["mlp", "two_threads"])
def test_what_nsys_and_the_recording_saw_becomes_one(program: str, tmp_path: Path) -> None:
    export = nsys.run_under_nsys(tmp_path, program, "--nvtx", "auto", "--record", str(tmp_path / "record"), "--shapes")
    recorded, seen = opspan.load(tmp_path / "record"), opspan.load(export)

    merged = opspan.merge(recorded, seen)

    alignment = merged.metadata.options["alignment"]
    assert alignment["by"] == "ranges"
    assert alignment["within_ns"] < 1_000_000
    # Both files give the same UTC, as far as a busy machine lets a tool read two clocks at once.
    assert seen.origin_utc_ns is not None
    assert recorded.origin_utc_ns is not None
    assert abs(seen.origin_utc_ns - recorded.origin_utc_ns - alignment["shift_ns"]) < 5_000_000_000
    label = ["name", "tid", "seq", "sizes"]
    once = merged.ranges.select(label).cast({"name": pl.String, "sizes": pl.String})
    assert once.equals(recorded.ranges.select(label).cast({"name": pl.String, "sizes": pl.String}))
    assert merged.ranges["start_ns"].equals(recorded.ranges["start_ns"])
    nested = ops(seen.ranges).filter(~pl.col("is_mark").fill_null(value=False))
    assert dict(merged.issues.select("code", "count").iter_rows())["seen_twice"] == nested.height
