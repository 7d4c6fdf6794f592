"""Finds the files of a result: its database, its descriptor, the collector's options, its containers, and the facts
that it has about the machine.

r000hs/  r000hs.vtune (r000hs.amplxe before 2018)      XML: product, host, times
         config/runss.options                          one option on each line; after `--` the program and its arguments
         config/context_values.cfg                     XML: what VTune knows about the machine
         sqlite-db/dicer.db                            written by `vtune -finalize`
         sqlite-db/pmu_data/container.metadata         a table with rows outside SQLite
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from opspan.errors import NotATrace, NotReadable
from opspan.files import open_file
from opspan.formats.budget import DESCRIPTION
from opspan.formats.sqlite import is_sqlite
from opspan.printable import shell_path
from opspan.tables import Issues

SUFFIXES = (".vtune", ".amplxe")
DATABASE = Path("sqlite-db", "dicer.db")
CONTAINER = "container.metadata"
MACHINE = Path("config", "context_values.cfg")
PROGRAM = "--"  # the program and its arguments follow this option


@dataclass(frozen=True)
class ResultFiles:
    database: Path
    shown: str  # the path that the user gave, for messages
    facts: Mapping[str, str] = field(default_factory=dict)  # tag -> text, from the descriptor
    machine: Mapping[str, str] = field(default_factory=dict)  # id -> value, from MACHINE
    options: tuple[str, ...] = ()  # the collector's options
    command: tuple[str, ...] = ()  # the program and its arguments
    containers: tuple[Path, ...] = ()  # the folders of tables with rows outside SQLite

    @property
    def command_line(self) -> str | None:
        return shlex.join(self.command) or None


def is_result(folder: Path) -> bool:
    return folder.joinpath(DATABASE.parent).is_dir() or _descriptor(folder) is not None


def is_descriptor(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<?xml") and b"<rdmgr>" in head


def find(path: Path, shown: str, issues: Issues) -> ResultFiles:
    """Returns the files of a result. The path is its folder, its descriptor, or its database, even if the database is
    not in a result folder."""
    folder = _folder(path)
    if folder is None:
        return ResultFiles(path, shown)
    database = folder / DATABASE
    if not database.is_file():
        command_line = f"`vtune -finalize -r {shell_path(folder)}`"
        raise NotReadable(f"{shown} is a result that is not finalised: it has no {DATABASE}; run {command_line}")
    options, command = _collector(folder)
    containers = tuple(sorted(file.parent for file in database.parent.glob(f"*/{CONTAINER}")))
    facts, machine = _facts(folder, issues), _machine(folder, issues)
    return ResultFiles(database, shown, facts, machine, options, command, containers)


def _folder(path: Path) -> Path | None:
    """Returns the folder of the result; None for a database without a result folder."""
    if path.is_dir():
        if not is_result(path):
            raise NotATrace(f"{path} is not a result of VTune: it has neither *.vtune, *.amplxe nor {DATABASE.parent}")
        return path
    head = first_bytes(path)
    if is_descriptor(head):
        return path.parent
    if not is_sqlite(head):
        raise NotATrace(
            f"{path} is not a file of VTune that opspan reads; expected a result folder, its .vtune file, its "
            f"{DATABASE}, an archive of it, or an interval CSV"
        )
    around = path.absolute().parent.parent
    return around if path.absolute() == around / DATABASE and is_result(around) else None


def first_bytes(path: Path, count: int = 4096) -> bytes:
    try:
        with open_file(path) as stream:
            return stream.read(count)
    except OSError as error:
        raise NotReadable(f"cannot read {path}: {error.strerror}") from error


def _descriptor(folder: Path) -> Path | None:
    return min((file for file in folder.iterdir() if file.suffix in SUFFIXES and file.is_file()), default=None)


def _facts(folder: Path, issues: Issues) -> dict[str, str]:
    """Returns the text of each tag of the descriptor (`<rdmgr><hostname type="string">node7</hostname> ...`)."""
    file = _descriptor(folder)
    leaves = (node for node in _nodes(file, issues) if node.text and node.text.strip()) if file is not None else ()
    return {node.tag: " ".join((node.text or "").split()) for node in leaves}


def _machine(folder: Path, issues: Issues) -> dict[str, str]:
    """Returns the texts among the facts (`<contextValue id="PMU" value="skylake_server"/>`). Numbers have an attribute
    of another name."""
    file = folder / MACHINE
    nodes = _nodes(file, issues) if file.is_file() else ()
    return {node.get("id") or "": node.get("value") or "" for node in nodes if node.tag == "contextValue"}


def _nodes(file: Path, issues: Issues) -> list[ElementTree.Element]:
    """Returns all nodes of an XML file; none if it is damaged."""
    raw = _text(file)
    try:
        # VTune writes no declarations (<!...>). A file with declarations is not read, because entities can make a small
        # file huge.
        if "<!" in raw.replace("<!--", ""):
            raise ElementTree.ParseError("it has declarations")
        return list(ElementTree.fromstring(raw).iter())
    except (ElementTree.ParseError, ValueError) as error:
        issues.add("damaged_file", detail=f"{file.name} ({error})")
        return []


def _collector(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the collector's options, and the program with its arguments."""
    options: list[str] = []
    command: tuple[str, ...] = ()
    for file in sorted(folder.glob("config/*.options")):
        lines = _text(file).splitlines()
        end = lines.index(PROGRAM) if PROGRAM in lines else len(lines)
        options += lines[:end]
        command = command or tuple(lines[end + 1 :])
    return tuple(options), command


def _text(file: Path) -> str:
    try:
        return DESCRIPTION.read(file).decode("utf-8", "replace")
    except OSError as error:
        raise NotReadable(f"cannot read {file}: {error.strerror}") from error


def collects_tasks(options: tuple[str, ...]) -> bool | None:
    """Returns whether the collector's options request the program's tasks; None without options in the result."""
    if not options:
        return None
    types = [option for option in options if re.match(r"--(itt-config|type)=", option)]
    return any(re.search(r"[=,:]task\b", option) for option in types)
