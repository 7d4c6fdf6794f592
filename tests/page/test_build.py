"""src/page/build.py on machines that have an npm, none, or one that does not work; and the page that is built later.

They run `python -S`, which sees no installed package: this environment may have one with a node.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import opspan
from npm import NPM, PATH
from opspan import libraries
from opspan.app import doctor, page
from opspan.errors import MissingPackage
from views.sources import nsys

SOURCES = Path(__file__).parents[2] / "src" / "page"
BUILD = SOURCES / "build.py"
NATIVE = Path(__file__).parents[2] / "native"
REFUSED = "http://127.0.0.1:9/"
NO_PIP = {"PIP_NO_INDEX": "1"}  # pip finds nothing
WITH_NPM = pytest.mark.skipif(NPM is None, reason="no npm here")

# Commands on the PATH, and the error for each.
BROKEN = {
    "no npm": ({}, "npm is not on the PATH"),
    "npm without node": ({"npm": "#!/usr/bin/env node\n"}, "npm failed"),
    "an old node": ({"npm": "#!/bin/sh\necho 8.19.4\n", "node": "#!/bin/sh\necho v16.20.0\n"}, "is 'v16.20.0'"),
    "all of it fails": ({"npm": "#!/bin/sh\necho broken\nexit 1\n"}, "npm failed: broken"),
}


def path_of(programs: dict[str, str], folder: Path) -> str:
    folder.mkdir()
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return str(folder)


def build(out: Path, *options: str, program: Path = BUILD, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", program, out, *options]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300)


def built(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()}


def why(out: Path) -> str:
    return (out / "unbuilt" / "why.txt").read_text()


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"


@pytest.mark.slow
@pytest.mark.parametrize("machine", BROKEN)
def test_without_an_npm_that_works_pip_is_asked_for_node(machine: str, tmp_path: Path) -> None:
    programs, said = BROKEN[machine]
    out = tmp_path / "out"
    out.mkdir()
    (out / "page.js").write_text("an older page")

    done = build(out, PATH=path_of(programs, tmp_path / "bin"), **NO_PIP)

    assert done.returncode == 0, done.stderr
    assert built(out) == {"unbuilt"}
    assert said in why(out)
    assert "and pip failed: " in why(out)
    assert done.stderr == f"warning: the page was not built: {why(out)}"
    copied = {path.name for path in (out / "unbuilt").rglob("*")}
    assert {"build.py", "build.mjs", "package-lock.json", "page.ts", "overview.ts", ".npmrc"} <= copied
    assert not copied & {"node_modules", "__pycache__"}


@pytest.mark.slow
def test_with_nodes_package_it_is_the_same_page(shared_folder: Path, tmp_path: Path) -> None:
    """For no npm, an old node, and the sources that are installed in place of a page."""
    if not libraries.page("page.js").is_file():
        pytest.skip("this build has no page: what is fetched for it may be out of reach")
    work = str(tmp_path / "work")
    old = path_of(BROKEN["an old node"][0], tmp_path / "old")
    empty = path_of({}, tmp_path / "empty")
    build(tmp_path / "failed", PATH=empty, **NO_PIP)

    from_old = build(tmp_path / "a", "--work", work, PATH=old)
    again = build(tmp_path / "b", "--work", work, PATH=empty, **NO_PIP)
    later = build(tmp_path / "c", "--work", work, program=tmp_path / "failed" / "unbuilt" / "build.py", PATH=empty)

    for done, out in ((from_old, "a"), (again, "b"), (later, "c")):
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert built(tmp_path / out) == set(libraries.PAGE)
        assert all((tmp_path / out / name).read_bytes() == libraries.page(name).read_bytes() for name in libraries.PAGE)


@WITH_NPM
@pytest.mark.slow
def test_with_npm_pip_is_not_asked(tmp_path: Path) -> None:
    done = build(tmp_path / "out", PATH=PATH, **NO_PIP)

    assert (done.returncode, done.stderr) == (0, "")
    assert built(tmp_path / "out") == set(libraries.PAGE)


@WITH_NPM
@pytest.mark.slow
@pytest.mark.parametrize("registry", ["that refuses", "that is silent"])
def test_a_registry_out_of_reach_is_seen_soon(registry: str, silent: str, tmp_path: Path) -> None:
    address = REFUSED if registry == "that refuses" else silent
    start = time.monotonic()

    done = build(tmp_path / "out", PATH=PATH, npm_config_registry=address, npm_config_cache=str(tmp_path / "cache"))

    assert time.monotonic() - start < 60
    assert done.returncode == 0
    assert built(tmp_path / "out") == {"unbuilt"}
    assert why(tmp_path / "out").startswith("npm's registry cannot be reached: npm failed: ")
    assert address in why(tmp_path / "out")


@pytest.mark.slow
def test_cmake_installs_the_sources_in_its_place_or_fails_where_it_must_be_there(tmp_path: Path) -> None:
    nowhere = {"npm_config_registry": REFUSED, "npm_config_cache": str(tmp_path / "cache"), **NO_PIP}

    def cmake(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cmake", *map(str, arguments)]
        return subprocess.run(command, env={**os.environ, **nowhere, "PATH": PATH}, capture_output=True, text=True)

    folder, prefix = tmp_path / "build", tmp_path / "prefix"
    configured = cmake("-S", NATIVE, "-B", folder, "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}")
    assert configured.returncode == 0, configured.stderr
    for _ in range(2):  # and the next build tries again
        done = cmake("--build", folder, "--target", "page")
        assert done.returncode == 0, done.stdout
        assert "warning: the page was not built: " in done.stdout
    assert cmake("--install", folder, "--component", "page", "--prefix", prefix).returncode == 0
    assert built(prefix / "opspan" / "lib" / "page") == {"unbuilt"}

    assert cmake("-DOPSPAN_PAGE=ON", folder).returncode == 0
    required = cmake("--build", folder, "--target", "page")
    assert required.returncode != 0
    assert "error: the page was not built: " in required.stdout


def test_it_knows_what_is_built_and_which_node_that_needs() -> None:
    names = runpy.run_path(str(BUILD))
    lock = json.loads((SOURCES / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    asked = lock["node_modules/esbuild"]["engines"]["node"]

    assert names["FILES"] == libraries.PAGE
    assert asked == f">={names['OLDEST_NODE']}"


# --- later, from the sources that were installed

FAKE = """
import pathlib, sys
out = pathlib.Path(sys.argv[1])
if pathlib.Path(__file__).with_name("offline").exists():
    sys.exit("error: the page was not built: no registry")
