"""Chrome traces as torch.profiler writes them, by hand: an op and its backward, each with a call and a kernel."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

PID, MAIN, ENGINE = 700, 700, 712
BASE_NS = 1_767_189_312_000_000_000
HEAD: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [
        {"id": 0, "name": "Some GPU", "totalGlobalMem": 1 << 34, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    ],
    "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
    "host_name": "node-3",
}


def span(cat: str, name: str, tid: Any, ts: Any, dur: Any, pid: Any = PID, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def op(name: str, tid: int, ts: float, dur: float, seq: int | None = None, thread: int = 0, **args: Any) -> Any:
    numbers = {} if seq is None else {"Sequence number": seq, "Fwd thread id": thread}
    return span("cpu_op", name, tid, ts, dur, **{"External id": 1, **numbers, "Ev Idx": 0, **args})


def call(name: str, tid: int, ts: float, dur: float, correlation: int) -> Any:
    return span("cuda_runtime", name, tid, ts, dur, **{"External id": 1, "cbid": 211, "correlation": correlation})


def kernel(name: str, ts: float, dur: float, correlation: int) -> Any:
    sizes = {"grid": [8, 2, 1], "block": [256, 1, 1], "registers per thread": 26, "shared memory": 0}
    where = {"device": 0, "context": 1, "stream": 7, "correlation": correlation}
    return span("kernel", name, 7, ts, dur, 0, **where, **sizes, **{"est. achieved occupancy %": 31})


def allocation(ts: float, size: int, address: int = 140000, device: int = 0) -> Any:
    """Returns an event of memory that was allocated on a GPU or, with a size below 0, freed."""
    totals = {"Total Reserved": 2097152, "Total Allocated": 512}
    args = {**totals, "Bytes": size, "Device Id": device, "Device Type": 1, "Addr": address}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": PID,
        "tid": MAIN,
        "ts": ts,
        "args": args,
    }


def arrow(cat: str, number: int, start: tuple[int, int, float], end: tuple[int, int, float]) -> list[Any]:
    return [
        {"ph": phase, "id": number, "pid": pid, "tid": tid, "ts": ts, "cat": cat, "name": cat, **bound}
        for phase, (pid, tid, ts), bound in (("s", start, {}), ("f", end, {"bp": "e"}))
    ]


def events() -> list[Any]:
    size = {"Input Dims": [[8, 4], [[2], [3]], []], "Input type": ["float", "TensorList", "Scalar"]}
    return [
        span("user_annotation", "ProfilerStep#7", MAIN, 1000.0, 900.0),
        span("python_function", "train.py(3): step", MAIN, 1000.5, 800.0, **{"Python id": 1, "Python parent id": None}),
        span(
            "python_function",
            "nn.Module: Linear_0",
            MAIN,
            1009.0,
            60.0,
            **{"Python id": 2, "Python parent id": 1, "Python module id": 0},
        ),
        op("aten::linear", MAIN, 1010.125, 50.0, **size),
        op("aten::addmm", MAIN, 1012.5, 40.0, 5, **size),
        call("cudaLaunchKernel", MAIN, 1015.0, 5.001, 90),
        kernel("void ns::gemm<float, 4>(float*, int)", 1030.25, 30.5, 90),
        op("autograd::engine::evaluate_function: AddmmBackward0", ENGINE, 1200.0, 90.0, 5, 1),
        op("AddmmBackward0", ENGINE, 1201.5, 80.0, 5, 1),
        op("aten::mm", ENGINE, 1203.0, 60.0),
        call("cudaLaunchKernel", ENGINE, 1204.0, 6.0, 91),
        kernel("void ns::gemm<float, 4>(float*, int)", 1215.0, 44.0, 91),
        call("cudaMemcpyAsync", MAIN, 1500.0, 3.0, 92),
        span(
            "gpu_memcpy",
            "Memcpy HtoD (Pageable -> Device)",
            7,
            1510.0,
            2.5,
            0,
            device=0,
            context=1,
            stream=7,
            correlation=92,
            bytes=4096,
        ),
        span("gpu_user_annotation", "ProfilerStep#7", 7, 1030.25, 230.0, 0, **{"External id": 1}),
        allocation(1020.0, -512, 140000),
        *arrow("fwdbwd", 1, (PID, MAIN, 1012.5), (PID, ENGINE, 1201.5)),
        *arrow("ac2g", 90, (PID, MAIN, 1015.0), (0, 7, 1030.25)),
        {"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "ts": 1, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": PID, "tid": ENGINE, "args": {"name": "thread 712 (pt_autograd_0)"}},
    ]


def document(found: list[Any] | None = None, **members: Any) -> dict[str, Any]:
    return {**HEAD, "baseTimeNanoseconds": BASE_NS, "traceEvents": events() if found is None else found, **members}


def write(path: Path, content: Any = None, *, indent: int | None = None) -> Path:
    text = json.dumps(document() if content is None else content, indent=indent)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


# Every source goes through the tests of tests/readers/samples.py with these files.
SAMPLES = {"compressed": lambda folder: write(folder / "run.json.gz", indent=1)}
