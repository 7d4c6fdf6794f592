"""Stacks that are read as the observer reads them are those that Python itself tells, in each release of Python."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from opspan.emit import compiler, python_frames

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
# Prints the folder with Python's headers, if that Python is known and has them.
INCLUDE = """
import os, sysconfig
from opspan.emit import python_frames
include = sysconfig.get_path("include")
print(include if python_frames.is_known() and os.path.isfile(include + "/Python.h") else "")
"""
RELEASES = [f"3.{minor}" for minor in range(python_frames.OLDEST[1], python_frames.NEWEST[1] + 1)]


def pythons(release: str) -> list[Path]:
    """Returns Pythons of that release: this one, one on the PATH, and those that are installed beside this one."""
    if release == HERE:
        return [Path(sys.executable)]
    on_path = shutil.which(f"python{release}")
    beside = Path(sys.base_prefix).parent.glob(f"{release}.*/bin/python{release}")
    return [*([Path(on_path)] if on_path else []), *beside]


def include_of(python: Path, repo: Path) -> str:
    """Returns the folder with the headers of that Python; "" if it has none, or does not run."""
    environment = {"PYTHONPATH": str(repo / "src")}
    asked = subprocess.run([python, "-c", INCLUDE], env=environment, capture_output=True, text=True)
    return asked.stdout.strip()


def test_other_pythons_than_those_that_are_known_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    built_with = {"Py_GIL_DISABLED": 0}
    monkeypatch.setattr(sysconfig, "get_config_var", built_with.get)

    def known(*release: int) -> bool:
        monkeypatch.setattr(sys, "version_info", (*release, 1, "final", 0))
        return python_frames.is_known()

    assert [known(3, minor) for minor in range(9, 16)] == [False, True, True, True, True, True, False]
    built_with["Py_GIL_DISABLED"] = 1
    assert not known(3, 13)
    built_with["Py_GIL_DISABLED"] = 0
    assert known(3, 13)


@pytest.mark.parametrize("release", [HERE, *(pytest.param(r, marks=pytest.mark.slow) for r in RELEASES if r != HERE)])
def test_stacks_are_those_of_python_itself(release: str, repo: Path, tmp_path: Path) -> None:
    found = ((python, include) for python in pythons(release) if (include := include_of(python, repo)))
    python, include = next(found, (None, ""))
    if python is None:
        pytest.skip(f"no Python {release} that has its headers")
    cxx = compiler.find()
    if cxx is None:
        pytest.skip("no compiler on the PATH")
    library = tmp_path / "stack.so"
    flags = ["-std=c++20", "-O2", "-fPIC", "-shared", "-w", f"-isystem{include}", f"-I{repo / 'native'}"]
    source = repo / "tests/native/frames/stack.cpp"
    subprocess.run([*cxx.command, *flags, source, "-o", library], check=True)

    program = repo / "tests/programs/stacks.py"
    done = subprocess.run([python, program, library], capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    compared, differ = json.loads(done.stdout)
    assert not differ, differ[0]
    cases = set(re.findall(r"^ *def (case_\w+)", program.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(compared) == cases
