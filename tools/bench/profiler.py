"""Compares the costs of opspan's profile() with those of torch.profiler: ranges, session end, tables, exports, memory.

    python tools/bench/profiler.py                     everything, with lists of 1,000,000 ops
    python tools/bench/profiler.py --quick             fewer rounds, lists of 100,000 ops (about 8 minutes)
    python tools/bench/profiler.py --lists             only the lists
    python tools/bench/profiler.py --lists --rounds 3  the lists three times

The cost of a range is given in nanoseconds, minus the cost with a torch observer that does nothing. This observer asks
torch for inputs if the profiler does. Each process has only one session, like most programs. In a second session
torch.profiler would reuse the memory that it kept from the first session, while opspan gives its memory back to the
system. The processes of both profilers run in turn, and figures are medians over processes.

A list is the events() of a long recording. A new process records it, prints its table and exports it. Both profilers
record the same steps. For a list of 1,000,000 ops, torch.profiler needs several minutes and gigabytes of memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import figure, title

from emit import STEPS, empty_observer, ranges_of

OPTIONS: dict[str, dict[str, bool]] = {
    "plain": {},
    "shapes": {"record_shapes": True},
    "stacks": {"with_stack": True},
    "python": {"python": True},  # beside torch's with_stack, which records every call of a Python function as well
    "memory": {"profile_memory": True},
    "all": {"record_shapes": True, "with_stack": True, "profile_memory": True, "with_flops": True},
}
GOALS = {"plain": 0.25, "shapes": 0.3, "stacks": 0.35, "python": 0.5, "memory": 0.35, "all": 0.35}
AFTER_GOALS = {"stop + events()": 0.1, "key_averages().table()": 0.05, "export_chrome_trace": 0.3}
MANY = 1_000_000  # the goals for lists apply to lists of this number of ops
MEMORY_GOALS = {"plain": 100, "all": 200}


def profiler(whose: str, options: dict[str, bool], folder: str) -> Any:
    import torch

    from opspan import profiler as ours

    module = torch.profiler if whose == "torch" else ours
    if whose == "torch" and "python" in options:
        options = OPTIONS["stacks"]
    path = {} if whose == "torch" else {"path": tempfile.mkdtemp(dir=folder)}
    return module.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options, **path)


def ranges(whose: str, options_name: str, step_name: str, seconds: float) -> float:
    """Returns the cost of a range in ns, in the first session of this process. The cost with the empty observer is
    subtracted."""
    import torch

    torch.set_num_threads(1)
    step = STEPS[step_name]()
    count = ranges_of(step)
    options = OPTIONS[options_name]

    def per_range(session: contextlib.AbstractContextManager[Any]) -> float:
        with session:
            repeat(step, seconds / 5)
            return repeat(step, seconds) / count

    with tempfile.TemporaryDirectory() as folder:
        repeat(step, 0.5)
        floor = per_range(empty_observer(bool(options.get("record_shapes"))))
        return per_range(profiler(whose, options, folder)) - floor


def repeat(step: Callable[[], None], seconds: float) -> float:
    """Returns the ns per step, measured for `seconds`."""
    started, steps = time.perf_counter_ns(), 0
    while time.perf_counter_ns() - started < seconds * 1e9:
        step()
        steps += 1
    return (time.perf_counter_ns() - started) / steps


def lists(whose: str, options_name: str, ops: int, suffix: str) -> dict[str, float]:
    """Records this number of ops. Returns the bytes per op that are held when the recording ends, and the seconds of
    each action after it."""
    import torch

    torch.set_num_threads(1)
    step = STEPS["tiny"]()
    steps = int(ops / ranges_of(step))
    with tempfile.TemporaryDirectory() as folder:
        prof = profiler(whose, OPTIONS[options_name], folder)
        prof.start()
        for _ in range(100):
            step()
        before = held_bytes(folder)
        for _ in range(steps):
            step()
        bytes_held = held_bytes(folder) - before
        times = {"bytes": bytes_held / ops}
        if options_name != "plain":
            prof.stop()
            return times

        def timed(name: str, do: Callable[[], object]) -> None:
            started = time.perf_counter()
            do()
            times[name] = time.perf_counter() - started

        timed("stop + events()", lambda: (prof.stop(), len(prof.events())))
        timed("key_averages().table()", lambda: prof.key_averages().table())
        timed("export_chrome_trace", lambda: prof.export_chrome_trace(f"{folder}/trace{suffix}"))
    return times


def held_bytes(folder: str) -> int:
    """Returns the bytes that this process holds: its resident memory without pages of files, plus its captures on
    disk."""
    fields = Path("/proc/self/statm").read_text().split()
    files = sum(path.stat().st_blocks * 512 for path in Path(folder).rglob("*.opspan"))
    return (int(fields[1]) - int(fields[2])) * resource.getpagesize() + files


def child(*arguments: str) -> Any:
    done = subprocess.run([sys.executable, __file__, "--child", *arguments], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report_ranges(rounds: int, seconds: float) -> None:
    for step in STEPS:
        title(f"{step} step", "a range above an empty observer, opspan's of torch's")
        for name, goal in GOALS.items():
            times: dict[str, list[float]] = {"opspan": [], "torch": []}
            for _ in range(rounds):
                for whose, values in times.items():
                    values.append(child("ranges", whose, name, step, str(seconds)))
            ours, theirs = (statistics.median(values) for values in times.values())
            figure(name, ours / theirs, beside=f"{ours:.0f} / {theirs:.0f} ns", most=goal)


def report_lists(rounds: int, ops: int, suffix: str) -> None:
    rounds_of: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(rounds):
        for mode in (("opspan", "plain"), ("torch", "plain"), ("opspan", "all")):
            rounds_of.setdefault(mode, []).append(child("lists", *mode, str(ops), suffix))
    medians = {
        mode: {name: statistics.median(one[name] for one in several) for name in several[0]}
        for mode, several in rounds_of.items()
    }
    title(f"after {ops:,} ops", f"opspan's of torch's, with {suffix}")
    ours, theirs = medians["opspan", "plain"], medians["torch", "plain"]
    for name, goal in AFTER_GOALS.items():
        beside = f"{ours[name]:.2f} / {theirs[name]:.2f} s"
        figure(name, ours[name] / theirs[name], beside=beside, most=goal if ops >= MANY else None)
    for name, most in MEMORY_GOALS.items():
        size = medians["opspan", name]["bytes"]
        figure(f"memory and disk held a range, {name}", size, "bytes", most=most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--lists", action="store_true")
    parser.add_argument("--gz", action="store_true", help="export gzipped Chrome traces")
    parser.add_argument("--rounds", type=int, default=1, help="how often each list is made")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, *rest = options.child
        if what == "ranges":
            print(json.dumps(ranges(rest[0], rest[1], rest[2], float(rest[3]))))
        else:
            print(json.dumps(lists(rest[0], rest[1], int(rest[2]), rest[3])))
        return
    if not options.lists:
        report_ranges(*((5, 0.3) if options.quick else (15, 0.5)))
    report_lists(options.rounds, 100_000 if options.quick else 1_000_000, ".json.gz" if options.gz else ".json")


if __name__ == "__main__":
    main()
