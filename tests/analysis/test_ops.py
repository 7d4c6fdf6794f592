"""Labels that no reader took apart, and PyProf's markers."""

from __future__ import annotations

import pytest

from analysis.frames import ranges
from opspan.analysis import ops


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
