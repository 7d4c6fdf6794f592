"""Matrix products and convolutions that do not run on tensor cores, and those whose sizes do not fit them.

What an op could do is told by its name, what it did by its kernels. Which numbers it multiplied is told by its types
where they are known, else by the kernel's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from opspan.analysis.kernels import is_told
from opspan.analysis.tensor_cores import ELIGIBLE
from opspan.findings.rule import Evidence, Rule, ranges_of, where
from opspan.findings.run import Run, ranks_of, top
from opspan.labels import parse_sizes

_col = pl.col
# Kernels that multiply matrices, among all that such ops launch.
_PRODUCT = r"(?i)gemm|gemv|conv|wgrad|dgrad|fprop|winograd|xmma|cutlass|implicit|nvjet"
_SINGLE = r"(?i)sgemm|f32f32_f32f32|simt_f?32|scudnn|_fp?32_fp?32_fp?32|conv2d_grouped_direct"
_HALF = r"(?i)hgemm|_f16|fp16|half|bf16|bfloat16|__nv_bfloat16"
_WITH_TF32 = r"(?i)ampere|hopper|blackwell|sm(8[0-9]|9[0-9]|1[0-9][0-9])"
_HALF_TYPES = r"(?i)half|bfloat16|BFloat16|float16"
_TWICE = 0.5  # of the time: what is at stake if these products become twice as quick


def _products(run: Run) -> pl.DataFrame:
    """Kernels that multiply for eligible ops: with `number`, single or half, as far as is known. None where it is not
    known of too much of the time whether it is spent on tensor cores."""
    rows = run.computing
    ns = _col("ns").sum()
    if not rows.select(is_told(_col("ns").filter(_col("on_tensor_cores").is_null()).sum(), ns)).item():
        rows = rows.clear()
    for column, pattern in (("op", ELIGIBLE), ("name", _PRODUCT)):
        names = rows[column].unique()
        chosen = names.filter(names.cast(pl.String).str.contains(pattern).fill_null(value=False))
        rows = rows.filter(_col(column).is_in(chosen.implode()))
    rows = rows.with_columns(_col("name", "op", "capability").cast(pl.String))
    types = run.trace.ranges["input_types"].cast(pl.String).gather(rows["range"])
    rows = rows.with_columns(types.alias("types"))
    by_type = (
        pl.when(_col("types").str.contains(_HALF_TYPES))
        .then(pl.lit("half"))
        .when(_col("types").str.contains(r'(?i)"float"'))
        .then(pl.lit("single"))
    )
    by_name = (
        pl.when(_col("name").str.contains(_HALF))
        .then(pl.lit("half"))
        .when(_col("name").str.contains(_SINGLE))
        .then(pl.lit("single"))
    )
    return rows.with_columns(number=pl.coalesce(by_type, by_name))


def _has_cores(least: float) -> pl.Expr:
    """Says whether a device of NVIDIA's has these cores, by its compute capability or, where that is not known, by the
    kernel's name."""
    known = _col("capability").str.extract(r"^(?:sm_?)?([0-9]+\.[0-9]+)$").cast(pl.Float64)
    return pl.when(known.is_not_null()).then(known >= least).otherwise(_col("name").str.contains(_WITH_TF32))


