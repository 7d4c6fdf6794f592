"""Slow tests end in time, and begin at a test that the commit chooses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

THIS = "tests/house/test_ci.py"


def test_one() -> None:
    """Is here to be collected below, as is the next."""


def test_two() -> None:
    pass


def _run(repo: Path, *options: str, **variables: str) -> str:
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", THIS, "-k", "one or two", *options]
    done = subprocess.run(command, cwd=repo, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_no_test_begins_after_the_given_time(repo: Path) -> None:
    late, early = (str(time.time() + seconds) for seconds in (-1, 600))
    assert "2 skipped" in _run(repo, OPSPAN_TESTS_UNTIL=late)
    assert "2 passed" in _run(repo, OPSPAN_TESTS_UNTIL=early)


def test_the_first_test_depends_on_the_text(repo: Path) -> None:
    orders = {tuple(re.findall(r"::test_(\w+)", _run(repo, "-v", OPSPAN_TESTS_FIRST=text))) for text in "abcd"}
    assert orders == {("one", "two"), ("two", "one")}


def test_ci_gives_slow_tests_a_limit(repo: Path) -> None:
    script = (repo / ".ci/run").read_text("utf-8")
    assert re.search(r"OPSPAN_TESTS_UNTIL=.*OPSPAN_TESTS_FIRST=.*\n.*-m \"slow and not release\"", script)
