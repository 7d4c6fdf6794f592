"""opspan's results are the same with polars' engines of 32-bit and of 64-bit row numbers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

SOURCES = Path(__file__).parent.parent / "src" / "opspan"
ROOMS = ("analysis", "events", "findings", "formats", "many", "profiler", "readers", "views")
# Numbers of 32 bits that are not row numbers: codes of texts, ids of tracks and texts in a file, colours and other
# values of a file.
OTHER_NUMBERS = re.compile(
    r"views/(perfetto\w*|drawn|path)|analysis/nest|formats/parquet|readers/(nsys/nvtx|nvprof/ranges)"
)
VERBS = ("summary", "table", "findings", "steps", "path", "idle", "launches", "waits", "memory", "flops", "comm")


def test_columns_of_row_numbers_have_the_type_of_the_engine() -> None:
    files = [path for room in ROOMS for path in sorted((SOURCES / room).rglob("*.py"))]
    fixed = {str(path.relative_to(SOURCES)) for path in files if "pl.UInt32" in path.read_text(encoding="utf-8")}
    assert fixed
    assert not [name for name in fixed if not OTHER_NUMBERS.match(name)], "row numbers have the type ROW_NUMBER"


@pytest.mark.slow
@pytest.mark.release
def test_every_verb_says_the_same_with_64_bits(tmp_path: Path) -> None:
    engine = f"polars-runtime-64=={version('polars')}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "engine", engine]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"{engine} cannot be had: {done.stderr.strip().splitlines()[-1]}")
    short = {**os.environ, "POLARS_FORCE_PKG": "32"}
    long = {**os.environ, "PYTHONPATH": str(tmp_path / "engine"), "POLARS_FORCE_PKG": "64"}
    index = [sys.executable, "-c", "import polars; print(polars.get_index_type())"]
    assert [_output(index, env) for env in (short, long)] == ["UInt32\n", "UInt64\n"]

    opspan = [sys.executable, "-m", "opspan"]
    _output([*opspan, "demo", "--gpu-sample", "-o", tmp_path / "sample"], long)
    trace = tmp_path / "sample" / "rank00.json.gz"
    for verb in VERBS:
        answers = [json.loads(_output([*opspan, verb, trace, "--format", "json"], env)) for env in (short, long)]
        assert answers[0] == answers[1], verb
    for end in ("json", "perfetto-trace", "sqlite", "svg"):
        _output([*opspan, "export", trace, tmp_path / f"trace.{end}"], long)


def _output(command: list[Any], env: dict[str, str]) -> str:
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