def _single(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = _products(run).filter(~_col("on_tensor_cores"), _col("number") == "single", _has_cores(8.0))
    yield from _unused(run, rows, threshold)


def _half(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = _products(run).filter(~_col("on_tensor_cores"), _col("number") == "half", _has_cores(7.0))
    yield from _unused(run, rows, threshold)


def _unused(run: Run, rows: pl.DataFrame, threshold: float) -> Iterator[Evidence]:
    ns = run.per_process(rows, "ns")
    at_stake = int(_TWICE * ns)
    if not run.matters(at_stake, threshold):
        return
    yield Evidence(
        at_stake,
        {"ns": ns, "ns_share": run.share(ns), "kernels": rows.height},
        {"kernel": top(rows, "ns", "name")[0]},
        **where(rows, "ns"),
    )


# Of sizes "[[64, 1023], [1023, 64]]": a number that 8 does not divide, in the last two of a tensor's dimensions; of
# a convolution, the channels of its weight.
def _odd(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = _products(run).filter(_col("number") == "half")
    sizes = run.trace.ranges["sizes"].cast(pl.String).gather(rows["range"])
    rows = rows.with_columns(sizes=sizes).filter(_col("sizes").is_not_null())
    distinct = rows.select("op", "sizes").unique()
    odd = [_is_odd(op, sizes) for op, sizes in distinct.iter_rows()]
    distinct = distinct.with_columns(pl.Series("is_odd", odd, dtype=pl.Boolean)).filter(_col("is_odd"))
    rows = rows.join(distinct, on=["op", "sizes"], how="semi")
    ns = run.per_process(rows, "ns")
    at_stake = int(_TWICE * ns)
    if not run.matters(at_stake, threshold):
        return
    yield Evidence(
        at_stake,
        {"ns": ns, "ns_share": run.share(ns), "kernels": rows.height},
        {"sizes": top(rows, "ns", "sizes")[0]},
        confidence="possible",
        ops=top(rows, "ns", "op"),
        modules=top(rows, "ns", "module"),
        ranks=ranks_of(rows),
        ranges=ranges_of(rows),
    )


def _is_odd(op: str, sizes: str) -> bool:
    try:
        shapes = [_numbers(shape) for shape in parse_sizes(sizes)]
    except ValueError:
        return False
    if "conv" in op:
        weights = [shape for shape in shapes[1:] if len(shape) >= 3]
        numbers = weights[0][:2] if weights else []
    else:
        numbers = [number for shape in shapes[:3] if len(shape) >= 2 for number in shape[-2:]]
    # 1 is a vector, which no size makes fit.
    return any(number % 8 and number != 1 for number in numbers)


def _numbers(shape: Sequence[int | list[int]]) -> list[int]:
    """Returns the sizes of a tensor; a list of tensors has none."""
    return [number for number in shape if isinstance(number, int)]


_SMALL = "a fiftieth of the time: less is lost among the steps' own differences"
_READ = "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/"

RULES = (
    Rule(
        id="tf32-off",
        title="float32 products without TF32",
        looks_at="time of float32 products and convolutions whose kernels do not use the tensor cores of a device that "
        "has them for float32; at stake is half of it",
        threshold=0.02,
        because=_SMALL,
        sentence="float32 products took {ns} ({ns_share}) without tensor cores, most in {kernel}",
        remedy='torch.set_float32_matmul_precision("high") lets products round their inputs to TF32 (10 bits of '
        "mantissa); or train in bfloat16 with torch.autocast",
        command="opspan table FILE --by kernel",
        read="https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        look=_single,
    ),
    Rule(
        id="no-tensor-cores",
        title="Half precision without tensor cores",
        looks_at="time of float16 and bfloat16 products and convolutions whose kernels do not use tensor cores; at "
        "stake is half of it",
        threshold=0.02,
        because=_SMALL,
        sentence="products in half precision took {ns} ({ns_share}) without tensor cores, most in {kernel}",
        remedy="Sizes that 8 divides, contiguous inputs (channels_last for convolutions), a newer cuBLAS and cuDNN",
        command="opspan table FILE --by kernel",
        read=_READ,
        look=_half,
    ),
    Rule(
        id="odd-sizes",
        title="Sizes that 8 does not divide",
        looks_at="time of float16 and bfloat16 products and convolutions of which a size is no multiple of 8; at stake "
        "is half of it",
        threshold=0.02,
        because=_SMALL,
        sentence="products of sizes that 8 does not divide took {ns} ({ns_share}), such as {sizes}",
        remedy="Pad vocabularies, channels and hidden sizes to a multiple of 8, better of 64",
        command="opspan table FILE --by shape",
        read=_READ,
        look=_odd,
    ),
)
