"""Fixtures of this room."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def nothing_to_build(request: pytest.FixtureRequest) -> None:
    """Who finds no observer in the cache builds it and says so. Where what a program says is compared, it is there."""
    if find_spec("torch"):
        request.getfixturevalue("observer")
