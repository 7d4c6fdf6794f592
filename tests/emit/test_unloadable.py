"""An install whose native part does not load here: another processor, another C library, an older glibc, a broken file.

It imports, reads what needs no native code, sends a user's own ranges through nvtx and ittapi, and doctor says so.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import opspan
from emit.running import opspan as command_line
from emit.running import run, under_collectors
from opspan import libraries
from opspan.tables import Metadata
from opspan.trace import Trace

LIBRARIES = (libraries.SINKS, libraries.COLUMNS, libraries.COLLECTORS)


def of_another_processor(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[18:20] = struct.pack("<H", 183)  # e_machine: AArch64
    path.write_bytes(raw)


def of_32_bits(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[4] = 1  # EI_CLASS
    raw[18:20] = struct.pack("<H", 3)
    path.write_bytes(raw)


def corrupt(path: Path) -> None:
    path.write_bytes(b"\x7fELF" + b"\xff" * 5000)


def of_a_newer_glibc(path: Path) -> None:
    """A library that needs a version of a symbol that no glibc has: it was linked with a libc of our own."""
    stub, versions, libc = (path.with_name(name) for name in ("stub.c", "versions", "stub.so"))
    stub.write_text("void newer(void) {}\n")
    versions.write_text("GLIBC_2.99 { global: newer; };\n")
    _compile(stub, libc, "-nostdlib", f"-Wl,--version-script={versions}", "-Wl,-soname,libc.so.6")
    source = path.with_suffix(".c")
    source.write_text("void newer(void); void call(void) { newer(); }\n")
    _compile(source, path, "-nostdlib", libc)


def of_another_c_library(path: Path) -> None:
    source = path.with_suffix(".c")
    source.write_text("void only_in_another_libc(void); void call(void) { only_in_another_libc(); }\n")
    _compile(source, path, "-Wl,-z,now")


def _compile(source: Path, library: Path, *rest: str | Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library, *rest], check=True)


BROKEN: dict[Callable[[Path], None], str] = {
    of_another_processor: "it is for AArch64 of 64 bits, and this Python for",
    of_32_bits: "it is for x86 of 32 bits, and this Python for",
    corrupt: "it is for processor 65535 of 8160 bits",
    of_a_newer_glibc: "version `GLIBC_2.99' not found",
    of_another_c_library: "undefined symbol: only_in_another_libc",
}
everywhere = pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(spoil, id=spoil.__name__, marks=[] if spoil is of_another_processor else [pytest.mark.slow])
        for spoil in BROKEN
    ],
)


@pytest.fixture
def folder(tmp_path: Path, spoil: Callable[[Path], None]) -> Path:
    folder = tmp_path / "lib"
    shutil.copytree(libraries.folder(), folder)
    for name in LIBRARIES:
        spoil(folder / name)
    return folder


@everywhere
def test_it_reads_saved_traces_and_says_in_a_sentence_what_it_cannot(
    folder: Path, spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    ranges = pl.DataFrame({"name": ["aten::mm"], "start_ns": [0], "end_ns": [5], "pid": [1], "tid": [1]})
    Trace((Metadata("mine"),), ranges=ranges).save(tmp_path / "mine.trace")
    program = """
import sys, opspan
trace = opspan.load(sys.argv[1])
print(trace.ranges["name"].to_list())
try: trace.kernels()
except opspan.OpspanError as error: print(error)
"""
    done = run([sys.executable, "-c", program, tmp_path / "mine.trace"], env={"OPSPAN_LIB_DIR": str(folder)})

    assert done.returncode == 0, done.stderr
    names, sentence = done.stdout.splitlines()
    assert names == "['aten::mm']"
    assert sentence.startswith(f"cannot open {folder / libraries.COLUMNS} (")
    assert BROKEN[spoil] in sentence
    assert sentence.endswith(": without it only traces that opspan saved are read; reinstall opspan")


@everywhere
def test_a_users_ranges_go_through_the_packages(folder: Path, spoil: Callable[[Path], None], captured: Path) -> None:
    pytest.importorskip("nvtx")
    pytest.importorskip("ittapi")
    program = """
import opspan
for _ in range(2):
    with opspan.annotate("outer"):
        opspan.mark("moment")
@opspan.annotate
def decorated(): pass
decorated()
with opspan.itt.range("task"): pass
print(opspan.nvtx.is_available(), opspan.itt.is_available())
"""
    env = {**under_collectors(captured), "OPSPAN_LIB_DIR": str(folder)}
    done = run([sys.executable, "-c", program], env=env)

    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr
    assert done.stderr.count("annotate and mark go through the packages nvtx and ittapi, and ops get no labels") == 1
    assert BROKEN[spoil] in done.stderr
    names = opspan.load(captured).ranges.sort("start_ns")["name"].cast(pl.String).to_list()
    assert {name: names.count(name) for name in ("outer", "decorated", "task")} == {
        "outer": 2,
        "decorated": 1,
        "task": 1,
    }
    assert "moment" in names


@everywhere
def test_warnings_that_are_errors_do_not_end_the_program(folder: Path) -> None:
    program = "import opspan\nwith opspan.annotate('x'): print('inside')"
    done = run([sys.executable, "-W", "error", "-c", program], env={"OPSPAN_LIB_DIR": str(folder)})
    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr


@everywhere
def test_a_session_is_an_error_that_says_why(folder: Path, spoil: Callable[[Path], None]) -> None:
    pytest.importorskip("torch")
    program = """
import opspan
try:
    with opspan.record(): pass
except opspan.OpspanError as error: print(error)
"""
    done = run([sys.executable, "-c", program], env={"OPSPAN_LIB_DIR": str(folder)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"cannot open {folder / libraries.SINKS} (")
    assert BROKEN[spoil] in done.stdout


@everywhere
def test_doctor_says_which_way_is_used(folder: Path, spoil: Callable[[Path], None]) -> None:
    pytest.importorskip("nvtx")
    pytest.importorskip("ittapi")
    done = command_line("doctor", env={"OPSPAN_LIB_DIR": str(folder)})

    lines = {line[:18].strip(): line[20:] for line in done.stdout.splitlines() if line[:1].strip()}
    assert "annotate and mark use nvtx and ittapi, as the sinks library cannot be loaded" in lines["own ranges"]
    for library in ("sinks library", "collectors library"):
        assert lines[library].startswith("WRONG")
        assert BROKEN[spoil] in lines[library]


def test_doctor_says_that_the_library_carries_them() -> None:
    assert "annotate and mark use the sinks library" in command_line("doctor").stdout


def test_no_package_is_imported_while_the_library_is_there() -> None:
    program = "import opspan, sys\nwith opspan.annotate('x'): pass\nprint({'nvtx', 'ittapi'} & set(sys.modules))"
    assert run([sys.executable, "-c", program]).stdout == "set()\n"
