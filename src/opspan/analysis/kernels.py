"""Reads names of kernels: which kernels are collectives, and which use tensor cores. The constants are patterns.

    with_facts(work) -> work with:
        is_communication (Boolean): whether the kernel is a collective.
        on_tensor_cores (Boolean): whether the kernel uses tensor cores; null if the name does not show it.
        rounds_to_tf32 (Boolean): whether the kernel, if its inputs are float32, rounds them to tf32.
    is_told(unknown, total) -> whether so little time is unknown that the share of tensor cores can be stated.
    product_type(name) -> the type that a product on tensor cores multiplies; null if the name does not show it.

Every tool records the names of kernels, and some record the full names, with template arguments. If a full name in C++
has no word for a matrix product, the kernel uses no tensor cores. A full name in C (a plain identifier, as in Triton)
is chosen freely by the author of the kernel. So such a name decides only if it belongs to a known family, or has a word
for something other than a product. Triton's names of products do not show which instructions are used.
tests/data/tensor_cores_h100.json has what the hardware counters of an H100 showed.
"""

from __future__ import annotations

from typing import Any, TypeVar

import polars as pl

from opspan.tables.same import rows_once

Time = TypeVar("Time", int, pl.Expr)
_col = pl.col
# Collectives of NVIDIA's and AMD's libraries (ncclDevKernel_AllReduce_..., ncclKernel_..., rccl), and those of servers
# of language models.
COMMUNICATION = (
    r"nccl",
    r"rccl",
    r"^(void )?(at::native::|c10d::|symm_mem::)*(one|two)_shot_all_reduce",
    r"multimem_all_(reduce|gather)",
    r"cross_device_reduce",
    r"mscclpp",
    r"nvshmem",
    r"^ccl_|oneccl",
)

# Kernels for AMD's matrix cores, which do not round float32. Tensile's names have the shape of the instruction
# (Cijk_..._MI16x16x1_...). Names of composable kernels have xdl, AMD's word for these units. Names of MIOpen's igemm
# have gtcx (contraction on xdl). All products of ck_tile and aiter use matrix cores.
MATRIX_CORES = (
    r"^cijk_.*_mi[0-9]+x[0-9]+x",
    r"_xdl|mfma",
    r"^igemm_.*_gtcx",
    r"ck_tile.*(gemm|fmha)",
    r"\baiter::(fmha|mla|fmoe|\w*gemm|flatmm)",
)
# Kernels for tensor cores. Their names have the shape of the instruction (s16816 is m16n8k16, summed up in float32),
# the name of the instruction, or the name of a family that always uses tensor cores.
TENSOR_CORES = (
    r"(^|[^a-z0-9])[hiscdz](884|8816|1688|16816|16832|161616)[a-z_]",
    r"_tensor[0-9]+x[0-9]+x[0-9]+_",
    r"hmma|imma|bmma|qmma|gmma|umma|utc[a-z]?mma|wmma|xmma|sm[0-9]+::mma_[0-9]+x|mma_[0-9]+x[0-9]+x[0-9]+_[a-z]+[0-9]",
    r"(^|[^a-z])tensorop([^a-z]|$)|mmatensorop|opclass(wmma)?tensorop",
    r"nvjet",
    r"flash_(fwd|bwd)_\w*kernel|flashattn(fwd|bwd)sm[0-9]|fmha|sdpa_sm[0-9]+_flash",
    r"deep_gemm::|\bmarlin",
    # TensorRT-LLM's kernels for Blackwell. Below them, Triton's kernels for a mixture of experts, but only for types of
    # at most 16 bits.
    r"^(bmm|gemm)_\w+_sm1[0-9][0-9]",
    r"^_matmul_ogs_\w*(bf16|fp16|fp8|fp4|e4m3|e5m2)",
    *MATRIX_CORES,
)
# Kernels that do not multiply on tensor cores, although their names have a word of TENSOR_CORES. Some use ordinary
# units (sm80_xmma_gemm_f32f32_..._ffma_...). Others only prepare or sum up a product. The last pattern is for
# inductor's kernels without products, which are named after their ops.
NO_TENSOR_CORES = (
    r"_ffma_|(^|[^a-z])simt([^a-z]|$)|mmasimt|universalfma",
    r"fmha_cutlass[fb]_(f32\w*_sm(50|70|75)|\w*_sm50)",
    r"dot_do_o|convert_d|combine|splitkreduce|reducesplitk",
    r"^triton_(poi|per|red|for)_",
)
# Kernels that multiply without tensor cores, such as some of cuBLAS, cuDNN and vLLM, and those of Tensile whose names
# have no matrix instruction.
ORDINARY = (
    r"(^|[^a-z0-9])g?[sdchz]gemm|gemv|gemmk1|gemmsn_|scudnn|winograd|plicit_convolve|(dgrad|wgrad)\w*_engine",
    r"direct_kernel|depthwise|^cijk_|_dl_|wvsp?lt?k",
)
# PRODUCT has words in short names of products. _AROUND has words in names of kernels that run before or after products.
PRODUCT = (
    r"gemm|matmul|attention|attn|convolution|[dw]grad|fprop|mlp|triton_tem|_mm_|nvfuser_(none|matmul)",
    r"(^|_)(mm|bmm|addmm|dot|mla|moe|conv[123]?d?|sdpa)(_|$)|flash(_|$)",
)
_AROUND = (
    r"reduce|cache|rout(e|ing)|finali[sz]e|align|topk|scatter|gather",
    r"permute|offset|pointer|norm|softmax|copy|index|prepare|workspace|repack",
)
# Patterns for names in C of kernels that do not compute products: names of MIOpen and of ROCm, and words for other
# tasks.
ORDINARY_IN_C = (
    r"subtensorop|^im2d2col|^col2im|^__amd_rocclr_|^batched_transpose_",
    r"(^|_)(fill|memset|memcpy|transpose|cast|dropout|embedding|rotary|adamw?|sort)(_|$)",
)
# Types in names of products on tensor cores; the first pattern that fits counts. cuBLAS, cutlass, Triton and flash
# attention write the type out (ampere_bf16_s16816gemm_bf16_..., cutlass::half_t). Names of nvjet (tst is bf16 summed up
# in fp32), of instructions and of Tensile (HHS_BH) use letters for types.
PRODUCT_TYPES = (
    ("fp8", r"e4m3|e5m2|fp8|float8|[qu]gmma|qmma"),
    ("bf16", r"bf16|bfloat16|nvjet(_[a-z0-9]+)?_tst_|_bbs_bh?_"),
    ("fp16", r"(^|[^b])f16|fp16|half|nvjet(_[a-z0-9]+)?_hsh_|(^|_)h(884|1688|16816)|_hhs_bh?_"),
    ("tf32", r"tf32"),
    ("int8", r"int8|imma|_i8|s8s8"),
)
_WHOLE = pl.coalesce("full_name", "name").alias("whole")
_MOST_UNKNOWN = 0.1  # if more of the kernels' time is unknown, most differences between two programs are hidden


