"""tools/wheels: what it builds, looked at without its own checks; and that these find what is wrong."""

from __future__ import annotations

import faulthandler
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from house.test_dependencies import project, tomllib
from house.tree import REPO, files
from opspan.libraries import COLLECTORS, COLUMNS, OBSERVER_SOURCES, PAGE, SINKS

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="tools/wheels needs Python 3.11")

TOOL = REPO / "tools" / "wheels"
MOST_SECONDS = 1800  # everything is compiled anew; more than pytest gives a test, on a machine with other work


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    loader = SourceFileLoader("wheels", str(TOOL))
    spec = spec_from_loader(loader.name, loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPO).stdout


# --- the main path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """The sdist, the wheel, and what the tool said."""
    folder = tmp_path_factory.mktemp("release")
    needed = project()["optional-dependencies"]["release"]
    needed += tomllib.loads((REPO / "pyproject.toml").read_text())["build-system"]["requires"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder / "packages", *needed]
    asked = subprocess.run(pip, capture_output=True, text=True)
    if asked.returncode != 0:
        pytest.skip(f"what builds a release cannot be had: {asked.stderr.strip().splitlines()[-1]}")

    faulthandler.dump_traceback_later(MOST_SECONDS, exit=True, file=sys.__stderr__)
    done = subprocess.run(
        [sys.executable, TOOL, folder / "out", "--no-observers", "--python", sys.executable],
        capture_output=True,
        text=True,
    )
    faulthandler.cancel_dump_traceback_later()

    assert done.returncode == 0, done.stdout + done.stderr
    sdist, wheel = sorted((folder / "out").iterdir(), key=lambda path: path.suffix)
    return sdist, wheel, done.stdout


@pytest.mark.slow
@pytest.mark.release
def test_the_tag_is_the_oldest_that_the_libraries_fit(built: tuple[Path, Path, str], tmp_path: Path) -> None:
    _, wheel, _ = built
    zipfile.ZipFile(wheel).extractall(tmp_path)
    libraries = sorted((tmp_path / "opspan" / "lib").glob("*.so"))
    needed = subprocess.run(["readelf", "-V", *libraries], capture_output=True, text=True, check=True).stdout
    newest = max(int(minor) for minor in re.findall(r"\bGLIBC_2\.(\d+)", needed))

    assert {COLLECTORS, COLUMNS, SINKS} < {path.name for path in libraries}
    tags = re.findall(r"^Tag: (.*)$", next(tmp_path.glob("*.dist-info/WHEEL")).read_text(), re.MULTILINE)
    assert f"py3-none-manylinux_2_17_{os.uname().machine}" in tags
    assert newest <= 17


