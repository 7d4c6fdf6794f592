"""Logs of TORCH_TRACE by hand: entries with a JSON object, and a payload with its MD5."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

PID = 700
NODES = "inductor_provenance_tracking_node_mappings"
STACKS = "inductor_provenance_tracking_kernel_stack_traces"
POST = "inductor_post_grad_graph"


def entry(values: dict[str, Any], payload: str | None = None, *, pid: int = PID, md5: str | None = None) -> str:
    if payload is not None:
        values = {**values, "has_payload": md5 or hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest()}
    head = f"V0521 11:53:23.626000 {pid} torch/_inductor/compile_fx.py:975] {json.dumps(values)}\n"
    return head + "".join(f"\t{line}\n" for line in ([] if payload is None else payload.split("\n")))


def artifact(name: str, payload: str, compile_id: str = "0/0", attempt: int = 0, **more: Any) -> str:
    frame, number = map(int, compile_id.split("/"))
    ids = {"frame_id": frame, "frame_compile_id": number, "attempt": attempt}
    encoding = "json" if payload.startswith("{") else "string"
    return entry({"artifact": {"name": name, "encoding": encoding}, **ids}, payload, **more)


def code(text: str, compile_id: str = "0/0", **more: Any) -> str:
    frame, number = map(int, compile_id.split("/"))
    ids = {"frame_id": frame, "frame_compile_id": number, "attempt": 0}
    return entry({"inductor_output_code": {"filename": "c.py"}, **ids}, text, **more)


def stack(*frames: tuple[str, int, str]) -> str:
    """Returns the text of a stack of (file, line, function), the outermost first."""
    return "".join(f'  File "{file}", line {line}, in {function}\n    y = f(x)\n' for file, line, function in frames)


def stacks(kernels: dict[str, list[str]], compile_id: str = "0/0", **more: Any) -> str:
    return artifact(STACKS, json.dumps(kernels), compile_id, **more)


def lines(kernels: dict[str, list[int]], compile_id: str = "0/0", **more: Any) -> str:
    """Returns the stack traces of kernels that come from these lines of model.py."""
    texts = {
        kernel: [stack(("src/model.py", number, "forward")) for number in numbers]
        for kernel, numbers in kernels.items()
    }
    return stacks(texts, compile_id, **more)


def metrics(compile_id: str = "0/0", name: str = "compilation_metrics", attempt: int = 0, **fields: Any) -> str:
    """Returns an entry that describes a compilation of the function `f` in model.py, line 3, which took 2 s."""
    frame, number = map(int, compile_id.split("/"))
    some = {} if name.startswith("bwd_") else {"co_name": "f", "co_filename": "src/model.py", "co_firstlineno": 3}
    pid = fields.pop("pid", PID)
    fields = {"duration_us": 2_000_000, **some, **fields}
    return entry({name: fields, "frame_id": frame, "frame_compile_id": number, "attempt": attempt}, pid=pid)


def graph_break(line: int, reason: str = "Failed to trace", compile_id: str = "0/0", **more: Any) -> str:
    text = (
        f"Graph break in user code at src/model.py:{line}\nGraph Break Reason: {reason}\n\nUser code traceback:\n"
        f"{stack(('src/main.py', 90, '<module>'), ('src/model.py', line, 'f'))}"
    )
    return artifact("dynamo_graph_break_reason", text, compile_id, **more)


def write(path: Path, *entries: str) -> Path:
    path.write_text("".join(entries), encoding="utf-8")
    return path
