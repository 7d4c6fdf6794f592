"""What a capture says about the processor: of made machines, and of this one."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from opspan.emit import sinks

XEON = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz
cpu MHz\t\t: 3101.222
flags\t\t: fpu vme sse2 avx avx2 avx512f avx512_bf16 amx_bf16 amx_tile

processor\t: 1
model name\t: another
flags\t\t: sse2
"""
GRAVITON = """processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd evtstrm sve bf16 i8mm
CPU implementer\t: 0x41
CPU part\t: 0xd40

"""


def machine(folder: Path, cpuinfo: bytes | str | None, siblings: dict[int, str] | None = None, khz: str = "") -> str:
    """Makes /proc and /sys below the folder. `siblings` has the text for each processor."""
    if cpuinfo is not None:
        (folder / "proc").mkdir()
        (folder / "proc/cpuinfo").write_bytes(cpuinfo.encode() if isinstance(cpuinfo, str) else cpuinfo)
    for number, text in (siblings or {}).items():
        topology = folder / f"sys/devices/system/cpu/cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(text)
    if khz:
        frequency = folder / f"sys/devices/system/cpu/cpu{min(os.sched_getaffinity(0))}/cpufreq"
        frequency.mkdir(parents=True)
        (frequency / "cpuinfo_max_freq").write_text(khz)
    return str(folder)


def described(root: str) -> dict[str, str]:
    entries = sinks.require().processor(root)
    assert int(entries.pop("PROCESSOR_THREADS")) == len(os.sched_getaffinity(0))
    return entries


def test_a_processor_has_its_model_and_widest_vectors(tmp_path: Path) -> None:
    assert described(machine(tmp_path, XEON, khz="3500000\n")) == {
        "PROCESSOR": "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz",
        "PROCESSOR_VECTORS": "avx512f,avx512_bf16,amx_bf16",
        "PROCESSOR_MAX_HZ": "3500000000",
    }


def test_arm_names_no_model(tmp_path: Path) -> None:
    assert described(machine(tmp_path, GRAVITON)) == {
        "PROCESSOR": "implementer 0x41, part 0xd40",
        "PROCESSOR_VECTORS": "sve,bf16",
    }


@pytest.mark.parametrize(
    "cpuinfo",
    [None, "", "\n\n\n", ":::", " : \n:\n\t", "model name", "flags", bytes(range(256)), 100 * "processor: 0\n\n"],
    ids=["no file", "empty", "lines", "colons", "spaces", "no value", "no flags", "all bytes", "no facts"],
)
def test_of_a_broken_file_nothing_is_known(cpuinfo: bytes | str | None, tmp_path: Path) -> None:
    assert described(machine(tmp_path, cpuinfo)) == {}


def test_a_folder_in_place_of_the_file_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "proc/cpuinfo").mkdir(parents=True)
    assert described(str(tmp_path)) == {}


def test_odd_letters_and_long_names_do_not_reach_the_capture(tmp_path: Path) -> None:
    odd = "model name : \x1b[2J  A\tB\x07   C\u00e9" + 500 * "x"
    (entry,) = described(machine(tmp_path, odd)).values()
    assert entry == f"?[2J A?B? C??{51 * 'x'}"
    assert len(entry) == 64


@pytest.mark.parametrize("khz", ["-1", "fast", "", "99999999999999999999999", "9999999999999"])
def test_an_impossible_frequency_is_unknown(khz: str, tmp_path: Path) -> None:
    assert described(machine(tmp_path, None, khz=khz)) == {}


def listed(numbers: list[int], together: int) -> dict[int, str]:
    """The processors of each core, as Linux lists them: alternately as a list and as a range."""
    cores = {number: [one for one in numbers if one // together == number // together] for number in numbers}
    return {
        number: f"{core[0]}-{core[-1]}\n" if number % 2 else ",".join(map(str, core)) for number, core in cores.items()
    }


@pytest.mark.parametrize("together", [1, 2, 64])
def test_cores_are_counted_once(together: int, tmp_path: Path) -> None:
    numbers = sorted(os.sched_getaffinity(0))
    if numbers != list(range(len(numbers))):
        pytest.skip("this process may use only some processors of the machine")
    entries = described(machine(tmp_path, None, listed(numbers, together)))
    assert entries == {"PROCESSOR_CORES": str(-(-len(numbers) // together))}


@pytest.mark.parametrize("text", ["", "x", "-", "3-1", "0-", "99999999999", "0-99999999", "70000", "\0"])
def test_odd_siblings_leave_the_cores_unknown(text: str, tmp_path: Path) -> None:
    assert described(machine(tmp_path, None, dict.fromkeys(os.sched_getaffinity(0), text))) == {}


def test_this_machine_is_described_as_its_own_files_do() -> None:
    """An oracle from outside: the model and flags of /proc/cpuinfo, where it has them."""
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*: (.+)$", text, re.MULTILINE)
    if model is None or flags is None:
        pytest.skip("this machine's /proc/cpuinfo has no model")
    entries = sinks.require().processor()
    assert entries["PROCESSOR"] == " ".join(model[1].split())[:64].strip()
    widest = next(name for name in ("avx512f", "avx2", "avx", "sse2", "sve", "asimd") if name in flags[1].split())
    types = {name for name in ("avx512_bf16", "amx_bf16", "bf16") if name in flags[1].split()}
    first, *others = entries["PROCESSOR_VECTORS"].split(",")
    assert (first, set(others)) == (widest, types)


def test_it_takes_less_than_a_millisecond() -> None:
    native, took = sinks.require(), []
    for _ in range(50):
        began = time.perf_counter()
        native.processor()
        took.append(time.perf_counter() - began)
    cores = len(os.sched_getaffinity(0))
    assert min(took) < max(1e-3, 1e-5 * cores)
