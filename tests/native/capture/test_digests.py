"""Digests tell runs of words apart: not even halves of them meet, however much alike the runs are."""

from __future__ import annotations

import subprocess
from pathlib import Path

from collectors.running import NATIVE, compiled


def test_no_two_runs_have_half_a_digest_in_common(shared_folder: Path) -> None:
    source = Path(__file__).parent / "digests.cpp"
    program = compiled(shared_folder / "digests", "g++", "-std=c++20", "-O2", "-I", NATIVE, source)

    done = subprocess.run([program], capture_output=True, text=True, check=True)

    runs, meet = map(int, done.stdout.split())
    assert runs > 700_000
    assert meet == 0
