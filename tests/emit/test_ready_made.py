"""Observers that come with opspan: used without a compiler, and only for the torch that they were made for."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from emit.running import forked
from once import made_once
from opspan import libraries
from opspan.emit import compiler, observer_cache
from opspan.emit.installed_torch import Torch

pytest.importorskip("torch")

RECORD = """
import torch, opspan
from opspan.emit import observer
with opspan.record(stacks=True) as recording:
    torch.ones(2).add(1)
print("recorded" if recording.stats.ranges else "nothing", observer.load().path)
"""
Compile = Callable[[str, str], Path]


@pytest.fixture(scope="session")
def compile_for(shared_folder: Path) -> Compile:
    """Compiles an observer that says it was built for this torch, with further options."""

    def compile_for(built_for: str, options: str = "") -> Path:
        torch, found = Torch.here(), compiler.find()
        assert found is not None, compiler.why_none()
        told = replace(found, command=(*found.command, f'-DOPSPAN_BUILT_FOR="{built_for}"', *options.split()))

        def make(path: Path) -> None:
            folder = path.with_suffix(".building")
            folder.mkdir()
            made, descriptor = observer_cache._compile(torch, told, folder, None)
            os.close(descriptor)
            made.replace(path)

        folder = shared_folder / "ready-made"
        folder.mkdir(exist_ok=True)
        return made_once(folder / f"{hashlib.sha256(f'{built_for} {options}'.encode()).hexdigest()[:16]}.so", make)

    return compile_for


def own() -> str:
    torch = Torch.here()
    return f"{torch.version} {torch.git} {'cxx11' if torch.cxx11_abi else 'pre'}"


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    """The folder `lib` of an install whose observers a test puts in."""
    folder = tmp_path / "lib"
    folder.mkdir()
    for path in libraries.folder().iterdir():
        if path.name != "observers":
            (folder / path.name).symlink_to(path)
    (folder / "observers").mkdir()
    return folder


def name_of(torch: Torch) -> str:
    return f"{torch.git[:16]}-{'cxx11' if torch.cxx11_abi else 'pre'}-{os.uname().machine}.so"


@pytest.fixture
def record(lib: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Records with that install and an empty cache, on a machine without a compiler unless CXX is given."""
    (tmp_path / "empty").mkdir()
    env = {"OPSPAN_LIB_DIR": str(lib), "OPSPAN_CACHE_DIR": str(tmp_path / "cache"), "PATH": str(tmp_path / "empty")}

    def record(code: str = RECORD, **more: str | None) -> subprocess.CompletedProcess[str]:
        return forked(code, env={**env, "CXX": None, **more})

    return record


def test_it_needs_no_compiler_and_no_cache(
    lib: Path, tmp_path: Path, record: Callable[..., subprocess.CompletedProcess[str]], compile_for: Compile
) -> None:
    ready = lib / "observers" / name_of(Torch.here())
    shutil.copy(compile_for(own(), ""), ready)

    done = record()

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["recorded", str(ready)]
    assert not (tmp_path / "cache").exists()
    doctor = record("from opspan.cli import main; main(['doctor'])")
    assert f"{ready}: came with opspan for torch {Torch.here().version}" in " ".join(doctor.stdout.split())


@pytest.mark.parametrize("damage", ["cut", "another torch", "another file"])
def test_one_that_does_not_fit_is_not_used_and_the_reason_is_said(
    lib: Path,
    record: Callable[..., subprocess.CompletedProcess[str]],
    compile_for: Compile,
    copying_compiler: Path,
    damage: str,
) -> None:
    ready = lib / "observers" / name_of(Torch.here())
    if damage == "another torch":
        shutil.copy(compile_for("2.4.0 0123456789abcdef cxx11", ""), ready)
        reason = "is for torch 2.4.0 0123456789abcdef cxx11, not for"
    elif damage == "cut":
        ready.write_bytes(compile_for(own(), "").read_bytes()[:20_000])
        reason = "the file is cut: 20,000 of"
    else:
        ready.write_bytes(b"no library")
        reason = "cannot be loaded"

    alone = record()
    assert alone.returncode == 1
    last = alone.stderr.splitlines()[-1]
    assert last.startswith("opspan.errors.NoCompiler: no C++ compiler was found"), alone.stderr
    assert reason in last

    with_compiler = record(CXX=str(copying_compiler), PATH=os.environ["PATH"])
    assert with_compiler.returncode == 0, with_compiler.stderr
    assert with_compiler.stdout.startswith("recorded ")
    assert reason in with_compiler.stderr


@pytest.mark.slow
def test_other_fields_are_noticed(
    lib: Path, tmp_path: Path, record: Callable[..., subprocess.CompletedProcess[str]], compile_for: Compile
) -> None:
    """A torch whose ranges have one more field, though it says that it has the same version."""
    header = Torch.here().root / "include/ATen/record_function.h"
    text = header.read_text()
    place = "  StepCallbacks step_callbacks_;\n"
    assert text.count(place) == 1
    (tmp_path / "other/ATen").mkdir(parents=True)
    (tmp_path / "other/ATen/record_function.h").write_text(text.replace(place, "  int64_t new_[4] = {};\n" + place))
    shutil.copy(compile_for(own(), f"-I{tmp_path / 'other'}"), lib / "observers" / name_of(Torch.here()))

    done = record()

    assert done.returncode == 1
    assert "was compiled for another torch: torch's ranges have other fields" in done.stderr


def test_a_debug_build_has_none(monkeypatch: pytest.MonkeyPatch, lib: Path) -> None:
    from opspan.emit import observer

    monkeypatch.setenv("OPSPAN_LIB_DIR", str(lib))
    torch = Torch.here()
    (lib / "observers" / name_of(torch)).write_bytes(b"")
    assert observer.ready_made(torch) is not None
    assert observer.ready_made(replace(torch, debug=True)) is None
    assert observer.ready_made(replace(torch, git="another")) is None
    assert observer.ready_made(replace(torch, cxx11_abi=not torch.cxx11_abi)) is None
