"""Processes that run a function: those that are killed, that raise, and those of programs without a guard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from pathlib import Path

import pytest

from builders import nsys
from opspan.many.processes import Processes
from opspan.workers import WorkerError, WorkerExit


@pytest.fixture
def pool() -> Iterator[Processes]:
    pool = Processes(2)
    yield pool
    pool.stop()


def alive(pid: int) -> bool:
    """Not one that nobody waited for yet either."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], within_s: float = 20) -> bool:
    until = time.monotonic() + within_s
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(alive, pids))


def test_what_a_function_returns_comes_back(pool: Processes) -> None:
    assert [future.result() for future in [pool.submit(pow, 2, each) for each in range(5)]] == [1, 2, 4, 8, 16]
    pids = {pool.submit(os.getpid).result() for _ in range(3)}
    assert os.getpid() not in pids


def test_an_exception_comes_back_as_its_text(pool: Processes) -> None:
    with pytest.raises(WorkerError, match="ZeroDivisionError: "):
        pool.submit(divmod, 1, 0).result()
    assert pool.submit(pow, 2, 2).result() == 4


def test_what_cannot_be_sent_is_told_to_who_asked(pool: Processes) -> None:
    with pytest.raises((AttributeError, TypeError), match=r"pickle|local object|lambda"):
        pool.submit(lambda: 1).result()
    assert pool.submit(pow, 2, 2).result() == 4


def test_a_process_that_is_killed_takes_one_task_with_it(pool: Processes) -> None:
    futures = [pool.submit(pow, 2, each) for each in range(4)]
    killed = pool.submit(os.abort)
    more = [pool.submit(pow, 3, each) for each in range(4)]

    with pytest.raises(WorkerExit, match="its process was ended by SIGABRT"):
        killed.result()
    assert [future.result() for future in futures] == [1, 2, 4, 8]
    assert [future.result() for future in more] == [1, 3, 9, 27]


def test_who_kills_for_memory_is_named(pool: Processes) -> None:
    pid = pool.submit(os.getpid).result()
    asked = [pool.submit(time.sleep, 60) for _ in range(2)]
    while not all(future.running() for future in asked):
        time.sleep(0.01)

    os.kill(pid, signal.SIGKILL)

    (done,) = wait(asked, return_when=FIRST_COMPLETED).done
    assert "ended by SIGKILL, as happens where memory is short" in str(done.exception())


def test_none_is_left_when_it_is_stopped() -> None:
    pool = Processes(2)
    pids = [pool.submit(os.getpid).result() for _ in range(4)]
    at_work = [pool.submit(time.sleep, 600) for _ in range(2)]
    while not all(future.running() for future in at_work):
        time.sleep(0.01)
    waiting = pool.submit(pow, 2, 2)

    pool.stop()

    assert gone(pids)
    assert all(isinstance(future.exception(), WorkerExit) for future in at_work)
    with pytest.raises(CancelledError):
        waiting.result()
    with pytest.raises(RuntimeError, match="was shut down"):
        pool.submit(pow, 2, 2)


def script(folder: Path, text: str) -> subprocess.Popen[str]:
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    # A group of its own, as a shell gives it: Ctrl-C goes to all of it.
    return subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True, start_new_session=True)


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    for number in range(2):
        nsys.run(tmp_path / f"rank{number}.sqlite", "2026")
    program = f"""
        import opspan
        print("once")
        print(len(opspan.load_many({str(tmp_path)!r} + "/*.sqlite", processes=2).ranks))
    """

    assert script(tmp_path, program).communicate(timeout=60)[0] == "once\n2\n"


def test_an_interrupt_ends_all_of_them(tmp_path: Path) -> None:
    program = """
        import os, time
        from opspan.many.processes import Processes
        with Processes(2) as pool:
            print(*(future.result() for future in [pool.submit(os.getpid) for _ in range(8)]), flush=True)
            for future in [pool.submit(time.sleep, 600) for _ in range(2)]:
                future.result()
    """
    done = script(tmp_path, program)
    assert done.stdout is not None
    pids = [int(pid) for pid in done.stdout.readline().split()]
    time.sleep(0.5)  # Python sees no signal that comes between its last look and its wait, until the next one

    os.killpg(done.pid, signal.SIGINT)

    assert done.wait(timeout=60) == -signal.SIGINT
    done.stdout.close()
    assert gone(pids)


def test_they_end_with_a_program_that_is_killed(tmp_path: Path) -> None:
    program = """
        import os, time
        from opspan.many.processes import Processes
        pool = Processes(1)
        print(pool.submit(os.getpid).result(), flush=True)
        time.sleep(600)
    """
    done = script(tmp_path, program)
    assert done.stdout is not None
    pid = int(done.stdout.readline())

    done.kill()

    assert done.wait(timeout=60) == -signal.SIGKILL
    done.stdout.close()
    assert gone([pid])
