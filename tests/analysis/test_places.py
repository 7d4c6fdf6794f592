"""Places in a step: what is the n-th of its name, and what keeps its partner when something new comes before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.frames import ranges
from analysis.test_compare import STEP, run
from opspan.analysis import places
from opspan.analysis.compare import compare
from opspan.tables import Tables
from twins import longest_common

letters = st.lists(st.integers(0, 3), max_size=9)


def steps_of(*steps: str, ns: int = 10) -> Tables:
    """A letter is an op of that length."""
    rows: list[Any] = []
    for number, letters in enumerate(steps):
        begin = STEP * number
        rows.append({"name": f"ProfilerStep#{number}", "start_ns": begin, "end_ns": begin + STEP, "kind": "user"})
        rows += [(letter, begin + 1 + 100 * at, begin + 1 + 100 * at + ns) for at, letter in enumerate(letters)]
    return run(rows)


def pairs(one: Tables, other: Tables) -> set[tuple[str, int | None, int | None, str]]:
    rows = compare(one, other, "place").filter(pl.col("name") != "ProfilerStep*")
    return set(rows.select("name", "place_before", "place_after", "state").rows())


def test_what_comes_after_something_new_keeps_its_partner() -> None:
    found = pairs(steps_of(*["abacad"] * 3), steps_of(*["abaxacad"] * 3))
    assert found == {
        ("a", 1, 1, "same"),
        ("b", 1, 1, "same"),
        ("a", 2, 2, "same"),
        ("x", None, 1, "new"),
        ("a", None, 3, "new"),
        ("c", 1, 1, "same"),
        ("a", 3, 4, "same"),
        ("d", 1, 1, "same"),
    }


def test_what_is_gone_has_no_partner_and_the_rest_moves_up() -> None:
    found = pairs(steps_of(*["aybac"] * 3), steps_of(*["bac"] * 3))
    assert found == {
        ("a", 1, None, "gone"),
        ("y", 1, None, "gone"),
        ("b", 1, 1, "same"),
        ("a", 2, 1, "same"),
        ("c", 1, 1, "same"),
    }


def test_what_is_in_another_order_is_the_same() -> None:
    assert {state for *_, state in pairs(steps_of("ab"), steps_of("ba"))} == {"same"}


def test_what_only_some_steps_have_is_the_same_by_its_number() -> None:
    assert pairs(steps_of("ab", "ab", "abl"), steps_of("abl", "ab", "ab")) == {
        ("a", 1, 1, "same"),
        ("b", 1, 1, "same"),
        ("l", 1, 1, "same"),
    }


def test_the_op_at_one_place_that_is_slower_is_the_one_that_is_real() -> None:
    def third(ns: int) -> Tables:
        rows: list[Any] = []
        for number in range(4):
            begin = STEP * number
            rows.append({"name": f"ProfilerStep#{number}", "start_ns": begin, "end_ns": begin + STEP, "kind": "user"})
            rows += [("mm", begin + 1000 * at, begin + 1000 * at + (ns if at == 3 else 500)) for at in range(1, 6)]
        return run(rows)

    rows = compare(third(500), third(600), "place").filter(pl.col("is_real") & (pl.col("name") == "mm"))
    assert rows.select("place_before", "place_after", "change_ns").rows() == [(3, 3, 100)]


def test_modules_have_places_of_their_own() -> None:
    rows = [
        {"name": "one", "start_ns": 0, "end_ns": 50, "kind": "module"},
        ("mm", 1, 5),
        ("mm", 10, 15),
        {"name": "two", "start_ns": 60, "end_ns": 90, "kind": "module"},
        ("mm", 61, 68),
    ]
    found = compare(run(rows), run(rows), "place").filter(pl.col("name") == "mm").sort("module", "place_before")
    assert found.select("module", "place_before", "before_ns").rows() == [("one", 1, 4), ("one", 2, 5), ("two", 1, 7)]


def test_if_only_one_run_has_steps_no_place_is_the_same() -> None:
    found = pairs(steps_of("ab", "ab"), run([("a", 0, 10), ("b", 20, 30)]))
    assert {state for *_, state in found} == {"new", "gone"}
    assert len(found) == 4


def test_steps_that_are_too_long_are_aligned_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = steps_of(*["abacada"] * 3), steps_of(*["xabacaday"] * 3)
    aligned = pairs(one, other)
    monkeypatch.setattr(places, "MOST", 3)
    assert pairs(one, other) == aligned  # for these it is the same: x is new, and no other a
    one, other = steps_of(*["bac"] * 3), steps_of(*["abaac"] * 3)
    assert ("a", 1, 1, "same") in pairs(one, other)
    assert ("a", None, 2, "new") in pairs(one, other)


@given(letters, letters)
def test_the_sequence_in_common_is_the_longest(a: list[int], b: list[int]) -> None:
    of_a, of_b = places._longest(np.array(a, dtype=np.uint32), np.array(b, dtype=np.uint32))
    assert [a[at] for at in of_a] == [b[at] for at in of_b]
    assert list(of_a) == sorted(set(of_a))
    assert list(of_b) == sorted(set(of_b))
    assert len(of_a) == longest_common(a, b)


@given(letters, letters)
def test_what_is_alike_at_both_ends_costs_nothing_of_the_length(a: list[int], b: list[int]) -> None:
    def frame(tokens: list[int]) -> pl.DataFrame:
        seen: dict[int, int] = {}
        rows = []
        for at, token in enumerate(tokens):
            seen[token] = seen.get(token, 0) + 1
            rows.append({"name": str(token), "module": None, "place": seen[token], "position": at})
        types = {"name": pl.String, "module": pl.String, "place": pl.Int64, "position": pl.Int64}
        return pl.DataFrame(rows, schema=types)

    before, after, (of_a, of_b) = places._align(frame(a), frame(b))
    assert before["name"].gather(of_a).to_list() == after["name"].gather(of_b).to_list()
    assert len(of_a) == longest_common(a, b)
    found = places.partners(frame(a), frame(b))
    paired = [(name, place) for name, place in zip(frame(b)["name"], found, strict=True) if place is not None]
    assert len(set(paired)) == len(paired)
    assert longest_common(a, b) <= len(paired) <= sum(min(a.count(token), b.count(token)) for token in set(a))


def test_of_steps_that_overlap_it_is_in_the_one_that_began_last() -> None:
    steps = pl.DataFrame({"rank": [0, 0], "pid": [1, 1], "start_ns": [0, 10], "end_ns": [100, 50]})
    parts = ranges(("a", 5, 6), ("a", 20, 21), ("a", 30, 31), ("a", 70, 71)).with_columns(module=pl.lit(None))
    found = places.placed(parts.with_columns(ns=1), steps, [0])
    assert found["place"].to_list() == [1, 1, 2, 2]


def test_the_typical_step_alone_has_an_order_of_its_ranges() -> None:
    """It is the first that is as long as the middle one of all steps."""
    steps = pl.DataFrame({"rank": [0] * 3, "pid": [1] * 3, "start_ns": [0, 100, 200], "end_ns": [100, 200, 300]})
    begins = [("a", 1), ("b", 20), ("l", 40), ("a", 101), ("b", 120), ("a", 201), ("b", 220)]
    parts = ranges(*((name, at, at + 5) for name, at in begins)).with_columns(module=pl.lit(None))
    found = places.placed(parts.with_columns(ns=5), steps, [0])
    assert found["position"].to_list() == [None, None, None, 0, 1, None, None]
