from __future__ import annotations

import copy
import json
import pickle
from fractions import Fraction

import hypothesis.strategies as st
import pytest
from hypothesis import given

from opspan.events import Microseconds

NS = st.integers(-(1 << 62), 1 << 62)


@given(st.lists(NS))
def test_sums_are_exact_in_any_order(times: list[int]) -> None:
    total = sum(map(Microseconds, times), 0)

    assert total == sum(times) / 1000
    assert total == sum(map(Microseconds, sorted(times)))


@given(NS, NS)
def test_differences_are_exact(start: int, end: int) -> None:
    assert Microseconds(end) - Microseconds(start) == float(Fraction(end - start, 1000))


@given(NS, st.integers(-9, 9))
def test_whole_microseconds_add_exactly(ns: int, whole: int) -> None:
    assert Microseconds(ns) + whole == whole + Microseconds(ns) == (ns + 1000 * whole) / 1000
    assert Microseconds(ns) - whole == (ns - 1000 * whole) / 1000
    assert whole - Microseconds(ns) == (1000 * whole - ns) / 1000


def test_with_other_floats_it_is_one_of_them() -> None:
    time = Microseconds(1500)

    for mixed in (time + 0.25, 0.25 + time, time - 0.25, 2.0 - time, time * 2, time / 2):
        assert type(mixed) is float
    assert time + 0.25 == 1.75
    assert 2.0 - time == 0.5
    with pytest.raises(TypeError):
        time + "1"  # type: ignore[operator]


def test_it_is_shown_stored_and_copied_like_a_float() -> None:
    time = Microseconds(1234)

    assert (str(time), repr(time), f"{time:.1f}", json.dumps(time)) == ("1.234", "1.234", "1.2", "1.234")
    for again in (copy.copy(time), copy.deepcopy(time), pickle.loads(pickle.dumps(time))):
        assert (type(again), again.ns) == (Microseconds, 1234)
