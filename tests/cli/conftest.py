"""Fixtures of this room."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def nothing_to_build(request: pytest.FixtureRequest) -> None:
    """Puts the observer into the cache. Without it programs would build it and say so, and tests compare what programs
    say."""
    if find_spec("torch"):
        request.getfixturevalue("observer")
