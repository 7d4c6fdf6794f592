"""Captures that are kept, so that every later opspan can be held to them: tests/data/captures.

    python tests/kept_captures.py    records those of the present version of the format that are not there yet

Beside each capture stands what opspan read from it when it was recorded. A capture that is kept is never recorded
again, because only an old file shows that old files are still read: a new version of the format gets captures of its
own. Names of hosts, command lines and folders of Python are replaced, since they say where a capture was recorded.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import opspan
from opspan.readers.capture.layout import VERSION

FOLDER = Path(__file__).parent / "data" / "captures"
# Where the header has them, and how long they are: FileHeader in native/capture/format.h.
HOST, COMMAND_LINE, ENVIRONMENT = (80, 64), (144, 3072), (3232, 832)

TRAINING = """
import torch
import opspan

model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with opspan.record(".", record_shapes=True, modules=True, memory=True):
    with opspan.annotate("all of it", color="red", category="steps", payload=7):
        loss = model(torch.ones(2, 4)).sum()
        opspan.mark("loss")
        loss.backward()
        optimizer.step()
"""
FUNCTIONS = """
import torch
import opspan

def outer(values):
    return inner(values) + 1

def inner(values):
    return torch.mul(values, 2)

values = torch.ones(3)
with opspan.record(".", python=True, overloads=True):
    outer(values)
"""
RANGES = """
import threading
import ittapi, nvtx

def work():
    with nvtx.annotate("in a thread", color="red", domain="mine", category="some", payload=7):
        nvtx.mark("a mark")

with nvtx.annotate("outer"):
    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
nvtx.end_range(nvtx.start_range("of two calls"))
with ittapi.task("a task", "a domain"):
    pass
overlapped = ittapi.task("overlapped", "a domain", overlapped=True)
overlapped.begin()
overlapped.end()
with ittapi.paused_region():
    pass
ittapi.thread_set_name("a thread's name")
"""
PROGRAMS = {"training": TRAINING, "functions": FUNCTIONS, "ranges": RANGES}


def main() -> None:
    for name, program in PROGRAMS.items():
        path = FOLDER / f"{name}-version-{VERSION}.opspan.gz"
        if path.exists():
            print(f"{path.name} is kept as it is")
            continue
        content = recorded(program, with_collectors=name == "ranges")
        FOLDER.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(content, mtime=0))
        with tempfile.TemporaryDirectory() as folder:
            expected_of(path).write_text(as_text(read(path, Path(folder))), encoding="utf-8")
        print(f"Wrote {path.name} ({path.stat().st_size:,} bytes) and what was read from it")


def recorded(program: str, *, with_collectors: bool) -> bytes:
    """Runs a program, and returns the capture that it leaves, without the names of this machine."""
    # Compiled under a name of its own, since stacks have the names of files.
    run = [sys.executable, "-c", f"exec(compile({program!r}, 'program.py', 'exec'))"]
    with tempfile.TemporaryDirectory() as folder:
        if with_collectors:
            run = [sys.executable, "-m", "opspan", "run", "-o", f"{folder}/capture", "--", *run]
        subprocess.run(run, cwd=folder, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        (path,) = Path(folder).rglob("*.opspan")
        content = bytearray(path.read_bytes())
    for (start, size), text in ((HOST, b"host"), (COMMAND_LINE, b"python\0program.py"), (ENVIRONMENT, b"")):
        content[start : start + size] = text.ljust(size, b"\0")
    for folder in (
        Path(torch.__file__).parents[1],
        Path(os.__file__).parent,
    ):  # in names of functions, as long as before
        content = content.replace(bytes(folder), b"python".rjust(len(bytes(folder)), b"/"))
    return bytes(content)


def expected_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".opspan.gz") + ".json")


def read(path: Path, folder: Path) -> dict[str, Any]:
    """Returns what opspan reads from a kept capture, as JSON has it: the metadata, and each table that has rows."""
    plain = folder / path.name.removesuffix(".gz")
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    trace = opspan.load(plain)
    metadata = {name: value for name, value in dataclasses.asdict(trace.metadata).items() if name != "paths"}
    frames = trace.without_analysis().frames
    frames["issues"] = trace.issues.select("rank", "code", "count")  # their sentences may be written anew
    tables = {
        name: {"columns": frame.columns, "rows": [without_nulls(row) for row in frame.iter_rows(named=True)]}
        for name, frame in frames.items()
        if not frame.is_empty()
    }
    read: dict[str, Any] = json.loads(json.dumps({"metadata": metadata, "tables": tables}))
    return read


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def as_text(read: dict[str, Any]) -> str:
    """Returns the JSON text with a row a line, so that a person can read it."""
    lines = ['{"metadata": ' + json.dumps(read["metadata"]) + ',\n"tables": {']
    for number, (name, table) in enumerate(read["tables"].items()):
        rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in table["rows"])
        lines.append(
            f'{"," if number else ""}"{name}": {{"columns": {json.dumps(table["columns"])}, "rows": [\n  {rows}\n]}}'
        )
    return "\n".join([*lines, "}}\n"])


if __name__ == "__main__":
    main()
