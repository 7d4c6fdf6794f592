"""Fixtures of this room."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import kineto
from loopback import Served, served
from opspan import remote


@pytest.fixture(scope="session")
def web() -> Iterator[Served]:
    with served() as server:
        yield server


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return kineto.write(tmp_path_factory.mktemp("trace") / "run.json.gz", indent=1).read_bytes()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files; it must be empty after each test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(remote, "PAUSES_S", (0.0, 0.0))
    yield folder
    assert list(folder.iterdir()) == []
