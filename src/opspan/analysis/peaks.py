"""Finds the peaks of each device that a run used. They come from the table of makers' figures, the trace, or the user.

    of_devices(devices, used, user_peaks) -> the Peaks of each device that was used, or None if they are unknown.
    of_processors(ranks, user_peaks) -> the same for the processors of hosts, whose peaks `opspan doctor` measures.
    parse_peaks(texts) -> UserPeaks, from "bf16=989e12", "bandwidth=3.35e12", or a device of TABLE ("H100 SXM").

If a device is not in the table and the user does not give its peaks, no share of a peak is computed. A device may be
only a part of a card (a slice of MIG, a partition). Its peak of operations is the card's peak times its share of the
card's multiprocessors. The bandwidth of a part is unknown because files do not have it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from opspan.analysis.peak_table import TABLE, TYPES, Peaks
from opspan.errors import UsageError
from opspan.printable import plural, printable
from opspan.tables.metadata import Metadata
from opspan.tables.processors import of_rank

MARGIN = 1.1  # measured figures vary by about this much
_MIG = re.compile(r"\bMIG\b", re.IGNORECASE)
# A virtual GPU (GRID A100-10C, A40-8Q) has a part of a card's time, but files do not say how large a part.
_VIRTUAL = re.compile(r"\bGRID\b|-[0-9]+[ABCQ]\b", re.IGNORECASE)


@dataclass(frozen=True)
class UserPeaks:
    """The peaks that a user gives: a device of the table, or single figures, which override those of the device."""

    device: Peaks | None = None
    flops: Mapping[str, float] = field(default_factory=dict)
    bandwidth: float | None = None

    def __bool__(self) -> bool:
        return bool(self.device or self.flops or self.bandwidth)


def parse_peaks(texts: Sequence[str]) -> UserPeaks:
    device, flops, bandwidth = None, {}, None
    for text in texts:
        name, equals, figure = (part.strip() for part in text.partition("="))
        if not equals:
            device = _device_named(name)
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
    return UserPeaks(device, flops, bandwidth)


def _figure(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _device_named(name: str | None) -> Peaks | None:
    for pattern, peaks in TABLE:
        if name and re.search(pattern, name, re.IGNORECASE):
            return peaks
    return None


def of_devices(
    devices: pl.DataFrame, used: Iterable[tuple[int | None, int | None]], user_peaks: UserPeaks
) -> dict[tuple[int | None, int | None], Peaks | None]:
    """Returns the peaks of each device. `used` has the rank and the device_id of each device."""
    rows = {
        (row["rank"], row["device_id"]): row for row in devices.unique(["rank", "device_id"], keep="first").to_dicts()
    }
    return {key: _of_device(rows.get(key, {}), user_peaks) for key in used}


def _of_device(row: Mapping[str, object], user: UserPeaks) -> Peaks | None:
    peaks = user.device or _by_name(row)
    own, bandwidth = row.get("bandwidth_bytes_per_s"), user.bandwidth
    if not bandwidth and isinstance(own, int) and own > 0 and not _is_slice(row):
        bandwidth = float(own)
    if peaks is None:
        name = printable(str(row.get("name") or "device"))
        return Peaks(name, user.flops, bandwidth, "as given") if user else None
    source = f"{peaks.source}, and as given" if user.flops or user.bandwidth else peaks.source
    return Peaks(peaks.name, {**peaks.flops, **user.flops}, bandwidth or peaks.bandwidth, source)


def of_processors(
    ranks: Iterable[Metadata], user_peaks: UserPeaks
) -> dict[tuple[int | None, int | None], Peaks | None]:
    """Returns the peaks of each rank's processor. In the keys, it has no device_id."""
    return {(metadata.rank, None): _of_processor(metadata, user_peaks) for metadata in ranks}


def _of_processor(metadata: Metadata, user: UserPeaks) -> Peaks | None:
    """Returns the peaks as they were measured, with those that the user gives. The table of devices is not searched,
    because a processor may have the name of a device (AMD A10)."""
    processor = of_rank(metadata)
    figures = (
        {} if processor is None else {type_: figure for type_, figure in processor.peaks.items() if type_ in TYPES}
    )
    if user.device or processor is None or not (figures or processor.bandwidth):
        given = user.device or Peaks("device" if processor is None else processor.name, {}, None, "as given")
        return _with_given(given, user) if user else None
    threads = f" with {plural(processor.measured_threads, 'thread')}" if processor.measured_threads else ""
    host = f" on {printable(processor.measured_on)}" if processor.measured_on else ""
    source = f"measured by `opspan doctor --measure-peaks`{threads}{host}"
    return _with_given(Peaks(processor.name, figures, processor.bandwidth, source, margin=MARGIN), user)


def _with_given(peaks: Peaks, user: UserPeaks) -> Peaks:
    if not (user.flops or user.bandwidth):
        return peaks
    source = peaks.source if peaks.source == "as given" else f"{peaks.source}, and as given"
    return replace(
        peaks, flops={**peaks.flops, **user.flops}, bandwidth=user.bandwidth or peaks.bandwidth, source=source
    )


def _by_name(row: Mapping[str, object]) -> Peaks | None:
    name, units = row.get("name"), row.get("multiprocessors")
    peaks = _device_named(name) if isinstance(name, str) else None
    if peaks is None or _VIRTUAL.search(str(name)):
        return None
    is_part = _is_slice(row) or (peaks.may_be_part and units != peaks.units)
    if isinstance(units, int) and peaks.units and 0 < units < peaks.units:
        # AMD's cards can be partitioned into equal devices. So a device with fewer units is a partition if its number
        # of units divides that of the card. In other cases units are only counted in another way.
        is_share = is_part or peaks.units % units == 0
        return _part(peaks, units, peaks.units) if is_share else peaks
    return None if is_part else peaks


def _part(card: Peaks, units: int, of: int) -> Peaks:
    flops = {type_: figure * units / of for type_, figure in card.flops.items()}
    return Peaks(f"{card.name}, {units} of {of} multiprocessors", flops, None, card.source)


def _is_slice(row: Mapping[str, object]) -> bool:
    return bool(_MIG.search(str(row.get("name") or "")) or _MIG.match(str(row.get("uuid") or "")))
