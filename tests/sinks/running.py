"""The sinks and the observer that opspan uses, the small tools that listen to them, and programs that drive them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from collectors.running import NATIVE, compiled, nvtx_include, package_folder
from emit.running import built_observer
from opspan import libraries

TESTS = Path(__file__).parents[1]
SHARED = ["-std=c++20", "-O1", "-fPIC", "-shared", "-pthread"]
HIDDEN = ["-fvisibility=hidden", "-fvisibility-inlines-hidden"]


class Native:
    """One library each. What opspan does not bring is built when it is first asked for."""

    def __init__(self, folder: Path, native: Path = NATIVE) -> None:
        self.folder = folder
        self.native = native

    @property
    def sinks(self) -> Path:
        if self.native == NATIVE:
            return libraries.sinks()
        sources = [*self.native.glob("sinks/*.cpp"), *self.native.glob("capture/*.cpp")]
        return self._build("sinks", *HIDDEN, "-Wl,-z,nodelete", "-isystem", nvtx_include(), *sources, "-ldl")

    @property
    def observer(self) -> Path:
        package_folder("torch")  # without torch, the test is skipped
        return built_observer(self.folder)

    @property
    def torch_stubs(self) -> Path:
        torch = package_folder("torch")
        link = ["-L", torch / "lib", f"-Wl,-rpath,{torch / 'lib'}", "-ltorch_cpu", "-lc10"]
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch_uses_new_strings())}"
        source = TESTS / "native" / "torch_stubs" / "torch_stubs.cpp"
        return self._build("torch_stubs", *HIDDEN, "-DNDEBUG", abi, "-isystem", torch / "include", source, *link)

    @property
    def nvtx_recorder(self) -> Path:
        return self._build("nvtx", "-isystem", nvtx_include(), TESTS / "native" / "sinks" / "nvtx_recorder.cpp")

    @property
    def itt_recorder(self) -> Path:
        return self._build("itt", TESTS / "native" / "sinks" / "itt_recorder.cpp")

    def _build(self, name: str, *arguments: str | Path) -> Path:
        return compiled(self.folder / f"{name}.so", "g++", *SHARED, "-I", self.native, *arguments)


def torch_uses_new_strings() -> bool:
    """Returns whether torch uses the strings of C++11; its own builds do since 2.6."""
    import torch

    return bool(torch.compiled_with_cxx11_abi())


@dataclass
class Line:
    """One call that a recorder has seen."""

    thread: int
    call: str
    fields: list[str]

    def __getitem__(self, index: int) -> str:
        return self.fields[index]


def lines_of(text: str, calls: Iterable[str] = ()) -> list[Line]:
    """Returns the lines of a recorder, from among other output of the program."""
    wanted = set(calls)
    rows = [row.replace("\x1e", "\n").split("\t") for row in text.split("\n") if "\t" in row]
    lines = [Line(int(tid), call, fields) for tid, call, *fields in rows]
    return [line for line in lines if not wanted or line.call in wanted]


def drive(native: Native, program: str, *, tool: str = "", **environment: str) -> str:
    """Run a program that finds driver.py's names, with one recorder listening (nvtx or itt) or none."""
    names = ("NVTX_INJECTION64_PATH", "INTEL_LIBITTNOTIFY64", "OPSPAN_CAPTURE_DIR")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    kept |= {"PYTHONPATH": str(TESTS), "SINKS": str(native.sinks)} | environment
    if tool == "nvtx":
        kept |= {"NVTX_INJECTION64_PATH": str(native.nvtx_recorder), "RECORDER": str(native.nvtx_recorder)}
    elif tool == "itt":
        kept |= {"INTEL_LIBITTNOTIFY64": str(native.itt_recorder), "RECORDER": str(native.itt_recorder)}
        kept |= {"ITT": str(next(package_folder("ittapi").glob("native*.so")))}
    code = "from sinks.driver import *\n" + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
