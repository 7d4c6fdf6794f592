"""Reads the kind, algorithm, protocol and element type of collectives from names and payloads.

The names are those of kernels (of NCCL, RCCL and servers of language models), of torch's ops and records (c10d, nccl:,
gloo:), and of ranges of NCCL and MPI. torch's payloads also state the collective's name (`Collective name`). A word
such as all_gather means the same kind of collective in all these names.
"""

from __future__ import annotations

import json
from math import prod
from typing import Any

import polars as pl

from opspan.element_types import NO_TENSOR, TENSOR_LIST, type_of

_col = pl.col
# Patterns for names in lower case. The first pattern that fits a name counts.
KINDS = {
    "reduce_scatter": r"reduce_?scatter",
    "all_reduce": r"all_?reduce|cross_device_reduce",
    "all_gather": r"all_?gather",
    "all_to_all": r"all_?to_?all",
    "broadcast": r"broadcast|bcast",
    "barrier": r"barrier",
    "send_recv": r"send_?recv",
    "send": r"send",
    "recv": r"recv|receive",
    "gather": r"gather",
    "scatter": r"scatter",
    "reduce": r"reduce",
}
# Bus bandwidth is algorithm bandwidth times a factor that depends on the number n of ranks, as in NCCL's tests.
BOTH_WAYS = ("all_reduce",)  # kinds with the factor 2 (n - 1) / n
ALL_BUT_OWN = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")  # kinds with the factor (n - 1) / n
WHOLE = ("broadcast", "reduce", "send", "recv")  # kinds whose bus bandwidth equals their algorithm bandwidth (factor 1)
# All ranks must begin a collective of these kinds before any rank is done with it.
TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")

# Names of ranges that end when their collective is done.
DONE_IN = r"^((gloo|mpi|ucc):|MPI_[^I])"
# Names of ranges that start a collective, and may end long before it is done.
STARTED_IN = (
    r"^((nccl|xccl|oneccl):|record_param_comms$|(_?c10d(_functional)?|symm_mem|vllm|sglang|_C_custom_ar)::"
    r"|nccl[A-Z]|MPI_I)"
)
# Excludes names that fit DONE_IN or STARTED_IN but are not collectives, such as ncclGroupEnd and MPI_Waitall.
_NO_COLLECTIVE = (
    r"(?i)wait|group(start|end)|comm(init|count|destroy|split|abort|finalize|_)|_init|redop|memalloc|sendrecv_replace"
)
_LIBRARY = r"(?i)^(nccl|rccl)"
_ALGORITHM = (
    r"(?i)(?:_|Gather|Reduce|Scatter|Broadcast)"
    r"(RING|TREE|COLLNET_DIRECT|COLLNET_CHAIN|NVLS_TREE|NVLS|PAT)(?:_|LL|Kernel|$)"
)
_PROTOCOL = r"(?i)(?:_|Ring|Tree)(LL128|LL|SIMPLE)(?:_|Kernel|$)"
_ELEMENT = r"_(bf16|f16|f32|f64|f8e4m3|f8e5m2|[iu](?:8|32|64)|u?int(?:8|32|64)_t|half|float|double)(?:_|$)"


def kinds(names: pl.Series) -> pl.Series:
    """Returns the kind of collective that each name shows, or null."""
    text = _col("name").cast(pl.String)
    known = names.unique().drop_nulls().alias("name").to_frame().with_columns(kind=_kind(text))
    return names.alias("name").to_frame().join(known, on="name", how="left", maintain_order="left")["kind"]


def _kind(text: pl.Expr) -> pl.Expr:
    text = text.str.to_lowercase()
    return pl.coalesce(pl.when(text.str.contains(words)).then(pl.lit(kind)) for kind, words in KINDS.items())


