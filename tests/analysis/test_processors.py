"""The width of a processor's cores, from the name of its microarchitecture. Intel publishes the expected widths."""

from typing import Any

import pytest

import opspan
from opspan.analysis.processors import width


def of(*options: dict[str, Any]) -> int | None:
    return width([opspan.Metadata(source="vtune", options=rank) for rank in options])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("haswell_server", 4),
        ("broadwell_server", 4),
        ("skylake", 4),
        ("skylake_server", 4),
        ("Cascade Lake", 4),
        ("Icelake", 5),
        ("icelake_server", 5),
        ("Sapphirerapids", 6),
        ("alderlake", None),  # it has two kinds of cores
        ("Nehalem", None),
        ("", None),
        (None, None),
    ],
)
def test_the_name_gives_the_width(name: Any, expected: int | None) -> None:
    assert of({"microarchitecture": name}) == expected


def test_without_a_name_it_is_unknown() -> None:
    assert of({}) is None
    assert of({"processor": "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz"}) is None


def test_ranks_on_different_processors_have_no_common_width() -> None:
    skylake, icelake, other = ({"microarchitecture": name} for name in ("skylake", "icelake", "alderlake"))
    assert of(skylake, skylake) == 4
    assert of(skylake, icelake) is None
    assert of(skylake, other) is None


@pytest.mark.parametrize("merged", [None, 3, [3], [{"options": 3}], [{"source": "vtune"}]])
def test_any_options_are_read(merged: Any) -> None:
    assert of({"merged": merged}) is None


def test_a_merged_trace_has_the_width_of_its_trace_of_vtune() -> None:
    vtune = {"source": "vtune", "options": {"microarchitecture": "broadwell_server"}}
    assert of({"merged": [{"source": "capture", "options": {}}, vtune]}) == 4
