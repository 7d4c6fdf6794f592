"""docs/profiler.md says of every public name and argument of torch's profilers what opspan does with it."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

# Older versions of torch have fewer arguments, and others, than the tables, which are about 2.13 and newer ones.
IS_OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
not_old = pytest.mark.skipif(IS_OLD, reason="the arguments are those of torch 2.13 and newer")
PAGE = Path(__file__).parents[2] / "docs" / "profiler.md"
HERE = {"torch.profiler": "opspan.profiler", "torch.autograd.profiler": "opspan.autograd_profiler"}
VERDICTS = {"torch's own", "same", "differs", "absent"}
# Arguments of newer versions of torch. They may be given by position.
NEWER = {"include_python_functions"}


class Row(NamedTuple):
    module: str
    name: str
    verdict: str
    further: frozenset[str]


def rows() -> list[Row]:
    section = PAGE.read_text().partition("## Every name and argument\n")[2].partition("\n## ")[0]
    found = []
    for part in section.split("\n### ")[1:]:
        module = part.partition("\n")[0]
        for line in re.findall(r"^\| `.*$", part, re.MULTILINE):
            name, verdict, further, _ = (cell.strip() for cell in line.strip("|").split(" |")[:4])
            found.append(Row(module, name.strip("` "), verdict, frozenset(re.findall(r"`(\w+)`", further))))
    return found


ROWS = rows()
BY_NAME = {(row.module, row.name): row for row in ROWS}


def pair(module: str, name: str) -> tuple[Any, Any]:
    """Returns torch's object and opspan's; None for one that there is not."""
    objects: list[Any] = [importlib.import_module(module), importlib.import_module(HERE[module])]
    for part in name.split("."):
        objects = [getattr(one, part, None) for one in objects]
    return objects[0], objects[1]


def parameters(function: Any) -> dict[str, inspect.Parameter] | None:
    """Returns none for classes and functions that do not tell their arguments."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def differences(theirs: Any, ours: Any, further: frozenset[str]) -> list[str]:
    """Returns what is not the same about the arguments of two functions, except for the further ones of ours."""
    before, after = parameters(theirs), parameters(ours)
    if before is None or after is None or any(one.kind is one.VAR_KEYWORD for one in before.values()):
        return []
    found = [f"lacks {name}" for name in before if name not in after]
    common = [name for name in after if name in before]
    if common != [name for name in before if name in after]:
        found.append("has another order")
    for name in common:
        # An argument that can only be given by position in torch may be given by name as well.
        kind = after[name].kind if before[name].kind is inspect.Parameter.POSITIONAL_ONLY else before[name].kind
        if (kind, before[name].default) != (after[name].kind, after[name].default):
            found.append(f"{name}: {before[name]}, here {after[name]}")
    for name in after.keys() - before.keys():
        if name not in further:
            found.append(f"has {name} as well")
        elif after[name].kind is not inspect.Parameter.KEYWORD_ONLY and name not in NEWER:
            found.append(f"{name} can be given by position")
    return found


@pytest.mark.parametrize("module", HERE)
def test_every_name_of_torch_is_in_the_table(module: str) -> None:
    names = set(importlib.import_module(module).__all__)
    assert names - {row.name for row in ROWS if row.module == module} == set()


@not_old
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.module}.{row.name}")
def test_a_row_says_what_is_so(row: Row) -> None:
    theirs, ours = pair(row.module, row.name)
    assert row.verdict in VERDICTS
    if theirs is None:
        pytest.skip(f"this torch has no {row.name}")
    assert (ours is None) == (row.verdict == "absent")
    assert (ours is theirs) == (row.verdict == "torch's own")
    if row.verdict == "same":
        assert differences(theirs, ours, row.further) == []


@not_old
@pytest.mark.parametrize(
    "row", [row for row in ROWS if "." not in row.name], ids=lambda row: f"{row.module}.{row.name}"
)
def test_every_method_of_a_class_is_the_same_or_in_the_table(row: Row) -> None:
    theirs, ours = pair(row.module, row.name)
    if not inspect.isclass(theirs) or theirs is ours:
        return
    found = {}
    for member in dir(theirs):
        if member.startswith("_") or (row.module, f"{row.name}.{member}") in BY_NAME:
            continue
        if not hasattr(ours, member):
            found[member] = ["is absent"]
        elif callable(getattr(theirs, member)):
            found[member] = differences(getattr(theirs, member), getattr(ours, member), row.further)
    assert {member: what for member, what in found.items() if what} == {}


def test_actions_equal_torchs() -> None:
    theirs, ours = pair("torch.profiler", "ProfilerAction")
    assert set(theirs.__members__) <= set(ours.__members__)
    for name, member in theirs.__members__.items():
        assert ours[name] == member
        assert hash(ours[name]) == hash(member)
