"""Lets tests import the modules of tools/, which are in no package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[1] / "tools"


def importable(*folders: str) -> Callable[[], Iterator[None]]:
    """Returns a fixture for the module that keeps it: its tests can import from these folders of tools/."""

    @pytest.fixture(autouse=True, scope="module")
    def on_path() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for folder in folders:
                patch.syspath_prepend(TOOLS / folder)
            yield

    return on_path
