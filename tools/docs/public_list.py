"""Makes docs/public.json: the names that opspan keeps (docs/stability.md), and which of them changed since the release.

    {"release": "0.1.0",                    the last release; null before the first
     "changed": {"opspan.load": "(path)"},  per name that differs from that release, its text then; null: it is new
     "names": {"python": {"opspan.load": "(path, strict)", ...}, ...}}

The text beside a name is what a user relies on: a signature, the values of an option, the type of a column. A test asks
for a line in CHANGELOG.md for each name in `changed`. For this it needs neither a network nor the history of git.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from opspan.analysis.kernel_rows import COLUMNS
from opspan.cli import main
from opspan.findings import RULES
from opspan.readers.capture.layout import VERSION
from opspan.tables.issues import CODES
from opspan.tables.schema import TABLES
from opspan.views import answer, table
from opspan.views.database import ABOUT, TABLES_IN_ORDER, VIEWS

REPO = Path(__file__).resolve().parents[2]
PATH = REPO / "docs" / "public.json"
# The modules whose names are public. All but `errors` have an __all__.
MODULES = (
    "opspan",
    *(f"opspan.{name}" for name in "analysis autograd_profiler errors itt nvtx profiler views".split()),
)
UNRELEASED = "not released yet"  # the end of the title of a section in CHANGELOG.md that is still written

Names = dict[str, dict[str, str]]


def names() -> Names:
    """Returns the public names of the code, by kind."""
    return {
        "python": dict(_of_python()),
        "command line": dict(_of_command_line()),
        "columns": dict(_of_columns()),
        "database": dict(_of_database()),
        "json": dict(_of_json((REPO / "docs" / "json.md").read_text(encoding="utf-8"))),
        "issues": {code: CODES[code].severity for code in sorted(CODES)},
        "findings": {rule.id: "" for rule in sorted(RULES, key=lambda rule: rule.id)},
        "formats": {"capture": f"version {VERSION}"},
    }


def text(*, is_release: bool = False) -> str:
    """Returns the content of docs/public.json. With `is_release`, the names of now become those of the release."""
    return written(updated(recorded(), names(), release=last_release(changelog()) if is_release else None))


def recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return document


def written(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def changelog() -> str:
    return (REPO / "CHANGELOG.md").read_text(encoding="utf-8")


# --- what changed


def updated(before: dict[str, Any], now: Names, release: str | None = None) -> dict[str, Any]:
    """Returns the recorded document with the names of now. `changed` still compares with the last release.

    A `release` makes the names of now those of the release, so that nothing has changed since.
    """
    if release is not None:
        return {"release": release, "changed": {}, "names": now}
    then: dict[str, str | None] = {**flat(before["names"]), **before["changed"]}
    released = {name: value for name, value in then.items() if value is not None}
    return {"release": before["release"], "changed": changes(released, flat(now)), "names": now}


def changes(before: dict[str, str], after: dict[str, str]) -> dict[str, str | None]:
    """Returns each name that is new, gone or different, with its text before; None if it is new."""
    differing = {name for name, _ in before.items() ^ after.items()}
    return {name: before.get(name) for name in sorted(differing)}


def flat(by_kind: Names) -> dict[str, str]:
    """Returns all names in one dict. A name of several kinds (a column of a frame and of the database) is one name."""
    texts: dict[str, list[str]] = {}
    for kind in by_kind.values():
        for name, value in kind.items():
            texts.setdefault(name, []).append(value)
    return {name: "; ".join(values) for name, values in texts.items()}


def difference(then: Names, now: Names) -> list[str]:
    """Returns a line for each name that differs from what is recorded."""
    after = flat(now)
    return [
        f"new: {name} {after[name]}"
        if before is None
        else f"gone: {name} {before}"
        if name not in after
        else f"changed: {name} from {before} to {after[name]}"
        for name, before in changes(flat(then), after).items()
    ]


# --- what CHANGELOG.md says


def sections(changelog: str) -> list[tuple[str, str]]:
    """Returns the title and the text of each section of a version, the newest first."""
    parts = re.split(r"^## (.*)$", changelog, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def last_release(changelog: str) -> str | None:
    """Returns the newest version whose section is finished; None before the first release."""
    finished = [title for title, _ in sections(changelog) if UNRELEASED not in title]
    return finished[0].split(",")[0].strip() if finished else None


def unnamed(changed: dict[str, str | None], changelog: str) -> list[str]:
    """Returns the changed names that the section of the next version does not name, in backquotes and in full."""
    title, newest = sections(changelog)[0]
    said = newest if UNRELEASED in title else ""
    return [name for name in changed if not re.search(rf"`{re.escape(name)}[`( =]", said)]


# --- the names


def _of_python() -> Iterator[tuple[str, str]]:
    import griffe

    package: Any = griffe.load("opspan", search_paths=[REPO / "src"], allow_inspection=False)
    first_names: dict[str, str] = {}  # by the path of a definition, the public name that has its members
    for module in MODULES:
        for name in _listed(module):
            public = f"{module}.{name}"
            thing = package[public.removeprefix("opspan.")]
            if thing.is_alias:
                try:
                    thing = thing.final_target
                except griffe.AliasResolutionError:
                    yield public, thing.target_path  # a name of torch, passed on
                    continue
            if thing.is_module and name in thing.members:
                thing = thing.members[name]  # a function that is called as the module which defines it
            if thing.is_module:
                yield public, "module"
            elif (first := first_names.setdefault(thing.path, public)) != public:
                yield public, f"the same as {first}"
            else:
                yield from _entries(public, thing)


def _listed(module: str) -> list[str]:
    from importlib import import_module

    found = import_module(module)
    own = [name for name, value in vars(found).items() if getattr(value, "__module__", "") == module]
    return sorted(name for name in getattr(found, "__all__", own) if not name.startswith("_"))


def _entries(name: str, thing: Any) -> Iterator[tuple[str, str]]:
    if thing.is_function:
        yield name, _call(thing)
    elif thing.is_attribute:
        yield name, str(thing.annotation or "")
    else:
        bases = ", ".join(map(str, thing.bases))
        constructor = thing.all_members.get("__init__")
        call = _call(constructor) if constructor is not None and constructor.is_function else ""
        yield name, f"class({bases}) {call}".rstrip()
        for member in sorted(set(thing.all_members)):
            found = thing.all_members[member]
            found = found.final_target if found.is_alias else found
            if not member.startswith("_") and _is_kept(name, thing, found):
                yield from _entries(f"{name}.{member}", found)


def _is_kept(name: str, class_: Any, member: Any) -> bool:
    """Returns whether docs/stability.md promises to keep a member of a class."""
    if name.startswith("opspan.analysis."):
        return False
    if name.startswith(("opspan.autograd_profiler.", "opspan.profiler.")):
        return True  # programs that were written for torch read torch's attributes, too
    is_field = member.is_attribute and "class-attribute" in member.labels
    return bool(member.docstring) or (is_field and bool(member.annotation or "enum.Enum" in map(str, class_.bases)))


def _call(function: Any) -> str:
    call = str(function.signature(name="call", return_type=True)).removeprefix("call")
    return re.sub(r"^\((self|cls)(, )?", "(", call)


def _of_command_line() -> Iterator[tuple[str, str]]:
    context = click.Context(main, info_name="opspan")
    verbs = {"": main, **{verb: main.get_command(context, verb) for verb in main.list_commands(context)}}
    for verb, command in sorted(verbs.items()):
        name = f"opspan {verb}".rstrip()
        yield name, ""
        for parameter in command.params if command else ():
            if getattr(parameter, "hidden", False):
                continue
            if isinstance(parameter, click.Option):
                options = sorted(
                    [*parameter.opts, *parameter.secondary_opts], key=lambda option: (-len(option), option)
                )
                yield f"{name} {options[0]}", " ".join([*options[1:], *_takes(parameter)])
            else:
                yield f"{name} {parameter.human_readable_name}", " ".join(_takes(parameter))


def _takes(parameter: click.Parameter) -> Iterator[str]:
    """Yields words for what an option or argument takes."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        yield "flag"
    elif isinstance(parameter.type, click.Choice):
        yield "|".join(map(str, parameter.type.choices))
    else:
        yield parameter.type.name
    if parameter.nargs != 1:
        yield f"nargs={parameter.nargs}"
    if getattr(parameter, "multiple", False):
        yield "multiple"
    if parameter.required:
        yield "required"


