"""Rows as messages of Protocol Buffers, against what Google's own library reads of them and writes."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import strategies as st

from opspan import native
from opspan.errors import OpspanError
from properties import property_of

Field = descriptor_pb2.FieldDescriptorProto
FIELDS: dict[str, tuple[Any, int]] = {  # by number: what polars has, and what protobuf reads
    "1": (pl.Int64, Field.TYPE_INT64),
    "2": (pl.Int32, Field.TYPE_INT32),
    "3": (pl.UInt32, Field.TYPE_UINT32),
    "4": (pl.UInt64, Field.TYPE_FIXED64),
    "5": (pl.Float64, Field.TYPE_DOUBLE),
    "6": (pl.Boolean, Field.TYPE_BOOL),
    "7": (pl.String, Field.TYPE_STRING),
    "2000:words": (pl.Binary, Field.TYPE_BYTES),
    "536870911": (pl.List(pl.UInt64), Field.TYPE_FIXED64),
}
CELLS = {
    "1": st.integers(-(2**63), 2**63 - 1),
    "2": st.integers(-(2**31), 2**31 - 1),
    "3": st.integers(0, 2**32 - 1),
    "4": st.integers(0, 2**64 - 1),
    "5": st.floats(allow_nan=False),
    "6": st.booleans(),
    "7": st.text() | st.sampled_from(["x" * 127, "x" * 128, "x" * 20_000]),
    "2000:words": st.binary(max_size=300),
    "536870911": st.lists(st.integers(0, 2**64 - 1), max_size=30),
}
ROWS = st.fixed_dictionaries({name: st.none() | cell for name, cell in CELLS.items()})


def message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="rows.proto", package="rows", syntax="proto2")
    row, file_of_rows = file.message_type.add(name="Row"), file.message_type.add(name="File")
    for name, (dtype, kind) in FIELDS.items():
        label = Field.LABEL_REPEATED if isinstance(dtype, pl.List) else Field.LABEL_OPTIONAL
        row.field.add(name=f"f{name.split(':')[0]}", number=int(name.split(":")[0]), type=kind, label=label)
    row.field.add(name="inner", number=9, type=Field.TYPE_MESSAGE, type_name=".rows.Row", label=Field.LABEL_OPTIONAL)
    file_of_rows.field.add(
        name="rows", number=70, type=Field.TYPE_MESSAGE, type_name=".rows.Row", label=Field.LABEL_REPEATED
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("rows.File"))


FILE = message_class()


def values_of(row: Any) -> dict[str, Any]:
    found = {}
    for name, (dtype, _) in FIELDS.items():
        field = f"f{name.split(':')[0]}"
        if isinstance(dtype, pl.List):
            found[name] = list(getattr(row, field))
        else:
            found[name] = getattr(row, field) if row.HasField(field) else None
    return found


def as_read(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value or [] if name == "536870911" else value for name, value in row.items()}


@property_of(st.lists(st.tuples(ROWS, st.none() | ROWS), max_size=20), st.integers(0, 3), few=60, many=2000)
def test_what_is_read_is_what_was_there(rows: list[tuple[dict[str, Any], dict[str, Any] | None]], cut: int) -> None:
    schema = {name: dtype for name, (dtype, _) in FIELDS.items()}
    frame = pl.DataFrame([row for row, _ in rows], schema=schema)
    inner = pl.Series("9", [row for _, row in rows], dtype=pl.Struct(schema))
    frame, rows = frame.with_columns(inner)[cut:], rows[cut:]  # rows that begin within a column
    found = FILE.FromString(bytes(native.protobuf(frame, 70))).rows
    assert [values_of(row) for row in found] == [as_read(row) for row, _ in rows]
    assert [values_of(row.inner) if row.HasField("inner") else None for row in found] == [
        None if row is None else as_read(row) for _, row in rows
    ]


def test_no_rows_are_no_bytes() -> None:
    assert bytes(native.protobuf(pl.DataFrame({"1": [1]}).clear(), 1)) == b""


@pytest.mark.parametrize("name", ["", "name", "0", "-1", "536870912", ":1", "99999999999999999999"])
def test_a_column_that_is_no_field_is_refused(name: str) -> None:
    with pytest.raises(OpspanError, match="no number of a field"):
        native.protobuf(pl.DataFrame({name: [1]}), 1)


def test_a_type_that_is_no_field_is_refused() -> None:
    with pytest.raises(OpspanError, match="no field here"):
        native.protobuf(pl.DataFrame({"1": [None]}, schema={"1": pl.Date}), 1)
