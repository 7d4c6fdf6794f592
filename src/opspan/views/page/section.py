"""What a section is made of, and what it gives."""

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
    """What a page is about."""

    found: Analysis
    files: tuple[File, ...] = ()
    other: Analysis | None = None  # what it is compared to
    other_files: tuple[File, ...] = ()
    editor: str = EDITOR  # how the address of a line of source is made

    @property
    def typed(self) -> str:
        """The files as they are typed behind a command."""
        return files_text(self.files)


@dataclass(frozen=True)
class Section:
    """`data` is JSON for src/page/sections/NAME.ts. Where there is none, `why` says so in a sentence, and `command` is
    what would fill the section. `packed`: the data as it stands in the page, from whoever had to know how large that
    is."""

    title: str
    data: dict[str, Any] | None
    why: str = ""
    command: str = ""
    packed: str | None = None


def as_json(data: Any) -> str:
    """`data`: what JSON knows, and in dicts and in lists of dicts columns of numbers, too."""
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
