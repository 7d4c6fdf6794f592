"""The peaks of devices, as their makers publish them: operations per second for each type, and bytes per second.

    TABLE -> pairs: a pattern of device names (upper or lower case), and Peaks. The first pattern that fits counts.

All figures are for dense products (data sheets give twice as much with structured sparsity), at the highest clock rate.
If products with sums in fp32 are slower than others of a type, their figure is taken. For fp64 and fp32, the figures of
matrix units are taken if the maker publishes them. A type is left out if the maker does not publish its figure, or if
sources differ. docs/peaks.md is made from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
_T = 1e12


@dataclass(frozen=True)
class Peaks:
    name: str
    flops: Mapping[str, float]  # operations per second, for each type
    bandwidth: float | None  # bytes per second
    source: str
    units: int | None = None  # number of multiprocessors, compute units (AMD) or cores (Intel, CPUs)
    may_be_part: bool = False  # a device of this name may be half of a card; it then has half of the units
    margin: float = 1.0  # an op that is at most this many times faster than a peak counts as fast as the peak

    def of_products(self, type_: str | None) -> float | None:
        """Returns the peak of matrix products. If the device has no tf32, products in tf32 run in fp32."""
        return self.flops.get(type_ or "", self.flops.get("fp32") if type_ == "tf32" else None)

    def of_elements(self, type_: str | None) -> float | None:
        """Returns the peak of element-wise ops. They compute in fp32 (fp64 for fp64 inputs), whatever type they
        read."""
        return self.flops.get("fp64" if type_ == "fp64" else "fp32")


Tera = tuple["float | None", ...]


def _device(
    pattern: str,
    name: str,
    units: int | None,
    tera: Tera,
    bandwidth: float,
    source: str,
    *,
    may_be_part: bool = False,
) -> tuple[str, Peaks]:
    """Returns a row of TABLE. `tera` has TFLOPS for each of TYPES (TOPS for int8); `bandwidth` is in TB/s."""
    flops = {type_: figure * _T for type_, figure in zip(TYPES, tera, strict=True) if figure is not None}
    return pattern, Peaks(name, flops, bandwidth * _T, source, units, may_be_part)


_NO = None  # the figure is unknown
_SXM: Tera = (66.9, 66.9, 494.7, 989.4, 989.4, 1978.9, 1978.9)
_NVL: Tera = (60, 60, 417.5, 835.5, 835.5, 1670.5, 1670.5)
_PCIE: Tera = (51.2, 51.2, 378, 756, 756, 1513, 1513)
_GA100: Tera = (19.5, 19.5, 156, 312, 312, _NO, 624)
_CDNA3: Tera = (163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9)

_BLACKWELL = "NVIDIA Blackwell, data sheet"
_B200 = f"{_BLACKWELL} (HGX B200); bandwidth: NVIDIA DGX B200, data sheet"
_GH200 = "NVIDIA GH200 Grace Hopper Superchip, data sheet"
_H100, _H200, _H800, _A100, _A800 = (
    f"NVIDIA {name} Tensor Core GPU, data sheet" for name in ("H100", "H200", "H800", "A100", "A800")
)
_GH100 = "NVIDIA H100 Tensor Core GPU Architecture, white paper"
_AMPERE, _ADA, _RTX = (
    f"NVIDIA {name} GPU Architecture, white paper" for name in ("Ampere GA102", "Ada", "RTX Blackwell")
)
_PRO = "NVIDIA RTX PRO 6000 Blackwell {} Edition, data sheet; tensor cores: by their ratio to fp32 in this architecture"
_MAX = "Intel Data Center GPU Max Series, technical overview: operations a clock of an Xe core, at {} GHz"
_GAUDI = "Intel Gaudi 3 AI Accelerator, white paper"

TABLE: tuple[tuple[str, Peaks], ...] = (
    _device(r"\bGB300\b", "GB300", None, (_NO, 80, 1250, 2500, 2500, 5000, _NO), 8, "NVIDIA GB300 NVL72, data sheet"),
    _device(r"\bB300\b", "B300", None, (1.25, 75, 1125, 2250, 2250, 4500, _NO), 8, "NVIDIA HGX B300, data sheet"),
    _device(r"\bGB200\b", "GB200", None, (40, 80, 1250, 2500, 2500, 5000, 5000), 8, f"{_BLACKWELL} (GB200 NVL72)"),
    _device(r"\bB200\b", "B200", 148, (37, 75, 1125, 2250, 2250, 4500, 4500), 8, _B200),
    _device(r"\bGH200 144G", "GH200 144GB", 132, _SXM, 4.9, _GH200),
    _device(r"\bGH200\b", "GH200 96GB", 132, _SXM, 4, _GH200),
    _device(r"\bH200.*NVL", "H200 NVL", 132, _NVL, 4.8, _H200),
    _device(r"\bH200\b", "H200 SXM", 132, _SXM, 4.8, _H200),
    _device(r"\bH100.*NVL", "H100 NVL", 132, _NVL, 3.9, _H100),
    _device(r"\bH100.*PCIe", "H100 PCIe", 114, _PCIE, 2, _GH100),
    _device(r"\bH100 (80GB HBM3|SXM)", "H100 SXM", 132, _SXM, 3.35, _GH100),
    _device(r"\bH800.*PCIe", "H800 PCIe", 114, (0.8, *_PCIE[1:]), 2, _H800),
    _device(r"\bH800\b", "H800 SXM", 132, (1, *_SXM[1:]), 3.35, _H800),
    _device(r"\bH20\b(?!-)", "H20", 78, (1, 44, 74, 148, 148, 296, 296), 4, "NVIDIA H20, data sheet"),
    _device(r"\bA100.*PCIe.*40GB|\bA100.*SXM4-40GB|\bA100 40GB", "A100 40GB", 108, _GA100, 1.555, _A100),
    _device(r"\bA100.*80GB.*PCIe", "A100 80GB PCIe", 108, _GA100, 1.935, _A100),
    _device(r"\bA100.*SXM.*80GB|\bA100 80GB SXM", "A100 80GB SXM", 108, _GA100, 2.039, _A100),
    _device(r"\bA800.*40GB", "A800 40GB", 108, _GA100, 1.555, "NVIDIA A800 40GB Active, data sheet"),
    _device(r"\bA800.*80GB.*PCIe", "A800 80GB PCIe", 108, _GA100, 1.935, _A800),
    _device(r"\bA800.*SXM.*80GB|\bA800 80GB SXM", "A800 80GB SXM", 108, _GA100, 2.039, _A800),
    _device(r"\bA40\b", "A40", 84, (_NO, 37.4, 74.8, 149.7, 149.7, _NO, 299.3), 0.696, "NVIDIA A40, data sheet"),
    _device(r"\bA30\b", "A30", 56, (10.3, 10.3, 82, 165, 165, _NO, 330), 0.933, "NVIDIA A30, data sheet"),
    _device(r"\bA10\b", "A10", 72, (_NO, 31.2, 62.5, 125, 125, _NO, 250), 0.6, "NVIDIA A10, data sheet"),
    _device(r"\bA10G\b", "A10G", 80, (_NO, 35, 35, 70, 70, _NO, 140), 0.6, "NVIDIA A10G for AWS, data sheet"),
    _device(r"\bL40S\b", "L40S", 142, (_NO, 91.6, 183, 362, 362, 733, 733), 0.864, "NVIDIA L40S, data sheet"),
    _device(r"\bL40\b", "L40", 142, (_NO, 90.5, 90.5, 181.05, 181.05, 362, 362), 0.864, "NVIDIA L40, data sheet"),
    _device(r"\bL4\b", "L4", 58, (_NO, 30.3, 60, 121, 121, 242.5, 242.5), 0.3, "NVIDIA L4, data sheet"),
    _device(r"\bV100.*PCIe", "V100 PCIe", 80, (7, 14, _NO, 112, _NO, _NO, _NO), 0.9, "NVIDIA V100, data sheet"),
    _device(r"\bV100.*SXM2", "V100 SXM2", 80, (7.8, 15.7, _NO, 125, _NO, _NO, _NO), 0.9, "NVIDIA V100, data sheet"),
    _device(
        r"\bT4\b", "T4", 40, (_NO, 8.1, _NO, 65, _NO, _NO, 130), 0.32, "NVIDIA Turing GPU Architecture, white paper"
    ),
    _device(r"\bA6000\b", "RTX A6000", 84, (_NO, 38.7, 77.4, 154.8, 154.8, _NO, 309.7), 0.768, _AMPERE),
    _device(r"\bRTX 6000 Ada\b", "RTX 6000 Ada", 142, (_NO, 91.1, 182.1, 364.2, 364.2, 728.5, 728.5), 0.96, _ADA),
    _device(
        *(r"\bRTX PRO 6000\b.*Max-Q", "RTX PRO 6000 Max-Q", 188, (_NO, 110, 220, 440, 440, 880, 880), 1.792),
        _PRO.format("Max-Q Workstation"),
    ),
    _device(
        *(r"\bRTX PRO 6000\b.*Server", "RTX PRO 6000 Server", 188, (_NO, 120, 240, 480, 480, 960, 960), 1.597),
        _PRO.format("Server"),
    ),
    _device(
        *(r"\bRTX PRO 6000\b.*Workstation", "RTX PRO 6000 Workstation", 188),
        *((_NO, 126, 251.9, 503.8, 503.8, 1007.6, 1007.6), 1.792),
        "NVIDIA RTX Blackwell PRO GPU Architecture, white paper",
    ),
    _device(r"\bRTX 3090\b(?! Ti)", "RTX 3090", 82, (_NO, 35.6, 35.6, 71, 71, _NO, 284), 0.936, _AMPERE),
    _device(r"\bRTX 4090\b(?! [DL])", "RTX 4090", 128, (_NO, 82.6, 82.6, 165.2, 165.2, 330.3, 660.6), 1.008, _ADA),
    _device(r"\bRTX 5090\b(?! [DL])", "RTX 5090", 170, (_NO, 104.8, 104.8, 209.5, 209.5, 419, 838), 1.792, _RTX),
    _device(
        r"\bMI210\b", "MI210", 104, (45.3, 45.3, _NO, 181, 181, _NO, 181), 1.6384, "AMD Instinct MI210, data sheet"
    ),
    _device(  # torch sees each of the card's two dies as a device
        *(r"\bMI250X\b", "MI250X", 110, (47.9, 47.9, _NO, 191.5, 191.5, _NO, 191.5), 1.6384),
        "AMD Instinct MI250X, data sheet: half of the card",
    ),
    _device(
        *(r"\bMI300A\b", "MI300A", 228, (122.6, 122.6, 490.3, 980.6, 980.6, 1961.2, 1961.2), 5.3),
        "AMD Instinct MI300A, data sheet",
    ),
    _device(r"\bMI300X\b", "MI300X", 304, _CDNA3, 5.3, "AMD Instinct MI300X, data sheet"),
    _device(r"\bMI325X\b", "MI325X", 304, _CDNA3, 6, "AMD Instinct MI325X, data sheet"),
    _device(
        *(r"\bMI350X\b", "MI350X", 256, (72.1, 144.2, _NO, 2306.9, 2306.9, 4613.7, 4613.7), 8),
        "AMD Instinct MI350X, data sheet",
    ),
    _device(
        *(r"\bMI355X\b", "MI355X", 256, (78.6, 157.3, _NO, 2516.6, 2516.6, 5033.2, 5033.2), 8),
        "AMD Instinct MI355X, data sheet",
    ),
    _device(  # torch sees one of the card's two stacks, or both, as a device
        *(r"\bMax 1550\b", "Max 1550", 128, (52.4, 52.4, 419.4, 838.9, 838.9, _NO, 1677.7), 3.2768, _MAX.format(1.6)),
        may_be_part=True,
    ),
    _device(
        *(r"\bMax 1100\b", "Max 1100", 56, (22.2, 22.2, 177.8, 355.5, 355.5, _NO, 711.1), 1.2288, _MAX.format(1.55))
    ),
    _device(r"\bGaudi ?3\b", "Gaudi 3", None, (_NO, _NO, _NO, _NO, 1835, 1835, _NO), 3.7, _GAUDI),
    _device(r"\bGaudi ?2\b", "Gaudi 2", None, (_NO, _NO, _NO, _NO, 432, 865, _NO), 2.45, _GAUDI),
    _device(  # one CPU of 72 cores; fp32 is twice fp64, as in all of its vector units
        *(r"\bGrace\b(?!.*(Hopper|Blackwell))", "Grace CPU", 72, (3.55, 7.1, _NO, _NO, _NO, _NO, _NO), 0.5),
        "NVIDIA Grace CPU Superchip, data sheet: half of it",
    ),
)
