"""A rule about copies on the host that only change the order of a tensor's elements in memory.

The sizes, types and strides of the inputs of aten::copy_ prove it:

    sizes [[4, 16, 64, 64], [4, 16, 64, 64], []]  types ["float", "float", "Scalar"]
    strides [[65536, 1, 1024, 16], [65536, 4096, 64, 1], []]

Both tensors have the same sizes and type, but the second dimension is the innermost one in the target only. A copy of a
slice, and a copy of a tensor that was expanded, keep the order of the dimensions and do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import polars as pl

from opspan.findings.copy_causes import COPY, copy_causes, outermost_copies
from opspan.findings.odd_steps import rows_in_steps
from opspan.findings.rule import Evidence, Rule, place_of
from opspan.findings.run import Run, top
from opspan.findings.saved import leave_out, saved_ns, spans_around

_col = pl.col
# Ops that write tensors in layouts of oneDNN, which have no strides.
_REORDERS = r"^aten::(to_mkldnn|_mkldnn_transpose_?|mkldnn_reorder_\w+)$"
_MOST_DIMENSIONS = 64  # torch's limit; a damaged file may say more
_TEXTS = ("sizes", "input_types", "input_strides")


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    if run.has_devices:
        return
    rows = _conversions(run)
    ns = run.longest(rows, "ns")
    if not run.matters(ns, threshold):
        return
    outermost = outermost_copies(run, rows["range"]).fill_null(rows["range"])
    stretches = spans_around(run, pl.DataFrame({"range": outermost, "of": outermost}))
    at_stake = saved_ns(run, leave_out(run, stretches=stretches), threshold)
    if not run.matters(at_stake, threshold):
        return
    # A program that copies by itself needs the copy for the op that it called for that, such as aten::contiguous.
    asked = run.trace.ranges["name"].gather(outermost).cast(pl.String)
    causes = copy_causes(run, rows["range"])
    places = place_of(rows.with_columns(op=causes.zip_with(causes.is_not_null(), asked)), "ns")
    tensor = next(iter(top(rows, "ns", "tensor")), "sizes that the file does not have")
    yield Evidence(
        at_stake,
        {"ns": ns, "ns_share": run.share(ns), "copies": rows.height},
        {"tensor": tensor, "causes": ", ".join(places["ops"])},
        **places,
    )


def _conversions(run: Run) -> pl.DataFrame:
    """Returns the ops that convert layouts, with `range`, `ns` (the op's own time) and `tensor`, which describes the
    tensor of a copy (see `converted`). It is null for reorders of oneDNN."""
    names = run.ranges["name"].unique().cast(pl.String)
    reorders = names.filter(names.str.contains(_REORDERS).fill_null(value=False))
    is_copy, is_reorder = _col("name") == COPY, _col("name").is_in(reorders.cast(pl.Categorical).implode())
    rows = rows_in_steps(run, run.ranges.filter(is_copy | is_reorder, _col("self_ns") > 0))
    rows = rows.rename({"row": "range"}).with_columns(ns="self_ns")
    ranges = run.trace.ranges
    rows = rows.with_columns(ranges[name].gather(rows["range"]).cast(pl.String).alias(name) for name in _TEXTS)
    distinct = rows.filter(is_copy).select(_TEXTS).unique().drop_nulls()
    tensors = pl.Series("tensor", [converted(*texts) for texts in distinct.iter_rows()], dtype=pl.String)
    rows = rows.join(distinct.with_columns(tensors), on=_TEXTS, how="left", maintain_order="left")
    return rows.filter(_col("tensor").is_not_null() | is_reorder)


def converted(sizes: str, types: str, strides: str) -> str | None:
    """Takes the sizes, types and strides of the inputs of a copy. Returns the sizes, and the dimensions in the
    order of their strides in both tensors, if the copy only changes the order of the elements, else None."""
    lists = [_two_lists(text) for text in (sizes, strides)]
    kinds = _loaded(types)[:2]
    if None in lists or len(kinds) < 2 or kinds[0] != kinds[1] or not isinstance(kinds[0], str) or not kinds[0]:
        return None
    ((size, from_size), (to, from_)) = lists  # type: ignore[misc]  # neither is None
    is_whole = size == from_size and len(size) == len(to) == len(from_) <= _MOST_DIMENSIONS
    if not is_whole or not _is_order_other(size, to, from_):
        return None
    shown = "x".join(map(str, size))
    return f"{shown} (dimensions {_order(from_)} to {_order(to)})"


def _order(strides: Sequence[int]) -> str:
    """Returns the numbers of the dimensions, the one with the largest stride first."""
    return " ".join(str(at) for at in sorted(range(len(strides)), key=lambda at: -strides[at]))


def _is_order_other(size: Sequence[int], to: Sequence[int], from_: Sequence[int]) -> bool:
    """Returns whether two dimensions lie the other way around in memory. Dimensions of one element have no order, and
    neither have those that repeat their elements (stride 0)."""
    many = [at for at, count in enumerate(size) if count > 1 and to[at] > 0 and from_[at] > 0]
    return any((to[one] - to[other]) * (from_[one] - from_[other]) < 0 for one, other in combinations(many, 2))


def _two_lists(text: str) -> list[list[int]] | None:
    """Returns the lists of the first two inputs."""
    first = _loaded(text)[:2]
    is_known = len(first) == 2 and all(isinstance(one, list) and all(type(n) is int for n in one) for one in first)
    return first if is_known else None


def _loaded(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


RULES = (
    Rule(
        id="layouts",
        title="Copies that only change the order of elements in memory",
        looks_at="time of copies (aten::copy_) of programs without devices whose ends have the same sizes and type, "
        "but strides that put two dimensions the other way around, and of reorders of oneDNN (aten::to_mkldnn); at "
        "stake is how much sooner the run would have ended without them and the ops that only call them. Strides must "
        "have been recorded",
        threshold=0.05,
        because="a twentieth of the time: layers of transformers that split their heads need about two percent for it",
        sentence="{copies} copies only changed the order of elements in memory, for {ns} ({ns_share}), most of "
        "a tensor of {tensor}; the ops that ask for them: {causes}",
        remedy="Keep one layout through the loop: convert the model and its inputs once "
        "(model.to(memory_format=torch.channels_last)), store weights as they are used instead of calling "
        ".t().contiguous() in the loop, and leave out .contiguous() where the next op takes strides",
        command="opspan table FILE --by shape",
        read="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
        look=_look,
        condition="if the ops that read the copies took no longer with the other order",
    ),
)
