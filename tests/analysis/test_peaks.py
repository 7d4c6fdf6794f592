"""Peaks of devices: which device a name is, and figures as their makers publish them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders import kineto
from opspan.analysis.peak_table import TABLE, Peaks
from opspan.analysis.peaks import of_devices, parse_peaks


def found(name: str | None, **more: Any) -> Peaks | None:
    row = {"rank": 0, "device_id": 0, "name": name, **more}
    devices = pl.DataFrame([row], schema_overrides={"name": pl.Categorical, "device_id": pl.Int32})
    (peaks,) = of_devices(devices, [(0, 0)], parse_peaks([])).values()
    return peaks


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("NVIDIA GH200 144G HBM3e", "GH200 144GB"),
        ("NVIDIA H800", "H800 SXM"),
        ("NVIDIA H800 PCIe", "H800 PCIe"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA H20-3e", None),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA GB300", "GB300"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA A800-SXM4-80GB", "A800 80GB SXM"),
        ("NVIDIA A800 80GB PCIe", "A800 80GB PCIe"),
        ("NVIDIA A800 40GB Active", "A800 40GB"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA A40-8Q", None),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L4", "L4"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"),
        ("Tesla T4", "T4"),
        ("GRID T4-16Q", None),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Server"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Workstation"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Max-Q"),
        ("Quadro RTX 6000", None),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", None),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI300A", "MI300A"),
        ("AMD Instinct MI308X", None),
        ("AMD Instinct MI350X", "MI350X"),
        ("Intel(R) Data Center GPU Max 1100", "Max 1100"),
        ("Intel(R) Data Center GPU Max 1550", None),
        ("GAUDI3", "Gaudi 3"),
        ("GAUDI2", "Gaudi 2"),
        ("NVIDIA Grace", "Grace CPU"),
        (None, None),
    ],
)
def test_devices_by_the_names_that_tools_give_them(name: str | None, expected: str | None) -> None:
    peaks = found(name, bandwidth_bytes_per_s=123)
    assert (peaks.name if peaks else None) == expected
    assert peaks is None or peaks.bandwidth == 123  # the measured value of the tool wins over the table


MIG = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"


@pytest.mark.parametrize(
    ("name", "units", "share"),
    [
        (MIG, 14, 14 / 108),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", 60, 60 / 132),
        ("NVIDIA H100 80GB HBM3", 132, None),  # the card
        ("AMD Instinct MI300X", 38, 1 / 8),  # a partition of one die
        ("AMD Instinct MI300X", 304, None),
        ("Intel(R) Data Center GPU Max 1550", 64, 1 / 2),  # one of its two stacks
        ("Intel(R) Data Center GPU Max 1550", 128, None),
        ("NVIDIA H100 80GB HBM3", 114, None),  # not a whole share of the card, nor said to be a slice of it
    ],
)
def test_part_of_a_card_has_the_share_of_its_multiprocessors(name: str, units: int, share: float | None) -> None:
    part = found(name, multiprocessors=units)
    (whole,) = (peaks for _, peaks in TABLE if part and part.name.split(",")[0] == peaks.name)
    assert part is not None
    assert dict(part.flops) == pytest.approx({type_: figure * (share or 1) for type_, figure in whole.flops.items()})
    assert part.bandwidth == (None if share else whole.bandwidth)
    assert (part.name == whole.name) is (share is None)


@pytest.mark.parametrize(
    "row",
    [
        {"name": MIG},
        {"name": MIG, "multiprocessors": 108},
        {"name": "NVIDIA B300 SXM6 AC MIG 1g.34gb", "multiprocessors": 20},  # how many the card has is not known
        {"name": "NVIDIA A100-SXM4-40GB", "uuid": "MIG-5a4ac0b0-3d25-5d8e-a8c9-7a1c0a4e1b7e"},
    ],
)
def test_a_slice_of_which_the_file_says_nothing_is_not_known(row: dict[str, Any]) -> None:
    assert found(**row) is None


def test_a_slice_has_no_bandwidth_of_a_card_until_it_is_given() -> None:
    row = {"multiprocessors": 14, "bandwidth_bytes_per_s": 1_555_000_000_000}
    slice_ = found(MIG, **row)
    assert slice_ is not None
    assert slice_.bandwidth is None
    devices = pl.DataFrame([{"rank": 0, "device_id": 0, "name": MIG, **row}])
    (asked,) = of_devices(devices, [(0, 0)], parse_peaks(["bandwidth=2e11"])).values()
    assert asked is not None
    assert asked.bandwidth == 2e11
    assert asked.flops["bf16"] == pytest.approx(312e12 * 14 / 108)


def on_device(number: int) -> list[Any]:
    inputs = {"Input Dims": [[1000, 2000], [2000, 3000]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    work = kineto.kernel("nvjet", 40, 100, 1)
    return [
        kineto.op("aten::mm", kineto.MAIN, 10, 20, **inputs),
        kineto.call("hipLaunchKernel", kineto.MAIN, 11, 4, 1),
        {**work, "args": {**work["args"], "device": number}},
    ]


@pytest.mark.parametrize(
    ("used", "described", "expected"),
    [
        (2, {0: "AMD Instinct MI300X"}, "AMD Instinct MI300X"),
        (2, {0: "AMD Instinct MI300X", 1: "AMD Instinct MI300X"}, "AMD Instinct MI300X"),
        (2, {0: "AMD Instinct MI300X", 1: "AMD Instinct MI210"}, None),
        (2, {0: "AMD Instinct MI300X", 2: "AMD Instinct MI210"}, "AMD Instinct MI210"),
        (2, {}, None),
    ],
)
def test_work_on_a_device_that_is_described_under_another_number(
    tmp_path: Path, used: int, described: dict[int, str], expected: str | None
) -> None:
    properties = [{"id": number, "name": name, "numSms": 304} for number, name in described.items()]
    path = kineto.write(tmp_path / "run.json", kineto.document(on_device(used), deviceProperties=properties))
    trace = opspan.load(path)
    names = dict(trace.devices.select("device_id", pl.col("name").cast(pl.String)).iter_rows())
    assert names == described | {used: expected}
    share = trace.flops()["compute_share"][0]
    assert (share is not None) is (expected is not None)


def test_of_two_devices_only_the_one_that_is_described_is_known(tmp_path: Path) -> None:
    properties = [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304}]
    path = kineto.write(
        tmp_path / "run.json", kineto.document([*on_device(0), *on_device(2)], deviceProperties=properties)
    )
    names = dict(opspan.load(path).devices.select("device_id", pl.col("name").cast(pl.String)).iter_rows())
    assert names == {0: "AMD Instinct MI300X", 2: None}


@pytest.mark.parametrize("file", ["compiled_flux_step", "compiled_triton"])
def test_recorded_files_whose_device_has_another_number(traces_dir: Path, file: str) -> None:
    trace = opspan.load(traces_dir / "kineto" / f"{file}.json.gz")
    assert trace.work["device_id"].unique().to_list() == [2]
    assert trace.flops("run")["compute_share"].count() == 1


def test_the_table_has_no_impossible_figure() -> None:
    for _, peaks in TABLE:
        known = [peaks.flops[name] for name in ("fp32", "tf32", "bf16", "fp8") if name in peaks.flops]
        assert known == sorted(known), peaks
        assert peaks.source
        assert 1e11 < (peaks.bandwidth or 0) < 1e13
        assert parse_peaks([peaks.name]).device is peaks


def test_figures_are_those_of_the_data_sheets() -> None:
    """TFLOPS (TOPS of int8) without sparsity, and TB/s, as the makers publish them, most of them rounded; of MI250X for
    half of the card. `half`: fp16 and bf16, as far as the device has them."""
    columns = ("fp64", "fp32", "tf32", "half", "fp8", "int8")
    published = """
        GB300                       -     80   1250   2500   5000       -  8.0
        B300                     1.25     75   1125   2250   4500       -  8.0
        GB200                      40     80   1250   2500   5000    5000  8.0
        B200                       37     75   1125   2250   4500    4500  8.0
        GH200 144GB                67     67    495    990   1979    1979  4.9
        GH200 96GB                 67     67    495    990   1979    1979  4.0
        H200 NVL                   60     60  417.5  835.5 1670.5  1670.5  4.8
        H200 SXM                 66.9   66.9  494.7  989.4 1978.9  1978.9  4.8
        H100 NVL                   60     60  417.5  835.5 1670.5  1670.5  3.9
        H100 PCIe                51.2   51.2    378    756   1513    1513  2.0
        H100 SXM                 66.9   66.9  494.7  989.4 1978.9  1978.9  3.35
        H800 PCIe                 0.8     51    378    756   1513    1513  2.0
        H800 SXM                    1     67    495    990   1979    1979  3.35
        H20                         1     44     74    148    296     296  4.0
        A100 40GB                19.5   19.5    156    312      -     624  1.555
        A100 80GB PCIe           19.5   19.5    156    312      -     624  1.935
        A100 80GB SXM            19.5   19.5    156    312      -     624  2.039
        A800 40GB                19.5   19.5    156    312      -     624  1.555
        A800 80GB PCIe           19.5   19.5    156    312      -     624  1.935
        A800 80GB SXM            19.5   19.5    156    312      -     624  2.039
        A40                         -   37.4   74.8  149.7      -   299.3  0.696
        A30                      10.3   10.3     82    165      -     330  0.933
        A10                         -   31.2   62.5    125      -     250  0.6
        A10G                        -     35     35     70      -     140  0.6
        L40S                        -   91.6    183 362.05    733     733  0.864
        L40                         -   90.5   90.5 181.05    362     362  0.864
        L4                          -   30.3     60    121  242.5   242.5  0.3
        V100 PCIe                   7     14      -    112      -       -  0.9
        V100 SXM2                 7.8   15.7      -    125      -       -  0.9
        T4                          -    8.1      -     65      -     130  0.32
        RTX A6000                   -   38.7   77.4  154.8      -   309.7  0.768
        RTX 6000 Ada                -   91.1  182.1  364.2  728.5   728.5  0.96
        RTX PRO 6000 Max-Q          -    110    220    440    880     880  1.792
        RTX PRO 6000 Server         -    120    240    480    960     960  1.597
        RTX PRO 6000 Workstation    - 125.95  251.9  503.8 1007.6  1007.6  1.792
        RTX 3090                    -   35.6   35.6     71      -     284  0.936
        RTX 4090                    -   82.6   82.6  165.2  330.3   660.6  1.008
        RTX 5090                    -  104.8  104.8  209.5    419     838  1.792
        MI210                    45.3   45.3      -    181      -     181  1.6
        MI250X                  47.85  47.85      -  191.5      -   191.5  1.6
        MI300A                  122.6  122.6  490.3  980.6 1961.2  1961.2  5.3
        MI300X                  163.4  163.4  653.7 1307.4 2614.9  2614.9  5.3
        MI325X                  163.4  163.4  653.7 1307.4 2614.9  2614.9  6.0
        MI350X                   72.1  144.2      - 2306.9 4613.7  4613.7  8.0
        MI355X                   78.6  157.3      - 2516.6 5033.2  5033.2  8.0
        Max 1550                   52     52    419    839      -    1678  3.28
        Max 1100                 22.2   22.2    178    356      -     711  1.23
        Gaudi 3                     -      -      -   1835   1835       -  3.7
        Gaudi 2                     -      -      -    432    865       -  2.45
        Grace CPU                3.55    7.1      -      -      -       -  0.5
    """
    rows = [line.rsplit(maxsplit=len(columns) + 1) for line in published.strip().splitlines()]
    assert sorted(name.strip() for name, *_ in rows) == sorted(peaks.name for _, peaks in TABLE)
    of_name = {peaks.name: peaks for _, peaks in TABLE}
    for name, *tera, bandwidth in rows:
        peaks = of_name[name.strip()]
        expected = {type_: float(text) for type_, text in zip(columns, tera, strict=True) if text != "-"}
        halves = {peaks.flops[type_] for type_ in ("fp16", "bf16") if type_ in peaks.flops}
        found = {type_: peaks.flops[type_] / 1e12 for type_ in columns if type_ in peaks.flops}
        assert len(halves) <= 1, name
        found |= {"half": halves.pop() / 1e12} if halves else {}
        assert found == pytest.approx(expected, rel=1e-2), name
        assert (peaks.bandwidth or 0) / 1e12 == pytest.approx(float(bandwidth), rel=0.03), name
