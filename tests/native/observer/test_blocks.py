"""The observer's table of blocks of memory that are alive holds what a table of the standard library's does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from collectors.running import NATIVE, compiled


@pytest.fixture(scope="module")
def blocks(shared_folder: Path) -> Path:
    source = Path(__file__).parent / "blocks.cpp"
    return compiled(shared_folder / "blocks", "g++", "-std=c++20", "-O2", "-I", NATIVE, source, "-pthread")


@pytest.mark.parametrize("seed", range(3))
def test_what_is_put_is_taken_once_with_its_size(blocks: Path, seed: int) -> None:
    done = subprocess.run([blocks, str(seed)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    found, left = map(int, done.stdout.split())
    assert found > 10_000
    assert left > 1_000