out.mkdir()
(out / "page.js").write_text("built later")
"""


@pytest.fixture
def unbuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lib" / "page" / "unbuilt"
    folder.mkdir(parents=True)
    (folder / "build.py").write_text(FAKE)
    (folder / "why.txt").write_text("no npm, and pip failed\n")
    monkeypatch.setenv("OPSPAN_LIB_DIR", str(tmp_path / "lib"))
    monkeypatch.setenv("OPSPAN_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def test_a_report_says_why_there_is_no_page_and_what_to_do(
    unbuilt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPSPAN_LIB_DIR")
    trace = opspan.load(nsys(tmp_path / "report.sqlite"))
    monkeypatch.setattr(libraries, "folder", lambda: tmp_path / "lib")

    with pytest.raises(MissingPackage, match=r"`opspan doctor --fix` tries again \(no npm, and pip failed\)"):
        trace.report(tmp_path / "out.html")

    assert not (tmp_path / "out.html").exists()
    check = doctor._page()
    assert (check.state, check.found, check.todo) == (
        "optional",
        "not built: no npm, and pip failed",
        "opspan doctor --fix",
    )


def test_it_is_built_later_into_the_cache_and_found_there(unbuilt: Path, tmp_path: Path) -> None:
    page.build_missing()

    assert libraries.page("page.js").read_text() == "built later"
    assert libraries.page("page.js").is_relative_to(tmp_path / "cache")
    assert doctor._page().state == "ok"
    libraries.page("page.js").write_text("this one")
    page.build_missing()
    assert libraries.page("page.js").read_text() == "this one"  # not built again
    (unbuilt / "__pycache__").mkdir()
    (unbuilt / "__pycache__" / "build.cpython-310.pyc").write_text("as pip makes it")
    assert libraries.page("page.js").is_file()
    (unbuilt / "page.ts").write_text("")
    assert not libraries.page("page.js").is_file()  # it was that of other sources


def test_a_page_that_others_can_write_is_not_used(unbuilt: Path) -> None:
    page.build_missing()
    libraries.page("page.js").parent.chmod(0o777)

    assert not libraries.page("page.js").is_file()


def test_an_installed_page_comes_before_one_of_the_cache(unbuilt: Path) -> None:
    page.build_missing()
    (unbuilt.parent / "page.js").write_text("installed")

    assert libraries.page("page.js").read_text() == "installed"


def test_where_it_cannot_be_built_later_either_the_observer_is_fixed_nevertheless(
    unbuilt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (unbuilt / "offline").touch()
    fixed: list[str] = []
    monkeypatch.setattr(doctor, "_fix_observer", lambda: fixed.append("observer"))

    with pytest.raises(MissingPackage, match="the page was not built: no registry"):
        doctor.fix()

    assert fixed == ["observer"]
    assert list((tmp_path / "cache").iterdir()) == []