def _of_columns() -> Iterator[tuple[str, str]]:
    for model in TABLES.values():
        for column in model.columns:
            yield f"{model.name}.{column.name}", f"{column.dtype} {column.unit}".rstrip()
    for column in COLUMNS:
        yield f"kernels.{column.name}", f"{column.dtype} {column.unit}".rstrip()


def _of_database() -> Iterator[tuple[str, str]]:
    for view in VIEWS:
        yield view.name, "view"
    for stored in (*TABLES_IN_ORDER, ABOUT):
        for column in stored.columns:
            yield f"{stored.name}.{column.name}", column.unit


def _of_json(page: str) -> Iterator[tuple[str, str]]:
    """Yields the fields of docs/json.md, which a test compares with what the command line prints."""
    yield "table.schema", str(table.SCHEMA)
    yield "answer.schema", str(answer.SCHEMA)
    for title, content in re.findall(r"^#+ (.*)\n((?:(?!#).*\n)*)", page, re.MULTILINE):
        first, *others = title.lower().split()
        place = "table" if first == "by" or others else {"answers": "answer"}.get(first, first)
        for row in re.findall(r"^\| (`[^|]*) \|", content, re.MULTILINE):
            for field in re.findall(r"`(\w+)`", row):
                if field != "schema":
                    yield f"{place}.{field}", ""
