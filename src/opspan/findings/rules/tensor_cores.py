"""Rules about matrix products and convolutions that do not run on tensor cores, or whose sizes do not fit tensor cores.

A product is a kernel whose name shows that it multiplies matrices or convolves. The input types of the kernel's op show
the type of the numbers. If the input types are unknown, or the op neither multiplies nor convolves, the kernel's name
may show the type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import polars as pl

from opspan.analysis.kernels import is_told
from opspan.analysis.spans import look_up
from opspan.analysis.tensor_cores import ELIGIBLE
from opspan.findings.rule import Confidence, Evidence, Rule, place_of
from opspan.findings.run import Run, top
from opspan.findings.saved import reduce, saved_ns
from opspan.labels import parse_sizes

_col = pl.col
# Names of kernels that multiply. The op's name is not enough, because ops that multiply also launch other kernels.
_PRODUCT = r"(?i)gemm|conv|wgrad|dgrad|fprop|xmma|cutlass|implicit|nvjet|^cijk_"
# Names of kernels that would not run faster on tensor cores. A product with a vector reads more than it multiplies.
# Complex numbers, transforms and depthwise convolutions work differently. Kernels that prepare and sum up a product do
# not multiply.
_OTHERS = (
    r"(?i)gemv|gemmk1|gemmsn|dot_kernel|wvsplitk|[^a-z]g?[cz]gemm|winograd|fft|depthwise|grouped_direct|"
    r"splitkreduce|reducesplitk|im2col|^cijk_[a-z]+_[a-z]+_[cz]b_"
)
# Types of numbers in kernel names. volta_fp16_sgemm_fp16_... multiplies half precision. AMD's library Tensile writes
# HHS or BBS for half precision, and SB for single precision.
_HALF = r"(?i)hgemm|_f16|fp16|half|bf16|bfloat16|^cijk_[a-z]+_[a-z]+_(hb|hhs|hss|bb|bbs|bss)_"
_SINGLE = (
    r"(?i)(^|[^a-z])sgemm|f32f32_f32f32|simt_f?32|scudnn|_fp?32_fp?32_fp?32|[dw]grad\w*_engine<float|"
    r"^cijk_[a-z]+_[a-z]+_(sb|s_b)_"
)
_HALF_TYPES = r"(?i)half|bfloat16|BFloat16|float16"
_AMD = r"(?i)amd|radeon|instinct|gfx"
_AMD_KERNEL = r"(?i)^cijk_|miopen|_gtcx|ck_tile|\baiter::"
# Architectures in kernel names, for devices whose compute capability is unknown. A kernel for an architecture does not
# run on older architectures.
_FROM_AMPERE_ON = r"(?i)ampere|hopper|blackwell|(sm|cutlass_)(8[0-9]|9[0-9]|1[0-9][0-9])_"
_FROM_VOLTA_ON = rf"{_FROM_AMPERE_ON}|(?i)volta|turing|(sm|cutlass_)7[05]_"
_HALF_OF_IT = 0.5  # assumption, because no trace shows it: on tensor cores, products take this share of their time
_SAME = ("full", "grid_x", "grid_y", "grid_z")
_LEAST_ROWS = 16  # products with fewer rows wait for memory on every device: at most 8 operations per byte in float32


def _products(run: Run, which: pl.Series, threshold: float) -> pl.DataFrame:
    """Returns the kernels among `which` that multiply. Their column `number` is the type of the numbers (half, single
    or another), null if unknown. The result is empty if the kernels take too little time, or if for more than a tenth
    of the kernels' time it is unknown whether tensor cores were used."""
    rows = run.computing
    ns = _col("ns").sum()
    is_known = rows.select(is_told(_col("ns").filter(_col("on_tensor_cores").is_null()).sum(), ns)).item()
    names = rows.select(pl.coalesce("full_name", "name")).to_series()
    products = names.unique().to_frame("name").select("name", text=_col("name").cast(pl.String))
    products = products.filter(_matches(_col("text"), _PRODUCT), ~_matches(_col("text"), _OTHERS))
    rows = rows.filter(which & names.is_in(products["name"].implode()))
    if not is_known or not run.matters(_HALF_OF_IT * run.per_process(rows, "ns"), threshold):
        rows = rows.clear()
    types, sizes = (run.trace.ranges[name].gather(rows["range"]) for name in ("input_types", "sizes"))
    rows = rows.with_columns(types.alias("types"), sizes)
    # Match each distinct combination once.
    key = ["name", "full_name", "op", "types"]
    numbers = rows.select(key).unique()
    rows = rows.join(numbers.with_columns(_number()), on=key, nulls_equal=True, maintain_order="left")
    return rows.with_columns(_col("name", "op", "capability", "sizes").cast(pl.String), _whole())


def _whole() -> pl.Expr:
    return pl.coalesce("full_name", "name").cast(pl.String).alias("full")


def _matches(text: pl.Expr, pattern: str) -> pl.Expr:
    return text.str.contains(pattern).fill_null(value=False)


def _number() -> pl.Expr:
    types = _col("types").cast(pl.String)
    is_product = _matches(_col("op").cast(pl.String), ELIGIBLE)  # another op may have inputs of other types
    patterns = (("half", _HALF_TYPES), ("single", '(?i)"float"'), ("another", '"(double|int|long)'))
    by_type = [pl.when(is_product & _matches(types, pattern)).then(pl.lit(number)) for number, pattern in patterns]
    names = (("half", _HALF), ("single", _SINGLE))
    by_name = [pl.when(_matches(_whole(), pattern)).then(pl.lit(number)) for number, pattern in names]
    return pl.coalesce(*by_type, *by_name).alias("number")


