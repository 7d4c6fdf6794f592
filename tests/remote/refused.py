"""Errors for addresses that cannot be read."""

from __future__ import annotations

import pytest

import opspan
from opspan.errors import NotReadable


def refused(address: str, kind: type[opspan.OpspanError] = NotReadable, most_bytes: int | None = None) -> str:
    with pytest.raises(kind) as error:
        opspan.load(address, most_bytes=most_bytes)
    assert "opspan-remote-" not in str(error.value)
    assert error.value.__cause__ is None
    return str(error.value)
