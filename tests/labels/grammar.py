"""The label grammar in plain Python: what the native reader and writer of labels are compared with."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from opspan.labels import SIZES, Kind, kind_of

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
    rf"(?:, sizes = (?P<sizes>{SIZES}))?"
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
    return json.dumps(sizes)


def parse_input_op_ids(text: str) -> list[tuple[int, int]]:
    """The text of an `input_op_ids` field as (op_id, number of its output) pairs; (0, -1) is no op."""
    if re.fullmatch(_EDGES, text) is None:
        raise ValueError(f"not a list of input ops: {text[:80]!r}")
    return [(int(op), int(output)) for op, output in re.findall(r"\(([0-9]+),(-?[0-9]+)\)", text)]
