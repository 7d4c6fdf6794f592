"""Describes the processor of the machine that a capture was recorded on, as JSON for the metadata of a trace.

A capture has these entries, of which any may be missing (docs/formats/capture.md):

    PROCESSOR=Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz
    PROCESSOR_CORES=2  PROCESSOR_THREADS=4  PROCESSOR_MAX_HZ=3500000000  PROCESSOR_VECTORS=avx512f,amx_bf16
    PROCESSOR_PEAKS=fp32=2.6e11 bandwidth=1.8e10 threads=2 host=node7

    from_capture(entries) -> {"model": ..., "cores": 2, ..., "peaks": {"fp32": 2.6e11, "bandwidth": 1.8e10}}
    of_rank(metadata)     -> the Processor of a rank, with only the values that are possible

A file may contain anything, so values that are impossible are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opspan.printable import plural, printable
from opspan.tables.metadata import Metadata

OPTION = "processor"  # the key in Metadata.options
NAMES = frozenset({"PROCESSOR", *(f"PROCESSOR_{name}" for name in ("CORES", "THREADS", "MAX_HZ", "VECTORS", "PEAKS"))})
BANDWIDTH = "bandwidth"
_NOMINAL = re.compile(r"@ ?([0-9]{1,3}(?:\.[0-9]{1,3})?) ?GHz")
_NUMBER = re.compile(r"[0-9]{1,15}")
_FIGURE = re.compile(r"(?:^| )([a-z][a-z0-9]{1,15})=([!-~]+)")
_MOST = 1e18  # of operations or bytes a second
_LONGEST = 64


@dataclass(frozen=True)
class Processor:
    """A processor, as far as it is known.

    Attributes:
        model: the maker's name.
        cores: cores that the process could use.
        threads: processors of the operating system that the process could use; a core may have several.
        peaks: operations a second for each type, as they were measured.
        bandwidth: bytes a second that a copy reads and writes, as measured.
        measured_threads: how many threads the measurement used.
        measured_on: the machine that was measured.
    """

    model: str | None = None
    cores: int | None = None
    threads: int | None = None
    peaks: Mapping[str, float] = field(default_factory=dict)
    bandwidth: float | None = None
    measured_threads: int | None = None
    measured_on: str | None = None

    @property
    def name(self) -> str:
        known = [printable(self.model or "an unknown processor")]
        if self.cores:
            known.append(plural(self.cores, "core"))
        if self.threads:
            known.append(plural(self.threads, "thread"))
        return ", ".join(known)


def from_capture(entries: Mapping[str, str]) -> dict[str, Any]:
    """Returns the processor as JSON; empty if nothing is known."""
    model = entries.get("PROCESSOR", "")
    numbers = {"cores": "PROCESSOR_CORES", "threads": "PROCESSOR_THREADS", "max_hz": "PROCESSOR_MAX_HZ"}
    facts: dict[str, Any] = {"model": model} if model else {}
    for name, entry in numbers.items():
        if _NUMBER.fullmatch(value := entries.get(entry, "")) and int(value):
            facts[name] = int(value)
    if nominal := _NOMINAL.search(model):
        facts["nominal_hz"] = round(float(nominal[1]) * 1e9)
    if vectors := entries.get("PROCESSOR_VECTORS"):
        facts["vectors"] = vectors.split(",")
    figures = dict(_FIGURE.findall(entries.get("PROCESSOR_PEAKS", "")))
    peaks = {name: peak for name, text in figures.items() if (peak := _figure(text)) is not None}
    threads, host = peaks.pop("threads", None), figures.pop("host", None)
    peaks.pop("host", None)
    if peaks:
        facts["peaks"] = peaks
        facts |= {"measured_threads": int(threads)} if threads else {}
        facts |= {"measured_on": host} if host else {}
    return facts


def of_rank(metadata: Metadata) -> Processor | None:
    """Returns the processor of the rank, or None if nothing is known. The options may have any JSON value."""
    facts = metadata.options.get(OPTION)
    if not isinstance(facts, Mapping):
        return None
    peaks = facts.get("peaks")
    peaks = peaks if isinstance(peaks, Mapping) else {}
    figures = {name: peak for name, value in peaks.items() if (peak := _figure(value)) is not None}
    return Processor(
        model=_text(facts.get("model")),
        cores=_count(facts.get("cores")),
        threads=_count(facts.get("threads")),
        bandwidth=figures.pop(BANDWIDTH, None),
        peaks=figures,
        measured_threads=_count(facts.get("measured_threads")),
        measured_on=_text(facts.get("measured_on")),
    )


def _figure(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        figure = float(value)
    except (ValueError, OverflowError):
        return None
    return figure if math.isfinite(figure) and 0 < figure < _MOST else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 1 << 20 else None


def _text(value: object) -> str | None:
    return value[:_LONGEST] if isinstance(value, str) and value else None
