"""Facts about this process that its capture states: how many threads torch runs an op on, which processors the process
may use, and how old it was when it imported torch.

They are read when a session ends. torch.get_num_threads() may be the first call that makes MKL and OpenMP read their
environment variables, and a program may set these after it has imported torch. Once ops have run, nothing changes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from opspan.capture_files import CAPTURE
from opspan.emit import header_texts

_FOLDER = "OPSPAN_CAPTURE_DIR"
_COLLECTORS = 2  # the header's `producer` in files of the collectors
_LONGEST_LIST = 200  # characters of a list of processors, for which the header has little room
_CGROUPS = Path("/sys/fs/cgroup")
_torch_import: tuple[int, int] | None = None  # when `import torch` began and ended, of CLOCK_MONOTONIC


def note_torch_import(begin_ns: int) -> None:
    """Notes that `import torch` has just ended."""
    global _torch_import
    _torch_import = begin_ns, time.monotonic_ns()


def torch_threads() -> int | None:
    """Returns the number of threads on which torch runs an op of this thread."""
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())


def tell_after_ops(capture: Path, covers_start: bool = False) -> None:
    """Calls `tell` with torch's number of threads. Before torch has run ops, the question could change the number."""
    tell(capture, torch_threads(), covers_start)


def tell(capture: Path, threads: int | None, covers_start: bool = False) -> None:
    """Writes the facts into the capture of this process. `covers_start`: ops were recorded from the end of
    `import torch` on."""
    texts: dict[str, object] = {}
    with contextlib.suppress(OSError):
        texts["USABLE_PROCESSORS"] = usable_processors()
        numbers = processor_list(sorted(os.sched_getaffinity(0)))
        if len(numbers) <= _LONGEST_LIST:
            texts["PROCESSOR_LIST"] = numbers
    if threads is not None:
        texts["TORCH_THREADS"] = threads
    began_ns = process_began_ns()
    if covers_start and began_ns is not None and _torch_import is not None:
        texts["PROCESS_BEGAN_NS"] = began_ns
        texts["TORCH_IMPORT_NS"] = "-".join(map(str, _torch_import))
    header_texts.add(capture, texts)


def collectors_file() -> Path | None:
    """Returns the capture that the collectors of `opspan run` are writing in this process, or None."""
    folder = os.environ.get(_FOLDER)
    if not folder:
        return None
    files = sorted(Path(folder).glob(f"{os.getpid()}-*{CAPTURE}"), key=lambda path: path.stat().st_mtime_ns)
    for path in reversed(files):
        with path.open("rb") as file:
            head = file.read(64)
        # A program that this process was before exec, or an earlier process with this id, has left a file, too.
        if len(head) == 64 and int.from_bytes(head[56:60], "little") == 0:
            return path if int.from_bytes(head[60:64], "little") == _COLLECTORS else None
    return None


def process_began_ns() -> int | None:
    """Returns when this process began, on CLOCK_MONOTONIC. The kernel knows it to a hundredth of a second."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The name of the program stands in brackets, and may contain any characters.
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        ticks = int(fields[19])
        asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
        began_ns = ticks * 10**9 // os.sysconf("SC_CLK_TCK") - asleep_ns
        if 0 < began_ns <= time.monotonic_ns():
            return began_ns
    return None


def usable_processors() -> float:
    """Returns how many processors this process may use at a time: those that it may run on or, if that is less, the
    time that its control groups allow."""
    count = len(os.sched_getaffinity(0))
    quota = None
    with contextlib.suppress(OSError, ValueError):
        quota = quota_of(Path("/proc/self/cgroup").read_text())
    return count if quota is None or quota >= count else round(quota, 2)


def processor_list(numbers: list[int]) -> str:
    """Returns sorted numbers as the kernel writes them: 0-3,8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def quota_of(groups: str, root: Path = _CGROUPS) -> float | None:
    """Returns the least share of processors' time that one of the control groups has, or a group around it; None
    without a limit. `groups` is the text of /proc/self/cgroup, with lines such as `0::/user.slice`."""
    quotas = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "cpu" if controllers else root
        place = base / path.lstrip("/")
        # Inside a container the path may not be there, and the folder itself is the container's group.
        around = [folder for folder in (place, *place.parents) if folder == base or base in folder.parents]
        quotas += [quota for folder in around if (quota := _limit(folder)) is not None]
    return min(quotas, default=None)


def _limit(group: Path) -> float | None:
    """Returns the limit that a group itself has, in a file of version 2 or 1 of control groups."""
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        limit, period = (group / "cpu.max").read_text().split()
        return int(limit) / int(period)  # the limit may be "max", which is no number
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        used, length = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return used / length if used > 0 else None
    return None
