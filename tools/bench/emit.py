"""Measures the cost of labelling in nanoseconds per range, minus the cost of a torch observer that does nothing.

    python tools/bench/emit.py            a table for a step of tiny ops and a small transformer step (about 6 minutes)
    python tools/bench/emit.py --quick    fewer rounds
    python tools/bench/emit.py --long     the memory of the process during 50 million ranges (about 3 minutes)

A mode is a way to label, or a run without labels. In each round all modes run in turn, so that a slow moment of the
machine slows all modes. Every figure is the median over the rounds. The "null tool" is an injection library whose calls
return at once (tests/native/null_tools), so only the cost of opspan is measured. torch's own emit_nvtx needs CUDA. Here
it calls a stand-in for CUDA instead, which ignores the text of a range (tests/native/torch_stubs).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.util
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from figures import figure, title

ROOT = Path(__file__).parents[2]
NULL_TOOLS = ROOT / "tests/native/null_tools"


# --- the steps that are timed


def tiny_step() -> Callable[[], None]:
    import torch

    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(2, 4))
    x = torch.randn(2, 4)

    def step() -> None:
        (x * weight).relu().sum().backward()

    return step


def transformer_step() -> Callable[[], None]:
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    x = torch.randn(2, 8, 32)

    def step() -> None:
        layer(x).sum().backward()

    return step


STEPS = {"tiny": tiny_step, "transformer": transformer_step}


def modes(tool: str, folder: str) -> dict[str, Callable[[], contextlib.AbstractContextManager]]:
    """Returns the modes that are measured when this tool is attached, by name."""
    import torch

    import opspan

    @contextlib.contextmanager
    def torch_nvtx(shapes: bool):
        torch.cuda.synchronize = lambda device=None: None  # torch's emit_nvtx calls synchronize on entry
        with torch.autograd.profiler.emit_nvtx(record_shapes=shapes):
            yield

    def recorded(shapes: bool):
        return opspan.record(record_shapes=shapes, path=tempfile.mkdtemp(dir=folder))

    modes_by_name: dict[str, Callable] = {"off": contextlib.nullcontext}
    if tool == "none":
        modes_by_name["emit_nvtx"] = opspan.emit_nvtx
        modes_by_name["emit_itt"] = opspan.emit_itt
        return modes_by_name
    for shapes in (False, True):
        tail = " shapes" if shapes else ""
        modes_by_name["empty" + tail] = lambda shapes=shapes: empty_observer(shapes)
        modes_by_name["nvtx auto" + tail] = lambda shapes=shapes: opspan.emit_nvtx(record_shapes=shapes)
        modes_by_name["itt auto" + tail] = lambda shapes=shapes: opspan.emit_itt(record_shapes=shapes)
        if tool == "null":
            modes_by_name["nvtx torch" + tail] = lambda shapes=shapes: opspan.emit_nvtx(
                record_shapes=shapes, labels="torch"
            )
            modes_by_name["torch emit_nvtx" + tail] = lambda shapes=shapes: torch_nvtx(shapes)
            modes_by_name["record" + tail] = lambda shapes=shapes: recorded(shapes)
    if tool == "null":
        ctypes.CDLL(os.environ["TORCH_STUBS"]).stubs_register(0)
        modes_by_name["torch emit_itt"] = torch.autograd.profiler.emit_itt
    return modes_by_name


@contextlib.contextmanager
def empty_observer(inputs: bool) -> Iterator[None]:
    from opspan.emit import observer

    loaded = observer.load()
    loaded.empty(2 if inputs else 1)
    try:
        yield
    finally:
        loaded.empty(0)


def ranges_of(step: Callable[[], None]) -> float:
    import opspan

    with opspan.record() as counted:
        for _ in range(10):
            step()
    return counted.stats.ranges / 10


def measure_in_turns(
    modes_by_name: dict[str, Callable[[], contextlib.AbstractContextManager]],
    step: Callable[[], None],
    rounds: int,
    seconds: float,
) -> dict[str, list[float]]:
    """Returns for each mode the ns per step in each round. In a round each mode runs for about `seconds`."""
    started = time.perf_counter()
    for _ in range(200):
        step()
    repeat = max(10, int(seconds / ((time.perf_counter() - started) / 200)))
    times: dict[str, list[float]] = {name: [] for name in modes_by_name}
    for _ in range(rounds):
        for name in random.sample(list(modes_by_name), len(modes_by_name)):
            with modes_by_name[name]():
                for _ in range(10 + repeat // 10):
                    step()
                started_ns = time.perf_counter_ns()
                for _ in range(repeat):
                    step()
                times[name].append((time.perf_counter_ns() - started_ns) / repeat)
    return times


def measure(tool: str, step_name: str, rounds: int, seconds: float) -> dict[str, object]:
    """Returns the number of ranges in a step, and the ns per step of each mode in each round."""
    import warnings

    import torch

    warnings.simplefilter("ignore")  # each emitter warns once if no tool is attached
    torch.set_num_threads(1)
    step = STEPS[step_name]()
    count = ranges_of(step)
    with tempfile.TemporaryDirectory() as folder:
        times = measure_in_turns(modes(tool, folder), step, rounds, seconds)
    return {"ranges": count, "times": times}


def startup(rounds: int) -> dict[str, list[float]]:
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "import opspan": [sys.executable, "-c", "import opspan"],
        "opspan --help": [sys.executable, "-m", "opspan", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times[name].append((time.perf_counter() - started) * 1e3)
    return times


def long_run(millions: int) -> None:
    """Prints the resident memory of the process again and again, while labels go to a null tool."""
    import opspan

    step = tiny_step()
    with opspan.record() as counted:
        step()
    for name, session in (("nvtx", opspan.emit_nvtx(record_shapes=True)), ("itt", opspan.emit_itt(record_shapes=True))):
        done, marks = 0, [1, *range(10, millions + 1, 10)]
        with session:
            for mark in marks:
                while done < mark * 1_000_000:
                    step()
                    done += counted.stats.ranges
                print(f"{name}: {mark:>3} M ranges, {resident_mb():7.1f} MB resident", flush=True)


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


# --- tools and child processes


def build_null_tools(folder: Path) -> dict[str, str]:
    command = [sys.executable, ROOT / "native/nvtx_include.py"]
    headers = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    environment = {}
    for variable, name in (("NVTX_INJECTION64_PATH", "nvtx_null"), ("INTEL_LIBITTNOTIFY64", "itt_null")):
        library = folder / f"{name}.so"
        source = NULL_TOOLS / f"{name}.cpp"
        command = [
            "c++",
            "-std=c++20",
            "-O2",
            "-shared",
            "-fPIC",
            f"-I{headers}",
            f"-I{headers}/nvtx3",
            f"-I{ROOT / 'native'}",
        ]
        subprocess.run([*command, source, "-o", library], check=True)
        environment[variable] = str(library)
    torch = Path(importlib.util.find_spec("torch").origin).parent
    stubs = folder / "torch_stubs.so"
    source = ROOT / "tests/native/torch_stubs/torch_stubs.cpp"
    command = ["c++", "-std=c++20", "-O2", "-DNDEBUG", "-w", "-shared", "-fPIC", "-isystem", torch / "include"]
    subprocess.run([*command, source, "-L", torch / "lib", "-ltorch_cpu", "-lc10", "-o", stubs], check=True)
    return {**environment, "TORCH_STUBS": str(stubs)}


def environment_of(tool: str, folder: Path) -> dict[str, str]:
    if tool == "null":
        return build_null_tools(folder)
    if tool == "own":
        from opspan import libraries

        collectors = str(libraries.collectors())
        return {
            "NVTX_INJECTION64_PATH": collectors,
            "INTEL_LIBITTNOTIFY64": collectors,
            "OPSPAN_CAPTURE_DIR": str(folder),
        }
    return {}


def child(tool: str, *arguments: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **environment_of(tool, Path(folder))}
        done = subprocess.run(
            [sys.executable, __file__, "--child", tool, *arguments], env=environment, stdout=subprocess.PIPE, check=True
        )
    return done.stdout.decode()


# --- the table


def median(times: dict[str, list[float]], name: str) -> float:
    return statistics.median(times[name])


def above_empty(result: dict, name: str, empty: str = "empty") -> float:
    """Returns how much more a range costs than with the empty observer, in ns. The result is the median of the
    differences within each round, so a drift of the machine's speed has no effect."""
    differences = [a - b for a, b in zip(result["times"][name], result["times"][empty], strict=True)]
    return statistics.median(differences) / result["ranges"]


