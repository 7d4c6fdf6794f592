"""What each device that a run used can do at most: from the table of makers' figures, the trace and what a user says.

    of_devices(devices, used, given) -> for each device that was used: Peaks, or None where nobody knows
    given(texts) -> what a user says of them: "bf16=989e12", "bandwidth=3.35e12", or a device of TABLE ("H100 SXM")

A device that is not in the table has no share of its peak until the user says it. Part of a card is not the card: of
one that the file shows to have so many of its multiprocessors (a slice of MIG, a partition), that share of the
operations; how fast its memory is, no file says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from opspan.analysis.peak_table import TABLE, TYPES, Peaks
from opspan.errors import UsageError
from opspan.printable import printable

_MIG = re.compile(r"\bMIG\b", re.IGNORECASE)
# A virtual GPU (GRID A100-10C, A40-8Q) has a part of the time of a card, and no file says which.
_VIRTUAL = re.compile(r"\bGRID\b|-[0-9]+[ABCQ]\b", re.IGNORECASE)


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
    found = said.device or _by_name(row)
    own, bandwidth = row.get("bandwidth_bytes_per_s"), said.bandwidth
    if not bandwidth and isinstance(own, int) and own > 0 and not _is_slice(row):
        bandwidth = float(own)
    if found is None:
        name = printable(str(row.get("name") or "device"))
        return Peaks(name, said.flops, bandwidth, "as given") if said else None
    source = f"{found.source}, and as given" if said.flops or said.bandwidth else found.source
    return Peaks(found.name, {**found.flops, **said.flops}, bandwidth or found.bandwidth, source)


def _by_name(row: Mapping[str, object]) -> Peaks | None:
    name, units = row.get("name"), row.get("multiprocessors")
    found = _named(name) if isinstance(name, str) else None
    if found is None or _VIRTUAL.search(str(name)):
        return None
    is_part = _is_slice(row) or (found.may_be_part and units != found.units)
    if isinstance(units, int) and found.units and 0 < units < found.units:
        # AMD's partitions have a whole share of the compute units; other differences are between ways to count.
        is_share = is_part or found.units % units == 0
        return _part(found, units, found.units) if is_share else found
    return None if is_part else found


def _part(whole: Peaks, units: int, of: int) -> Peaks:
    flops = {type_: figure * units / of for type_, figure in whole.flops.items()}
    return Peaks(f"{whole.name}, {units} of {of} multiprocessors", flops, None, whole.source)


def _is_slice(row: Mapping[str, object]) -> bool:
    return bool(_MIG.search(str(row.get("name") or "")) or _MIG.match(str(row.get("uuid") or "")))
