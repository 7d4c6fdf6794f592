"""Building clients of NVTX and ITT, and running programs with both collectors in their environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.metadata import files
from importlib.util import find_spec
from pathlib import Path

import pytest

from builders.capture_units import Capture, read_folder
from once import made_once

NATIVE = Path(__file__).parents[2] / "native"
CLIENTS = Path(__file__).parents[1] / "native" / "collectors"


def package_folder(name: str) -> Path:
    spec = find_spec(name)
    if not spec or not spec.submodule_search_locations:
        pytest.skip(f"{name} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def torch_with_itt() -> Path:
    torch = package_folder("torch")
    if not (torch / "include" / "ittnotify.h").is_file():
        pytest.skip("this torch has no ITT, as that for aarch64")
    return torch


def nvtx_include() -> Path:
    header = next(path for path in files("nvidia-nvtx") or [] if path.name == "nvToolsExtPayload.h")
    return Path(str(header.locate())).parents[1]


def compile_(*arguments: str | Path) -> None:
    if not shutil.which(arguments[0]):
        pytest.skip(f"no {arguments[0]} on the PATH")
    subprocess.run([*map(str, arguments)], check=True)


def compiled(output: Path, *arguments: str | Path) -> Path:
    return made_once(output, lambda made: compile_(*arguments, "-o", made))


class Collected:
    """Runs programs with both collectors in their environment."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "NVTX_INJECTION64_PATH": str(library),
            "INTEL_LIBITTNOTIFY64": str(library),
            "OPSPAN_CAPTURE_DIR": str(folder),
        }

    def popen(self, *command: str | Path, **options: object) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            [*map(str, command)], env=self.environment, stdout=pipe, stderr=pipe, text=True, **options
        )

    def run(self, *command: str | Path, code: int = 0, **options: object) -> tuple[str, str]:
        process = self.popen(*command, **options)
        out, err = process.communicate(timeout=300)
        assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
        return out, err

    def captures(self) -> list[Capture]:
        return read_folder(self.folder)

    def capture(self) -> Capture:
        (only,) = self.captures()
        return only
