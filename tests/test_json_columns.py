"""JSON of whole columns against Python's own reading of it."""

from __future__ import annotations

import json

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opspan.json_columns import text, written


@given(st.text())
def test_texts_are_read_back(value: str) -> None:
    assert json.loads(written(pl.Series([value]), text).item()) == value
