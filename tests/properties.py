"""A property is tested twice: with a few of its examples always, with the rest before a release."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

from tiers import RELEASE

Check = Callable[..., None]


def property_of(*strategies: SearchStrategy[Any], few: int, many: int) -> Callable[[Check], Check]:
    """In place of hypothesis' `given`, where `many` examples take long."""

    def decorated(check: Check) -> Check:
        # Not check itself: what `given` returns takes its settings once.
        def test(examples: int) -> None:
            settings(max_examples=examples)(given(*strategies)(check))()

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        budgets = [
            pytest.param(few, id="few"),
            pytest.param(many - few, id="many", marks=RELEASE),
        ]
        return pytest.mark.parametrize("examples", budgets)(test)

    return decorated
