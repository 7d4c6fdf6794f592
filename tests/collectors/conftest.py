"""The collectors, built where opspan is not installed, and the small clients that these tests run."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from collectors.running import CLIENTS, NATIVE, Collected, compiled, nvtx_include, torch_with_itt


@pytest.fixture(scope="session")
def collectors(shared_folder: Path) -> Path:
    """The library with both collectors: the installed one, else one built from this tree."""
    if spec := find_spec("opspan"):
        for folder in spec.submodule_search_locations or []:
            if (installed := Path(folder) / "lib" / "libopspan_collectors.so").is_file():
                return installed
    sources = [*NATIVE.glob("collectors/*.cpp"), *NATIVE.glob("capture/*.cpp")]
    flags = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-Wl,-z,nodelete"]
    command = ["g++", *flags, "-I", NATIVE, "-isystem", nvtx_include(), *sources, "-ldl"]
    return compiled(shared_folder / "libopspan_collectors.so", *command)


@pytest.fixture(scope="session")
def client(shared_folder: Path) -> Callable[..., Path]:
    """Builds tests/native/collectors/<source>, once."""
    folder = shared_folder / "clients"
    folder.mkdir(exist_ok=True)

    def build(source: str, *flags: str | Path) -> Path:
        compiler = ["g++", "-std=c++20"] if source.endswith(".cpp") else ["gcc", "-std=gnu11"]
        command = [*compiler, "-O1", "-pthread", "-isystem", nvtx_include(), CLIENTS / source, *flags, "-ldl"]
        return compiled(folder / Path(source).stem, *command)

    return build


@pytest.fixture
def itt_client(client: Callable[..., Path]) -> Callable[[str], Path]:
    """The same for a client of ITT. ITT's static part is in libtorch_cpu, which exports it."""
    torch = torch_with_itt()
    flags = [
        "-I",
        torch / "include",
        "-L",
        torch / "lib",
        f"-Wl,-rpath,{torch / 'lib'}",
        "-Wl,--no-as-needed",
        "-rdynamic",
    ]
    return lambda source: client(source, *flags, "-ltorch_cpu", "-lc10")


@pytest.fixture
def collected(collectors: Path, tmp_path: Path) -> Collected:
    folder = tmp_path / "captures"
    folder.mkdir()
    return Collected(collectors, folder)
