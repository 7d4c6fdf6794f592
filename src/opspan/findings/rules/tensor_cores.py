"""Matrix products and convolutions that do not run on tensor cores, and those whose sizes do not fit them.

That work is a product is told by its kernel's name. Which numbers it multiplies is told by the types of its op, where
these are known and the op is one of products, else by the kernel's name, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import polars as pl

from opspan.analysis.kernels import is_told
from opspan.analysis.spans import looked_up
from opspan.analysis.tensor_cores import ELIGIBLE
from opspan.findings.rule import Evidence, Rule, ranges_of, where
from opspan.findings.run import Run, ranks_of, top
from opspan.findings.saved import less, saved_ns
from opspan.labels import parse_sizes

_col = pl.col
# Kernels that multiply matrices, among all that ops of products launch.
_PRODUCT = r"(?i)gemm|conv|wgrad|dgrad|fprop|xmma|cutlass|implicit|nvjet|^cijk_"
# Not what tensor cores are for: a product with a vector reads more than it multiplies; complex numbers, transforms and
# convolutions of each channel by itself have other ways; what prepares and sums up a product multiplies nothing.
_OTHERS = (
    r"(?i)gemv|gemmk1|gemmsn|dot_kernel|wvsplitk|[^a-z]g?[cz]gemm|winograd|fft|depthwise|grouped_direct|"
    r"splitkreduce|reducesplitk|im2col|^cijk_[a-z]+_[a-z]+_[cz]b_"
)
# Numbers by the names of kernels: volta_fp16_sgemm_fp16_... multiplies half precision. Tensile says HHS, BBS, SB.
_HALF = r"(?i)hgemm|_f16|fp16|half|bf16|bfloat16|^cijk_[a-z]+_[a-z]+_(hb|hhs|hss|bb|bbs|bss)_"
_SINGLE = (
    r"(?i)(^|[^a-z])sgemm|f32f32_f32f32|simt_f?32|scudnn|_fp?32_fp?32_fp?32|[dw]grad\w*_engine<float|"
    r"^cijk_[a-z]+_[a-z]+_(sb|s_b)_"
)
_HALF_TYPES = r"(?i)half|bfloat16|BFloat16|float16"
_AMD = r"(?i)amd|radeon|instinct|gfx"
_AMD_KERNEL = r"(?i)^cijk_|miopen|_gtcx|ck_tile|\baiter::"
# Architectures without a capability that says it, by what kernels are called: code for one runs on no older one.
_FROM_AMPERE_ON = r"(?i)ampere|hopper|blackwell|(sm|cutlass_)(8[0-9]|9[0-9]|1[0-9][0-9])_"
_FROM_VOLTA_ON = rf"{_FROM_AMPERE_ON}|(?i)volta|turing|(sm|cutlass_)7[05]_"
_HALF_OF_IT = 0.5  # of the time: how long products would take instead no trace says
_SAME = ("whole", "grid_x", "grid_y", "grid_z")
_LEAST_ROWS = 16  # products of fewer rows wait for memory on every device: 8 operations a byte in float32, and fewer


def _products(run: Run, which: pl.Series, threshold: float) -> pl.DataFrame:
    """Those of some kernels that multiply, by their names: with `number`, single or half, as far as is known. None
    where it is not known of too much of the time whether it is spent on tensor cores, or where they do not matter."""
    rows = run.computing
    ns = _col("ns").sum()
    is_known = rows.select(is_told(_col("ns").filter(_col("on_tensor_cores").is_null()).sum(), ns)).item()
    whole = rows.select(pl.coalesce("full_name", "name")).to_series()
    names = whole.unique().to_frame("name").select("name", text=_col("name").cast(pl.String))
    names = names.filter(_matches(_col("text"), _PRODUCT), ~_matches(_col("text"), _OTHERS))
    rows = rows.filter(which & whole.is_in(names["name"].implode()))
    if not is_known or not run.matters(_HALF_OF_IT * run.per_process(rows, "ns"), threshold):
        rows = rows.clear()
    types, sizes = (run.trace.ranges[name].gather(rows["range"]) for name in ("input_types", "sizes"))
    rows = rows.with_columns(types.alias("types"), sizes)
    # Each distinct one is looked at once.
    key = ["name", "full_name", "op", "types"]
    numbers = rows.select(key).unique()
    rows = rows.join(numbers.with_columns(_number()), on=key, nulls_equal=True, maintain_order="left")
    return rows.with_columns(_col("name", "op", "capability", "sizes").cast(pl.String), _whole())


def _whole() -> pl.Expr:
    return pl.coalesce("full_name", "name").cast(pl.String).alias("whole")


def _matches(text: pl.Expr, pattern: str) -> pl.Expr:
    return text.str.contains(pattern).fill_null(value=False)


def _number() -> pl.Expr:
    types = _col("types").cast(pl.String)
    by_type = (
        # The inputs of another op need not be those of the product.
        pl.when(~_matches(_col("op").cast(pl.String), ELIGIBLE))
        .then(None)
        .when(_matches(types, _HALF_TYPES))
        .then(pl.lit("half"))
        .when(_matches(types, '(?i)"float"'))
        .then(pl.lit("single"))
        .when(_matches(types, '"(double|int|long)'))
        .then(pl.lit("another"))
    )
    by_name = (
        pl.when(_matches(_whole(), _HALF)).then(pl.lit("half")).when(_matches(_whole(), _SINGLE)).then(pl.lit("single"))
    )
    return pl.coalesce(by_type, by_name).alias("number")


def _has_cores(run: Run, rows: pl.DataFrame, least: float, by_name: str, amd: str) -> pl.Series:
    """Says whether the devices of `rows` have these cores: NVIDIA's by their compute capability or, where that is not
    known, by the kernel's name; AMD's, whose capabilities are numbers of their own, by `amd`, a pattern of what they
    are called."""
    devices = run.trace.devices.select("rank", "device_id", device=_col("name").cast(pl.String))
    rows = looked_up(rows, devices.unique(["rank", "device_id"], keep="first"), ("rank", "device_id"))
    said = pl.concat_str(pl.lit(" "), "device", "capability", separator=" ", ignore_nulls=True)
    capability = _col("capability").str.extract(r"^(?:sm_?)?([0-9]+\.[0-9]+)$").cast(pl.Float64)
    is_amd = said.str.contains(_AMD) | _matches(_col("whole"), _AMD_KERNEL)
    return rows.select(
        pl.when(is_amd)
        .then(said.str.contains(amd))
        .when(said.str.contains("GTX 16"))  # Turing without these cores
        .then(pl.lit(value=False))
        .otherwise(pl.coalesce(capability >= least, _matches(_col("whole"), by_name)))
        .fill_null(value=False)
        .alias("has_cores")
    ).to_series()


def _single(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = _products(run, ~run.computing["on_tensor_cores"], threshold).filter(_col("number") == "single")
    # Of AMD's devices those of the MI300 series alone round to it.
    rows = rows.filter(_has_cores(run, rows, 8.0, _FROM_AMPERE_ON, r"MI3[0-3][0-9]|gfx94| 9\.4"))
    yield from _unused(run, rows, threshold)


def _half(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = _products(run, ~run.computing["on_tensor_cores"], threshold).filter(_col("number") == "half")
    rows = rows.filter(_has_cores(run, rows, 7.0, _FROM_VOLTA_ON, r"MI[123][0-9][0-9]|gfx(908|90a|94|95)| 9\.[45]"))
    yield from _unused(run, rows, threshold)


def _unused(run: Run, rows: pl.DataFrame, threshold: float) -> Iterator[Evidence]:
    rows = _of_sizes(rows, lambda numbers: min(numbers, default=_LEAST_ROWS) >= _LEAST_ROWS, unknown=True)
    at_stake = _saved_ns(run, rows, threshold)
    if not run.matters(at_stake, threshold):
        return
    ns = run.per_process(rows, "ns")
    yield Evidence(
        at_stake,
        {"ns": ns, "ns_share": run.share(ns), "kernels": rows.height},
        {"kernel": top(rows, "ns", "name")[0]},
        **where(rows, "ns"),
    )


def _saved_ns(run: Run, rows: pl.DataFrame, threshold: float) -> int:
    """How much sooner the run would have ended if each had taken half of its time."""
    rows = rows.with_columns(saved_ns=(_HALF_OF_IT * _col("ns")).cast(pl.Int64))
    return saved_ns(run, less(run, rows, "saved_ns"), threshold)


def _of_sizes(rows: pl.DataFrame, fits: Callable[[list[int]], bool], *, unknown: bool) -> pl.DataFrame:
    """The rows whose sizes fit; `unknown`: whether those without sizes do."""
    distinct = rows.select("op", "sizes").unique()
    flags = [unknown if numbers is None else fits(numbers) for numbers in (_numbers(*one) for one in distinct.rows())]
    distinct = distinct.filter(pl.Series(flags, dtype=pl.Boolean))
    return rows.join(distinct, on=["op", "sizes"], how="semi", nulls_equal=True)


def _odd(run: Run, threshold: float) -> Iterator[Evidence]:
    if not run.trace.ranges["sizes"].count():
        return
    products = _products(run, pl.Series([True]).new_from_index(0, run.computing.height), threshold)
    known = products.filter(_col("sizes").is_not_null(), _col("number") == "half")
    # 1 is a vector, which no size makes fit.
    rows = _of_sizes(known, lambda numbers: any(one % 8 and one != 1 for one in numbers), unknown=False)
    # Replays of a graph have no ops: kernels and grids are those of ops that ran before it was captured.
    same = rows.select(_SAME).unique().join(known.join(rows, on="work", how="anti"), on=_SAME, how="anti")
    rows = pl.concat([rows, products.filter(_col("sizes").is_null()).join(same, on=_SAME, how="semi")])
    at_stake = _saved_ns(run, rows, threshold)
    if not run.matters(at_stake, threshold):
        return
    ns = run.per_process(rows, "ns")
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


def _numbers(op: str | None, sizes: str | None) -> list[int] | None:
    """The sizes of the matrices that an op multiplies, of "[[64, 1023], [1023, 64]]" the last two of each tensor; of a
    convolution the channels of its weight. None where they are not known, or the op is none of a product."""
    if op is None or sizes is None or not re.match(ELIGIBLE, op):
        return None
    try:
        shapes = [[one for one in shape if isinstance(one, int)] for shape in parse_sizes(sizes)]
    except ValueError:
        return None
    if "conv" in op:
        weights = [shape for shape in shapes[1:] if len(shape) >= 3]
        return weights[0][:2] if weights else []
    return [number for shape in shapes[:3] if len(shape) >= 2 for number in shape[-2:]]


_SMALL = "a fiftieth of the time: less is lost among the steps' own differences"
_CONDITION = "if they took half of their time"
_READ = "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/"

RULES = (
    Rule(
        id="tf32-off",
        title="float32 products without TF32",
        looks_at="time of float32 products and convolutions whose kernels do not use the tensor cores of a device that "
        "has them for float32; at stake is how much sooner the run would have ended if they took half of it. "
        "Products with a vector, or with fewer than 16 rows, are not counted: they wait for memory",
        threshold=0.02,
        because=_SMALL,
        sentence="float32 products took {ns} ({ns_share}) without tensor cores, most in {kernel}",
        remedy='torch.set_float32_matmul_precision("high") lets products round their inputs to TF32 (10 bits of '
        "mantissa); or train in bfloat16 with torch.autocast",
        command="opspan table FILE --by kernel",
        read="https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        look=_single,
        condition=_CONDITION,
    ),
    Rule(
        id="no-tensor-cores",
        title="Half precision without tensor cores",
        looks_at="time of float16 and bfloat16 products and convolutions whose kernels do not use the tensor cores of "
        "a device that has them; what is at stake, and what is not counted, is as for tf32-off",
        threshold=0.02,
        because=_SMALL,
        sentence="products in half precision took {ns} ({ns_share}) without tensor cores, most in {kernel}",
        remedy="Sizes that 8 divides, contiguous inputs (channels_last for convolutions), a newer cuBLAS and cuDNN",
        command="opspan table FILE --by kernel",
        read=_READ,
        look=_half,
        condition=_CONDITION,
    ),
    Rule(
        id="odd-sizes",
        title="Sizes that 8 does not divide",
        looks_at="time of float16 and bfloat16 products and convolutions of which a size is no multiple of 8; at stake "
        "is how much sooner the run would have ended if they took half of it. In replays of a graph these are the "
        "kernels of such ops outside of it",
        threshold=0.02,
        because=_SMALL,
        sentence="products of sizes that 8 does not divide took {ns} ({ns_share}), such as {sizes}",
        remedy="Pad vocabularies, channels and hidden sizes to a multiple of 8, better of 64",
        command="opspan table FILE --by shape",
        read=_READ,
        look=_odd,
        condition=_CONDITION,
    ),
)
