"""Writes the bill of materials of a build: CycloneDX 1.6, the foreign code that is in the libraries and in the page.

CMake runs this script; opspan does not. The file becomes *.dist-info/sboms/opspan.cdx.json of the wheel (PEP 770). It
has no time and no random number, so that the same sources give the same bytes. What opspan only needs at run time is
not in it: the metadata of the wheel lists that.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

# The heading of each package in LICENSES.txt, which src/page/build.mjs writes.
PACKAGE = re.compile(r"(?:\A|^-{80}\n\n)(\S+) (\S+) \((.+)\)$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--version", required=True, help="of opspan")
    parser.add_argument("--compiler", required=True, help="the C++ compiler")
    parser.add_argument("--flags", default="", help="its flags, as in $CXXFLAGS")
    parser.add_argument("--nvtx", required=True, type=Path, help="the folder that has nvtx3/")
    parser.add_argument("--page", type=Path, help="the folder of the built page; without it the page is not listed")
    options = parser.parse_args()
    command = [
        options.compiler,
        *shlex.split(options.flags),
        "-x",
        "c++",
        "-std=c++20",
        "-dM",
        "-E",
        "-include",
        "version",
        "/dev/null",
    ]
    macros = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    components = [*runtime(macros), nvtx(options.nvtx)]
    licences = options.page / "LICENSES.txt" if options.page else None
    if licences and licences.is_file():  # it is not there if the page could not be built
        components += packages(licences.read_text(encoding="utf-8"))
    options.out.write_text(json.dumps(document(options.version, components), indent=1) + "\n", encoding="utf-8")


def document(version: str, components: list[dict[str, Any]]) -> dict[str, Any]:
    opspan = component("opspan", version, "Apache-2.0", f"pkg:pypi/opspan@{version}")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": opspan},
        "components": components,
        "dependencies": [{"ref": opspan["bom-ref"], "dependsOn": [one["bom-ref"] for one in components]}],
    }


def component(name: str, version: str, licence: str, purl: str, description: str = "") -> dict[str, Any]:
    found = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return {
        **found,
        **({"description": description} if description else {}),
        "licenses": [{"expression": licence}],
    }


def runtime(macros: str) -> list[dict[str, Any]]:
    """Returns the C++ runtime, which is linked in. `macros` are those that the compiler and its <version> define."""
    found = dict(re.findall(r"^#define (\w+) (.*)$", macros, re.MULTILINE))
    if "_LIBCPP_VERSION" in found:
        return [of_runtime("libc++", found["_LIBCPP_VERSION"], "Apache-2.0 WITH LLVM-exception")]
    version = found["_GLIBCXX_RELEASE"]  # clang uses a libstdc++ of which only this number is known
    if "__clang__" not in found:
        version = ".".join(found[name] for name in ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"))
    licence = "GPL-3.0-or-later WITH GCC-exception-3.1"
    return [of_runtime(name, version, licence) for name in ("libstdc++", "libgcc")]


def of_runtime(name: str, version: str, licence: str) -> dict[str, Any]:
    return component(name, version, licence, f"pkg:generic/{quote(name)}@{version}", "linked into the native libraries")


def nvtx(folder: Path) -> dict[str, Any]:
    """Returns the NVTX headers, whose code is compiled in. They have a licence of their own, unlike their package."""
    header = (folder / "nvtx3" / "nvToolsExt.h").read_text(encoding="utf-8")
    licence = re.search(r"SPDX-License-Identifier: (.*)", header)
    if licence is None:
        raise SystemExit(f"sbom: {folder}/nvtx3/nvToolsExt.h names no licence; expected a line SPDX-License-Identifier")
    version = re.search(r"^#define NVTX_VERSION (\d+)", header, re.MULTILINE)
    number = version[1] if version else ""
    try:
        package = distribution("nvidia-nvtx")
        if folder.resolve().is_relative_to(Path(str(package.locate_file(""))).resolve()):
            number = package.version
    except PackageNotFoundError:
        pass  # the headers came with a toolkit: their own number is what is known
    text = "headers only, compiled into the native libraries"
    return component("nvidia-nvtx", number, licence[1].strip(), f"pkg:pypi/nvidia-nvtx@{number}", text)


def packages(licences: str) -> list[dict[str, Any]]:
    """Returns the packages of npm that are bundled in the page."""
    return [
        component(name, version, licence, f"pkg:npm/{quote(name)}@{version}", "bundled in the page")
        for name, version, licence in PACKAGE.findall(licences)
    ]


if __name__ == "__main__":
    main()
