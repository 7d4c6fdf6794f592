"""Processors in the metadata of a trace: values that are impossible are unknown."""

from __future__ import annotations

from typing import Any

import pytest

from opspan.tables import Metadata
from opspan.tables.processors import Processor, from_capture, of_rank

PEAKS = "fp32=2.5e11 bf16=1e12 bandwidth=1.5e10 threads=2 host=node7"
ENTRIES = {
    "PROCESSOR": "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz",
    "PROCESSOR_CORES": "2",
    "PROCESSOR_THREADS": "4",
    "PROCESSOR_MAX_HZ": "3500000000",
    "PROCESSOR_VECTORS": "avx512f,avx512_bf16",
    "PROCESSOR_PEAKS": PEAKS,
}


def of(options: Any) -> Processor | None:
    return of_rank(Metadata("capture", options={"processor": options}))


def test_entries_become_json() -> None:
    assert from_capture(ENTRIES) == {
        "model": "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz",
        "cores": 2,
        "threads": 4,
        "max_hz": 3_500_000_000,
        "nominal_hz": 2_500_000_000,
        "vectors": ["avx512f", "avx512_bf16"],
        "peaks": {"fp32": 2.5e11, "bf16": 1e12, "bandwidth": 1.5e10},
        "measured_threads": 2,
        "measured_on": "node7",
    }


def test_a_rank_has_these_values() -> None:
    processor = of(from_capture(ENTRIES))
    assert processor is not None
    assert (processor.cores, processor.threads, processor.measured_threads, processor.measured_on) == (2, 4, 2, "node7")
    assert (processor.peaks, processor.bandwidth) == ({"fp32": 2.5e11, "bf16": 1e12}, 1.5e10)
    assert processor.name == "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz, 2 cores, 4 threads"


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"PROCESSOR": ""},
        {"PROCESSOR_CORES": "0"},
        {"PROCESSOR_CORES": "-1"},
        {"PROCESSOR_CORES": "1e3"},
        {"PROCESSOR_CORES": "\u0663"},
        {"PROCESSOR_CORES": 30 * "9"},
        {"PROCESSOR_PEAKS": "host=node7 threads=2"},
        {"PROCESSOR_PEAKS": "fp32=nan bf16=inf fp64=-1 fp16=0 bandwidth=1e300 int8= =1 fp8"},
    ],
)
def test_impossible_entries_say_nothing(entries: dict[str, str]) -> None:
    assert from_capture(entries) == {}


@pytest.mark.parametrize(
    "options",
    [
        {"model": 1, "cores": 2.5, "threads": True, "peaks": [1], "measured_threads": -1, "measured_on": {}},
        {"cores": 1 << 40, "peaks": {"fp32": None, "bf16": True, "bandwidth": [1], "fp64": 10**400}},
        {"peaks": "fp32"},
        {},
    ],
)
def test_a_saved_trace_may_say_anything(options: dict[str, Any]) -> None:
    assert of(options) == Processor()


@pytest.mark.parametrize("options", [None, 1, "text", [1]])
def test_without_an_object_there_is_no_processor(options: Any) -> None:
    assert of(options) is None


def test_a_name_is_cut_and_made_printable() -> None:
    processor = of({"model": "\x1b[2J" + 1000 * "x"})
    assert processor is not None
    assert processor.name.startswith("\\x1b[2Jxxx")
    assert len(processor.name) < 80
