"""What a kernel's name says: is it a collective, does it use tensor cores. Vendors' names, as data.

Names are the only thing that every source has. A kernel of a name that is not known computes.
"""

from __future__ import annotations

import polars as pl

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
# (Cijk_..._MI16x16x1_...), composable kernels say xdl, as AMD calls these units.
MATRIX_CORES = (
    r"^cijk_.*_mi[0-9]+x[0-9]+x",
    r"_xdl(ops)?_|mfma",
)
# Parts of names of kernels for tensor cores: the shape of the instruction (16816 is m16n8k16), its name, or the family.
TENSOR_CORES = (
    r"[hisc](884|8816|1688|16816|16832|161616)",
    r"hmma|imma|bmma|wgmma|qgmma|utcmma|xmma",
    r"tensorop",
    r"nvjet",
    r"flash_(fwd|bwd)|fmha|sdpa_sm[0-9]+_flash",
    *MATRIX_CORES,
)
# Though their family has such kernels, these multiply with the ordinary units: sm80_xmma_gemm_f32f32_..._ffma_...
NO_TENSOR_CORES = r"_ffma_"


def is_communication(name: pl.Expr) -> pl.Expr:
    return _any(name, COMMUNICATION)


def uses_tensor_cores(name: pl.Expr) -> pl.Expr:
    return _any(name, TENSOR_CORES) & ~_any(name, (NO_TENSOR_CORES,))


def rounds_to_tf32(name: pl.Expr) -> pl.Expr:
    """Says whether a kernel that multiplies float32 rounds it to tf32: AMD's matrix cores do not."""
    return uses_tensor_cores(name) & ~_any(name, MATRIX_CORES)


def _any(name: pl.Expr, patterns: tuple[str, ...]) -> pl.Expr:
    return name.cast(pl.String).str.contains(f"(?i){'|'.join(patterns)}").fill_null(value=False)
