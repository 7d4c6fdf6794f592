"""opspan and torch.profiler watch the same run of torch.compile and say the same about it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from once import made_once
from opspan.emit import python_frames
from tiers import RELEASE

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("compiled.py")
HAS_STACKS = pytest.mark.skipif(bool(python_frames.why_not()), reason=python_frames.why_not())
HAS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles with g++")
BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=[HAS_COMPILER, *RELEASE])]


@pytest.fixture
def found(request: pytest.FixtureRequest, shared_folder: Path) -> Any:
    backend = request.param

    def run(out: Path) -> None:
        # Nothing that an earlier run has compiled: the compiler is to be watched.
        cache = out.with_name(f"inductor-{backend}")
        env = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        done = subprocess.run([sys.executable, PROGRAM, backend, out], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return json.loads(made_once(shared_folder / f"compiled-{backend}.json", run).read_text())


of_each_backend = pytest.mark.parametrize("found", BACKENDS, indirect=True)


@of_each_backend
def test_ops_counts_and_parents_are_torchs_while_it_compiles(found: Any) -> None:
    ours, theirs = found["rows"]
    assert ours == theirs
    names = [name for name, *_ in theirs]
    regions = [name for name in names if name.startswith("Torch-Compiled Region")]
    # Until 2.4 the three graphs have one name, without a number.
    assert regions.count(regions[0]) == (6 if regions[0] == "Torch-Compiled Region" else 2)
    assert sum("dynamo_timed" in name for name in names) > 5
    assert any(parent == regions[0] for _, parent, *_ in theirs)


@HAS_STACKS
@of_each_backend
def test_the_compilers_own_functions_are_left_out(found: Any) -> None:
    assert any("compiled.py" in stack and "forward" in stack for stack in found["stacks"])
    for part in ("_dynamo", "_inductor", "_functorch"):
        assert not any(f"/torch/{part}/" in stack for stack in found["stacks"]), part


@HAS_STACKS
@of_each_backend
def test_the_programs_own_function_around_each_op_is_the_one_that_torch_saw(found: Any) -> None:
    ours, theirs = found["functions"]
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    differing = [(name, mine, other) for (name, mine), (_, other) in zip(ours, theirs, strict=True) if mine != other]
    assert differing == []
    assert {"forward", "steps"} <= {function for _, function in theirs}
