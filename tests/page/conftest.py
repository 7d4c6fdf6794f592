from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opspan import libraries
from page.browser import CHROMIUM, Browser, started


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    pytest.importorskip("playwright")
    if CHROMIUM is None:
        pytest.skip("no Chromium here: `apt install chromium`")
    if not (libraries.folder() / "page").is_dir():
        pytest.skip("this build has no page: there was no npm")
    with started(tmp_path_factory.mktemp("screenshots")) as browser:
        yield browser


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for pages that several tests look at."""
    return tmp_path_factory.mktemp("pages")
