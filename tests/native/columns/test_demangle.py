"""Mangled names: one way for the readers and for torch's StringTable, bounded whatever the name says."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from opspan import native
from opspan.events.records import StringTable
from opspan.formats.demangle import demangled

BOTH = pytest.mark.parametrize("way", [native.demangled, demangled])


def doubled(times: int) -> str:
    """A<int, int>, and of each type so far one that has it twice: every letter doubles the text."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    numbers = [f"S{digits[number // 36]}{digits[number % 36]}_" for number in range(1, times)]
    numbers = [number.replace("S0", "S") for number in numbers]
    return "_Z1f1AIiiE" + "".join(f"S_I{number}{number}E" for number in ["S0_", *numbers][:times])


HOSTILE = [
    doubled(60),
    doubled(1000),
    "_Z1f" + "P" * 1_000_000 + "i",
    "_Z1f" + "1AI" * 300_000 + "i" + "E" * 300_000,
    "_Z1fIJ" + "i" * 400 + "EEvDp" + "1AI" * 100 + "T_" + "E" * 100,
    "_Z" + "9" * 100_000,
    "_Z1fv\0",
    "_Z1f\udcff",
]


@BOTH
def test_names_are_as_their_source_has_them(way: Callable[[str], str]) -> None:
    assert way("_Z3addIfEvPT_") == "void add<float>(float*)"
    assert way("_ZN2at6native3addEv") == "at::native::add()"
    assert way("aten::mm") == "aten::mm"


@BOTH
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_take_neither_time_nor_memory(way: Callable[[str], str], name: str) -> None:
    began = time.process_time()

    found = way(name)

    assert time.process_time() - began < 10  # processor time; some names take a tenth of a second
    assert len(found) <= native._SPARE_BYTES + native._MOST_GROWTH * len(name)
    assert found == name or len(name) <= native._LONGEST_MANGLED


def test_a_doubling_name_that_fits_is_taken_apart_and_one_that_does_not_stays() -> None:
    assert native.demangled(doubled(3)).startswith("f(A<int, int>, ")
    assert native.demangled(doubled(40)) == doubled(40)
    assert StringTable()[doubled(40)] == doubled(40)
