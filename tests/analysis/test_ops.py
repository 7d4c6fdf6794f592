"""Labels read natively: the same as labels.parse, whatever the text; and what no reader took apart."""

from __future__ import annotations

import json
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analysis.frames import ranges
from opspan import labels
from opspan.analysis import ops, parse_texts, sweep
from opspan.labels import Label

EXAMPLES = json.loads((Path(__file__).parents[1] / "data" / "labels.json").read_text(encoding="utf-8"))
TEXTS = [one["text"] for one in EXAMPLES["texts"] + EXAMPLES["interned"]]
FIELDS = ("name", "seq", "op_id", "forward_tid", "class_name", "args", "sizes", "input_op_ids")


def natively(texts: list[str | None]) -> list[tuple]:
    parsed = parse_texts(pl.Series(texts, dtype=pl.String))
    return list(parsed.select(*FIELDS, "kind").iter_rows())


def scalar(texts: list[str | None]) -> list[tuple]:
    none = (None,) * (len(FIELDS) + 1)
    parsed = [None if text is None else labels.parse(text) for text in texts]
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


@settings(max_examples=1500)
@given(st.lists(texts, max_size=8))
@example(TEXTS)
def test_every_text_is_read_as_the_scalar_reads_it(given_texts: list[str | None]) -> None:
    assert natively(given_texts) == scalar(given_texts)


def test_long_columns_are_read_by_several_workers_as_one_would() -> None:
    rows = 200_000
    column = pl.select(
        pl.format(
            "aten::op{}, seq = {}, sizes = [[{}, 4]], input_op_ids = [({},0)]",
            *[pl.int_range(rows) % n for n in (7, 11, 900, 13)],
        )
    ).to_series()
    alone, together = (sweep.call("labels", column.alias("text").to_frame(), number=workers) for workers in (1, 3))

    assert alone.equals(together)
    assert natively(column[-3:].to_list()) == scalar(column[-3:].to_list())
    assert alone["sizes"].cast(pl.String).to_list()[899:902] == ["[[899, 4]]", "[[0, 4]]", "[[1, 4]]"]


def test_views_outlive_the_texts_they_are_of() -> None:
    texts = pl.Series([f"load, args = a long argument number {row}" for row in range(1000)])
    args = parse_texts(texts)["args"]
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
        start = time.perf_counter()
        parse_texts(column)
        return time.perf_counter() - start

    assert seconds(400_000) < 100 * max(seconds(20_000), 0.002)


# --- ranges


def test_texts_that_no_reader_took_apart_are() -> None:
    frame = ranges(
        {"text": "aten::mm, seq = 3, op_id = 7, sizes = [[2], []]", "kind": None},
        {"text": "AddmmBackward0, seq = 3, fwd_tid = 9", "kind": "unknown"},
        {"text": "warm up", "kind": "step"},
    )
    found = ops(frame)

    columns = ("name", "kind", "seq", "op_id", "forward_tid", "sizes")
    assert list(found.select(columns).iter_rows()) == [
        ("aten::mm", "op", 3, 7, None, "[[2], []]"),
        ("AddmmBackward0", "backward", 3, None, 9, None),
        ("warm up", "step", None, None, None, None),
    ]
    assert found.schema == frame.schema


def test_what_a_reader_took_apart_stays() -> None:
    frame = ranges(
        {"name": "a, seq = 1", "text": "a, seq = 1, seq = 2", "seq": 2},
        {"name": "ncclSend, seq = 4", "kind": "user"},
    )
    assert ops(frame).equals(frame)


def test_own_text_without_a_forward_thread_means_the_main_thread() -> None:
    text = "AddmmBackward0, seq = 3"
    frame = ranges(
        {"text": text, "domain": "opspan"},
        {"text": text + ", fwd_tid = 0", "domain": "opspan"},
        {"text": text, "domain": None},
        {"text": "aten::mm, seq = 3", "domain": "opspan"},
        kind=None,
        pid=800,
        tid=815,
    )
    assert ops(frame)["forward_tid"].to_list() == [800, None, None, None]


PYPROF = {
    "{'mod': 'torch', 'op': 'cat', 'args': [{'name': '', 'type': 'tensor', 'shape': (1, 64), 'dtype': 'float32'}, "
    "{'name': '', 'type': 'tensor', 'shape': (7,), 'dtype': 'int64'}, {'name': 'dim', 'type': 'int', 'value': 1}]}": (
        "torch.cat",
        "[[1, 64], [7], []]",
    ),
    "{'mod': 'Tensor', 'op': 'cuda', 'args': []}": ("Tensor.cuda", "[]"),
    '{"mod": "torch.nn", "op": "relu", "args": [{"name": "", "type": "tensor", "shape": [2, 3], "dtype": "x"}]}': (
        "torch.nn.relu",
        "[[2, 3]]",
    ),
    "{'traceMarker': ['train.py:14', '/usr/lib/module.py:532'], 'funcStack': '/<module>/Net::forward'}": (
        "train.py:14",
        None,
    ),
}


def test_pyprof_markers_are_matched() -> None:
    frame = ranges(*({"text": text, "kind": None} for text in PYPROF))

    found = ops(frame)

    assert list(found.select("name", "sizes").iter_rows()) == list(PYPROF.values())
    assert found["text"].to_list() == list(PYPROF)
    assert found["args"].to_list()[3] == "['train.py:14', '/usr/lib/module.py:532']"
    assert ops(found).equals(found)


@pytest.mark.parametrize(
    "text", ["{'mod': __import__('os')}", "{'mod'", "{'traceMarker': []}", "{'mod': 'a\\'b', 'op': 'c'}", "{'x': 1}"]
)
def test_what_only_looks_like_a_marker_keeps_its_name(text: str) -> None:
    assert ops(ranges({"name": text}))["name"].to_list() == [text]


def test_label_of_the_door_is_that_of_the_grammar() -> None:
    assert tuple(Label.__dataclass_fields__) == FIELDS
