"""The packages in pyproject.toml are those that the code uses: no more, no less."""

from __future__ import annotations

import ast
import re
import sys
from typing import Any

from house.tree import REPO, imports, modules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it


MODULES = {"protobuf": "google", "pyroscope_io": "pyroscope"}  # packages whose module has another name


def project() -> dict[str, Any]:
    return tomllib.loads((REPO / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", requirement)[0].lower().replace("-", "_") for requirement in requirements}  # type: ignore[index]


def third_party() -> set[str]:
    found = (one for path in modules() for one in imports(path) if not one.is_for_types)
    return {one.target.split(".")[0] for one in found} - set(sys.stdlib_module_names) - {"opspan"}


def strings() -> set[str]:
    """Packages may also be found by name: find_spec("ittapi")."""
    nodes = (node for path in modules() for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_everything_imported_is_declared() -> None:
    extras = project()["optional-dependencies"]
    declared = names(project()["dependencies"])
    for extra in ("torch", "tensorboard", "excel", "pprof", "pyroscope", "remote", "dask"):
        declared |= names(extras[extra])
    assert third_party() <= {MODULES.get(name, name) for name in declared}


def test_everything_declared_is_used() -> None:
    unused = names(project()["dependencies"]) - third_party() - strings()
    assert not unused, f"declared in pyproject.toml and used nowhere: {unused}"


def test_every_dependency_gives_its_reason() -> None:
    text = (REPO / "pyproject.toml").read_text()
    block = text.split("\ndependencies = [\n")[1].split("\n]")[0]
    silent = [line for line in block.splitlines() if "#" not in line]
    assert not silent, silent
