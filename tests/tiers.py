"""Tiers of tests: with the README's command, in .ci/run (slow), or before a release (slow and release)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

RELEASE = [pytest.mark.slow, pytest.mark.release]


def before_release(values: Iterable[Any], kept: int = 0) -> list[Any]:
    """For parametrize: the first few are tested always, the others before a release."""
    return [value if number < kept else pytest.param(value, marks=RELEASE) for number, value in enumerate(values)]
