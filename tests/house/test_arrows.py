"""The arrows between the rooms: rooms.py has them, and docs/architecture.md shows them."""

from __future__ import annotations

import re
import subprocess
import sys

from house.rooms import ROOMS
from house.tree import Import, files, imports, module_name, module_names, modules, room
from opspan.sources import SOURCES


def ours(room_name: str) -> list[tuple[str, Import]]:
    """(importing module, import) for what a room imports of opspan."""
    return [
        (module_name(path), found)
        for path in modules()
        if room(module_name(path)) == room_name
        for found in imports(path)
        if found.target.split(".")[0] == "opspan"
        if room_name != "opspan" or not found.is_for_types  # to type checkers the face names everything
    ]


def test_every_room_is_in_the_table() -> None:
    rooms = {room(module_name(path)) for path in modules()}
    assert rooms <= set(ROOMS), "a room that the table of arrows does not know"


def test_rooms_import_only_what_their_arrows_allow() -> None:
    wrong = [
        f"{found.where}: {name} imports {found.target}"
        for name, allowed in ROOMS.items()
        for _, found in ours(name)
        if room(found.target) not in allowed | {name}
    ]
    assert not wrong, "\n".join(wrong)


def test_readers_do_not_import_each_other() -> None:
    # Code that several readers need is in a module beside them; the registry imports readers by name.
    readers = {source.name for source in SOURCES}
    wrong = [
        f"{found.where}: {module} imports {found.target}"
        for module, found in ours("readers")
        if (target := found.target.split(".")[2:3]) and target[0] in readers
        if module.split(".")[2:3] != target
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_in_a_circle() -> None:
    # Late imports count: what goes round in a circle is one thing in several files. To type checkers, opspan names all.
    known = module_names()
    needs = {
        module_name(path): {
            found.target
            for found in imports(path)
            if found.target in known - {module_name(path)}
            if module_name(path) != "opspan" or not found.is_for_types
        }
        for path in modules()
    }
    while free := {name for name, others in needs.items() if not others & needs.keys()}:
        for name in free:
            del needs[name]
    assert not needs, "\n".join(f"{name}: {sorted(others & needs.keys())}" for name, others in needs.items())


def test_emit_reads_nothing_but_a_finished_capture_and_only_then() -> None:
    # A user's program must not pay for polars, which trace and readers are made of, before it asks for rec.trace.
    wrong = [
        f"{found.where}: {module} imports {found.target}" + ("" if found.deferred else " at module level")
        for module, found in ours("emit")
        if room(found.target) in ("loading", "trace", "events")
        if not found.deferred
    ]
    assert not wrong, "\n".join(wrong)


def test_torch_is_imported_by_emit_and_profiler_alone() -> None:
    # and, when they are called, by to_torch(), which makes torch's own objects, and by the demo, which trains a model
    wrong = [
        f"{found.where}: imports {found.target}"
        for path in modules()
        if room(module_name(path)) not in ("emit", "profiler")
        for found in imports(path)
        if found.target.split(".")[0] == "torch"
        if module_name(path) not in ("opspan.events.to_torch", "opspan.app.demo") or not found.deferred
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_observer_includes_torch() -> None:
    include = re.compile(r'^#include [<"](ATen|c10|torch)/', re.MULTILINE)
    including = [path for path in files("native/*.h", "native/*.cpp") if include.search(path.read_text())]

    assert including, "the observer itself must be among them"
    assert {path.parent.name for path in including} == {"observer"}, including


def loaded_after(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint('\\n'.join({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def test_import_opspan_is_cheap() -> None:
    loaded = loaded_after("import opspan")

    assert "opspan" in loaded
    assert not loaded & {"torch", "polars", "numpy", "click", "rich", "nvtx", "ittapi"}


def test_help_needs_neither_torch_nor_polars() -> None:
    loaded = loaded_after("from opspan.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass")

    assert "opspan" in loaded
    assert not loaded & {"torch", "polars", "numpy"}