def is_communication(name: pl.Expr) -> pl.Expr:
    return _any(name, COMMUNICATION)


def on_tensor_cores(full: pl.Expr, short: pl.Expr) -> pl.Expr:
    """Returns whether kernels use tensor cores, or null if their names do not show it. `full` is null if only the short
    name is known."""
    name = pl.coalesce(full, short)
    is_around = _any(short, _AROUND)
    in_c = _any(full, (r"^\w+$",)) & ~_any(full, (r"^_Z",))
    is_known = is_around | _any(name, (*COMMUNICATION, *ORDINARY_IN_C))
    return (
        # The template of a kernel that runs before or after a product contains the product's types, so only the
        # kernel's short name counts.
        pl.when(_any(name, NO_TENSOR_CORES) | (is_around & ~_any(short, TENSOR_CORES)))
        .then(pl.lit(value=False))
        .when(_any(name, TENSOR_CORES))
        .then(pl.lit(value=True))
        .when(_any(name, ORDINARY) | ~(_any(short, PRODUCT) | (in_c & ~is_known)))
        .then(pl.lit(value=False))
    )


def product_type(name: pl.Expr) -> pl.Expr:
    return pl.coalesce(pl.when(_any(name, (pattern,))).then(pl.lit(type_)) for type_, pattern in PRODUCT_TYPES)


def with_facts(work: pl.DataFrame) -> pl.DataFrame:
    """Adds the columns that the module's docstring lists. Matches each distinct name only once."""
    names = rows_once(work, "name", "full_name").with_columns(_WHOLE)
    names = names.with_columns(on_tensor_cores=on_tensor_cores(_col("full_name"), _col("name")))
    is_on_cores = _col("on_tensor_cores").fill_null(value=False)

    def among(which: pl.Expr) -> pl.Expr:
        return _col("whole").is_in(names.filter(which)["whole"].implode()).fill_null(value=False)

    unknown = among(_col("on_tensor_cores").is_null())
    rows = work.with_columns(_WHOLE).with_columns(
        is_communication=among(is_communication(_col("name"))),
        on_tensor_cores=pl.when(~unknown).then(among(is_on_cores)),
        rounds_to_tf32=among(is_on_cores & ~_any(_col("whole"), MATRIX_CORES)),
    )
    return rows.drop("whole")


def is_told(unknown: Time, total: Time) -> Any:
    """Returns whether at most a tenth of the kernels' time belongs to kernels whose names do not show whether they use
    tensor cores. If more time is unknown, no share of tensor cores is stated."""
    return unknown <= _MOST_UNKNOWN * total


def _any(name: pl.Expr, patterns: tuple[str, ...]) -> pl.Expr:
    return name.cast(pl.String).str.contains(f"(?i){'|'.join(patterns)}").fill_null(value=False)
