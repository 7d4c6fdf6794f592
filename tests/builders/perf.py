"""Text as `perf script` prints it, by hand."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

HOST, PID, MAIN, WORKER = "node-3", 700, 700, 712
ZERO_NS, ZERO_UTC_NS = 33_328_877_259_747, 1_795_938_606_277_823_000
KERNEL, LIBC, TORCH, PYTHON = (
    "[kernel.kallsyms]",
    "/usr/lib/libc.so.6",
    "/opt/torch/lib/libtorch_cpu.so",
    "/usr/bin/python3",
)
HEADER = f"""\
# ========
# captured on    : Sun Nov 29 07:50:07 2026
# header version : 1
# hostname : {HOST}
# os release : 6.1.0
# perf version : 6.1.192
# cmdline : /usr/bin/perf record -k CLOCK_MONOTONIC -e cpu-clock -F 999 -g -- python3 train.py
# event : name = cpu-clock, , id = {{ 722, 723 }}, type = 1, size = 128, {{ sample_period, sample_freq }} = 999
# clockid frequency: 1000 MHz
# clockid: monotonic (1)
# reference time: 2026-11-29 07:50:06.277823 = 1795938606.277823 (TOD) = 33328.877259747 (monotonic)
# ========
#
"""

Frame = tuple[str, str]
MM: Sequence[Frame] = (
    ("mkl_blas_sgemm+0x1f", TORCH),
    ("at::native::addmm_out(at::Tensor&, int)+0x52c", TORCH),
    ("main+0x0", PYTHON),
)
READ: Sequence[Frame] = (
    ("vfs_read+0x3c5", KERNEL),
    ("entry_SYSCALL_64_after_hwframe+0x76", KERNEL),
    ("__read+0x13", LIBC),
    ("py::load:/train.py", "/tmp/perf-700.map"),
)


def header(
    ns: int,
    *,
    tid: int = MAIN,
    pid: int | None = PID,
    comm: str = "python3",
    cpu: int | None = 1,
    period: int | None = 1_001_001,
    event: str = "cpu-clock",
) -> str:
    """Returns the first line of a sample, as perf pads it."""
    seconds, part = divmod(ns, 10**9)
    thread = f"{tid:5d} " if pid is None else f"{pid:5d}/{tid:<5d} "
    where = "" if cpu is None else f"[{cpu:03d}] "
    many = "" if period is None else f"{period:10d} "
    return f"{comm} {thread}{where}{seconds:5d}.{part:09d}: {many}{event}: "


def frame(name: str, library: str, address: int = 0x7F00) -> str:
    return f"\t{address:16x} {name} ({library})"


def sample(ns: int, frames: Iterable[Frame], **fields: object) -> str:
    lines = (frame(name, library, 0x7F00 + at) for at, (name, library) in enumerate(frames))
    return "\n".join([header(ns, **fields), *lines]) + "\n\n"  # type: ignore[arg-type]  # the fields of a header


def samples() -> list[str]:
    return [
        *(sample(ZERO_NS + at * 1_000_000, MM) for at in range(5)),
        sample(ZERO_NS + 5_000_000, READ, tid=WORKER, comm="pt_data: 1", cpu=0),
        sample(ZERO_NS + 6_000_000, READ[:1], cpu=0, event="cycles:P"),
    ]


def write(path: Path, texts: Iterable[str]) -> Path:
    path.write_text("".join(texts), encoding="utf-8")
    return path


HAS_RANGES = False
# Every source goes through the tests of tests/readers/samples.py with these files.
SAMPLES = {
    "with a header": lambda folder: write(folder / "perf.txt", [HEADER, *samples()]),
    "without pids": lambda folder: write(
        folder / "perf.txt", [sample(ZERO_NS, MM, pid=None), sample(ZERO_NS + 5, READ, pid=None)]
    ),
}


@cache
def why_not() -> str | None:
    """Returns why `perf record` does not work here; None if it does."""
    if shutil.which("perf") is None:
        return "perf is not on the PATH"
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "perf",
            "record",
            "-q",
            "-k",
            "CLOCK_MONOTONIC",
            "-e",
            "cpu-clock",
            "-g",
            "-o",
            f"{folder}/perf.data",
        ]
        done = subprocess.run([*command, "--", "true"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"perf is not allowed here: {done.stderr[:200]}"
