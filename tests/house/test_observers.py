"""tools/observers: the files that it makes, tried with a simpler observer; and that its checks find errors."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from house.tree import REPO

pytestmark = [
    pytest.mark.skipif(sys.version_info < (3, 11, 4), reason="tools/observers needs Python 3.11.4"),
    pytest.mark.skipif(shutil.which("c++") is None or shutil.which("readelf") is None, reason="no compiler"),
]

TOOL = REPO / "tools" / "observers"
MACHINE = platform.machine()
GIT = "0123456789abcdef0123456789abcdef01234567"
READ = "__version__ = '{}'\ndebug = {}\ncuda: Optional[str] = None\ngit_version = '{}'\n"
# A count of references and an array that grows: they make a program need what OLD_LIBRARIES defines.
SIMPLE = """
#include <ATen/record_function.h>
#include <sinks.h>
#include <memory>
#include <string>
#include <vector>
#define EXPORT extern "C" __attribute__((visibility("default")))
static std::vector<std::shared_ptr<std::string>> g_texts;
EXPORT const char* built_for() { return OPSPAN_BUILT_FOR; }
EXPORT const char* source() { return __FILE__; }
EXPORT const char* included() { return header(); }
EXPORT const char* add(const char* text, int count) {
  g_texts.resize(g_texts.size() + count);
  g_texts.push_back(std::make_shared<std::string>(text));
  return std::shared_ptr<std::string>(g_texts.back())->c_str();
}
"""
NEEDS = """
 0x0000000000000001 (NEEDED)             Shared library: [libtorch_cpu.so]
 0x0000000000000001 (NEEDED)             Shared library: [libc10.so]
  0x0010:   Name: GLIBC_2.28  Flags: none  Version: 5
  0x0020:   Name: GLIBC_2.2.5  Flags: none  Version: 4
  0x0030:   Name: GLIBCXX_3.4.21  Flags: none  Version: 3
