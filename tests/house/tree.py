"""Helpers for tests of the house rules: the files in git, the modules of opspan, their imports."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SOURCE = REPO / "src"


@cache
def files(*patterns: str) -> tuple[Path, ...]:
    """Tracked files and new ones that git does not ignore, matching any pattern."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout.split("\0")
    return tuple(sorted(path for name in set(names) if name and (path := REPO / name).is_file()))


def modules() -> tuple[Path, ...]:
    return files("src/opspan/*.py")


@cache
def module_names() -> frozenset[str]:
    return frozenset(module_name(path) for path in modules())


@cache
def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    """opspan.readers.capture -> readers; opspan -> opspan, the face."""
    return module.split(".")[1] if "." in module else module


@dataclass(frozen=True)
class Import:
    where: str  # file:line
    target: str  # absolute dotted name of the module
    deferred: bool  # inside a function (paid for when it is called), or for type checkers only (never)
    is_for_types: bool  # the latter


def _inside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    for outer in ast.walk(tree):
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ast.walk(outer)


def _for_types(tree: ast.Module) -> Iterator[ast.AST]:
    for outer in ast.walk(tree):
        if isinstance(outer, ast.If) and ast.unparse(outer.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for inner in outer.body:
                yield from ast.walk(inner)


@cache
def imports(path: Path) -> tuple[Import, ...]:
    known = module_names()
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {id(node) for node in _for_types(tree)}
    deferred = for_types | {id(node) for node in _inside_functions(tree)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from opspan.readers import capture` names a module, `from opspan.errors import X` a thing in one
            named = [f"{origin}.{alias.name}" for alias in node.names]
            targets = [name if name in known else origin for name in named]
        else:
            continue
        where = f"{path.relative_to(REPO)}:{node.lineno}"
        when = id(node) in deferred, id(node) in for_types
        found += [Import(where, target, *when) for target in dict.fromkeys(targets)]
    return tuple(found)
