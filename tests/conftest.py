"""Fixtures that every room's tests may ask for. Kept small: a room's own fixtures stand beside its tests."""

from __future__ import annotations

import gc
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from emit.running import built_observer
from opspan import libraries
from page.browser import CHROMIUM, Browser, started

# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Threads of torch that wait for each other would keep a processor busy, which other tests could use: that doubles what
# a program of a few convolutions takes. Set before torch is loaded, here and in all that is started from here.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

REPO = Path(__file__).resolve().parent.parent


# For .ci/run, where all slow tests together may take longer than it should. No test begins after this time (in seconds
# since 1970), and the first to run is chosen by this text.
UNTIL, FIRST = "OPSPAN_TESTS_UNTIL", "OPSPAN_TESTS_FIRST"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if (text := os.environ.get(FIRST)) and items:
        first = zlib.crc32(text.encode()) % len(items)
        items[:] = items[first:] + items[:first]


def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip("the time for tests is over")


def pytest_collection_finish() -> None:
    """Tests and what they import are there to the end: to look at all of it again for garbage takes a twentieth of the
    processor time of all tests."""
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture(scope="session")
def repo() -> Path:
    return REPO


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all workers of a run: what one of them has built the others need not build."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def observer(shared_folder: Path) -> Path:
    """A copy of the observer that programs find in the cache."""
    pytest.importorskip("torch")
    return built_observer(shared_folder)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real one, for the page and TensorBoard's tab."""
    pytest.importorskip("playwright")
    if CHROMIUM is None:
        pytest.skip("no Chromium here: `apt install chromium`")
    if not libraries.page("page.js").is_file():
        pytest.skip("this build has no page: `opspan doctor` says why")
    with started(tmp_path_factory.mktemp("screenshots")) as browser:
        yield browser


@pytest.fixture(scope="session")
def traces_dir() -> Path:
    """Recorded files of real tools, too many bytes for the repository: they lie beside it where they lie at all."""
    folder = REPO.parent / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip("no recorded traces beside the repository (../shared/traces)")
    return folder
