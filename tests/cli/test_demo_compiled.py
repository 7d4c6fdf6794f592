"""`opspan demo --compiled`: the lines of a compiled model, without anything to set up."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from emit.running import opspan
from opspan.app import demo

pytest.importorskip("torch")


@pytest.mark.slow
def test_it_shows_the_lines_of_the_model(tmp_path: Path) -> None:
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    done = opspan("demo", "--compiled", "-o", tmp_path / "demo", env=caches)

    assert done.returncode == 0, done.stderr
    source = Path(demo.__file__).read_text().splitlines()
    first = source.index("            y = torch.relu(self.first(x))") + 1
    lines = {f"demo.py:{first + number} forward" for number in range(3)}
    assert set(re.findall(r"^\s*(demo\.py:\d+ \w+)", done.stdout, re.MULTILINE)) == lines
    assert re.search(r"^Compiled +2 compilations", done.stdout, re.MULTILINE)


def test_without_a_compiler_it_says_so(tmp_path: Path) -> None:
    environment = {
        "CXX": str(tmp_path / "missing"),
        "PATH": os.environ["PATH"],
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
    }
    done = opspan("demo", "--compiled", "-o", tmp_path / "demo", env=environment | {"OPSPAN_CACHE_DIR": None})

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "compiler" in done.stderr


def test_the_sample_compiles_nothing(tmp_path: Path) -> None:
    done = opspan("demo", "--compiled", "--gpu-sample", "-o", tmp_path / "demo")

    assert done.returncode == 2
    assert "--gpu-sample" in done.stderr
    assert not (tmp_path / "demo").exists()
