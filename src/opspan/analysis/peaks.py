"""What devices can do at most: operations a second by type, and bytes a second. Figures of their makers, with sources.

    of_devices(devices, used, given) -> for each device that was used: Peaks, or None where nobody knows
    given(texts) -> what a user says of them: "bf16=989e12", "bandwidth=3.35e12", or a device of TABLE ("H100 SXM")

All figures are dense (without structured sparsity), at the highest clock rate; fp64 and fp32 are those of matrix units
where the maker has them. A device that is not here has no share of its peak until the user says it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from opspan.errors import UsageError
from opspan.printable import printable

TYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
_T = 1e12


@dataclass(frozen=True)
class Peaks:
    name: str
    flops: Mapping[str, float]  # by type, a second
    bandwidth: float | None  # bytes a second
    source: str

    def of_products(self, type_: str | None) -> float | None:
        """tf32 is what devices compute products of fp32 in; without it, they do them in fp32."""
        return self.flops.get(type_ or "", self.flops.get("fp32") if type_ == "tf32" else None)

    def of_elements(self, type_: str | None) -> float | None:
        """Returns the peak of element-wise ops: they compute in fp32 (fp64 for fp64 inputs), whatever they read."""
        return self.flops.get("fp64" if type_ == "fp64" else "fp32")


def _device(name: str, bandwidth: float, source: str, **tera: float) -> Peaks:
    return Peaks(name, {type_: figure * _T for type_, figure in tera.items()}, bandwidth * _T, source)


_HOPPER = {"fp64": 66.9, "fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9, "int8": 1978.9}
_AMPERE = {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624}
_CDNA3 = {"fp64": 163.4, "fp32": 163.4, "tf32": 653.7, "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9, "int8": 2614.9}
_H100 = "NVIDIA H100 Tensor Core GPU Architecture, white paper"
_A100 = "NVIDIA A100 Tensor Core GPU, data sheet"
# What the name of a device holds, in any case -> its peaks. The first that fits is taken.
TABLE: tuple[tuple[str, Peaks], ...] = (
    (
        r"\bB200\b",
        # The sources differ in fp32 and fp64.
        _device("B200", 8.0, "NVIDIA DGX B200, data sheet", tf32=1125, fp16=2250, bf16=2250, fp8=4500, int8=4500),
    ),
    (r"\bH200\b(?!.*NVL)", _device("H200 SXM", 4.8, "NVIDIA H200 Tensor Core GPU, data sheet", **_HOPPER)),
    (
        r"\bH100.*PCIe",
        _device("H100 PCIe", 2.0, _H100, fp64=51.2, fp32=51.2, tf32=378, fp16=756, bf16=756, fp8=1513, int8=1513),
    ),
    (r"\bH100 (80GB HBM3|SXM)", _device("H100 SXM", 3.35, _H100, **_HOPPER)),
    (r"\bA100.*PCIe.*40GB|\bA100.*SXM4-40GB|\bA100 40GB", _device("A100 40GB", 1.555, _A100, **_AMPERE)),
    (r"\bA100.*80GB.*PCIe", _device("A100 80GB PCIe", 1.935, _A100, **_AMPERE)),
    (r"\bA100.*SXM.*80GB|\bA100 80GB SXM", _device("A100 80GB SXM", 2.039, _A100, **_AMPERE)),
    (
        r"\bA10\b",
        _device("A10", 0.6, "NVIDIA A10, data sheet", fp32=31.2, tf32=62.5, fp16=125, bf16=125, int8=250),
    ),
    (
        r"\bA30\b",
        _device("A30", 0.933, "NVIDIA A30, data sheet", fp64=10.3, fp32=10.3, tf32=82, fp16=165, bf16=165, int8=330),
    ),
    (
        r"\bL40S\b",
        _device("L40S", 0.864, "NVIDIA L40S, data sheet", fp32=91.6, tf32=183, fp16=362, bf16=362, fp8=733, int8=733),
    ),
    (
        r"\bL4\b",
        _device("L4", 0.3, "NVIDIA L4, data sheet", fp32=30.3, tf32=60, fp16=121, bf16=121, fp8=242.5, int8=242.5),
    ),
    (r"\bV100.*PCIe", _device("V100 PCIe", 0.9, "NVIDIA V100, data sheet", fp64=7.0, fp32=14.0, fp16=112)),
    (r"\bV100.*SXM2", _device("V100 SXM2", 0.9, "NVIDIA V100, data sheet", fp64=7.8, fp32=15.7, fp16=125)),
    (r"\bT4\b", _device("T4", 0.32, "NVIDIA Turing GPU Architecture, white paper", fp32=8.1, fp16=65, int8=130)),
    (
        r"\bRTX 3090\b(?! Ti)",
        # With sums in fp32.
        _device(
            "RTX 3090",
            0.936,
            "NVIDIA Ampere GA102 GPU Architecture, white paper",
            fp32=35.6,
            tf32=35.6,
            fp16=71,
            bf16=71,
            int8=284,
        ),
    ),
    (
        r"\bRTX 4090\b(?! [DL])",
        _device(
            "RTX 4090",
            1.008,
            "NVIDIA Ada GPU Architecture, white paper",
            fp32=82.6,
            tf32=82.6,
            fp16=165.2,
            bf16=165.2,
            fp8=330.3,
            int8=660.6,
        ),
    ),
    (
        r"\bMI210\b",
        _device("MI210", 1.6384, "AMD Instinct MI210, data sheet", fp64=45.3, fp32=45.3, fp16=181, bf16=181, int8=181),
    ),
    (
        r"\bMI250X\b",
        # A device of torch's is one of the two dies of a card.
        _device(
            "MI250X",
            1.6384,
            "AMD Instinct MI250X, data sheet: half of the card",
            fp64=47.9,
            fp32=47.9,
            fp16=191.5,
            bf16=191.5,
            int8=191.5,
        ),
    ),
    (r"\bMI300X\b", _device("MI300X", 5.3, "AMD Instinct MI300X, data sheet", **_CDNA3)),
    (r"\bMI325X\b", _device("MI325X", 6.0, "AMD Instinct MI325X, data sheet", **_CDNA3)),
    (
        r"\bMI355X\b",
        _device(
            "MI355X",
            8.0,
            "AMD Instinct MI355X, data sheet",
            fp64=78.6,
            fp32=157.3,
            fp16=2516.6,
            bf16=2516.6,
            fp8=5033.2,
            int8=5033.2,
        ),
    ),
)


@dataclass(frozen=True)
class Said:
    """What a user says: a device of the table, or figures, which come first."""

    device: Peaks | None = None
    flops: Mapping[str, float] = field(default_factory=dict)
    bandwidth: float | None = None

    def __bool__(self) -> bool:
        return bool(self.device or self.flops or self.bandwidth)


def given(texts: Sequence[str]) -> Said:
    device, flops, bandwidth = None, {}, None
    for text in texts:
        name, equals, figure = (part.strip() for part in text.partition("="))
        if not equals:
            device = _named(name)
            if device is None:
                known = ", ".join(peaks.name for _, peaks in TABLE)
                raise UsageError(f"no peaks are known of a device {name!r}; expected TYPE=FIGURE, or one of {known}")
            continue
        if name != "bandwidth" and name not in TYPES:
            raise UsageError(f"there is no peak of {name!r}; expected bandwidth or one of {', '.join(TYPES)}")
        value = _figure(figure)
        if value is None:
            raise UsageError(f"--peak {text!r}: expected operations (or bytes) a second, such as {name}=989e12")
        if name == "bandwidth":
            bandwidth = value
        else:
            flops[name] = value
    return Said(device, flops, bandwidth)


def _figure(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _named(name: str | None) -> Peaks | None:
    for pattern, peaks in TABLE:
        if name and re.search(pattern, name, re.IGNORECASE):
            return peaks
    return None


def of_devices(
    devices: pl.DataFrame, used: Iterable[tuple[int | None, int | None]], said: Said
) -> dict[tuple[int | None, int | None], Peaks | None]:
    """`used`: rank and number of each device."""
    rows = {
        (row["rank"], row["device_id"]): row for row in devices.unique(["rank", "device_id"], keep="first").to_dicts()
    }
    return {key: _of_device(rows.get(key, {}), said) for key in used}


def _of_device(row: Mapping[str, object], said: Said) -> Peaks | None:
    name = row.get("name")
    found = said.device or _named(name if isinstance(name, str) else None)
    own = row.get("bandwidth_bytes_per_s")
    bandwidth = said.bandwidth or (float(own) if isinstance(own, int) and own > 0 else None)
    if found is None and not said:
        return None
    if found is None:
        return Peaks(printable(str(name or "device")), said.flops, bandwidth, "as given")
    source = f"{found.source}, and as given" if said.flops or said.bandwidth else found.source
    return Peaks(found.name, {**found.flops, **said.flops}, bandwidth or found.bandwidth, source)
