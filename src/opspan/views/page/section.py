"""The subject of a page, and the data of a section."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from typing import Any

import polars as pl

from opspan.addresses import File
from opspan.analysis import Analysis
from opspan.views.findings import files_text

_FAST = 6  # of zlib: 9 takes three times as long for 2 % less
EDITOR = "vscode://file/{file}:{line}"


@dataclass(frozen=True)
class Subject:
    """The trace that a page is about, and the run that it is compared with."""

    analysis: Analysis
    files: tuple[File, ...] = ()
    other: Analysis | None = None
    other_files: tuple[File, ...] = ()
    editor: str = EDITOR  # template of the address of a line of source

    @property
    def typed(self) -> str:
        """The files as they are typed after a command."""
        return files_text(self.files)


@dataclass(frozen=True)
class Section:
    """`data` is JSON for src/page/sections/NAME.ts. Without data, `why` is a sentence with the reason, and `command`
    would fill the section. `packed`: the data as it stands in the page, if the section had to measure its size."""

    title: str
    data: dict[str, Any] | None
    why: str = ""
    command: str = ""
    packed: str | None = None


def as_json(data: Any) -> str:
    """Writes JSON. `data` may also have columns of numbers, as values of dicts, and of dicts in lists."""
    if isinstance(data, pl.Series):
        return data.alias("").implode().to_frame().write_json().removeprefix('[{"":').removesuffix("}]")
    if isinstance(data, dict):
        return "{" + ",".join(f"{_plain(str(key))}:{as_json(value)}" for key, value in data.items()) + "}"
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return "[" + ",".join(map(as_json, data)) + "]"
    return _plain(data)


def _plain(data: Any) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def packed(data: dict[str, Any]) -> str:
    return base64.b64encode(zlib.compress(as_json(data).encode(), _FAST)).decode()
