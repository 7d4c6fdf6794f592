"""The shared libraries of the wheel: what they show, and what they need of the machine they are loaded on."""

from __future__ import annotations

import re
import subprocess
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path

import pytest

from house.tree import REPO

EXPORTS = (REPO / "native" / "exports.map").read_text().split("local:")[0]
SHOWN = re.findall(r"^\s+([\w*]+);", EXPORTS, re.MULTILINE)
LIBRARIES = re.findall(r"^add_shared\((\w+) ", (REPO / "native" / "CMakeLists.txt").read_text(), re.MULTILINE)

assert len(LIBRARIES) == 3


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Path:
    path = Path(str(files("opspan") / "lib" / f"lib{request.param}.so"))
    assert path.is_file(), f"{path} is missing: pip install . builds it"
    return path


def test_shows_its_functions_and_nothing_else(library: Path) -> None:
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    shown = {line.split()[-1] for line in lines.splitlines()}

    assert shown
    assert not {name for name in shown if not any(fnmatchcase(name, one) for one in SHOWN)}


def test_needs_only_the_c_library(library: Path) -> None:
    # A program may carry an older or another C++ runtime; ours is inside.
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.+?)\]", dynamic))

    assert needed
    assert not {name for name in needed if not re.match(r"(libc|libm|libdl|libpthread|librt|ld-linux[\w-]*)\.so", name)}


def test_the_observer_source_comes_along() -> None:
    folder = Path(str(files("opspan") / "lib" / "observer"))

    assert {"observer.cpp", "sinks.h"} <= {path.name for path in folder.iterdir()}
