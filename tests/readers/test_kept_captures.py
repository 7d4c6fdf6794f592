"""Captures that are kept (tests/kept_captures.py) are read as they were when they were recorded."""

from __future__ import annotations

import gzip
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from kept_captures import FOLDER, expected_of, read
from opspan.readers.capture.layout import VERSION

FIRST = 5  # the version of the format when captures began to be kept
MOST_BYTES = 30_000
KEPT = sorted(FOLDER.glob("*.opspan.gz"))


def version_of(path: Path) -> int:
    return int(re.search(r"-version-(\d+)\.opspan\.gz$", path.name)[1])  # type: ignore[index]


def in_one_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def test_every_version_has_captures() -> None:
    versions = {version_of(path) for path in KEPT}

    assert versions == set(range(FIRST, VERSION + 1)), "python tests/kept_captures.py records those of this version"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_a_kept_capture_is_small_and_of_its_version(path: Path) -> None:
    head = gzip.decompress(path.read_bytes())[:12]

    assert path.stat().st_size < MOST_BYTES
    assert head[:8] == b"OPSPANCP"
    assert struct.unpack_from("<I", head, 8) == (version_of(path),)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_a_kept_capture_is_read_as_before(path: Path, tmp_path: Path) -> None:
    expected = json.loads(expected_of(path).read_text(encoding="utf-8"))

    found = read(path, tmp_path)

    # Later versions may add columns and members, but all that was there has to stay.
    assert {name: found["metadata"].get(name) for name in expected["metadata"]} == expected["metadata"]
    assert set(expected["tables"]) <= set(found["tables"])
    for name, table in expected["tables"].items():
        assert set(table["columns"]) <= set(found["tables"][name]["columns"])
        rows = [
            {column: row[column] for column in table["columns"] if column in row}
            for row in found["tables"][name]["rows"]
        ]
        assert in_one_order(rows) == in_one_order(table["rows"]), name


def test_the_first_kept_captures_have_what_their_programs_did(tmp_path: Path) -> None:
    def names(program: str, table: str) -> set[str]:
        found = read(FOLDER / f"{program}-version-{FIRST}.opspan.gz", tmp_path)
        return {row.get("name", "") for row in found["tables"][table]["rows"]}

    assert {"all of it", "loss", "aten::linear", "AddmmBackward0", "Sequential.0"} <= names("training", "ranges")
    assert {"program.py(5): outer", "program.py(8): inner"} <= names("functions", "functions")
    assert names("ranges", "ranges") == {"outer", "in a thread", "a mark", "of two calls", "a task", "overlapped"}
