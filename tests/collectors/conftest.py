"""The collectors, built where opspan is not installed, and the small clients that these tests run."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from collectors.running import CLIENTS, NATIVE, Collected, compile_, nvtx_include, package_folder


@pytest.fixture(scope="session")
def collectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with both collectors: the installed one, else one built from this tree."""
    if spec := find_spec("opspan"):
        for folder in spec.submodule_search_locations or []:
            if (installed := Path(folder) / "lib" / "libopspan_collectors.so").is_file():
                return installed
    library = tmp_path_factory.mktemp("collectors") / "libopspan_collectors.so"
    sources = [*NATIVE.glob("collectors/*.cpp"), *NATIVE.glob("capture/*.cpp")]
    flags = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-Wl,-z,nodelete"]
    compile_("g++", *flags, "-I", NATIVE, "-isystem", nvtx_include(), *sources, "-ldl", "-o", library)
    return library


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds tests/native/collectors/<source>, once."""
    built: dict[str, Path] = {}

    def build(source: str, *flags: str | Path) -> Path:
        if source not in built:
            program = tmp_path_factory.mktemp("client") / Path(source).stem
            compiler = ["g++", "-std=c++20"] if source.endswith(".cpp") else ["gcc", "-std=gnu11"]
            include = ["-isystem", nvtx_include()]
            compile_(*compiler, "-O1", "-pthread", *include, CLIENTS / source, *flags, "-ldl", "-o", program)
            built[source] = program
        return built[source]

    return build


@pytest.fixture
def itt_client(client: Callable[..., Path]) -> Callable[[str], Path]:
    """The same for a client of ITT. ITT's static part is in libtorch_cpu, which exports it."""
    torch = package_folder("torch")
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
