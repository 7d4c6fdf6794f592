"""Fixtures of tests on a GPU: tests are skipped if torch has none, and each program is run once for all of them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from gpu.children import Ended, child
from once import made_once


@dataclass(frozen=True)
class Run:
    """One watched run of a program: what it printed, and the folder with what was written."""

    ended: Ended
    folder: Path


Runs = Callable[..., Run]


@pytest.fixture(scope="session")
def gpu() -> None:
    """Asked only when a test that needs it runs: whoever deselects them does not import torch for it."""
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the driver may be older than the build
        if not torch.cuda.is_available():
            pytest.skip("torch finds no CUDA device")


@pytest.fixture(scope="session")
def runs(shared_folder: Path) -> Runs:
    """run("watched", "mlp", "record") -> Run: the program's first argument, FOLDER, the others. Each is run once for
    all tests and workers, also if it fails."""

    def run(name: str, first: str, *others: str, timeout: float = 60) -> Run:
        top = shared_folder / "gpu"
        top.mkdir(exist_ok=True)
        folder = top / "-".join([name, first, *others])

        def make(out: Path) -> None:
            folder.mkdir(exist_ok=True)
            env = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
            out.write_text(json.dumps(asdict(child(name, first, folder, *others, timeout=timeout, env=env))))

        return Run(Ended(**json.loads(made_once(top / f"{folder.name}.json", make).read_text())), folder)

    return run
