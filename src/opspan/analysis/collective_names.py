"""What names and payloads say of a collective: its kind, how the library does it, the type of its elements. As data.

Names of kernels (NCCL, RCCL, what servers of language models bring along), of torch's ops and records (c10d, nccl:,
gloo:), of ranges of NCCL and MPI, and the collective's name in torch's payload: the same words say the kind in all.
"""

from __future__ import annotations

import json
from math import prod
from typing import Any

import polars as pl

from opspan.element_types import NO_TENSOR, TENSOR_LIST, type_of

_col = pl.col
# The first that fits, in names without regard to case.
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
# Bus bandwidth is algorithm bandwidth times this, for a group of n, as NCCL's tests have it.
BOTH_WAYS = ("all_reduce",)  # 2 (n - 1) / n
ALL_BUT_OWN = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")  # (n - 1) / n
WHOLE = ("broadcast", "reduce", "send", "recv")  # 1
# Nobody is done with one of these before all have begun it.
TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")

# Ranges that a collective is done in: the range ends when it is done.
DONE_IN = r"^((gloo|mpi|ucc):|MPI_[^I])"
# Ranges that start one, and may end long before it is done.
STARTED_IN = (
    r"^((nccl|xccl|oneccl):|record_param_comms$|(_?c10d(_functional)?|symm_mem|vllm|sglang|_C_custom_ar)::"
    r"|nccl[A-Z]|MPI_I)"
)
# Of these only what is known to be one, for the words are in other names of theirs, too: ncclGroupEnd, MPI_Waitall.
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
    """Returns the kind of collective that each name stands for; null if it names none."""
    text = _col("name").cast(pl.String)
    each = names.unique().drop_nulls().alias("name").to_frame().with_columns(found=_kind(text))
    return names.alias("name").to_frame().join(each, on="name", how="left", maintain_order="left")["found"]


def _kind(text: pl.Expr) -> pl.Expr:
    text = text.str.to_lowercase()
    return pl.coalesce(pl.when(text.str.contains(words)).then(pl.lit(said)) for said, words in KINDS.items())


def ranges_named(names: pl.Series) -> pl.DataFrame:
    """Returns the names of collectives: name, said_kind, is_done (the range ends when the collective does)."""
    text = _col("name").cast(pl.String)
    is_done = text.str.contains(DONE_IN)
    fits = (is_done | text.str.contains(STARTED_IN)) & ~text.str.contains(_NO_COLLECTIVE)
    # What record_param_comms is a record of is in its payload.
    found = names.unique().drop_nulls().alias("name").to_frame().filter(fits)
    found = found.select("name", _kind(text).alias("said_kind"), is_done.alias("is_done"))
    return found.filter(_col("said_kind").is_not_null() | (text == "record_param_comms"))


def collectives_done(names: pl.Series) -> pl.Series:
    """Returns the names of ranges that end when their collective does: those that the host does itself."""
    return ranges_named(names).filter("is_done")["name"]


def kernels_named(names: pl.Series) -> pl.DataFrame:
    """name, and what it says: own_kind, algorithm, protocol, own_element."""
    text = _col("name").cast(pl.String)
    is_library = text.str.contains(_LIBRARY)

    def said(pattern: str) -> pl.Expr:
        return pl.when(is_library).then(text.str.extract(pattern).str.to_lowercase())

    return (
        names.unique()
        .alias("name")
        .to_frame()
        .select(
            "name",
            own_kind=_kind(text),
            algorithm=said(_ALGORITHM),
            protocol=said(_PROTOCOL),
            own_element=said(_ELEMENT),
        )
    )


def element_bytes(names: pl.Series) -> pl.Series:
    """Returns the bytes of an element per name of a type; null where the type is unknown."""
    each = names.unique().drop_nulls().cast(pl.String)
    if not len(each):
        return pl.Series([None], dtype=pl.Int64).new_from_index(0, len(names))
    sizes = [type_.bytes if (type_ := type_of(name)) else None for name in each]
    return names.replace_strict(each, pl.Series(sizes, dtype=pl.Int64), default=None, return_dtype=pl.Int64)


def bus_factor(kind: pl.Expr, size: pl.Expr) -> pl.Expr:
    others = pl.when(size > 0).then((size - 1) / size)
    return (
        pl.when(kind.is_in(BOTH_WAYS))
        .then(2 * others)
        .when(kind.is_in(ALL_BUT_OWN))
        .then(others)
        .when(kind.is_in(WHOLE))
        .then(1.0)
    )


def input_bytes(sizes: str | None, types: str | None) -> tuple[int, int, str] | None:
    """Returns how many tensors a range has as inputs, their bytes and the type of their elements, or None."""
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
    """Returns how many elements the inputs of a range have that has tensors alone, and whose types nobody told."""
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
