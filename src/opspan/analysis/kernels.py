"""What a kernel's name says: is it a collective, does it use tensor cores. Vendors' names, as data.

    with_facts(work) -> work with
        is_communication  Boolean
        on_tensor_cores   Boolean  null: the name does not say it
        rounds_to_tf32    Boolean  it does, if it multiplies float32
    is_told(unknown, of) -> whether so little is unknown that a share may be said
    product_type(name) -> the type that a product on tensor cores multiplies; null: the name does not say it

Names are the only thing that every source has: the whole name, with the arguments of its template, where that is known.
The name of a product that Triton compiles does not say what instructions it has. A name in C++ that says nothing of
products is of a kernel that computes with the ordinary units. A name in C, which is all of its full name, was chosen by
whoever wrote the kernel, in Triton as well: only a name of a known family, or with a word for what is no product, says
so. tests/data/tensor_cores_h100.json has what a card's own counters say.
"""

from __future__ import annotations

from typing import Any, TypeVar

import polars as pl

from opspan.tables.same import rows_once

Time = TypeVar("Time", int, pl.Expr)
_col = pl.col
# Collectives: NVIDIA's and AMD's library (ncclDevKernel_AllReduce_..., ncclKernel_..., rccl), and those that servers of
# language models bring along.
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

# AMD's matrix cores, which compute in float32 without rounding it: Tensile names the shape of the instruction
# (Cijk_..._MI16x16x1_...), composable kernels say xdl, as AMD calls these units, and MIOpen's igemm gtcx: contraction
# on xdl. ck_tile's and aiter's products have no others.
MATRIX_CORES = (
    r"^cijk_.*_mi[0-9]+x[0-9]+x",
    r"_xdl|mfma",
    r"^igemm_.*_gtcx",
    r"ck_tile.*(gemm|fmha)",
    r"\baiter::(fmha|mla|fmoe|\w*gemm|flatmm)",
)
# Parts of names of kernels for tensor cores: the shape of the instruction (s16816 is m16n8k16, summed up in float32),
# its name, or a family that has no others.
TENSOR_CORES = (
    r"(^|[^a-z0-9])[hiscdz](884|8816|1688|16816|16832|161616)[a-z_]",
    r"_tensor[0-9]+x[0-9]+x[0-9]+_",
    r"hmma|imma|bmma|qmma|gmma|umma|utc[a-z]?mma|wmma|xmma|sm[0-9]+::mma_[0-9]+x|mma_[0-9]+x[0-9]+x[0-9]+_[a-z]+[0-9]",
    r"(^|[^a-z])tensorop([^a-z]|$)|mmatensorop|opclass(wmma)?tensorop",
    r"nvjet",
    r"flash_(fwd|bwd)_\w*kernel|flashattn(fwd|bwd)sm[0-9]|fmha|sdpa_sm[0-9]+_flash",
    r"deep_gemm::|\bmarlin",
    # TensorRT-LLM's, for Blackwell alone, and Triton's for mixture of experts with numbers of at most 16 bits.
    r"^(bmm|gemm)_\w+_sm1[0-9][0-9]",
    r"^_matmul_ogs_\w*(bf16|fp16|fp8|fp4|e4m3|e5m2)",
    *MATRIX_CORES,
)
# Kernels that do not multiply on tensor cores though their name has one of the above: with ordinary units
# (sm80_xmma_gemm_f32f32_..._ffma_...), what prepares or sums up a product, and inductor's kernels without products,
# which are named after the ops that they belong to.
NO_TENSOR_CORES = (
    r"_ffma_|(^|[^a-z])simt([^a-z]|$)|mmasimt|universalfma",
    r"fmha_cutlass[fb]_(f32\w*_sm(50|70|75)|\w*_sm50)",
    r"dot_do_o|convert_d|combine|splitkreduce|reducesplitk",
    r"^triton_(poi|per|red|for)_",
)
# Products with ordinary units, by families: cuBLAS' and cuDNN's, Tensile's without a matrix instruction, vLLM's.
ORDINARY = (
    r"(^|[^a-z0-9])g?[sdchz]gemm|gemv|gemmk1|gemmsn_|scudnn|winograd|plicit_convolve|(dgrad|wgrad)\w*_engine",
    r"direct_kernel|depthwise|^cijk_|_dl_|wvsp?lt?k",
)
# Words of products, and of what goes with products, in short names.
PRODUCT = (
    r"gemm|matmul|attention|attn|convolution|[dw]grad|fprop|mlp|triton_tem|_mm_|nvfuser_(none|matmul)",
    r"(^|_)(mm|bmm|addmm|dot|mla|moe|conv[123]?d?|sdpa)(_|$)|flash(_|$)",
)
_AROUND = (
    r"reduce|cache|rout(e|ing)|finali[sz]e|align|topk|scatter|gather",
    r"permute|offset|pointer|norm|softmax|copy|index|prepare|workspace|repack",
)
# Names in C of kernels without products: MIOpen's, ROCm's, and words for what is no product.
ORDINARY_IN_C = (
    r"subtensorop|^im2d2col|^col2im|^__amd_rocclr_|^batched_transpose_",
    r"(^|_)(fill|memset|memcpy|transpose|cast|dropout|embedding|rotary|adamw?|sort)(_|$)",
)
# Types in names of products on tensor cores, the first that fits: how cuBLAS, cutlass, Triton and flash attention write
# them (ampere_bf16_s16816gemm_bf16_..., cutlass::half_t), then nvjet (tst: bf16 summed up in fp32), the instruction,
# and Tensile (HHS_BH).
PRODUCT_TYPES = (
    ("fp8", r"e4m3|e5m2|fp8|float8|[qu]gmma|qmma"),
    ("bf16", r"bf16|bfloat16|nvjet(_[a-z0-9]+)?_tst_|_bbs_bh?_"),
    ("fp16", r"(^|[^b])f16|fp16|half|nvjet(_[a-z0-9]+)?_hsh_|(^|_)h(884|1688|16816)|_hhs_bh?_"),
    ("tf32", r"tf32"),
    ("int8", r"int8|imma|_i8|s8s8"),
)
_WHOLE = pl.coalesce("full_name", "name").alias("whole")
_MOST_UNKNOWN = 0.1  # of the kernels' time: more of it than most differences between two programs