def _has_cores(run: Run, rows: pl.DataFrame, least: float, by_name: str, amd: str) -> pl.Series:
    """Returns for each row whether its device has tensor cores for a kind of numbers. NVIDIA's devices have them from
    the compute capability `least` on. If the capability is unknown, `by_name` is matched with the kernel's name. AMD's
    devices have them if `amd` matches the device's name or capability."""
    devices = run.trace.devices.select("rank", "device_id", device=_col("name").cast(pl.String))
    rows = look_up(rows, devices.unique(["rank", "device_id"], keep="first"), ("rank", "device_id"))
    text = pl.concat_str(pl.lit(" "), "device", "capability", separator=" ", ignore_nulls=True)
    capability = _col("capability").str.extract(r"^(?:sm_?)?([0-9]+\.[0-9]+)$").cast(pl.Float64)
    is_amd = text.str.contains(_AMD) | _matches(_col("full"), _AMD_KERNEL)
    return rows.select(
        pl.when(is_amd)
        .then(text.str.contains(amd))
        .when(text.str.contains("GTX 16"))  # devices of the Turing generation that have no tensor cores
        .then(pl.lit(value=False))
        .otherwise(pl.coalesce(capability >= least, _matches(_col("full"), by_name)))
        .fill_null(value=False)
        .alias("has_cores")
    ).to_series()


def _unused(number: str, least: float, by_name: str, amd: str) -> Callable[[Run, float], Iterator[Evidence]]:
    """Returns a function that finds products of the type `number` that run without tensor cores on devices that have
    tensor cores for this type (see _has_cores)."""

    def look(run: Run, threshold: float) -> Iterator[Evidence]:
        rows = _products(run, ~run.computing["on_tensor_cores"], threshold).filter(_col("number") == number)
        rows = rows.filter(_has_cores(run, rows, least, by_name, amd))
        rows = _rows_of_sizes(rows, lambda numbers: min(numbers, default=_LEAST_ROWS) >= _LEAST_ROWS, unknown=True)
        yield from _evidence(run, rows, threshold, ("kernel", "name"), "likely")

    return look


def _evidence(
    run: Run, rows: pl.DataFrame, threshold: float, word: tuple[str, str], confidence: Confidence
) -> Iterator[Evidence]:
    """Yields the evidence if halving the time of these kernels would let the run end much sooner. `word` is a pair: a
    placeholder in the rule's sentence, and the column with the text that replaces it."""
    saving = rows.with_columns(saved_ns=(_HALF_OF_IT * _col("ns")).cast(pl.Int64))
    at_stake = saved_ns(run, reduce(run, saving, "saved_ns"), threshold)
    if run.matters(at_stake, threshold):
        ns = run.per_process(rows, "ns")
        figures = {"ns": ns, "ns_share": run.share(ns), "kernels": rows.height}
        yield Evidence(at_stake, figures, {word[0]: top(rows, "ns", word[1])[0]}, confidence, **place_of(rows, "ns"))


def _rows_of_sizes(rows: pl.DataFrame, fits: Callable[[list[int]], bool], *, unknown: bool) -> pl.DataFrame:
    """Returns the rows whose sizes pass the test `fits`. Rows without sizes are returned only if `unknown` is true."""
    distinct = rows.select("op", "sizes").unique()
    flags = [unknown if numbers is None else fits(numbers) for numbers in (_numbers(*one) for one in distinct.rows())]
    distinct = distinct.filter(pl.Series(flags, dtype=pl.Boolean))
    return rows.join(distinct, on=["op", "sizes"], how="semi", nulls_equal=True)


def _odd(run: Run, threshold: float) -> Iterator[Evidence]:
    if not run.trace.ranges["sizes"].count():
        return
    products = _products(run, pl.Series([True]).new_from_index(0, run.computing.height), threshold)
    known = products.filter(_col("sizes").is_not_null(), _col("number") == "half")
    # With a size of 1 a matrix is a vector, and padding its sizes does not help.
    rows = _rows_of_sizes(known, lambda numbers: any(one % 8 and one != 1 for one in numbers), unknown=False)
    # Kernels in replays of a CUDA graph may have no sizes. They count if all kernels of the same name and grid with
    # known sizes are in `rows`.
    same = rows.select(_SAME).unique().join(known.join(rows, on="work", how="anti"), on=_SAME, how="anti")
    rows = pl.concat([rows, products.filter(_col("sizes").is_null()).join(same, on=_SAME, how="semi")])
    yield from _evidence(run, rows.drop("step"), threshold, ("sizes", "sizes"), "possible")


def _numbers(op: str | None, sizes: str | None) -> list[int] | None:
    """Returns the sizes of the matrices that an op multiplies. For a product these are the last two sizes of each
    tensor, such as "[[64, 1023], [1023, 64]]". For a convolution they are the channels of its weight. Returns None if
    the sizes are unknown, or if the op is neither a product nor a convolution."""
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
        # Among AMD's devices only the MI300 series rounds to TF32.
        look=_unused("single", 8.0, _FROM_AMPERE_ON, r"MI3[0-3][0-9]|gfx94| 9\.4"),
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
        look=_unused("half", 7.0, _FROM_VOLTA_ON, r"MI[123][0-9][0-9]|gfx(908|90a|94|95)| 9\.[45]"),
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
