"""Runs the programs of this folder, each in a process of its own: a crash or a hang there is one failed test here.

    child("watched", "mlp", folder, "record") -> Ended, cached by nobody
    fact("launch cost", us=4.2)               a figure worth keeping, as a line of JSON

Facts are printed, and appended to the file that OPSPAN_GPU_FACTS names: pytest shows what a test printed only if it
fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emit.running import environment

HERE = Path(__file__).parent
# cuBLAS adds in the same order each time only with a workspace of a fixed size.
_ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONFAULTHANDLER": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


@dataclass(frozen=True)
class Ended:
    """The end of a child process. `code` is below 0 for a signal, and None if it took too long."""

    code: int | None
    out: str
    err: str

    @property
    def told(self) -> Any:
        """The JSON that it printed last."""
        assert self.code == 0, self.text
        lines = [line for line in self.out.splitlines() if line.startswith(("{", "["))]
        assert lines, self.text
        return json.loads(lines[-1])

    @property
    def text(self) -> str:
        return f"exit code {self.code} (None: it took too long)\n{self.out[-4000:]}\n{self.err[-6000:]}"


def child(name: str, *arguments: str | Path, timeout: float = 60, env: Mapping[str, str | None] | None = None) -> Ended:
    """Run NAME.py of this folder to its end, and its own children with it."""
    command = [sys.executable, str(HERE / f"{name}.py"), *map(str, arguments)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment({**_ENVIRONMENT, **(env or {})}),
            start_new_session=True,
        )
        code: int | None
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    ended = Ended(code, *texts)
    if code != 0:
        fact("child failed", program=name, arguments=[str(one) for one in arguments], code=code, err=ended.err[-1500:])
    return ended


def fact(what: str, **figures: Any) -> None:
    """Keeps figures; a value that JSON does not have is kept as text."""
    line = json.dumps({"fact": what, **figures}, default=str)
    print(line)
    if file := os.environ.get("OPSPAN_GPU_FACTS"):
        with Path(file).open("a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")


def differences(ours: list[Any], theirs: list[Any], most: int = 6) -> str:
    """The first places where two lists differ, both sides of each."""
    lines = [f"{len(ours)} of ours, {len(theirs)} of theirs"]
    for place in range(max(len(ours), len(theirs))):
        pair = [side[place] if place < len(side) else "nothing" for side in (ours, theirs)]
        if pair[0] != pair[1]:
            lines.append(f"  {place}: ours   {pair[0]}\n  {place}: theirs {pair[1]}")
        if len(lines) > most:
            break
    return "\n".join(lines)
