"""Counts the operations of attention in the steps of serving engines, whose labels tell the lengths of sequences.

    served_attention(ranges, without=()) -> row, and the columns of `costs`, for each op whose cost is known. `without`
        has names of ops to leave out.

vLLM keeps keys and values of all requests in a cache of pages. Its attention op gets the new tokens of all requests and
takes everything else from the cache. So its inputs do not tell how many keys there are. The label of the step around
the op does (`engine_labels`), if it is detailed. With q new tokens and k keys for each request:

    flops = 2 * heads * (width of keys + width of values) * sum(q * k)
    masked_flops = 2 * heads * (width of keys + width of values) * sum(q * q - q) / 2

masked_flops counts what a causal mask hides: the new tokens are the last of the k tokens, so the first query does not
see the q - 1 keys after it, and so on. Only decoders keep a cache like this, and they are causal. A layer may also have
a window, which hides more, but traces do not show it. The bytes are unknown, because the type of the cache is unknown.

The label of the nearest step counts. The op may have more tokens than the label, because graphs are captured for
certain numbers of tokens, and inputs are padded. If it has fewer, the engine divided the step, and the cost is unknown.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import polars as pl

from opspan.analysis.engine_labels import engine_labels
from opspan.analysis.nest import nearest
from opspan.analysis.op_cost import ASSUMED, COLUMNS, MOST, UNKNOWN
from opspan.element_types import names_in, type_of
from opspan.labels import parse_sizes
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.schema import NAME

OPS = ("vllm::unified_attention", "vllm::unified_attention_with_output")
_PHASES = ("prefill", "decode")
_SAID = ("tokens", "sqsq", "sqsk")
_col = pl.col


def served_attention(ranges: pl.DataFrame, without: Collection[str] = ()) -> pl.DataFrame:
    names = pl.Series([name for name in OPS if name not in without], dtype=NAME)
    chosen = (ranges["name"].is_in(names.implode()) & ranges["sizes"].is_not_null()).fill_null(value=False)
    none = pl.DataFrame(schema={"row": ROW_NUMBER, **COLUMNS})
    if not chosen.any():
        return none
    labels = engine_labels(ranges["name"])
    if not labels.height:
        return none
    sums = {of: pl.sum_horizontal(*(f"{phase}_{of}" for phase in _PHASES), ignore_nulls=False) for of in _SAID[1:]}
    labels = labels.select("name", "tokens", **sums, is_label=pl.lit(value=True))
    said = ranges.select("name").join(labels, on="name", how="left", maintain_order="left")
    around = nearest(ranges, said["is_label"].fill_null(value=False)).filter(chosen)
    some = ranges.select("sizes", "input_types").with_row_index("row").filter(chosen)
    some = some.with_columns(said[column].gather(around) for column in _SAID).drop_nulls(_SAID)
    distinct = some.drop("row").unique()
    rows = pl.DataFrame([_cost(*row) for row in distinct.iter_rows()], schema=COLUMNS, orient="row")
    rows = some.join(pl.concat([distinct, rows], how="horizontal"), on=distinct.columns, nulls_equal=True)
    return rows.select("row", *COLUMNS).drop_nulls("flops")


def _three(sizes: Any) -> tuple[int, int, int]:
    tokens, heads, width = sizes
    return tokens, heads, width


def _cost(sizes: str, types: str | None, tokens: int, sqsq: int, sqsk: int) -> tuple[Any, ...]:
    unknown = (None, None, None, False, None, True)
    try:
        query, key, value = (_three(one) for one in parse_sizes(sizes)[:3])
        named = None if types is None else names_in(types)[0]
        if query[1] % key[1] or query[2] != key[2]:
            return unknown
    except UNKNOWN:
        return unknown
    # In a label of an engine, q * q never exceeds q * k, and q * q - q is always even.
    if query[0] < tokens or sqsk < sqsq or sqsq < tokens or (sqsq - tokens) % 2:
        return unknown
    per_pair = 2 * query[1] * (query[2] + value[2])
    flops, masked = per_pair * sqsk, per_pair * (sqsq - tokens) // 2
    if not 0 <= flops < MOST:
        return unknown
    own = ASSUMED if named is None else type_of(named)
    return flops, None, own and own.precision, named is None, masked, True
