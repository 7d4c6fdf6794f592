from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for pages that several tests of a file look at."""
    return tmp_path_factory.mktemp("pages")
