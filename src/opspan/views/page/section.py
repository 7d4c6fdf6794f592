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

_FAST = 6  # level of zlib; level 9 takes three times as long, and saves only 2 % more
EDITOR = "vscode://file/{file}:{line}"


@dataclass(frozen=True)
class Subject:
    """The trace that a page is about, and the run that it is compared with."""

    analysis: Analysis
    files: tuple[File, ...] = ()
    other: Analysis | None = None
    other_files: tuple[File, ...] = ()
    editor: str = EDITOR  # template for a link that opens a source line in an editor

    @property
    def typed(self) -> str:
        """The files as they are typed in a command."""
        return files_text(self.files)


@dataclass(frozen=True)
class Section:
    """A section of a page. `data` becomes the JSON for src/page/sections/NAME.ts. Without data, `why` is a sentence
    with the reason, and `command` is a command that would provide the data. `packed` is the data as it is stored in the
    page; it is set only if the section had to measure the size of the
    data."""

    title: str
    data: dict[str, Any] | None
    why: str = ""
    command: str = ""
    packed: str | None = None


def as_json(data: Any) -> str:
    """Returns `data` as JSON. A polars column of numbers may be a value of a dict, or of a dict in a list."""
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