"""


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = SourceFileLoader("observers", str(TOOL))
    spec = spec_from_loader(loader.name, loader)
    assert spec
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "observers", module)  # dataclasses look there
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the tool adds src, which later tests must not import
    loader.exec_module(module)
    return module


def wheel_of(path: Path, version: str, git: str = GIT) -> Path:
    with zipfile.ZipFile(path, "w") as files:
        files.writestr("torch/version.py", READ.format(version, False, git))
        files.writestr("torch/include/ATen/record_function.h", "inline const char* header() { return __FILE__; }\n")
        for name in ("torch/include/ATen/ops/add.h", "torch/include/ATen/ops/add_ops.h", "torch/lib/libc10.dylib"):
            files.writestr(name, "")
    return path


@pytest.fixture
def headers(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two releases, and the sources of an observer that is simpler than ours."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for version, git in (("2.6.0", GIT), ("2.7.0", GIT[::-1])):
        tool.pack(wheel_of(tmp_path / "torch.whl", version, git), cache / f"torch-{version}.tar.gz")
    for name, text in (("observer/observer.cpp", SIMPLE), ("sinks/sinks.h", "")):
        (tmp_path / "native" / name).parent.mkdir(parents=True)
        (tmp_path / "native" / name).write_text(text)
    monkeypatch.setattr(tool, "NATIVE", tmp_path / "native")
    return cache


@pytest.mark.slow
def test_each_release_and_abi_has_a_file(
    tool: ModuleType,
    headers: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    tool.write_table(tool.make(["2.6.0", "2.7.0"], Path(headers.name), MACHINE, Path(out.name)))

    old, new = GIT[:16], GIT[::-1][:16]
    paths = [out / f"{old}-pre-{MACHINE}.so", out / f"{old}-cxx11-{MACHINE}.so", out / f"{new}-cxx11-{MACHINE}.so"]
    assert sorted(out.iterdir()) == sorted(paths)
    built_for = [f"2.6.0 {GIT} pre", f"2.6.0 {GIT} cxx11", f"2.7.0 {GIT[::-1]} cxx11"]
    for path, text in zip(paths, built_for, strict=True):
        content = path.read_bytes()
        paths_in_it = b"native/observer/observer.cpp\0", b"torch/include/ATen/record_function.h\0"
        assert all(expected in content for expected in (f"{text}\0".encode(), *paths_in_it))
        assert os.fsencode(tmp_path) not in content, "a path of this machine"
    symbols = [subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout for path in paths]
    assert ["__cxx1112basic_string" in text for text in symbols] == [False, True, True]
    assert not re.search("__libc_single_threaded|__throw_bad_array_new_length", "".join(symbols))
    said = capsys.readouterr().out
    assert re.search(rf"^2\.6\.0 +{old} +pre .* GLIBC_2", said, re.MULTILINE)
    assert "Wrote 3 observers (" in said


@pytest.mark.parametrize(
    ("change", "into", "said"),
    [
        ("GLIBC_2.28", "GLIBC_2.32", r"a\.so needs GLIBC_2\.32, newer than GLIBC_2\.28"),
        ("libc10.so", "libc11.so", r"a\.so does not name libc10\.so"),
        ("(NEEDED)  ", "(RUNPATH) Library runpath: [/x]\n (NEEDED)  ", r"a\.so has a path to libraries"),
    ],
)
def test_an_observer_that_would_not_load_elsewhere_is_an_error(
    tool: ModuleType, change: str, into: str, said: str
) -> None:
    assert tool.check(NEEDS, "a.so") == {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 21)}

    assert change in NEEDS
    with pytest.raises(tool.Problem, match=said):
        tool.check(NEEDS.replace(change, into), "a.so")


@pytest.mark.slow
def test_an_error_leaves_nothing(
    tool: ModuleType, headers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "NEWEST", {"GLIBC": (2, 0)})
    with pytest.raises(tool.Problem, match=r"\.so needs GLIBC_2\.\d+"):
        tool.make(["2.7.0"], headers, MACHINE, tmp_path / "out")
    monkeypatch.undo()
    monkeypatch.setattr(tool, "NATIVE", tmp_path / "missing")
    with pytest.raises(tool.Problem, match=r"ended with 1: .*error: .*No such file"):
        tool.make(["2.7.0"], headers, MACHINE, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_compiler_must_be_for_the_machine(tool: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(tool.Problem, match=r"c\+\+ compiles for \S+, not for riscv64: set CXX"):
        tool.make([], tmp_path, "riscv64", tmp_path / "out")


def test_releases_are_the_official_ones_from_the_oldest_on(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "torch (2.10.0)\nAvailable versions: 2.10.0, 2.13.0+cpu, 2.9.1rc1, 2.9.1, 2.4.0, 2.3.1, 1.13.0\n"
    monkeypatch.setattr(tool, "output", lambda *_, **__: listed)
    assert list(tool.releases()) == ["2.4.0", "2.9.1", "2.10.0"]

    monkeypatch.setattr(tool, "output", lambda *_, **__: "")
    with pytest.raises(tool.Problem, match="pip gives no release of torch"):
        list(tool.releases())


@pytest.mark.parametrize(
    ("version", "debug", "git", "said"),
    [
        ("2.9.0", "False", GIT, "has version '2.9.0'"),
        ("2.9.1", "False", "Unknown", "commit 'Unknown'"),
        ("2.9.1", "True", GIT, "is a debug build"),
    ],
)
def test_a_wheel_that_is_no_release_is_an_error(
    tool: ModuleType, version: str, debug: str, git: str, said: str
) -> None:
    assert tool.read_version("2.9.1", READ.format("2.9.1", False, GIT)) == tool.Release("2.9.1", GIT)

    with pytest.raises(tool.Problem, match=said):
        tool.read_version("2.9.1", READ.format(version, debug, git))


def test_only_headers_that_may_be_read_are_kept(tool: ModuleType, tmp_path: Path) -> None:
    archive = tool.pack(wheel_of(tmp_path / "torch.whl", "2.9.1"), tmp_path / "a.tar.gz")
    with tool.tarfile.open(archive) as files:
        assert sorted(files.getnames()) == [
            "torch/include/ATen/ops/add_ops.h",
            "torch/include/ATen/record_function.h",
            "torch/version.py",
        ]

    with zipfile.ZipFile(tmp_path / "other.whl", "w") as files:
        files.writestr("torch/version.py", "")
    with pytest.raises(tool.Problem, match=r"other\.whl has no headers"):
        tool.pack(tmp_path / "other.whl", tmp_path / "b.tar.gz")
