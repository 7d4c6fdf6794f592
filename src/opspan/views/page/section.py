"""What a section is made of, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opspan.analysis import Analysed
from opspan.views.findings import files_text

EDITOR = "vscode://file/{file}:{line}"


@dataclass(frozen=True)
class Subject:
    """What a page is about."""

    found: Analysed
    files: tuple[Path, ...] = ()
    other: Analysed | None = None  # what it is compared to
    other_files: tuple[Path, ...] = ()
    editor: str = EDITOR  # how the address of a line of source is made

    @property
    def typed(self) -> str:
        """The files as they are typed behind a command."""
        return files_text(self.files)


@dataclass(frozen=True)
class Section:
    """`data` is JSON for src/page/sections/NAME.ts. Where there is none, `why` says so in a sentence, and `command` is
    what would fill the section."""

    title: str
    data: dict[str, Any] | None
    why: str = ""
    command: str = ""
