"""A real TensorBoard over a folder, started as a user starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AT = re.compile(r"TensorBoard \S+ at (http://\S+)/ ")
MOST_SECONDS = 120


@contextmanager
def serving(folder: Path, said: Path, *also: Path) -> Iterator[str]:
    """Its address. `said`: a file for what it prints; `also`: folders with packages that it is to see, too."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--port", "0", "--load_fast=false"]
    path = os.pathsep.join([*map(str, also), *filter(None, [os.environ.get("PYTHONPATH")])])
    with said.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": path})
    try:
        until = time.monotonic() + MOST_SECONDS
        while (found := _AT.search(said.read_text(errors="replace"))) is None:
            assert process.poll() is None, said.read_text(errors="replace")
            assert time.monotonic() < until, said.read_text(errors="replace")
            time.sleep(0.1)
        yield found[1]
    finally:
        process.terminate()
        process.wait(30)
