"""Fixtures of this room."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from once import made_once


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """The folder that a program under the collectors captures into."""
    return tmp_path / "captured"


@pytest.fixture(scope="session")
def copying_compiler(observer: Path) -> Path:
    """A compiler that copies the observer which a real one has built: that takes no twenty seconds. Beside it is
    good.so, as a cache has it."""

    def make(compiler: Path) -> None:
        last = 'for last; do :; done; [ "$last" = --version ] && echo copier 1.0 && exit 0'
        compiler.write_text(f'#!/bin/sh\n{last}\nhead -c -32 {shlex.quote(str(observer))} > "$last"\n')
        compiler.chmod(0o755)

    return made_once(observer.with_name("c++"), make)
