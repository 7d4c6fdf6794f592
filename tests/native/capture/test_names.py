"""A thread finds its cached names under these names only, wherever they are in memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from collectors.running import NATIVE, compiled


@pytest.fixture(
    scope="module", params=[[], ["-U__SSE2__", "-DOPSPAN_NO_NEON"]], ids=["by sixteen letters", "letter by letter"]
)
def names(shared_folder: Path, request: pytest.FixtureRequest) -> Path:
    source = Path(__file__).parent / "names.cpp"
    program = shared_folder / f"names{''.join(request.param)}"
    return compiled(program, "g++", "-std=c++20", "-O2", *request.param, "-I", NATIVE, source)


@pytest.mark.parametrize("seed", range(3))
def test_names_are_told_apart(names: Path, seed: int) -> None:
    done = subprocess.run([names, str(seed)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    found, gone = map(int, done.stdout.split())
    assert found > 10_000
    assert gone > 100
