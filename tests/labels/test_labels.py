"""The label grammar: the shared examples, and what must hold for every label."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labels import grammar
from labels.grammar import Label
from opspan import labels
from opspan.labels import Kind
from opspan.readers.capture import layout

REPO = Path(__file__).resolve().parents[2]
EXAMPLES = json.loads((REPO / "tests" / "data" / "labels.json").read_text(encoding="utf-8"))
TEXTS = EXAMPLES["texts"]


def label_of(example: dict) -> Label:
    fields = {name: example.get(name) for name in ("seq", "op_id", "forward_tid", "class_name", "args")}
    sizes, edges = example.get("sizes"), example.get("input_op_ids")
    return Label(
        example["name"],
        **fields,
        sizes=None if sizes is None else grammar.format_sizes(sizes),
        input_op_ids=None if edges is None else "[" + ", ".join(f"({op},{nr})" for op, nr in edges) + "]",
    )


@pytest.mark.parametrize("example", TEXTS, ids=lambda example: example["text"][:40])
def test_example_is_read(example: dict) -> None:
    label = grammar.parse(example["text"])

    assert label == label_of(example)
    assert label.kind.name.lower() == example["kind"]


@pytest.mark.parametrize("example", [example for example in TEXTS if example["written"]], ids=lambda e: e["text"][:40])
def test_example_is_written(example: dict) -> None:
    assert grammar.format_label(label_of(example)) == example["text"]


@pytest.mark.parametrize("example", EXAMPLES["interned"], ids=lambda example: example["text"])
def test_interned_text_is_a_label_without_what_stands_beside_it(example: dict) -> None:
    forward = example.get("forward_tid")
    # The main thread is the one a reader assumes, so it is not written.
    expected = label_of({**example, "forward_tid": None if forward == example["pid"] else forward})

    assert grammar.parse(example["text"]) == expected
    assert grammar.format_label(expected) == example["text"]


def test_flat_sizes_of_the_examples_are_sizes() -> None:
    flat = [example for example in TEXTS if "flat" in example]
    assert flat
    for example in flat:
        flattened = []
        for item in example["sizes"]:
            flattened += item if item and isinstance(item[0], list) else [item]
        assert labels.parse_sizes(example["flat"]) == flattened


# --- properties

sizes = st.lists(st.one_of(st.lists(st.integers(-1, 9), max_size=3), st.lists(st.lists(st.integers(0, 9), max_size=2))))
edges = st.lists(st.tuples(st.integers(0, 10**12), st.integers(-1, 3)))
numbers = st.none() | st.integers(0, 10**18 - 1)
# Free text, and text that looks as much like fields as it can.
pieces = st.sampled_from(
    [
        "aten::mm",
        ", ",
        " = ",
        "seq",
        "stashed ",
        "op_id",
        "fwd_tid",
        "class",
        "args",
        "sizes",
        "input_op_ids",
        "[",
        "]",
        "[[2, 4]]",
        "(0,-1)",
        "7",
        "-1",
        "\n",
        "é",
        "Backward0",
        "Backward",
        "torch::autograd::",
        "autograd::engine::evaluate_function",
        "ProfilerStep#",
        " ",
        "N5torch8autograd",
        "::",
    ]
)
free_texts = st.lists(pieces, max_size=12).map("".join) | st.text()


@st.composite
def any_label(draw: st.DrawFn) -> Label:
    return Label(
        draw(free_texts.filter(lambda text: grammar.parse(text) == Label(text))),
        draw(numbers),
        draw(numbers),
        draw(numbers),
        draw(st.none() | st.from_regex(r"[\w.<>]+", fullmatch=True).filter(lambda text: "," not in text)),
        draw(st.none() | free_texts.filter(lambda text: grammar.parse(text) == Label(text))),
        draw(st.none() | sizes.map(grammar.format_sizes)),
        draw(st.none() | edges.map(lambda pairs: "[" + ", ".join(f"({op},{nr})" for op, nr in pairs) + "]")),
    )


@pytest.mark.slow
@given(any_label())
def test_a_written_label_is_read_back(label: Label) -> None:
    assert grammar.parse(grammar.format_label(label)) == label


@given(free_texts)
def test_reading_loses_nothing_of_a_text(text: str) -> None:
    label = grammar.parse(text)
    respelled = re.sub(r", (?:stashed )?seq ?= ?(?=[0-9])", ", seq = ", text)
    without_zeros = re.compile(r"(?<= = )0+(?=[0-9])")

    assert without_zeros.sub(
        "", re.sub(r", (?:stashed )?seq ?= ?(?=[0-9])", ", seq = ", grammar.format_label(label))
    ) == (without_zeros.sub("", respelled))


@given(st.lists(free_texts, min_size=1))
def test_kinds_of_a_column_are_those_of_the_scalar(texts: list[str]) -> None:
    rows = [grammar.parse(text) for text in texts]
    frame = pl.DataFrame(
        [[row.name for row in rows], [row.seq for row in rows], [row.class_name for row in rows]],
        schema={"name": pl.String, "seq": pl.Int64, "class_name": pl.String},
    )

    kinds = frame.select(labels.kind_expr(pl.col("name"), pl.col("seq"), pl.col("class_name"))).to_series()

    assert kinds.to_list() == [row.kind for row in rows]


@given(sizes)
def test_sizes_round_trip(nested: list) -> None:
    assert labels.parse_sizes(grammar.format_sizes(nested)) == nested


@given(edges)
def test_input_op_ids_round_trip(pairs: list) -> None:
    assert grammar.parse_input_op_ids("[" + ", ".join(f"({op},{nr})" for op, nr in pairs) + "]") == pairs


@pytest.mark.parametrize("parse", [labels.parse_sizes, grammar.parse_input_op_ids])
@pytest.mark.parametrize("text", ["", "[", "2", "[[2, 4]", "[[[[2]]]]", "[a]", "__import__('os')"])
def test_text_that_is_no_list_is_refused(parse, text: str) -> None:
    with pytest.raises(ValueError, match="not a list of"):
        parse(text)


# --- what the native side holds as well


def test_kinds_are_those_of_the_native_side() -> None:
    capture = (REPO / "native" / "capture" / "format.h").read_text()
    sinks = (REPO / "native" / "sinks" / "sinks.h").read_text()
    in_capture = re.search(r"enum class Kind : uint32_t \{(.*?)\}", capture, re.DOTALL)
    assert in_capture

    expected = {kind.name.replace("_", "").lower(): kind.value for kind in Kind}
    in_units = {name.lower(): int(n) for name, n in re.findall(r"k(\w+) = (\d+)", in_capture[1])}
    assert in_units.pop("python") == layout.PYTHON, (
        "a call of a Python function is no range, so it is no kind of ranges"
    )
    assert in_units == expected
    assert {
        name.replace("_", "").lower(): int(n) for name, n in re.findall(r"OPSPAN_KIND_(\w+) = (\d+)", sinks)
    } == expected


def test_labels_need_no_polars() -> None:
    program = "import sys, opspan.labels; opspan.labels.kind_of('a', 1); print('polars' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
