from __future__ import annotations

import pytest

from sinks.running import Native


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    return Native(tmp_path_factory.mktemp("native"))
