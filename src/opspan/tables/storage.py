"""Saves a Trace as a folder with trace.json and a Parquet file per table, and reads the folder back exactly. If saving
fails, no part of the folder remains.

{"format": "opspan trace", "version": 1, "ranks": [{"source": "capture", ...}], "tables": {"ranges": 1234, ...}}
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PanicException, PolarsError

from opspan import private_files
from opspan.addresses import check_local
from opspan.errors import NotATrace, ReadError, TooNew, WriteError
from opspan.files import named_file, open_file
from opspan.printable import path_text
from opspan.tables import schema
from opspan.tables.metadata import Metadata, from_json
from opspan.tables.tables import Tables

INDEX = "trace.json"
FORMAT = "opspan trace"
VERSION = 1


def save(trace: Tables, folder: Path, *, overwrite: bool = False) -> None:
    replaced = os.path.lexists(check_local(folder))
    if replaced and not (overwrite and is_saved(folder)):
        what = (
            "exists and is not a saved trace" if not is_saved(folder) else "exists already (overwrite=True replaces it)"
        )
        raise WriteError(f"{path_text(folder)} {what}. Nothing was written: choose another name")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with private_files.unfinished(folder, overwrite=overwrite) as unfinished:
            write(trace, unfinished)
    except (OSError, PolarsError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise WriteError(f"cannot write {path_text(folder)}: {why}") from error


def write(trace: Tables, folder: Path) -> None:
    """Writes the tables, and trace.json, into a new folder."""
    folder.mkdir()
    for name, frame in trace.frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
    (folder / INDEX).write_text(json.dumps(_index(trace), indent=1), encoding="utf-8")


def is_saved(folder: Path) -> bool:
    try:
        return _read_index(folder).get("format") == FORMAT
    except (OSError, ValueError):
        return False


def load(folder: Path) -> Tables:
    try:
        index = _read_index(folder)
    except (OSError, ValueError) as error:
        raise NotATrace(f"{path_text(folder)} is not a saved trace: {error}") from error
    if index.get("format") != FORMAT:
        raise NotATrace(f'{path_text(folder)} is not a saved trace: its {INDEX} has no "format": "{FORMAT}"')
    version = index.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise TooNew(
            f"{path_text(folder)} is a saved trace of version {version}; this opspan reads up to {VERSION}: update it"
        )
    try:
        names = [name for name in index["tables"] if name in schema.TABLES]
        frames = {name: _read_table(folder / f"{name}.parquet") for name in names}
        return Tables(tuple(_metadata(rank) for rank in index["ranks"]), **frames)
    except (OSError, PolarsError, PanicException, KeyError, TypeError, ValueError) as error:
        # polars panics on some damaged Parquet files, and PanicException is not a subclass of Exception.
        raise ReadError(
            f"{path_text(folder)} is a saved trace, but damaged ({error}); save it again from its source"
        ) from error


def _read_table(path: Path) -> pl.DataFrame:
    with named_file(path) as open_path:
        return pl.read_parquet(open_path)


def _index(trace: Tables) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "ranks": [dataclasses.asdict(rank) for rank in trace.ranks],
        "tables": {name: frame.height for name, frame in trace.frames.items()},
    }


def _read_index(folder: Path) -> dict[str, Any]:
    with open_file(folder / INDEX) as stream:
        index = json.loads(stream.read().decode("utf-8"))
    if not isinstance(index, dict):
        raise ValueError(f"{INDEX} is not a JSON object")
    return index


def _metadata(rank: dict[str, Any]) -> Metadata:
    cycles = tuple(map(_metadata, rank.get("cycles", ())))
    return Metadata(**{**rank, "paths": tuple(rank["paths"]), "told": from_json(rank.get("told")), "cycles": cycles})
