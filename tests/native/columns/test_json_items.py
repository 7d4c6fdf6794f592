"""Rows as items of a JSON list, against what Python reads of them and would write."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st

from opspan import native
from opspan.errors import OpspanError
from properties import property_of

SCHEMA: dict[str, Any] = {
    "int": pl.Int64,
    "small": pl.Int32,
    "code": pl.UInt32,
    "unsigned": pl.UInt64,
    "real": pl.Float64,
    "took": pl.Duration("ns"),
    "text": pl.String,
    'a "key"\n': pl.String,
}
cells = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(-(2**31), 2**31 - 1),
    "code": st.integers(0, 2**32 - 1),
    "unsigned": st.integers(0, 2**64 - 1),
    "real": st.floats(),
    "took": st.integers(-(2**63), 2**63 - 1),
    "text": st.text(),
    'a "key"\n': st.sampled_from(["", "x", "aten::convolution_backward", "é" * 600, '\x7f</script>"\\\u2028\0']),
}
rows = st.fixed_dictionaries({name: st.none() | cell for name, cell in cells.items()})


def text(frame: pl.DataFrame, before: int = 0) -> str:
    return b"".join(map(bytes, native.json_items(frame, before))).decode()


def read(frame: pl.DataFrame, before: int = 0) -> list[dict[str, Any]]:
    written = text(frame, before)
    assert not any(char in written for char in ("\x7f", "\u2028", "\u2029"))
    assert written.startswith(",\n{") == (before > 0)
    assert not any(ord(char) < 0x20 and char != "\n" for char in written)
    found: list[dict[str, Any]] = json.loads(
        f"[{written.removeprefix(',')}]", parse_float=Decimal, parse_constant=pytest.fail
    )
    return found


def expected(row: dict[str, Any]) -> dict[str, Any]:
    held = {name: row[name] for name in SCHEMA if row[name] is not None}
    if "took" in held:
        held["took"] = Decimal(held["took"]) / 1000
    if "real" in held:
        words = {math.inf: "inf", -math.inf: "-inf"}
        held["real"] = "NaN" if math.isnan(held["real"]) else words.get(held["real"], held["real"])
    return held


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    found = {**found}
    if isinstance(found.get("real"), Decimal | int):
        found["real"] = float(found["real"])
    return found == wanted and list(found) == list(wanted)


@property_of(st.lists(rows, min_size=1, max_size=20), st.integers(0, 3), few=100, many=2000)
def test_what_is_null_is_left_out_and_the_rest_is_read_back(values: list[dict[str, Any]], before: int) -> None:
    frame = pl.DataFrame(values, schema={**SCHEMA, "took": pl.Int64}).cast(SCHEMA)
    wanted = [expected(row) for row in values]
    found = read(frame, before)
    assert len(found) == len(wanted)
    assert all(map(same, found, wanted))
    nested = read(frame.select("int", args=pl.struct(pl.all())))
    assert all(same(one["args"], other) for one, other in zip(nested, wanted, strict=True))
    assert ["int" in one for one in nested] == ["int" in other for other in wanted]
    # Slices of larger frames, as a trace is written.
    assert all(map(same, read(pl.concat([frame[:1], frame, frame[-1:]], rechunk=True)[1:-1]), wanted))


def test_durations_are_microseconds_to_the_nanosecond() -> None:
    took = pl.DataFrame({"": pl.Series([0, 43, 1_234_567, -1, 2**62 + 1], dtype=pl.Duration("ns"))})
    written = text(took).splitlines()
    values = ["0.000", "0.043", "1234.567", "-0.001", "4611686018427387.905"]
    assert [line.rstrip(",") for line in written] == [f'{{"":{value}}}' for value in values]


def test_binary_is_json_as_it_stands_and_a_null_struct_is_left_out() -> None:
    frame = pl.DataFrame({"list": [b"[1, 2]", None], "args": [{"a": None}, None]}, schema_overrides={
        "args": pl.Struct({"a": pl.Int64})})  # fmt: skip
    assert read(frame) == [{"list": [1, 2], "args": {}}, {}]


def test_no_rows_are_no_bytes() -> None:
    assert text(pl.DataFrame(schema=SCHEMA), before=7) == ""


@pytest.mark.parametrize("dtype", [pl.Boolean, pl.List(pl.Int64), pl.Int8])
def test_other_types_are_refused(dtype: Any) -> None:
    frame = pl.DataFrame({"other": [None]}, schema={"other": dtype})
    with pytest.raises(OpspanError, match=r"column other has Arrow format .*, which has no JSON here"):
        text(frame)


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.String])
def test_more_texts_than_are_kept_are_all_themselves(dtype: Any) -> None:
    names = [f"name {number % 5000} {'x' * (number % 40)}" for number in range(20_000)]
    assert [row["name"] for row in read(pl.DataFrame({"name": pl.Series(names, dtype=dtype)}))] == names


@property_of(st.lists(st.none() | st.sampled_from(["a", "b\n", ""]), min_size=1), st.booleans(), few=50, many=500)
def test_texts_by_code_are_those_texts(texts: list[str | None], is_closed: bool) -> None:
    frame = pl.DataFrame({"text": texts}, schema={"text": pl.Enum(["", "b\n", "a"]) if is_closed else pl.Categorical})
    for rows, own in ((frame, texts), (frame[1:], texts[1:])):
        assert [row.get("text") for row in read(rows)] == own


@property_of(st.lists(st.none() | st.integers(-30, 130), min_size=1), few=100, many=1000)
def test_numbers_that_count_up_are_themselves(numbers: list[int | None]) -> None:
    for counting in (numbers, sorted(number for number in numbers if number is not None)):
        rows = pl.DataFrame({"number": counting}, schema={"number": pl.Int64})
        assert [row.get("number") for row in read(rows)] == counting


def test_numbers_count_through_every_digit() -> None:
    numbers = [*range(-12, 1012), 2**63 - 2, 2**63 - 1, -(2**63), -(2**63) + 1, 9, 10]
    assert [row["number"] for row in read(pl.DataFrame({"number": numbers}))] == numbers


def test_items_are_given_some_at_a_time_and_what_was_given_is_gone() -> None:
    frame = pl.DataFrame({"text": ["x" * 100] * 10_000 + ["y" * 3_000_000, None]})
    given = list(native.json_items(frame))
    assert len(given) > 4
    with pytest.raises(ValueError, match="released"):
        bytes(given[0])
    assert [row.get("text") for row in read(frame)] == frame["text"].to_list()


def test_members_of_a_spread_text_stand_beside_the_columns() -> None:
    texts = [
        '{"a": 1, "né\\"w": [1, {"x": null}], "own": 2}',
        '{"held": 1, "twice": 1, "twice": 2}',
        "{}",
        None,
        "[1]",
        '{"cut": ',
        '{"a": 1, oh',
        "",
    ]
    frame = pl.DataFrame({"own": [5] * len(texts), "held": [None] * len(texts), "...": texts}, schema_overrides={
        "held": pl.Int32})  # fmt: skip
    assert read(frame) == [
        {"own": 5, "a": 1, 'né"w': [1, {"x": None}]},
        {"own": 5, "twice": 1},
        *[{"own": 5}] * 6,
    ]


def test_only_a_text_is_spread() -> None:
    with pytest.raises(OpspanError, match="only texts can be spread"):
        text(pl.DataFrame({"...": [1]}))
