"""The text of a range label: how it is written and read. docs/labels.md is the same in words.

    aten::linear, seq = 3, op_id = 1, sizes = [[2, 4], [3, 4], [3]], input_op_ids = [(0,-1), (0,-1), (0,-1)]
    AddmmBackward0, seq = 4, op_id = 39, fwd_tid = 812, sizes = [[2, 3]]

The same grammar reads torch's labels of every age and opspan's own; the native writers are tested on the same file of
examples (tests/data/labels.json). `parse` is the grammar; a column is read by its native twin, and tests hold the two
equal. Not here: which field a form of label carries beside its text (payload, metadata),
which is the readers' business, and any meaning across ranges.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


class Kind(enum.IntEnum):
    """What a range is. native/capture/format.h and native/sinks/sinks.h hold the same numbers."""

    UNKNOWN = 0
    OP = 1
    BACKWARD = 2
    ENGINE = 3
    USER = 4
    MODULE = 5
    STEP = 6
    SCRIPT = 7
    DTYPE = 8
    CLASS = 9
    FEATURE = 10
    LITE = 11
    STATIC_OP = 12
    STATIC_MODEL = 13


KIND_NAMES = tuple(kind.name.lower() for kind in Kind)

# Sizes of one op's inputs: a list of ints for a tensor, a list of such lists for a TensorList, [] for anything else.
Sizes = Sequence[Sequence[int] | Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Label:
    """A label, taken apart. None: the text does not say. forward_tid 0: it says that the thread is not known."""

    name: str
    seq: int | None = None
    op_id: int | None = None
    forward_tid: int | None = None
    class_name: str | None = None
    args: str | None = None
    sizes: str | None = None  # as written; parse_sizes takes it apart
    input_op_ids: str | None = None  # as written; parse_input_op_ids takes it apart

    @property
    def kind(self) -> Kind:
        return kind_of(self.name, self.seq, self.class_name)


# --- the grammar

# 18 digits fit 64 bits, signed or not. A longer number is no number of torch's, so it stays in the name.
_NUMBER = "[0-9]{1,18}"
_INTS = "-?[0-9]+(?:, -?[0-9]+)*"
_TENSOR = rf"\[(?:{_INTS})?\]"
_INPUT = rf"\[(?:{_INTS}|{_TENSOR}(?:, {_TENSOR})*)?\]"
_SIZES = rf"\[(?:{_INPUT}(?:, {_INPUT})*)?\]"
_EDGE = r"\([0-9]+,-?[0-9]+\)"
_EDGES = rf"\[(?:{_EDGE}(?:, {_EDGE})*)?\]"

# The name is free text and may itself contain ", " and " = ": it takes as little as it can while everything after it
# still reads as fields, in their order, up to the very end. Old torch wrote `seq=3`, and `stashed seq=3` for backward.
_LABEL = re.compile(
    r"(?s)(?P<name>.*?)"
    rf"(?:, (?:stashed )?seq ?= ?(?P<seq>{_NUMBER}))?"
    rf"(?:, op_id = (?P<op_id>{_NUMBER}))?"
    rf"(?:, fwd_tid = (?P<forward_tid>{_NUMBER}))?"
    r"(?:, class = (?P<class_name>[^ ,]+))?"
    r"(?:, args = (?P<args>.*?))?"
    rf"(?:, sizes = (?P<sizes>{_SIZES}))?"
    rf"(?:, input_op_ids = (?P<input_op_ids>{_EDGES}))?"
)


def parse(text: str) -> Label:
    """Take one label apart. Never fails: text without fields is all name."""
    match = _LABEL.fullmatch(text)
    if match is None:
        raise RuntimeError("the label grammar matches every text")
    name, seq, op_id, forward_tid, class_name, args, sizes, input_op_ids = match.groups()
    return Label(
        name,
        seq=None if seq is None else int(seq),
        op_id=None if op_id is None else int(op_id),
        forward_tid=None if forward_tid is None else int(forward_tid),
        class_name=class_name,
        args=args,
        sizes=sizes,
        input_op_ids=input_op_ids,
    )


def format_label(label: Label) -> str:
    """Write a label. A name or args that end in what reads as a field do not survive; nothing else is lost."""
    fields = (
        ("seq", label.seq),
        ("op_id", label.op_id),
        ("fwd_tid", label.forward_tid),
        ("class", label.class_name),
        ("args", label.args),
        ("sizes", label.sizes),
        ("input_op_ids", label.input_op_ids),
    )
    return label.name + "".join(f", {field} = {value}" for field, value in fields if value is not None)


def format_sizes(sizes: Sizes) -> str:
    """[[2, 4], [[2], [3]], []] as text, with the one spelling that labels use."""
    import json

    return json.dumps(sizes)


def parse_sizes(text: str) -> list[list[int] | list[list[int]]]:
    """The text of a `sizes` field as nested lists."""
    import json

    if re.fullmatch(_SIZES, text) is None:
        raise ValueError(f"not a list of sizes: {text[:80]!r}")
    sizes: list[list[int] | list[list[int]]] = json.loads(text)
    return sizes


def parse_input_op_ids(text: str) -> list[tuple[int, int]]:
    """The text of an `input_op_ids` field as (op_id, number of its output) pairs; (0, -1) is no op."""
    if re.fullmatch(_EDGES, text) is None:
        raise ValueError(f"not a list of input ops: {text[:80]!r}")
    return [(int(op), int(output)) for op, output in re.findall(r"\(([0-9]+),(-?[0-9]+)\)", text)]


# --- what a name says about its range, where nothing better is known

_ENGINE = "autograd::engine::evaluate_function"
# AccumulateGrad, CopySlices, ...; the second is how torch 0.4 wrote them.
_NODES = ("torch::autograd::", "N5torch8autograd")
# Generated nodes end in a digit. Those of old torch and of a custom Function do not: their seq tells them from a
# user's "MyBackward".
_NODE = "[^ ]+Backward[0-9]+"
_NODE_WITH_SEQ = "[^ ]+Backward"
# The second is what torch itself records inside aten::detach, without a namespace.
_OP = "[a-z_][a-z0-9_]*::[A-Za-z0-9_.]+|detach_?"
_STEP = "ProfilerStep#[0-9]+"


def kind_of(name: str, seq: int | None, class_name: str | None = None) -> Kind:
    """The most likely kind of a range from its label. Forms that carry the kind itself do not need this."""
    if class_name is not None:
        return Kind.MODULE
    if name.startswith(_ENGINE):
        return Kind.ENGINE
    if name.startswith(_NODES) or re.fullmatch(_NODE, name):
        return Kind.BACKWARD
    if seq is not None:
        return Kind.BACKWARD if re.fullmatch(_NODE_WITH_SEQ, name) else Kind.OP
    if re.fullmatch(_OP, name):
        return Kind.OP
    return Kind.STEP if re.fullmatch(_STEP, name) else Kind.USER


def kind_expr(name: pl.Expr, seq: pl.Expr, class_name: pl.Expr) -> pl.Expr:
    """kind_of for columns, as numbers; null where there is no name."""
    import polars as pl

    def kind(value: Kind) -> pl.Expr:
        return pl.lit(int(value), dtype=pl.UInt8)

    def is_all(pattern: str) -> pl.Expr:
        return name.str.contains(f"^(?:{pattern})$")

    node = name.str.starts_with(_NODES[0]) | name.str.starts_with(_NODES[1]) | is_all(_NODE)
    return (
        pl.when(name.is_null())
        .then(None)
        .when(class_name.is_not_null())
        .then(kind(Kind.MODULE))
        .when(name.str.starts_with(_ENGINE))
        .then(kind(Kind.ENGINE))
        .when(node | (seq.is_not_null() & is_all(_NODE_WITH_SEQ)))
        .then(kind(Kind.BACKWARD))
        .when(seq.is_not_null() | is_all(_OP))
        .then(kind(Kind.OP))
        .when(is_all(_STEP))
        .then(kind(Kind.STEP))
        .otherwise(kind(Kind.USER))
    )


# --- columns


def parse_column(texts: pl.Series) -> pl.DataFrame:
    """`parse` over a column: one row a text, in order, with Label's fields as columns; names, classes and sizes as
    Categoricals. Beside them `kind` (a number) and `text`, which is null where it is just the name. Null text: a row of
    nulls.
    """
    import polars as pl

    from opspan import native

    return native.labels(texts.cast(pl.String), threads=len(os.sched_getaffinity(0)))