def floor_of(result: dict) -> float:
    """Returns the ns per range that torch takes to call an observer that does nothing."""
    return above_empty(result, "empty", "off")


def compare(results: dict, what: str, one: str, other: str, most: float | None) -> None:
    a, b = above_empty(results, one), above_empty(results, other)
    figure(what, a / b, beside=f"{a:.0f} / {b:.0f} ns", most=most)


def report(step: str, rounds: int, seconds: float) -> None:
    results = {}
    for tool in ("none", "null", "own"):
        results[tool] = json.loads(child(tool, step, str(rounds), str(seconds)))
    none, null, own = results["none"], results["null"], results["own"]
    off, ranges, floor = median(null["times"], "off"), null["ranges"], floor_of(null)
    title(f"{step} step", f"{ranges:.0f} ranges, {off / 1e3:.1f} us; empty observer {floor:.0f} ns a range")
    for name in ("emit_nvtx", "emit_itt"):
        ratio = statistics.median(a / b for a, b in zip(none["times"][name], none["times"]["off"], strict=True))
        figure(f"{name}, no tool listening, against not emitting", ratio, beside=f"{ratio:.4f}", most=1.01)
    compare(null, "NVTX, null tool, against torch's emit_nvtx", "nvtx auto", "torch emit_nvtx", 0.2)
    compare(null, "NVTX with shapes, the same", "nvtx auto shapes", "torch emit_nvtx shapes", 0.1)
    compare(null, "labels='torch', against torch's emit_nvtx", "nvtx torch", "torch emit_nvtx", None)
    compare(null, "labels='torch' with shapes, the same", "nvtx torch shapes", "torch emit_nvtx shapes", None)
    compare(null, "ITT, null tool, against torch's emit_itt", "itt auto", "torch emit_itt", 0.45)
    for what, result, name, most in (
        ("record", null, "record", 0.3 if step == "tiny" else 0.4),
        ("our NVTX collector", own, "nvtx auto", 0.5),
        ("our ITT collector", own, "itt auto", 0.6),
    ):
        ns = above_empty(result, name)
        figure(f"{what}, above the empty observer, of it", ns / floor_of(result), beside=f"{ns:.0f} ns", most=most)
        # torch needs time to pass the inputs to an observer. So compare with an empty observer that also gets inputs.
        ns = above_empty(result, f"{name} shapes", "empty shapes")
        figure(f"{what}, with shapes", ns, "ns")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        tool, *rest = options.child
        if rest == ["long"]:
            long_run(50)
        else:
            print(json.dumps(measure(tool, rest[0], int(rest[1]), float(rest[2]))))
        return
    if options.long:
        print(child("null", "long"), end="")
        return
    rounds, seconds = (25, 0.05) if options.quick else (80, 0.1)
    times = startup(rounds // 6)
    title("start-up", f"bare python {median(times, 'python'):.0f} ms")
    for name in ("import opspan", "opspan --help"):
        extra = statistics.median(a - b for a, b in zip(times[name], times["python"], strict=True))
        figure(f"{name}, more than that", extra, "ms", most=150)
    for step in STEPS:
        report(step, rounds, seconds)


if __name__ == "__main__":
    main()
