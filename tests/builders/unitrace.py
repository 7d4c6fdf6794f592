"""Chrome traces as Intel's unitrace writes them, by hand and as text, since it escapes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

PID, MAIN, ENGINE, GPU, QUEUE = 700, 700, 712, 4294967295, 4294967295
ZERO_US = 1_767_189_312_000_000


def time(us: float) -> str:
    whole = ZERO_US + int(us)
    return f"{whole}" if us == int(us) else f"{whole}{f'{us % 1:.3f}'[1:]}"


def host(name: str, tid: int, us: float, dur: float, args: str = "", phase: str = "X") -> str:
    rest = f', "args": {{{args}}}' if args else ', "id": 0'
    took = f', "dur": {dur}' if phase == "X" else ""
    where = f'"ph": "{phase}", "tid": {tid}, "pid": {PID}'
    return f'{{{where}, "name": "{name}", "cat": "cpu_op", "ts": {time(us)}{took}{rest}}}'


def device(name: str, us: float, dur: float, command: int) -> str:
    where = f'"ph": "X", "tid": {QUEUE}, "pid": {GPU}, "name": "{name}", "cat": "gpu_op"'
    return f'{{{where}, "ts": {time(us)}, "dur": {dur}, "args": {{"id": "{command}"}}}}'


def arrow(phase: str, way: str, tid: int, us: float, command: int, pid: int = PID) -> str:
    return (
        f'{{"ph": "{phase}", "tid": {tid}, "pid": {pid}, "name": "dep", "cat": "Flow_{way}_{command}_0", '
        f'"ts": {time(us)}, "id": {command}}}'
    )


def name(what: str, pid: int, given: str) -> str:
    return f'{{"ph": "M", "name": "{what}", "pid": {pid}, "ts": {ZERO_US}.000000, "args": {{"name": "{given}"}}}}'


def events() -> list[str]:
    return [
        name("process_name", PID, "RANK 2 HOST<node-3>"),
        name("process_name", GPU, "RANK 2 DEVICE<0000:9a:00.0> #0"),
        host("opspan::aten::linear", MAIN, 10, 50, '"seq":[5],"op_id":[77],"sizes":["[[8, 4], [], [3]]"]'),
        host("zeCommandListAppendLaunchKernel", MAIN, 15, 5),
        arrow("s", "H2D", MAIN, 15, 12),
        arrow("s", "H2D", MAIN, 15, 13),
        device("gemm[SIMD32 {8; 2; 1} {256; 1; 1}]", 30.25, 30.5, 12),
        arrow("t", "H2D", QUEUE, 30.25, 12, GPU),
        arrow("s", "D2H", QUEUE, 30.25, 12, GPU),
        device("zeCommandListAppendMemoryCopy(H2D)[4096 bytes]", 70, 5, 13),
        host("zeEventHostSynchronize", MAIN, 80, 9),
        arrow("t", "D2H", MAIN, 80, 12),
        host("opspan::AddmmBackward0", ENGINE, 100, 20, f'"seq":[5],"op_id":[81],"fwd_tid":[{MAIN}]'),
        host("PyTorch::aten::mul, seq = 9, op_id = 90", MAIN, 130, 4),
        host("urEnqueueKernelLaunch", MAIN, 135, 4),
        host("MPI_Allreduce", MAIN, 140, 8, '"ssize": 8, "mpi_counter": 3'),
        host("submit", MAIN, 150, 3),
        host("", MAIN, 160, 0, phase="B"),
        host("", MAIN, 165, 0, phase="E"),
        host("here", MAIN, 170, 0, phase="R"),
    ]


def write(path: Path, found: Iterable[str], *, closed: bool = True) -> Path:
    path.write_text('{ "traceEvents":[\n' + ",\n".join(found) + ("\n]\n}\n" if closed else ""), encoding="utf-8")
    return path


# Every source goes through the tests of tests/readers/samples.py with these files.
SAMPLES = {"whole": lambda folder: write(folder / "app.json", events())}
