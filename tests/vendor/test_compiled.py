"""torch.compile's log under the real nsys: the file has what a recording of the same process has."""

from __future__ import annotations

from pathlib import Path

import nsys
import polars as pl
import pytest

import opspan

pytestmark = [pytest.mark.nsys, pytest.mark.skipif(not nsys.available(), reason="nsys is not installed")]


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["auto", "torch"])
def test_nsys_and_a_recording_have_the_same_lines(labels: str, tmp_path: Path) -> None:
    options = ["--nvtx", labels, "--record", str(tmp_path / "record"), "--compiled"]
    export = nsys.run_under_nsys(tmp_path, "compiled", "inductor", *options)

    recorded, seen = opspan.load(tmp_path / "record"), opspan.load(export)

    assert recorded.provenance["node"].count()
    assert seen.provenance.rows() == recorded.provenance.rows()
    times = ["id", "end_ns"]
    assert seen.compilations.drop(times).rows() == recorded.compilations.drop(times).rows()
    assert not seen.ranges.filter("is_mark")["name"].cast(pl.String).str.starts_with("torch.compile log").any()
