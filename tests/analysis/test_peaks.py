"""Peaks of devices: which device a name is, and figures as their makers publish them."""

from __future__ import annotations

import polars as pl
import pytest

from opspan.analysis.peaks import TABLE, given, of_devices


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", None),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A10G", None),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L40", None),
        ("NVIDIA L4", "L4"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI300A", None),
        (None, None),
    ],
)
def test_devices_by_the_names_that_tools_give_them(name: str | None, expected: str | None) -> None:
    devices = pl.DataFrame(
        {"rank": [0], "device_id": [0], "name": [name], "bandwidth_bytes_per_s": [123]},
        schema_overrides={"name": pl.Categorical},
    )
    (found,) = of_devices(devices, [(0, 0)], given([])).values()
    assert (found.name if found else None) == expected
    assert found is None or found.bandwidth == 123  # what the tool measured comes before the table


def test_the_table_has_no_impossible_figure() -> None:
    for _, peaks in TABLE:
        known = [peaks.flops[name] for name in ("fp32", "tf32", "bf16", "fp8") if name in peaks.flops]
        assert known == sorted(known), peaks
        assert peaks.source
        assert 1e11 < (peaks.bandwidth or 0) < 1e13
        assert given([peaks.name]).device is peaks


def test_figures_are_those_of_the_data_sheets() -> None:
    """TFLOPS (TOPS of int8) without sparsity, and TB/s, as the makers publish them; of MI250X for half of the card."""
    columns = ("fp64", "fp32", "tf32", "fp16", "fp8", "int8")
    published = """
        B200               -     -   1125   2250   4500    4500  8.0
        H200 SXM        66.9  66.9  494.7  989.4 1978.9  1978.9  4.8
        H100 PCIe       51.2  51.2    378    756   1513    1513  2.0
        H100 SXM        66.9  66.9  494.7  989.4 1978.9  1978.9  3.35
        A100 40GB       19.5  19.5    156    312      -     624  1.555
        A100 80GB PCIe  19.5  19.5    156    312      -     624  1.935
        A100 80GB SXM   19.5  19.5    156    312      -     624  2.039
        A10                -  31.2   62.5    125      -     250  0.6
        A30             10.3  10.3     82    165      -     330  0.933
        L40S               -  91.6    183 362.05    733     733  0.864
        L4                 -  30.3     60    121  242.5   242.5  0.3
        V100 PCIe          7    14      -    112      -       -  0.9
        V100 SXM2        7.8  15.7      -    125      -       -  0.9
        T4                 -   8.1      -     65      -     130  0.32
        RTX 3090           -  35.6   35.6     71      -     284  0.936
        RTX 4090           -  82.6   82.6  165.2  330.3   660.6  1.008
        MI210           45.3  45.3      -    181      -     181  1.6
        MI250X         47.85 47.85      -  191.5      -   191.5  1.6
        MI300X         163.4 163.4  653.7 1307.4 2614.9  2614.9  5.3
        MI325X         163.4 163.4  653.7 1307.4 2614.9  2614.9  6.0
        MI355X          78.6 157.3      - 2516.6 5033.2  5033.2  8.0
    """
    rows = [line.rsplit(maxsplit=len(columns) + 1) for line in published.strip().splitlines()]
    assert sorted(name.strip() for name, *_ in rows) == sorted(peaks.name for _, peaks in TABLE)
    of_name = {peaks.name: peaks for _, peaks in TABLE}
    for name, *tera, bandwidth in rows:
        peaks = of_name[name.strip()]
        expected = {type_: float(text) for type_, text in zip(columns, tera, strict=True) if text != "-"}
        found = {type_: figure / 1e12 for type_, figure in peaks.flops.items() if type_ != "bf16"}
        assert found == pytest.approx(expected, rel=2e-4 if name.strip() != "MI250X" else 2e-3), name
        assert (peaks.bandwidth or 0) / 1e12 == pytest.approx(float(bandwidth), rel=0.03), name
        assert peaks.flops.get("bf16", peaks.flops["fp16"]) == peaks.flops["fp16"], name
