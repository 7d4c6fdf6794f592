"""Fixtures of this room."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Returns a function that multiplies every limit."""
    return lambda times: monkeypatch.setenv("OPSPAN_BUDGET", f"{times:.9f}")
