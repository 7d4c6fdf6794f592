"""A kept value is computed once per object, whichever threads ask; no object waits for another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from opspan.forked import shared_property


class Worked:
    def __init__(self) -> None:
        self.times = 0
        self.may_go_on = threading.Event()
        self.has_begun = threading.Event()

    @shared_property
    def value(self) -> object:
        """Returns a new object, slowly."""
        self.times += 1
        self.has_begun.set()
        self.may_go_on.wait(10)
        return object()

    @shared_property
    def fails(self) -> object:
        self.times += 1
        raise ValueError(self.times)


def test_two_threads_at_once_get_what_one_of_them_worked_out() -> None:
    one = Worked()
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(lambda: one.value) for _ in range(2)]
        assert one.has_begun.wait(10)
        one.may_go_on.set()
        values = [each.result() for each in asked]
    assert values[0] is values[1] is one.value
    assert one.times == 1
    assert vars(one)["value"] is values[0]
    assert not [name for name in vars(one) if "lock" in name]


def test_another_object_waits_for_none() -> None:
    one, other = Worked(), Worked()
    other.may_go_on.set()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: one.value)
        assert one.has_begun.wait(10)
        assert other.value is other.value
        assert not asked.done()
        one.may_go_on.set()


def test_what_fails_is_tried_again_and_a_value_can_be_given() -> None:
    one = Worked()
    for time in (1, 2):
        with pytest.raises(ValueError, match=str(time)):
            _ = one.fails
    one.__dict__["value"] = given = object()
    assert one.value is given
    assert one.times == 2
    assert Worked.value.__doc__ == "Returns a new object, slowly."
