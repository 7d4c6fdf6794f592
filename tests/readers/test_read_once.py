"""Parts of files that can only be read as a whole: the file is read once, whatever is in it."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

import opspan
from builders import nsys
from opspan.readers import nsys as reader
from opspan.tables import Tables

STACKS = "inductor_provenance_tracking_kernel_stack_traces"


def event(start: int, end: int, text: str) -> dict[str, Any]:
    return {"start": start, "end": end, "eventType": 59, "text": text, "globalTid": nsys.tid(7), "domainId": 0}


def mark(start: int, text: str) -> dict[str, Any]:
    return {**event(start, start, text), "end": None, "eventType": 34}


def log_of(kernel: str, line: int) -> str:
    """The mark with an entry of torch.compile's log: the kernel comes from the line of model.py."""
    payload = json.dumps({kernel: [f'  File "model.py", line {line}, in forward\n']})
    values = {"artifact": {"name": STACKS, "encoding": "json"}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    packed = zlib.compress(json.dumps({"values": values, "payload": payload}).encode())
    return f"torch.compile log 1 1/1 {base64.b64encode(packed).decode()}"


def steps(names: list[str]) -> list[dict[str, Any]]:
    """A step of 100 ns for each name, with a call of compiled code in it."""
    return [
        row
        for number, name in enumerate(names)
        for begin in [1000 + 100 * number]
        for row in (
            event(begin, begin + 90, name),
            event(begin + 10, begin + 80, "Torch-Compiled Region: 0/0"),
            event(begin + 20, begin + 60, "cpp_fused_add_0"),
        )
    ]


@pytest.mark.parametrize(
    ("names", "step"),
    [([f"ProfilerStep#{number}" for number in range(3)], 1), (["turn"] * 3, 1), (["turn", "turn", "last"], "last")],
    ids=["numbered", "found", "named"],
)
def test_a_step_of_compiled_code_has_its_lines_and_the_file_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], step: int | str
) -> None:
    events = [mark(10, log_of("cpp_fused_add_0:1", 9)), *steps(names)]
    path = nsys.export(tmp_path / "run.sqlite", {"NVTX_EVENTS": events})
    read, reads = reader.read, []

    def counted(path: Path) -> Tables:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(reader, "read", counted)

    part = opspan.load(path, step=step)

    assert len(reads) == 1
    assert part.ranges.height == 3
    lines = part.table("line").rows
    assert lines.filter(lines["line"] == "model.py:9 forward")["self_cpu_ns"].to_list() == [40]
