"""Environments of the tools of other people, and the output of the programs here that ask them. tools/peers makes
them."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def python_of(name: str) -> Path:
    """The interpreter that has the tool; without it the test is skipped."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("OPSPAN_PEERS") or cache / "opspan-peers") / name
    if not (folder / "complete").is_file():
        pytest.skip(f"no {name} in {folder}: tools/peers makes it")
    return folder / "bin" / "python"


def figures_of(name: str, path: Path, program: str = "", **environment: str) -> dict[str, Any]:
    """Returns the figures of the tool for a file. The tool is slow and reads files of other programs, so it gets time.

    `program` is the program here that asks the tool, if it does not have the name of the tool.
    """
    return _answering(python_of(name), f"{program or name}_figures", *environment.items()).ask(str(path))


class _Answering:
    """answering.py, started once for each program."""

    def __init__(self, python: Path, program: str, environment: dict[str, str]) -> None:
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._process = subprocess.Popen(
            [python, "-I", HERE / "answering.py", program],
            env={**kept, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        atexit.register(self.close)

    def ask(self, *arguments: str) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        too_long = threading.Timer(300, self._process.kill)
        too_long.start()
        try:
            print(json.dumps(arguments), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:  # it ended before
            answer = ""
        finally:
            too_long.cancel()
        if not answer:
            self._said.seek(0)
            raise AssertionError(self._said.read().decode(errors="replace"))
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()
        self._said.close()


@functools.cache
def _answering(python: Path, program: str, *environment: tuple[str, str]) -> _Answering:
    return _Answering(python, program, dict(environment))
