"""Parses the text of a range label into its fields, its sizes and the kind of the range. docs/labels.md has the
grammar.

    aten::linear, seq = 3, op_id = 1, sizes = [[2, 4], [3, 4], [3]], input_op_ids = [(0,-1), (0,-1), (0,-1)]
    AddmmBackward0, seq = 4, op_id = 39, fwd_tid = 812, sizes = [[2, 3]]

The grammar covers opspan's labels and the labels of all releases of torch. It is implemented three times: native code
writes labels (native/sinks/text.cpp), native code parses columns of labels (native/columns/grammar.cpp), and the tests
have a separate parser. The tests check all three with one file of examples. The readers read fields that a trace stores
beside a label (payload, metadata). The analyses know what the fields mean.
"""

from __future__ import annotations

import enum
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

# The begin of the text of a mark. The rest of this text is the label `run_id` that the run has on a Pyroscope server.
PYROSCOPE_RUN = "pyroscope run_id="


class Kind(enum.IntEnum):
    """The kind of a range. native/capture/format.h and native/sinks/sinks.h have the same numbers."""

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

# The text of a `sizes` field: a list of ints for a tensor, a list of such lists for a TensorList, [] for anything else.
_INTS = "-?[0-9]+(?:, -?[0-9]+)*"
_TENSOR = rf"\[(?:{_INTS})?\]"
_INPUT = rf"\[(?:{_INTS}|{_TENSOR}(?:, {_TENSOR})*)?\]"
SIZES = rf"\[(?:{_INPUT}(?:, {_INPUT})*)?\]"


def parse_sizes(text: str) -> list[list[int] | list[list[int]]]:
    """Parses the text of a `sizes` field into nested lists."""
    import json

    if re.fullmatch(SIZES, text) is None:
        raise ValueError(f"not a list of sizes: {text[:80]!r}")
    sizes: list[list[int] | list[list[int]]] = json.loads(text)
    return sizes


# --- kinds of ranges, guessed from the label

_ENGINE = "autograd::engine::evaluate_function"
# The names of some autograd nodes, such as AccumulateGrad and CopySlices, begin with one of these. torch 0.4 wrote the
# second one.
_NODES = ("torch::autograd::", "N5torch8autograd")
# The names of autograd nodes that torch generates end with a digit. In old torch and for custom Functions they do not.
# Then the label must also have a `seq`, because a user's range may be named "MyBackward", too.
_NODE = "[^ ]+Backward[0-9]+"
_NODE_WITH_SEQ = "[^ ]+Backward"
# Ops have a namespace, except `detach` and `detach_`, which torch records inside aten::detach.
_OP = "[a-z_][a-z0-9_]*::[A-Za-z0-9_.]+|detach_?"
_STEP = "ProfilerStep#[0-9]+"
# The begin of a mark's name; the number of a step follows. In a session without a schedule, the mark ends this step.
END_OF_STEP = "end of ProfilerStep#"


def kind_of(name: str, seq: int | None, class_name: str | None = None) -> Kind:
    """Guesses the kind of a range from its label, for files that do not state the kind."""
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
    """Returns a polars expression that computes `kind_of` as a number, or null for rows whose name is null."""
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


# --- columns of labels


def parse_column(texts: pl.Series) -> pl.DataFrame:
    """Splits labels into fields. Returns a row for each text, in order, with a column for each field. Names, classes
    and sizes are Categoricals. `kind` is a number. `text` is null if it equals the name. A null text gives a row of
    nulls."""
    import polars as pl

    from opspan import native

    fields = native.labels(texts.cast(pl.String), threads=len(os.sched_getaffinity(0)))
    # Most columns are empty, because none of the labels has the field. Made from a literal, an empty column takes no
    # memory.
    empty = (column for column in fields.iter_columns() if column.null_count() == len(column))
    return fields.with_columns(pl.lit(None, dtype=column.dtype).alias(column.name) for column in empty)
