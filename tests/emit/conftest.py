"""Fixtures of this room."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """The folder that a program under the collectors captures into."""
    return tmp_path / "captured"
