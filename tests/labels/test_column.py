"""A column of labels, which is read natively: the same as the scalar reads each, whatever the text."""

from __future__ import annotations

import json
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example
from hypothesis import strategies as st

from labels import grammar
from labels.grammar import Label
from opspan import labels, native
from opspan.labels import Kind
from properties import property_of

EXAMPLES = json.loads((Path(__file__).parents[1] / "data" / "labels.json").read_text(encoding="utf-8"))
TEXTS = [one["text"] for one in EXAMPLES["texts"] + EXAMPLES["interned"]]
FIELDS = ("name", "seq", "op_id", "forward_tid", "class_name", "args", "sizes", "input_op_ids")


def natively(texts: list[str | None]) -> list[tuple]:
    parsed = labels.parse_column(pl.Series(texts, dtype=pl.String))
    return list(parsed.select(*FIELDS, "kind").iter_rows())


def scalar(texts: list[str | None]) -> list[tuple]:
    none = (None,) * (len(FIELDS) + 1)
    parsed = [None if text is None else grammar.parse(text) for text in texts]
    return [none if one is None else (*(getattr(one, field) for field in FIELDS), int(one.kind)) for one in parsed]


# Fields, and what looks as much like one as it can.
near = ["", ", ", ",", " = ", "=", "seq", "stashed ", ", seq=", ", seq = ", ", op_id = ", ", fwd_tid = ", ", class = "]
near += [
    ", args = ",
    ", sizes = ",
    ", input_op_ids = ",
    "[",
    "]",
    "[]",
    "[[]]",
    "[[2, 4]]",
    "[[[2], []], [-1]]",
    "[[2,4]]",
]
near += [
    "(0,-1)",
    "[(0,-1), (7,0)]",
    "7",
    "-1",
    "0",
    "007",
    "123456789012345678",
    "1234567890123456789",
    "\n",
    "\0",
    "é",
]
near += [
    "aten::mm",
    "detach",
    "detach_",
    "Backward0",
    "Backward",
    "torch::autograd::",
    "N5torch8autograd",
    "autograd::engine::evaluate_function",
]
near += ["ProfilerStep#", "ProfilerStep#3", " ", "::", "X", "_", ".", "☃", "{'mod'", '{"traceMarker"']
field = st.sampled_from(
    [", seq = 3", ", op_id = 1", ", fwd_tid = 2", ", class = A.B", ", args = x", ", sizes = [[2, 4]]"]
)
free = st.lists(st.sampled_from(near), max_size=12).map("".join)
ordered = st.tuples(free, st.lists(field, max_size=6), free).map(lambda parts: parts[0] + "".join(parts[1]) + parts[2])
texts = st.one_of(free, ordered, st.text(), st.sampled_from(TEXTS), st.none())


@pytest.mark.slow
@property_of(st.lists(texts, max_size=8), few=200, many=1500)
@example(TEXTS)
def test_every_text_is_read_as_the_scalar_reads_it(given_texts: list[str | None]) -> None:
    assert natively(given_texts) == scalar(given_texts)


def test_text_is_kept_where_it_is_not_just_the_name() -> None:
    column = pl.Series(["aten::mm", "mm, seq = 2", None, "", "a name of more than twelve bytes, op_id = 3"])

    assert labels.parse_column(column)["text"].to_list() == [None, column[1], None, None, column[4]]


def test_column_of_nulls_and_categories() -> None:
    texts = pl.Series(["aten::mm, seq = 2", None, "aten::mm, seq = 2", None, None], dtype=pl.Categorical)

    parsed = labels.parse_column(texts)

    assert parsed["name"].to_list() == ["aten::mm", None, "aten::mm", None, None]
    assert parsed["seq"].to_list() == [2, None, 2, None, None]
    assert parsed["kind"].to_list() == [Kind.OP, None, Kind.OP, None, None]


def test_column_without_rows_has_the_same_columns() -> None:
    empty, one = (labels.parse_column(pl.Series(texts, dtype=pl.String)) for texts in ([], ["a"]))
    assert empty.schema == one.schema
    assert empty.height == 0


def test_long_columns_are_read_by_several_threads_as_one_would() -> None:
    rows = 200_000
    column = pl.select(
        pl.format(
            "aten::op{}, seq = {}, sizes = [[{}, 4]], input_op_ids = [({},0)]",
            *[pl.int_range(rows) % n for n in (7, 11, 900, 13)],
        )
    ).to_series()
    alone, together = (native.labels(column, threads) for threads in (1, 3))

    assert alone.equals(together)
    assert natively(column[-3:].to_list()) == scalar(column[-3:].to_list())
    assert alone["sizes"].cast(pl.String).to_list()[899:902] == ["[[899, 4]]", "[[0, 4]]", "[[1, 4]]"]


def test_views_outlive_the_texts_they_are_of() -> None:
    texts = pl.Series([f"load, args = a long argument number {row}" for row in range(1000)])
    args = labels.parse_column(texts)["args"]
    del texts
    junk = [pl.Series(["y" * 40] * 1000) for _ in range(20)]

    assert args.to_list() == [f"a long argument number {row}" for row in range(1000)]
    assert junk


@pytest.mark.parametrize(
    "piece", [", args = ", ", sizes = [", ", sizes = [[], ", ", seq = 1", ", class = ", "[], ", ", "]
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    def seconds(count: int) -> float:
        column = pl.Series([piece * count])
        start = time.process_time()
        labels.parse_column(column)
        return time.process_time() - start

    # Twenty times the text takes far less than four hundred times the time.
    assert min(seconds(400_000) for _ in range(3)) < 100 * max(seconds(20_000), 0.002)


def test_parsed_label_is_that_of_the_grammar() -> None:
    assert tuple(Label.__dataclass_fields__) == FIELDS
