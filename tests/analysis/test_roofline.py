"""Shares of peaks: what no device can do is said, and the type of a product is that of its kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opspan
from builders import kineto
from opspan.questions import BY, Options, question

SIZES = [[1000, 2000], [2000, 3000]]
FLOPS = 2 * 1000 * 2000 * 3000
BF16 = ["c10::BFloat16", "c10::BFloat16"]
H100 = {"fp16": 989.4e12, "bf16": 989.4e12, "fp32": 66.9e12, "tf32": 494.7e12, "fp8": 1978.9e12, "int8": 1978.9e12}
CUTLASS = "void cutlass::Kernel2<cutlass_80_{}>(Params)"


def load(folder: Path, *events: list[Any]) -> opspan.Trace:
    properties = [{**kineto.HEAD["deviceProperties"][0], "name": "NVIDIA H100 80GB HBM3"}]
    document = kineto.document([event for part in events for event in part], deviceProperties=properties)
    return opspan.load(kineto.write(folder / "run.json", document))


def ran(op: str, kernel: str, took: float, number: int = 1, **args: Any) -> list[Any]:
    at = 1000 * number
    return [
        kineto.op(op, kineto.MAIN, at + 10, 20, **args),
        kineto.call("cudaLaunchKernel", kineto.MAIN, at + 11, 4, number),
        kineto.kernel(kernel, at + 40, took, number),
    ]


@pytest.mark.parametrize(
    ("kernel", "type_"),
    [
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_nn", "bf16"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", "bf16"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT", "bf16"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", "fp16"),
        ("ampere_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "fp16"),
        ("volta_h884gemm_128x128_ldg8_nn", "fp16"),
        (CUTLASS.format("tensorop_s1688tf32gemm_128x128_16x3_nn_align4"), "tf32"),
        (CUTLASS.format("wmma_tensorop_f16_s161616gemm_f16_16x16_64x1_nn_align8"), "fp16"),
        ("sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x64x64_cublas", "fp8"),
        ("sm80_xmma_gemm_i8i8_i8i32_f32_tn_n_imma_cublas", "int8"),
        ("ampere_sgemm_128x64_nn", "fp32"),
        ("cutlass_tensorop_s1688gemm", None),  # perhaps fp32 that is rounded to tf32
        ("triton_mm_kernel", None),  # on tensor cores or not: the name does not say it
    ],
)
def test_a_product_without_types_has_the_type_of_its_kernel(kernel: str, type_: str | None, tmp_path: Path) -> None:
    (row,) = load(tmp_path, ran("aten::mm", kernel, 200, **{"Input Dims": SIZES})).flops().to_dicts()
    assert (row["type"], row["is_assumed"], row["flops"]) == (type_, True, FLOPS)
    share = FLOPS / 200e-6 / H100[type_] if type_ else None
    assert row["compute_share"] == (share if share is None else pytest.approx(share))


def test_a_product_whose_inputs_are_cast_inside_of_it_has_the_type_of_its_kernel(tmp_path: Path) -> None:
    """As autocast does: the op is called with float32."""
    types = {"Input Dims": SIZES, "Input type": ["float", "float"]}
    found = load(
        tmp_path,
        ran("aten::mm", "ampere_bf16_s16816gemm_bf16_128x128_nn", 200, 1, **types),
        ran("aten::mm", "cutlass_tensorop_s1688gemm", 200, 2, **types),
    )
    assert found.flops("run")["type"].to_list() == [None]
    ideal = FLOPS / H100["bf16"] + FLOPS / H100["tf32"]
    assert found.flops()["compute_share"].to_list() == [pytest.approx(ideal / 400e-6)]


def test_what_no_device_can_do_has_no_share(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        ran("aten::mm", "nvjet_tst", 100, 1, **{"Input Dims": SIZES, "Input type": BF16}),
        ran("aten::addmm", "nvjet_tst", 5, 2, **{"Input Dims": [[3000], *SIZES], "Input type": ["float", *BF16]}),
        ran("aten::neg", "neg", 1, 3, **{"Input Dims": [[1000, 1000]], "Input type": ["float"]}),
    )
    rows = {row["op"]: row for row in found.flops().to_dicts()}
    assert rows["aten::mm"]["compute_share"] == pytest.approx(FLOPS / 100e-6 / H100["bf16"])
    assert rows["aten::addmm"]["compute_share"] is rows["aten::addmm"]["bound"] is None
    assert rows["aten::addmm"]["flops_per_s"] == pytest.approx(FLOPS / 5e-6)
    assert rows["aten::neg"]["memory_share"] is None
    assert rows["aten::neg"]["bytes_per_s"] == pytest.approx(8e12)
    (run,) = found.flops("run").to_dicts()
    assert run["compute_share"] == pytest.approx((FLOPS / H100["bf16"] + 1e6 / H100["fp32"]) / 101e-6)
    assert run["mfu"] is None
    notes = question("flops").answer_of(found.analysed, Options()).notes
    too_fast, cached = (note for note in notes if "share is not known" in note)
    assert too_fast.startswith("1 op (4.7% of the device time) computed faster than the device can")
    assert cached.startswith("2 ops (5.7% of the device time) moved bytes faster than the memory can")


def test_a_product_of_a_hundredth_of_the_time_does_not_hide_the_share_of_all(tmp_path: Path) -> None:
    bf16 = {"Input Dims": SIZES, "Input type": BF16}
    found = load(tmp_path, ran("aten::mm", "nvjet_tst", 900, 1, **bf16), ran("aten::mm", "nvjet_tst", 5, 2, **bf16))
    (run,) = found.flops("run").to_dicts()
    assert run["mfu"] == pytest.approx(FLOPS / H100["bf16"] / (1000 + 5) * 1e6)


def files(traces: Path) -> list[Path]:
    kinds = ("kineto/*.json.gz", "nsys/*.sqlite", "nvprof/*", "rocpd/*")
    return sorted(path for kind in kinds for path in traces.glob(kind) if path.name != "session.xml.nvvp")


def test_no_share_in_a_recorded_file_is_above_its_peak(traces_dir: Path) -> None:
    """And none had to be taken away, as what ran faster than its device can."""
    of_device = 0
    for path in files(traces_dir):
        found = opspan.load(path)
        for by in BY["flops"]:
            rows = found.flops(by)
            for name in {"compute_share", "memory_share", "mfu"} & {*rows.columns}:
                assert (rows[name].max() or 0) <= 1, (path.name, by, name)
                of_device += rows[name].count()
        notes = question("flops").answer_of(found.analysed, Options()).notes
        assert not [note for note in notes if "share is not known" in note], path.name
    assert of_device > 100
