"""Fixtures of this room."""

from __future__ import annotations

from pathlib import Path

import pytest

from emit.running import copier_of


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """The folder that a program under the collectors captures into."""
    return tmp_path / "captured"


@pytest.fixture(scope="session")
def copying_compiler(observer: Path) -> Path:
    """A compiler that copies the observer which a real one has built. Beside it is good.so, as a cache has it."""
    return copier_of(observer)
