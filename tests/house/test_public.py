"""The names that docs/stability.md promises to keep: docs/public.json has them, CHANGELOG.md names those that changed.

No test here needs the history of git: docs/public.json says what each changed name was in the last release.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import click
import pytest

from house.tree import REPO
from opspan.cli import main

WHAT_TO_DO = "Run `python tools/docs`, then name each in backquotes in the first section of CHANGELOG.md"
CHANGELOG = """\
# Changelog

## 0.2.0, not released yet

- `opspan.load(depth=)` and
  `opspan run --depth N`.

## 0.1.0

- `ranges.depth`
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    pytest.importorskip("griffe", reason="docs/public.json is made with griffe: pip install 'opspan[test]'")
    sys.path.append(str(REPO / "tools" / "docs"))
    try:
        return import_module("public_list")
    finally:
        sys.path.remove(str(REPO / "tools" / "docs"))


@pytest.fixture(scope="module")
def recorded(tool: ModuleType) -> dict[str, Any]:
    return tool.recorded()


# --- what is so now


def test_public_names_change_only_with_a_record(tool: ModuleType, recorded: dict[str, Any]) -> None:
    differing = tool.difference(recorded["names"], tool.names())

    assert not differing, "\n".join(["public names differ from docs/public.json:", *differing, WHAT_TO_DO])


def test_the_changelog_names_what_changed(tool: ModuleType, recorded: dict[str, Any]) -> None:
    unnamed = tool.unnamed(recorded["changed"], tool.changelog())

    assert not unnamed, f"these changed since {recorded['release']}, and CHANGELOG.md does not say so: {unnamed}"


def test_the_record_is_of_the_last_release(tool: ModuleType, recorded: dict[str, Any]) -> None:
    released = tool.last_release(tool.changelog())

    assert recorded["release"] == released, "a release is recorded with `python tools/docs --release`"


def test_every_kind_of_name_is_recorded(recorded: dict[str, Any]) -> None:
    import opspan

    names = recorded["names"]
    verbs = main.list_commands(click.Context(main))
    assert {f"opspan.{name}" for name in opspan.__all__} <= set(names["python"])
    assert {f"opspan {verb}" for verb in verbs} <= set(names["command line"])
    assert names["python"]["opspan.Trace.idle"] == "(by: str = 'op') -> pl.DataFrame"
    assert names["command line"]["opspan idle --format"] == "text|json|csv"
    assert names["columns"]["ranges.start_ns"] == "Int64 ns"
    assert names["database"]["op_summary"] == "view"
    assert {"table.rows", "answer.notes", "coverage.links", "steps.how"} <= set(names["json"])


# --- that a change is found


def changed_names() -> dict[str, dict[str, str]]:
    return {"python": {"opspan.load": "(path, depth)"}, "command line": {"opspan run --depth": "integer"}}


OLD = {"python": {"opspan.load": "(path)", "opspan.gone": "()"}, "command line": {}}


def test_a_new_a_gone_and_a_changed_name_are_told(tool: ModuleType) -> None:
    assert tool.difference(OLD, OLD) == []
    assert tool.difference(OLD, changed_names()) == [
        "new: opspan run --depth integer",
        "gone: opspan.gone ()",
        "changed: opspan.load from (path) to (path, depth)",
    ]


def test_a_new_option_is_a_new_name(
    tool: ModuleType, recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = main.get_command(click.Context(main), "idle")
    assert command is not None
    monkeypatch.setattr(command, "params", [*command.params, click.Option(["--depth"], type=int)])
    monkeypatch.setattr(main, "get_command", lambda context, verb: command)

    now = {**recorded["names"], "command line": dict(tool._of_command_line())}
    assert "new: opspan idle --depth integer" in tool.difference(recorded["names"], now)


def test_what_changed_since_the_release_stays_until_the_next(tool: ModuleType) -> None:
    released = {"release": "0.1.0", "changed": {}, "names": OLD}

    once = tool.updated(released, changed_names())
    assert once["changed"] == {"opspan.gone": "()", "opspan.load": "(path)", "opspan run --depth": None}
    assert tool.updated(once, changed_names()) == once
    assert tool.updated(once, OLD) == released
    assert tool.updated(once, changed_names(), "0.2.0") == {"release": "0.2.0", "changed": {}, "names": changed_names()}


def test_a_name_is_named_in_full_and_by_the_next_version(tool: ModuleType) -> None:
    changed = {"opspan.load": None, "opspan run --depth": None, "opspan run --dep": None, "ranges.depth": None}

    assert tool.unnamed(changed, CHANGELOG) == ["opspan run --dep", "ranges.depth"]
    assert tool.unnamed(changed, CHANGELOG.replace(", not released yet", "")) == list(changed)
    assert tool.unnamed({}, CHANGELOG.replace(", not released yet", "")) == []


def test_the_last_release_is_the_newest_finished_section(tool: ModuleType) -> None:
    assert tool.last_release(CHANGELOG) == "0.1.0"
    assert tool.last_release("# Changelog\n\n## 0.1.0, not released yet\n") is None


def test_fields_of_json_are_those_of_the_page(tool: ModuleType) -> None:
    page = (
        "| `schema` | 1 |\n\n## Rows\n\n### by name\n\n| `count`, `cpu_ns` | both |\n\n### idle\n\n| `gaps` | `no` |\n"
    )
    fields = dict(tool._of_json(page))

    assert list(fields) == ["table.schema", "answer.schema", "table.count", "table.cpu_ns", "idle.gaps"]
