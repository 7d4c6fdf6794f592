from __future__ import annotations

from pathlib import Path

import pytest

from sinks.running import Native


@pytest.fixture(scope="session")
def native(shared_folder: Path) -> Native:
    return Native(shared_folder)
