"""Two builds of the same sources give the same wheel, byte by byte; and the wheel lists the foreign code in it."""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from house.tree import REPO, files

MOST_SECONDS = 3600  # everything is compiled twice; more than pytest gives a test, on a machine with other work
SBOM = "dist-info/sboms/opspan.cdx.json"
GCC = """\
#define __GNUC__ 13
#define __GNUC_MINOR__ 2
#define __GNUC_PATCHLEVEL__ 1
#define _GLIBCXX_RELEASE 13
"""
LICENCES = f"@a/b 1.2.3 (ISC)\n\nCopyright (c) 2 (MIT)\n\n{'-' * 80}\n\nc 4.0.0 (BSD-3-Clause)\n\nText\n"


def copied(folder: Path, when: int) -> Path:
    for path in files():
        copy = folder / "sources" / path.relative_to(REPO)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
        os.utime(copy, (when, when))
    return folder


def built(folder: Path, umask: int) -> dict[str, bytes]:
    """Builds a wheel of copied sources, and returns its bytes and those of its files."""
    kept = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    environment = {**kept, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    done = subprocess.run(
        [*pip, "--wheel-dir", folder / "wheels", folder / "sources"],
        capture_output=True,
        text=True,
        env=environment,
        preexec_fn=lambda: os.umask(umask) and None,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (folder / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {"": wheel.read_bytes(), **{name: archive.read(name) for name in archive.namelist()}}


@pytest.mark.slow
@pytest.mark.release
def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core", reason="pip install 'opspan[dev]'")
    faulthandler.dump_traceback_later(MOST_SECONDS, exit=True, file=sys.__stderr__)
    folders = copied(tmp_path / "one", 1_500_000_000), copied(tmp_path / "another" / "place", 1_600_000_000)
    one, other = built(folders[0], 0o022), built(folders[1], 0o077)
    faulthandler.cancel_dump_traceback_later()

    assert list(one) == list(other)
    assert [name for name in one if name and one[name] != other[name]] == []
    assert one[""] == other[""], "the files are equal, but not the archives: times, modes or order"
    libraries = [name for name in one if name.endswith(".so")]
    assert len(libraries) >= 3  # and one for the stacks of this Python, if it has its headers
    assert not [name for name in libraries if bytes(tmp_path) in one[name]]
    (sbom,) = (name for name in one if name.endswith(SBOM))
    listed = {part["name"] for part in json.loads(one[sbom])["components"]}
    assert {"libstdc++", "libgcc", "nvidia-nvtx"} <= listed
    bundled = one.get("opspan/lib/page/LICENSES.txt", b"").decode()
    assert listed - {"libstdc++", "libgcc", "nvidia-nvtx"} == set(re.findall(r"^(\S+) \d\S* \(", bundled, re.MULTILINE))


# --- the bill of materials


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", REPO / "native" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parts(components: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(part["name"], part["version"], part["licenses"][0]["expression"]) for part in components]


def test_the_runtime_is_that_of_the_compiler(sbom: ModuleType) -> None:
    clang = "#define __clang__ 1\n#define __GNUC__ 4\n#define _GLIBCXX_RELEASE 12\n"

    licence = "GPL-3.0-or-later WITH GCC-exception-3.1"
    assert parts(sbom.runtime(GCC)) == [("libstdc++", "13.2.1", licence), ("libgcc", "13.2.1", licence)]
    assert parts(sbom.runtime(clang)) == [("libstdc++", "12", licence), ("libgcc", "12", licence)]
    assert parts(sbom.runtime("#define _LIBCPP_VERSION 190000\n")) == [
        ("libc++", "190000", "Apache-2.0 WITH LLVM-exception")
    ]


def test_packages_of_the_page_are_those_of_its_licences(sbom: ModuleType) -> None:
    assert parts(sbom.packages(LICENCES)) == [("@a/b", "1.2.3", "ISC"), ("c", "4.0.0", "BSD-3-Clause")]
    assert [part["purl"] for part in sbom.packages(LICENCES)] == ["pkg:npm/%40a/b@1.2.3", "pkg:npm/c@4.0.0"]


def test_headers_have_the_licence_that_they_name(sbom: ModuleType, tmp_path: Path) -> None:
    header = tmp_path / "nvtx3" / "nvToolsExt.h"
    header.parent.mkdir()
    header.write_text(" * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception\n#define NVTX_VERSION 3\n")

    assert parts([sbom.nvtx(tmp_path)]) == [("nvidia-nvtx", "3", "Apache-2.0 WITH LLVM-exception")]
    header.write_text("#define NVTX_VERSION 3\n")
    with pytest.raises(SystemExit, match="names no licence"):
        sbom.nvtx(tmp_path)


def test_the_document_is_as_cyclonedx_describes_it(sbom: ModuleType) -> None:
    document = sbom.document("0.1.0", [*sbom.runtime(GCC), *sbom.packages(LICENCES)])

    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    references = [part["bom-ref"] for part in document["components"]]
    assert len(set(references)) == len(references) == 4
    assert document["dependencies"] == [{"ref": "pkg:pypi/opspan@0.1.0", "dependsOn": references}]
    assert not {"serialNumber", "timestamp"} & {*document, *document["metadata"]}, "two builds would differ"
