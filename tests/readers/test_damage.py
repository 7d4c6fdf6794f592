"""tools/damage, and the readers under it: nothing but a Trace or an OpspanError comes out of a damaged file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import opspan
from builders import kineto, nsys, nvprof, vtune
from emit.running import READING, forked
from opspan.errors import OpspanError
from readers.samples import samples
from tiers import before_release

VARIANTS = (4, 30)  # per file; tools/damage tries more
SECONDS = "120"  # per variant, by the clock: the machine may be busy


def archive(folder: Path, kind: str) -> Path:
    return Path(shutil.make_archive(str(folder), kind, folder))


def exported(folder: Path) -> Path:
    opspan.load(nsys.run(folder / "run.sqlite", "2026")).export(folder / "exported.json")
    return folder / "exported.json"


FILES: dict[str, Callable[[Path], Path]] = {
    **samples(),
    "nvprof of version 8": lambda folder: nvprof.run(folder / "run.prof", 8),
    "Kineto": lambda folder: kineto.write(folder / "run.json"),
    "a Chrome trace of opspan's own": exported,
    "nsys of 2019": lambda folder: nsys.run(folder / "run.sqlite", "2019"),
    "nsys in Parquet": lambda folder: nsys.folder(folder / "p", nsys.tables_of("2026"), "parquetdir"),
    "nsys in Arrow": lambda folder: nsys.folder(folder / "a", nsys.tables_of("2026"), "arrowdir"),
    "VTune of 2013": lambda folder: vtune.run(folder / "r", "2013") / "sqlite-db" / "dicer.db",
    "VTune of 2015": lambda folder: vtune.run(folder / "r", "2015") / "sqlite-db" / "dicer.db",
    "VTune of 2025": lambda folder: vtune.run(folder / "r", "2025") / "sqlite-db" / "dicer.db",
    "VTune in a zip file": lambda folder: archive(vtune.run(folder / "r", "2020"), "zip"),
    "VTune in a tar file": lambda folder: archive(vtune.run(folder / "r", "2020"), "tar"),
}
# Readers of these files leave out a damaged table.
LEFT_OUT = ("nsys in Parquet", "nsys in Arrow")


@pytest.fixture
def script(repo: Path) -> Path:
    return repo / "tools" / "damage"


@pytest.fixture
def damage(script: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = SourceFileLoader("damage", str(script))
    module = module_from_spec(spec_from_loader("damage", loader))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "damage", module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module


def run_script(script: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """In a process that has most of what it imports, which takes longer than a few variants."""
    program = "import runpy, sys; sys.argv[:] = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    return forked(program, script, *arguments, imported=READING)


@pytest.mark.slow
@pytest.mark.parametrize("variants", before_release(VARIANTS, kept=1))
@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_read_or_refused(script: Path, tmp_path: Path, name: str, variants: int) -> None:
    file = FILES[name](tmp_path)
    options = [
        "--variants",
        str(variants),
        "--seconds",
        SECONDS,
        "--seed",
        "3",
        "--table",
        "--keep",
        str(tmp_path / "kept"),
    ]
    done = run_script(script, *options, file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("with issues" if name in LEFT_OUT else "refused") in done.stdout
    assert not (tmp_path / "kept").exists()


@pytest.mark.slow
@pytest.mark.release
def test_hostile_files_come_to_what_is_told(script: Path) -> None:
    done = run_script(script, "--hostile", "--seconds", SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("word", ["payload", "FIFO", "lost 2^63"])
def test_some_hostile_files_come_to_what_is_told(script: Path, word: str) -> None:
    done = run_script(script, "--hostile", word, "--seconds", SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


# --- the script itself


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return nvprof.run(tmp_path / "run.prof", 12)


def test_variants_are_the_same_for_the_same_seed(damage: ModuleType, file: Path) -> None:
    def made(seed: int) -> list[tuple[str, bytes]]:
        return [(one.what, one.raw) for one in damage.variants([file], 200, seed)]

    assert made(1) == made(1)
    assert made(1) != made(2)


def test_every_page_boundary_is_cut_at(damage: ModuleType, file: Path) -> None:
    raw = file.read_bytes()
    lengths = {len(one.raw) for one in damage.variants([file], 1, 1)}
    assert lengths == set(range(0, len(raw), 4096))


def test_no_other_variant_is_the_file_itself_but_by_chance(damage: ModuleType, file: Path) -> None:
    whole = sum(one.raw == file.read_bytes() for one in damage.variants([file], 400, 1))
    assert whole < 40  # a page may be exchanged for itself, or blank already


def test_of_a_folder_each_file_is_damaged_and_the_others_stay(damage: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "in").mkdir(parents=True)
    for name in ("a", "in/b"):
        (folder / name).write_bytes(name.encode() * 2000)
    (folder / "empty").touch()

    made = list(damage.variants([folder], 400, 1))

    assert {str(one.part) for one in made} == {"a", "in/b"}
    copy = made[-1].put(tmp_path / "copy")
    assert (copy / "in" / "b").read_bytes() == made[-1].raw != (folder / "in" / "b").read_bytes()
    assert (copy / "a").read_bytes() == (folder / "a").read_bytes()


def raises(path: Path) -> str:
    raise ValueError("not ours")


def sleeps(path: Path) -> str:
    time.sleep(600)
    return "slept"


def takes(path: Path) -> str:
    return str(len(bytearray(os.urandom(1 << 20)) * 200))


def dies(path: Path) -> str:
    os.abort()


def says_two_lines(path: Path) -> str:
    error = OpspanError("one")
    error.args = ("one\ntwo",)
    raise error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "says"),
    [
        (raises, "ValueError: not ours"),
        (sleeps, "took longer than 1 s"),
        (takes, "MiB for a file of"),
        (dies, "killed by SIGABRT"),
        (says_two_lines, "several lines"),
    ],
)
def test_what_goes_wrong_is_told_and_its_file_kept(
    script: Path, file: Path, tmp_path: Path, read: Callable[[Path], Any], says: str
) -> None:
    # In a process of its own: forking this one, which may have threads by now, would be wrong.
    program = f"""
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
sys.dont_write_bytecode = True
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parent.parent)]!r}
loader = SourceFileLoader("damage", {str(script)!r})
damage = sys.modules["damage"] = module_from_spec(spec_from_loader("damage", loader))
loader.exec_module(damage)
import test_damage
made = list(damage.variants([Path({str(file)!r})], 1, 1))[1:3]
limits = damage.Limits(seconds={1 if read is sleeps else 120}, base_mib=64)
results, failures = damage.run(iter(made), test_damage.{read.__name__}, limits, 2, Path({str(tmp_path / "kept")!r}))
print(dict(results))
print(*failures, sep="\\n")
"""
    done = forked(program, imported=READING)
    assert done.stdout.startswith("{'failed': 2}"), done.stdout + done.stderr
    assert done.stdout.count(says) == 2
    assert len(list((tmp_path / "kept").iterdir())) == 2
