"""docs/formats/capture.md, native/capture/format.h and the tests' decoder say the same."""

from __future__ import annotations

import re
from pathlib import Path

from builders import capture_units
from collectors.running import NATIVE, compile_

DOC = NATIVE.parent / "docs" / "formats" / "capture.md"


def table(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    section = DOC.read_text().split(f"### {heading}\n", 1)[1]
    rows = re.findall(r"^\|(.*)\|$", section.split("\n#", 1)[0].split("\n\n- ", 1)[0], re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows if "---" not in row][1:]


def fields(heading: str) -> list[tuple[str, int]]:
    """(name, offset) of every field; a row may hold several of the same size."""
    found = []
    for offset, sizes, names, *_ in table(heading):
        at = int(offset)
        size = [int(part) for part in sizes.split(" + ")]
        for name, bytes_ in zip(names.split(", "), size, strict=names.count(", ") > 0):
            found.append((name, at))
            at += bytes_
    return found


def test_fields_are_where_the_document_says(tmp_path: Path) -> None:
    lines = ["#include <cstddef>", '#include "capture/halves.h"', "using namespace opspan::capture;"]
    described = {
        "Header": "FileHeader",
        "Chunk head": "ChunkHeader",
        "Short units": "Short",
        "Ranges like others": "Like",
    }
    for heading, struct in described.items():
        placed = [(name, offset) for name, offset in fields(heading) if name != "reserved"]
        assert len(placed) >= 6
        lines += [f'static_assert(offsetof({struct}, {name}) == {offset}, "{name}");' for name, offset in placed]
    source = tmp_path / "offsets.cpp"
    source.write_text("\n".join([*lines, ""]))

    compile_("g++", "-std=c++20", "-I", NATIVE, "-fsyntax-only", source)


def test_every_kind_of_unit_is_described() -> None:
    enum = re.search(r"enum class Unit .*?\{(.*?)\};", (NATIVE / "capture" / "format.h").read_text(), re.DOTALL)
    assert enum
    declared = {int(number): name.lower() for name, number in re.findall(r"k(\w+) = (\d+),", enum[1])}
    described = dict(re.fullmatch(r"(\d+) (\w+)", row[0]).groups() for row in table("Units"))  # type: ignore[union-attr]

    assert {int(number): name for number, name in described.items()} == {k: v for k, v in declared.items() if k}
    assert set(capture_units.FIELDS) == set(declared) - {0}