def is_communication(name: pl.Expr) -> pl.Expr:
    return _any(name, COMMUNICATION)


def on_tensor_cores(full: pl.Expr, short: pl.Expr) -> pl.Expr:
    """`full`: null where only the short name is known."""
    name = pl.coalesce(full, short)
    is_around = _any(short, _AROUND)
    in_c = _any(full, (r"^\w+$",)) & ~_any(full, (r"^_Z",))
    is_known = is_around | _any(name, (*COMMUNICATION, *ORDINARY_IN_C))
    return (
        # What goes with a product has the product's types in its template: its own name counts.
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
    """Each distinct name is looked at once."""
    names = rows_once(work, "name", "full_name").with_columns(_WHOLE)
    names = names.with_columns(on_tensor_cores=on_tensor_cores(_col("full_name"), _col("name")))
    is_on_cores = _col("on_tensor_cores").fill_null(value=False)

    def among(which: pl.Expr) -> pl.Expr:
        return _col("whole").is_in(names.filter(which)["whole"].implode()).fill_null(value=False)

    unknown = among(_col("on_tensor_cores").is_null())
    return (
        work.with_columns(_WHOLE)
        .with_columns(
            is_communication=among(is_communication(_col("name"))),
            on_tensor_cores=pl.when(~unknown).then(among(is_on_cores)),
            rounds_to_tf32=among(is_on_cores & ~_any(_col("whole"), MATRIX_CORES)),
        )
        .drop("whole")
    )


def is_told(unknown: Time, of: Time) -> Any:
    """Whether at most a tenth of the kernels' time is of kernels whose names do not say whether they use tensor cores.
    Where it is more, no share of tensor cores is said."""
    return unknown <= _MOST_UNKNOWN * of


def _any(name: pl.Expr, patterns: tuple[str, ...]) -> pl.Expr:
    return name.cast(pl.String).str.contains(f"(?i){'|'.join(patterns)}").fill_null(value=False)
