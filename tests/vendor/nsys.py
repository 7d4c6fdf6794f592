"""Running a program under the real nsys and reading NVTX_EVENTS with nothing but SQL: the judge of what we emit."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

# Its launcher looks for the agent in some way or other; one says no more than "sem_open: No such file".
AGENT_IS_LATE = ("Local Endpoint is not available", "= sem_open", "Connection reset by peer")

PROGRAMS = Path(__file__).parent.parent / "programs"

# Push/pop ranges of one domain. Domains are rows of type 75 that carry their name; 0 is the default domain.
RANGES = """
select e.globalTid,
       e.start,
       e.end,
       coalesce(e.text, s.value) as text,
       e.int64Value,
       e.category,
       e.color
from NVTX_EVENTS e left join StringIds s on s.id = e.textId
where e.eventType = 59 and e.domainId = ?
"""
DOMAINS = """
select e.globalTid, e.domainId, coalesce(e.text, s.value)
from NVTX_EVENTS e left join StringIds s on s.id = e.textId
where e.eventType = 75
"""


class Range(NamedTuple):
    pid: int
    tid: int
    start: int
    end: int | None
    text: str
    payload: int | None
    category: int | None
    color: int | None


def run_program(name: str, *arguments: str) -> None:
    """Run tests/programs/<name>.py as it is."""
    _run([sys.executable, PROGRAMS / f"{name}.py", *arguments])


def run_under_nsys(folder: Path, name: str, *arguments: str) -> Path:
    """Run tests/programs/<name>.py under nsys and return the SQLite export."""
    output = folder / "under_nsys"
    options = ["--trace=nvtx", "--sample=none", "--cpuctxsw=none", "--export=sqlite", f"--output={output}"]
    command = ["nsys", "profile", *options, sys.executable, PROGRAMS / f"{name}.py", *arguments]
    for last in (False, False, True):
        try:
            _run(command)
            break
        except AssertionError as error:
            # nsys' own agent is sometimes not up in time on a busy machine; the program has not begun then.
            if last or not any(said in str(error) for said in AGENT_IS_LATE):
                raise
    return output.with_suffix(".sqlite")


def available() -> bool:
    return shutil.which("nsys") is not None


def ranges(export: Path, domain: str | None) -> list[Range]:
    """The push/pop ranges of one domain (None: the default domain), of every process in the file."""
    connection = sqlite3.connect(f"file:{export}?mode=ro", uri=True)
    try:
        if domain is None:
            numbers = {0}
        else:
            numbers = {number for _, number, name in connection.execute(DOMAINS) if name == domain}
        found = [Range(*_ids(row[0]), *row[1:]) for number in numbers for row in connection.execute(RANGES, (number,))]
    finally:
        connection.close()
    return found


def nested(rows: list[tuple[int, int, int | None, object]]) -> dict[int, list[tuple[int, object]]]:
    """(thread, start, end, what) -> per thread the (depth, what) in order of start: structure without times."""
    threads = defaultdict(list)
    for thread, start, end, what in rows:
        threads[thread].append((start, -(end if end is not None else sys.maxsize), what))
    result = {}
    for thread, found in threads.items():
        found.sort(key=lambda row: row[:2])
        stack: list[int] = []
        result[thread] = []
        for start, negative_end, what in found:
            while stack and stack[-1] <= start:
                stack.pop()
            result[thread].append((len(stack), what))
            stack.append(-negative_end)
    return result


def _ids(global_tid: int) -> tuple[int, int]:
    return (global_tid >> 24) & 0xFFFFFF, global_tid & 0xFFFFFF


def _run(command: list[object]) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise AssertionError(f"{command[0]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