def ranges_named(names: pl.Series) -> pl.DataFrame:
    """Returns a row for each name of a range of a collective: name, name_kind (the kind of collective that the name
    shows) and is_done (whether a range of this name ends when the collective ends)."""
    text = _col("name").cast(pl.String)
    is_done = text.str.contains(DONE_IN)
    fits = (is_done | text.str.contains(STARTED_IN)) & ~text.str.contains(_NO_COLLECTIVE)
    known = names.unique().drop_nulls().alias("name").to_frame().filter(fits)
    known = known.select("name", _kind(text).alias("name_kind"), is_done.alias("is_done"))
    # The name record_param_comms does not show the kind of the collective. The payload of the range has it.
    return known.filter(_col("name_kind").is_not_null() | (text == "record_param_comms"))


def collectives_done(names: pl.Series) -> pl.Series:
    """Returns the names of ranges that end when their collective ends, because the host itself runs the collective."""
    return ranges_named(names).filter("is_done")["name"]


def kernels_named(names: pl.Series) -> pl.DataFrame:
    """Returns a row for each name of a kernel: name, and what the name shows about the collective: own_kind, algorithm,
    protocol and own_element (the element type)."""
    text = _col("name").cast(pl.String)
    is_library = text.str.contains(_LIBRARY)

    def part(pattern: str) -> pl.Expr:
        return pl.when(is_library).then(text.str.extract(pattern).str.to_lowercase())

    parts = {"algorithm": part(_ALGORITHM), "protocol": part(_PROTOCOL), "own_element": part(_ELEMENT)}
    return names.unique().alias("name").to_frame().select("name", own_kind=_kind(text), **parts)


def element_bytes(names: pl.Series) -> pl.Series:
    """Returns the bytes of an element for each name of a type; null if the type is unknown."""
    known = names.unique().drop_nulls().cast(pl.String)
    if not len(known):
        return pl.Series([None], dtype=pl.Int64).new_from_index(0, len(names))
    sizes = [type_.bytes if (type_ := type_of(name)) else None for name in known]
    return names.replace_strict(known, pl.Series(sizes, dtype=pl.Int64), default=None, return_dtype=pl.Int64)


def bus_factor(kind: pl.Expr, size: pl.Expr) -> pl.Expr:
    """Returns the factor of each kind of collective among `size` ranks. Bus bandwidth is algorithm bandwidth times this
    factor."""
    others = pl.when(size > 0).then((size - 1) / size)
    factors = {BOTH_WAYS: 2 * others, ALL_BUT_OWN: others, WHOLE: pl.lit(1.0)}
    return pl.coalesce(pl.when(kind.is_in(names)).then(factor) for names, factor in factors.items())


def input_bytes(sizes: str | None, types: str | None) -> tuple[int, int, str] | None:
    """Returns how many input tensors a range has, their bytes and their element type; None if these are unknown."""
    try:
        shapes, names = json.loads(sizes or "[]"), json.loads(types or "[]")
    except (ValueError, RecursionError):
        return None
    if not isinstance(shapes, list) or not isinstance(names, list) or len(shapes) != len(names):
        return None
    tensors = [(shape, name) for shape, name in zip(shapes, names, strict=True) if _is_tensor(shape, name)]
    if not tensors or any(name == "TensorList" for name in names):
        return None
    elements = {str(name).lower().removeprefix("c10::") for _, name in tensors}
    if len(elements) != 1 or (type_ := type_of(one := elements.pop())) is None:
        return None
    total = sum(prod(shape) for shape, _ in tensors) * type_.bytes
    return (len(tensors), total, one) if total < 2**63 else None


def untyped_elements(sizes: str | None) -> int | None:
    """Returns how many elements the inputs of a range have in all; None if not all inputs are tensors. Their types need
    not be known."""
    try:
        shapes = json.loads(sizes or "[]")
    except (ValueError, RecursionError):
        return None
    is_known = isinstance(shapes, list) and shapes and all(shape and _is_tensor(shape, "a type") for shape in shapes)
    return total if is_known and (total := sum(prod(shape) for shape in shapes)) < 2**50 else None


def _is_tensor(shape: Any, name: Any) -> bool:
    is_shape = isinstance(shape, list) and all(isinstance(size, int) and size >= 0 for size in shape)
    is_scalar = isinstance(name, str) and (name in NO_TENSOR or name == TENSOR_LIST)
    return is_shape and bool(name) and not is_scalar
