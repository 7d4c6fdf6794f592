"""Links backward ranges to the forward op whose autograd node they run. docs/analysis.md, "autograd", has the rules.

    autograd(ranges) -> ranges with:
        forward (UInt32): row of the forward op, or null.
        link (Enum): how certain `forward` is, one of LINKS; null unless the range's kind is backward or engine.

`nest` and `ops` must be called first. `seq` is torch's sequence number of an autograd node. Ranges inside a backward
range (its aten ops) are not linked themselves: `within_backward` returns the backward range around them.
"""

from __future__ import annotations

import polars as pl

from opspan import native
from opspan.analysis.nest import codes, nearest, thread_key
from opspan.row_numbers import ROW_NUMBER

LINKED = "linked"
BY_NESTING = "by nesting"
SEVERAL_THREADS = "ambiguous: several threads used this seq"
USED_AGAIN = "ambiguous: the thread used this seq again"
NO_FORWARD = "no forward in the trace"
NO_SEQ = "no seq"
ROOT = "made by the backward itself"
LINKS = pl.Enum([LINKED, BY_NESTING, SEVERAL_THREADS, USED_AGAIN, NO_FORWARD, NO_SEQ, ROOT])

# The position of a link in this list is its number in native/columns/link.cpp.
_NUMBERS = [None, LINKED, SEVERAL_THREADS, USED_AGAIN, NO_FORWARD, NO_SEQ, ROOT, BY_NESTING]
_OF_NUMBER = pl.Series("link", _NUMBERS, dtype=LINKS)

# Ops without an autograd node. Old torch gave them the seq of the node that the op around them was about to create.
_NO_NODE = (
    r"^(aten::)?((new_)?(empty|zeros|ones|full|rand|randn|randint)(_like|_strided)?|arange|linspace|scalar_tensor|eye"
    r"|detach_?|item|_local_scalar_dense|is_floating_point|is_complex|is_nonzero|result_type|resize_)$"
)
# Torch's GraphRoot, the node at which the engine starts a backward. Its seq does not belong to an op.
_ROOTS = r"^(torch::autograd::|N5torch8autograd9)GraphRootE?$"

_col = pl.col


def within_backward(ranges: pl.DataFrame) -> pl.Series:
    """Returns a row number for each range: its own if it is a backward range, otherwise that of the nearest backward
    range around it. Null if there is no such range."""
    return nearest(ranges, ranges["kind"] == "backward")


def inherit_from_forward(ranges: pl.DataFrame, values: pl.Series) -> pl.Series:
    """Fills nulls in `values`: a range that runs in a backward gets the value of the forward op."""
    if "forward" not in ranges.columns or not ranges["forward"].count():
        return values
    inherited = values.gather(ranges["forward"].gather(within_backward(ranges)))
    # A range of the engine lies around backward ranges, not inside one. So the engine's own link counts.
    inherited = inherited.zip_with(inherited.is_not_null(), values.gather(ranges["forward"]))
    return values.zip_with(values.is_not_null(), inherited)


def arrow_numbers(is_end: pl.Expr) -> pl.Expr:
    """Numbers the arrows that trace viewers draw from forward to backward ops. As in torch, numbers begin at 1 and
    follow the start times of the backward ops. `is_end` is True for the backward ops."""
    return pl.when(is_end).then("start_ns").rank("ordinal").cast(pl.Int64)


def autograd(ranges: pl.DataFrame) -> pl.DataFrame:
    is_backward = (ranges["kind"] == "backward").fill_null(value=False) & ~ranges["is_mark"].fill_null(value=False)
    if not is_backward.any():
        none = pl.Series([None], dtype=ROW_NUMBER).new_from_index(0, ranges.height)
        return ranges.with_columns(none.alias("forward"), none.alias("link").cast(LINKS))
    links = native.link(_columns(ranges, is_backward), _names(ranges))
    return ranges.with_columns(links["forward"], _OF_NUMBER.gather(links["link"]).alias("link"))


def _columns(ranges: pl.DataFrame, is_backward: pl.Series) -> pl.DataFrame:
    # Old torch wrote `seq = 0` for every op inside a backward, although such ops create no nodes.
    has_no_seq = ranges.select(((_col("seq") == 0) & _col("op_id").is_null()).fill_null(value=False)).to_series()
    if has_no_seq.any():
        has_no_seq &= nearest(ranges, is_backward).is_not_null()
    is_forward = (
        _col("seq").is_not_null()
        & ~_col("kind").is_in(["engine", "backward"]).fill_null(value=False)
        & ~_col("is_mark").fill_null(value=False)
        & ~pl.lit(has_no_seq)
    )
    return ranges.select(
        *thread_key(ranges),
        "start_ns",
        "seq",
        "forward_tid",
        "parent",
        is_backward.alias("is_backward"),
        is_forward.alias("is_forward"),
        (_col("kind") == "engine").alias("is_engine"),
        codes("name").alias("name"),
    )


def _names(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns facts about each distinct name of a range. The column `name` has the name as a number (`codes`). In
    the column `op`, all names of one op (such as aten::native_layer_norm and NativeLayerNormBackward0) have the same
    number."""
    text = _col("name").cast(pl.String)
    op = text.str.replace(r"^.*::", "").str.replace(r"Backward[0-9]*$", "").str.replace_all("_", "").str.to_lowercase()
    return (
        ranges.select(_col("name").unique())
        .drop_nulls()
        .select(
            codes("name"),
            op=op.rank("dense").cast(ROW_NUMBER),
            makes_node=~text.str.contains(_NO_NODE),
            is_root=text.str.contains(_ROOTS),
        )
    )
