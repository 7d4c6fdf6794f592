"""Texts of any making: the fields of a label in them as regular expressions find them, and the texts as JSON."""

from __future__ import annotations

import re

import polars as pl
from hypothesis import strategies as st

from opspan import json_columns, native
from properties import property_of

FIELD = r"""(?:^|[^\w]){}["']?\s*[:=]\s*["'\[]?\s*{}"""
NUMBERS = {
    name: re.compile(FIELD.format(key, r"(\d{1,18})"), re.ASCII)
    for name, key in {"seq": "seq", "op_id": "op_id", "forward_tid": "fwd_tid"}.items()
}
SIZES = re.compile(r"""(?:^|[^\w])sizes["']?\s*[:=]\s*["']?(\[[\[\], 0-9]*\])""", re.ASCII)

parts = st.sampled_from(
    [*"[]{}\"'=:,; _9\n", "seq", "op_id", "fwd_tid", "sizes", "[[2, 3], []]", "12", "1234567890123456789", "x"]
)
texts = st.one_of(st.none(), st.lists(parts, max_size=12).map("".join))


@property_of(st.lists(texts, max_size=8), st.integers(1, 3), few=300, many=5000)
def test_fields_are_those_that_a_regular_expression_finds(rows: list[str | None], threads: int) -> None:
    found = native.metadata(pl.Series(rows, dtype=pl.String), threads)
    for name, pattern in NUMBERS.items():
        matches = [pattern.search(row) if row is not None else None for row in rows]
        assert found[name].to_list() == [int(match[1]) if match else None for match in matches]
    matches = [SIZES.search(row) if row is not None else None for row in rows]
    assert found["sizes"].to_list() == [match[1] if match else None for match in matches]


def test_fields_of_many_texts_are_in_their_rows() -> None:
    count = 150_000  # enough for each thread to get a part
    rows = [None if row % 7 == 3 else f"seq={row}; sizes: '[[{row % 9000}, 2, 3]]'" for row in range(count)]
    texts = pl.Series("said", rows, dtype=pl.String)

    found = native.metadata(texts, 4)
    objects = native.json_objects(texts, 4)

    assert found["seq"].to_list() == [None if row % 7 == 3 else row for row in range(count)]
    assert found["sizes"].to_list() == [None if row % 7 == 3 else f"[[{row % 9000}, 2, 3]]" for row in range(count)]
    assert objects.to_list() == [None if row is None else f'{{"said": "{row}"}}' for row in rows]


@property_of(st.lists(st.one_of(st.none(), st.text()), max_size=8), few=100, many=2000)
def test_objects_are_texts_as_columns_write_them(rows: list[str | None]) -> None:
    texts = pl.Series('a "key"', rows, dtype=pl.String)
    expected = '{"a \\"key\\"": ' + json_columns.written(texts, json_columns.text) + "}"
    assert native.json_objects(texts, 2).to_list() == expected.to_list()