@pytest.mark.slow
@pytest.mark.release
def test_the_wheel_has_the_package_and_nothing_else(built: tuple[Path, Path, str]) -> None:
    _, wheel, _ = built
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        times = {info.date_time for info in archive.infolist()}
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()

    package = {path.relative_to(REPO / "src").as_posix() for path in files("src/opspan")}
    compiled = {f"opspan/lib/{name}" for name in (SINKS, COLLECTORS, COLUMNS)}
    compiled |= {f"opspan/lib/observer/{name}" for name in OBSERVER_SOURCES}
    compiled |= {f"opspan/lib/page/{name}" for name in PAGE}
    frames = {name for name in names if re.fullmatch(r"opspan/lib/libopspan_frames_cp3\d+\.so", name)}
    assert f"opspan/lib/libopspan_frames_cp3{sys.version_info.minor}.so" in frames
    assert {name for name in names if ".dist-info/" not in name} == package | compiled | frames
    second = int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct")) // 2 * 2
    assert times == {time.gmtime(second)[:6]}, "with other times, two builds of a commit would differ"
    assert "opspan/py.typed" in names
    assert any(name.endswith(".dist-info/sboms/opspan.cdx.json") for name in names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nDescription-Content-Type: text/markdown\n" in metadata
    assert metadata.endswith((REPO / "README.md").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.release
def test_one_line_leads_from_nothing_to_a_page_in_the_browser(built: tuple[Path, Path, str], tmp_path: Path) -> None:
    uvx = shutil.which("uvx", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if uvx is None:
        pytest.skip("no uvx: pip install uv")
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    subprocess.run([sys.executable, "-m", "opspan", "demo", "--gpu-sample", "-o", tmp_path / "sample"], check=True)

    # Nothing is left of this user: no home, and an empty cache. The folder of the wheel stands for the public index.
    fresh = {"HOME": str(tmp_path), "UV_CACHE_DIR": str(tmp_path / "cache"), "BROWSER": str(browser)}
    trace = tmp_path / "sample" / "rank00.json.gz"
    command = [uvx, "--native-tls", "--find-links", built[1].parent, "--python", sys.executable]
    done = subprocess.run(
        [*command, "opspan", "report", trace, "--open"],
        cwd=tmp_path,
        env={**os.environ, **fresh},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "opened").read_text() == f"{(tmp_path / 'report.html').as_uri()}\n"


@pytest.mark.slow
@pytest.mark.release
def test_the_sdist_has_what_builds_and_tests_it(built: tuple[Path, Path, str]) -> None:
    sdist, wheel, _ = built
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert sdist.name.removesuffix(".tar.gz") == "-".join(wheel.name.split("-")[:2])
    expected = {"LICENSE", "README.md", "pyproject.toml", "native/CMakeLists.txt", "tests/conftest.py", "docs/cli.md"}
    assert expected <= names
    assert not [name for name in names if re.match(r"\.git/|\.github/|\.ci/|dist/|build/|\.venv/|tests/house/", name)]


@pytest.mark.slow
@pytest.mark.release
def test_the_wheel_was_tried(built: tuple[Path, Path, str]) -> None:
    _, wheel, said = built
    assert f"tried {wheel.name} with Python {'.'.join(map(str, sys.version_info[:3]))}" in said


# --- its checks


def sdist_of(path: Path, *, without: str = "", also: str = "") -> Path:
    names = [file.relative_to(REPO).as_posix() for file in files()]
    kept = [name for name in names if not name.startswith((".ci/", ".github/", "tests/house/"))]
    with tarfile.open(path, "w:gz") as archive:
        for name in {*kept, "PKG-INFO", also} - {without, ""}:
            archive.addfile(tarfile.TarInfo(f"opspan-1/{name}"), io.BytesIO())
    return path


def wheel_of(path: Path, **changed: bytes | None) -> Path:
    package = [file.relative_to(REPO / "src") for file in files("src/opspan")]
    entries: dict[str, bytes | None] = {file.as_posix(): b"" for file in package}
    entries |= {f"opspan/lib/page/{name}": b"page" for name in PAGE}
    entries |= {f"opspan/lib/{name}": b"library" for name in (SINKS, COLLECTORS, COLUMNS)}
    entries |= {f"opspan/lib/observer/{name}": b"source" for name in OBSERVER_SOURCES}
    entries |= {f"opspan-1.dist-info/{name}": b"" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    entries |= {"opspan-1.dist-info/licenses/LICENSE": (REPO / "LICENSE").read_bytes()}
    entries |= {"opspan-1.dist-info/sboms/opspan.cdx.json": b"{}"}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**entries, **changed}.items():
            if content is not None:
                archive.writestr(name, content)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_an_sdist_is_what_git_knows(tool: ModuleType, tmp_path: Path) -> None:
    tool.check_sdist(sdist_of(tmp_path / "whole.tar.gz"))

    with pytest.raises(tool.Problem, match=r"lacks native/sinks/sinks\.h; should not have nothing"):
        tool.check_sdist(sdist_of(tmp_path / "less.tar.gz", without="native/sinks/sinks.h"))
    with pytest.raises(tool.Problem, match=r"lacks nothing; should not have dist/old\.whl"):
        tool.check_sdist(sdist_of(tmp_path / "more.tar.gz", also="dist/old.whl"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (f"opspan/lib/{SINKS}", None, rf"lacks opspan/lib/{SINKS}"),
        ("opspan/lib/observer/observer.cpp", None, "lacks opspan/lib/observer/observer.cpp"),
        ("opspan/py.typed", None, "lacks opspan/py.typed"),
        ("opspan-1.dist-info/sboms/opspan.cdx.json", None, "lacks opspan-1.dist-info/sboms/opspan.cdx.json"),
        ("opspan.libs/libgcc_s.so", b"", "should not have opspan.libs/libgcc_s.so"),
        ("tests/conftest.py", b"", "should not have tests/conftest.py"),
        ("opspan-1.dist-info/licenses/LICENSE", b"mine", "its LICENSE is another one"),
        (f"opspan/lib/{SINKS}", b"patched", f"auditwheel has changed opspan/lib/{SINKS}"),
    ],
)
def test_a_wheel_is_the_package_and_its_libraries(
    name: str, content: bytes | None, said: str, tool: ModuleType, folder: Path
) -> None:
    sdist, before = sdist_of(folder / "opspan-1.tar.gz"), wheel_of(folder / "before" / "opspan-1-py3-none-any.whl")
    after = folder / "after" / before.name
    tool.check_wheel(wheel_of(after), before, sdist)

    with pytest.raises(tool.Problem, match=said):
        tool.check_wheel(wheel_of(after, **{name: content}), before, sdist)


def test_the_observers_are_in_the_wheel_unchanged(tool: ModuleType, folder: Path) -> None:
    name = "opspan/lib/observers/5811a8d7da873dd6-cxx11-x86_64.so"
    sdist, before = sdist_of(folder / "opspan-1.tar.gz"), folder / "before" / "opspan-1-py3-none-any.whl"
    wheel_of(before, **{name: b"observer"})
    after = folder / "after" / before.name
    tool.check_wheel(wheel_of(after, **{name: b"observer"}), before, sdist, [Path(name).name])

    with pytest.raises(tool.Problem, match=f"auditwheel has changed {name}"):
        tool.check_wheel(wheel_of(after, **{name: b"patched"}), before, sdist, [Path(name).name])
    with pytest.raises(tool.Problem, match=f"lacks {name}"):
        tool.check_wheel(wheel_of(after), before, sdist, [Path(name).name])
    with pytest.raises(tool.Problem, match=f"should not have {name}"):
        tool.check_wheel(wheel_of(after, **{name: b"observer"}), before, sdist)


def test_another_processor_needs_its_compiler(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tool.Problem, match=r"no aarch64-linux-gnu-g\+\+: apt-get install g\+\+-aarch64-linux-gnu"):
        tool.cross_compiler("aarch64")

    (tmp_path / "aarch64-linux-gnu-g++").touch(mode=0o755)
    assert "-Ccmake.define.CMAKE_SYSTEM_PROCESSOR=aarch64" in tool.cross_compiler("aarch64")


def test_both_files_are_handed_over_or_none(tool: ModuleType, tmp_path: Path) -> None:
    wheel, out = tmp_path / "a.whl", tmp_path / "out"
    wheel.write_text("new")
    with pytest.raises(FileNotFoundError):
        tool.hand_over([wheel, tmp_path / "missing.tar.gz"], out)
    assert list(out.iterdir()) == []

    (out / wheel.name).write_text("old")
    assert tool.hand_over([wheel], out) == [out / wheel.name]
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("a.whl", "new")]


@pytest.mark.slow
def test_each_version_of_python_is_tried_once(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"python3.10": "[true, 3, 10]", "python3.99": "[true, 3, 99]", "python3.9": "[true, 3, 9]"}
    answers |= {"python3.98": "[false, 3, 98]", "python3.97": ""}  # another implementation; a name that leads nowhere
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        for name, answer in answers.items():
            (tmp_path / place / name).write_text(f"#!/bin/sh\necho '{answer}'; test '{answer}'\n")
            (tmp_path / place / name).chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "one"), str(tmp_path / "two"), os.environ["PATH"]]))
    found = list(tool.every_python())

    assert found[0] == Path(sys.executable)
    assert [path for path in found if path.is_relative_to(tmp_path)] == [
        tmp_path / "one" / "python3.10",
        tmp_path / "one" / "python3.99",
    ]


def test_what_is_wrong_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, TOOL, tmp_path / "out", "--python", "python3.nowhere"]
    done = subprocess.run(command, capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (1, "", "wheels: no Python python3.nowhere\n")
    assert not (tmp_path / "out").exists()
