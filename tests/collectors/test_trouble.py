"""Collectors when things go wrong: kills, forks, full disks, unwritable folders, clients that misbehave."""

from __future__ import annotations

import os
import resource
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import opspan
from builders.capture_units import ASYNC, CLOSED, FULL, MARK, NAME, OPEN, RANGE, Capture
from collectors.running import NATIVE, Collected
from tiers import RELEASE


@pytest.fixture
def busy(client: Callable[..., Path]) -> Path:
    return client("busy.c")


@pytest.mark.slow
def test_threads_keep_apart(collected: Collected, busy: Path) -> None:
    collected.run(busy, "threads", "8", "3000")  # more than one chunk each
    capture = collected.capture()

    assert len(capture.threads) == 8
    for tid, units in capture.threads.items():
        ranges = [unit for unit in units if unit.kind == RANGE]
        numbers = [unit.number for unit in units]  # with gaps: where a model is, which is no range
        assert numbers == sorted(set(numbers))
        assert [unit.name for unit in ranges[1::2]] == ["inner"] * 3000
        assert [unit.name for unit in ranges[::2]] == [f"outer {i % 100}" for i in range(3000)]
        assert capture.thread_names[tid] == "busy"
        for outer, inner in zip(ranges[::2], ranges[1::2], strict=True):
            assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns
    handed = capture.units(ASYNC)
    assert {unit.name for unit in handed} == {f"handed {i}" for i in range(8)}
    assert len({unit.id for unit in handed}) == 8
    assert all(capture.ended(unit) for unit in handed)


def test_a_kill_loses_nothing(collected: Collected, busy: Path) -> None:
    collected.run(busy, "kill", "5000", code=-9)
    capture = collected.capture()
    *done, last = capture.units(RANGE)

    assert capture.state == OPEN
    assert capture.clock[2:] == (0, 0)
    assert [unit.name for unit in done] == ["done"] * 5000
    assert all(unit.end_ns for unit in done)
    assert (last.name, last.end_ns) == ("open", 0)


def test_a_fork_goes_on_in_a_file_of_its_own(collected: Collected, busy: Path) -> None:
    collected.run(busy, "fork")
    by_names = {capture.units(RANGE)[0].name: capture for capture in collected.captures()}

    assert set(by_names) == {"parent", "child", "grandchild"}
    parent, child, grandchild = (by_names[name] for name in ("parent", "child", "grandchild"))
    assert [capture.forked for capture in (parent, child, grandchild)] == [False, True, True]
    assert [capture.state for capture in (parent, child, grandchild)] == [CLOSED, OPEN, OPEN]  # they leave by _exit
    assert (child.parent_pid, grandchild.parent_pid) == (parent.pid, child.pid)
    assert [(unit.name, unit.end_ns > 0) for unit in parent.units(RANGE)] == [("parent", True), ("beside", True)]
    # The grandchild's copy of "child" is not its own to end; both ended what they began themselves.
    assert [(unit.name, unit.end_ns > 0) for unit in child.units(RANGE)] == [("child", True)]
    assert [(unit.name, unit.end_ns > 0) for unit in grandchild.units(RANGE)] == [("grandchild", True)]


def test_a_forks_file_is_readable_by_itself(collected: Collected, busy: Path) -> None:
    collected.run(busy, "fork")
    parent, child = [capture for capture in collected.captures() if capture.units(MARK)]

    for capture in (parent, child):
        (mark,) = capture.units(MARK)
        (category,) = capture.units(NAME)
        assert (mark.name, capture.text(mark.domain)) == ("registered", "shared")
        assert (category.name, category.whose, capture.text(category.domain)) == ("five", 5, "shared")


def test_a_silent_fork_writes_no_file(collected: Collected, busy: Path) -> None:
    collected.run(busy, "fork-silent")

    (only,) = collected.capture().units(RANGE)
    assert only.end_ns > 0


def test_a_descriptor_that_became_another_files(collected: Collected, busy: Path, tmp_path: Path) -> None:
    collected.run(busy, "daemon", "1000", tmp_path / "theirs")

    assert (tmp_path / "theirs").read_bytes() == b"mine"
    capture = collected.capture()
    assert capture.state == CLOSED
    assert len(capture.units(RANGE)) == 2000


@pytest.mark.slow
def test_more_names_than_are_remembered(collected: Collected, busy: Path) -> None:
    collected.run(busy, "open-names", "70000")
    capture = collected.capture()

    assert Counter(unit.name for unit in capture.units(RANGE)) == {f"name {i}": 2 for i in range(70_000)}
    assert len(capture.texts) > 70_000  # the table was started over, names were written again


def test_ranges_that_are_never_ended(collected: Collected, busy: Path) -> None:
    out, _ = collected.run(busy, "unended", "70000")
    ranges = collected.capture().units(RANGE)

    assert out.split() == ["69999", "0", "-1"]
    assert len(ranges) == 70_000
    assert all(unit.end_ns for unit in ranges)  # though their chunks were long full


@pytest.mark.slow
def test_where_too_many_are_open_the_outermost_are_forgotten(collected: Collected, busy: Path) -> None:
    out, _ = collected.run(busy, "unended", "200000")
    ranges = collected.capture().units(RANGE)

    assert out.split() == ["199999", "0", "-1"]
    still_open = [unit.end_ns == 0 for unit in ranges]
    assert still_open == [True] * 131_072 + [False] * (200_000 - 131_072)


def test_very_long_names(collected: Collected, busy: Path) -> None:
    collected.run(busy, "fill", "5", "3000000")

    assert [len(unit.name or "") for unit in collected.capture().units(RANGE)] == [6, *[3_000_000] * 5]


def check_full(capture: Capture, err: str, pushed: int) -> None:
    assert capture.state == FULL
    assert err.count("\n") == 1
    assert "cannot write more" in err
    assert str(capture.path) in err
    around, *rest = capture.units(RANGE)
    assert around.name == "around"
    assert around.end_ns > 0  # open ranges can be ended even when there is no room for new ones
    assert all(unit.end_ns > 0 for unit in rest)
    assert [(unit.name or "").split("-")[0] for unit in rest] == [str(i) for i in range(len(rest))]
    assert 100 < len(rest) < pushed
    assert len(rest) + capture.lost == pushed
    assert capture.clock[2] > 0


def test_a_limit_on_file_size(collected: Collected, busy: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))

    out, err = collected.run(busy, "fill", "50000", "100", preexec_fn=limit)

    assert out == "50000\n"
    check_full(collected.capture(), err, 50_000)
    assert collected.capture().path.stat().st_size <= 1_000_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "opspan-test", folder], capture_output=True).returncode:
        pytest.skip("mounting a small disk takes root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk(collected: Collected, busy: Path, small_disk: Path) -> None:
    collected.folder = small_disk
    collected.environment["OPSPAN_CAPTURE_DIR"] = str(small_disk)
    out, err = collected.run(busy, "fill", "50000", "100")

    assert out == "50000\n"
    check_full(collected.capture(), err, 50_000)


def test_a_disk_that_is_full_from_the_start(collected: Collected, busy: Path, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes((1 << 20) - 4096))
    collected.environment["OPSPAN_CAPTURE_DIR"] = str(small_disk)
    collected.folder = small_disk
    out, err = collected.run(busy, "fill", "500", "100")

    assert out == "500\n"
    assert err.startswith("opspan: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_an_unusable_folder(collected: Collected, busy: Path, tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    collected.environment["OPSPAN_CAPTURE_DIR"] = str(tmp_path / folder)
    out, err = collected.run(busy, "unended", "3")

    assert out.split()[0] == "-2"  # NVTX's "no tool"
    assert err.count("\n") == 1
    assert err.startswith("opspan: cannot ")
    assert str(tmp_path / folder) in err


def test_a_folder_without_permission(collected: Collected, collectors: Path, busy: Path) -> None:
    drop: list[str] = []
    if os.geteuid() == 0:  # root may write anywhere: be somebody else, who may read what is needed
        drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        for path in (collected.folder, collectors, busy):
            for folder in path.parents[:3]:
                if "pytest" in str(folder):
                    folder.chmod(0o711)
    collected.folder.chmod(0o555)
    out, err = collected.run(*drop, busy, "unended", "3")

    assert out.split()[0] == "-2"
    assert "Permission denied" in err
    assert err.count("\n") == 1
    assert not collected.captures()


def test_nothing_happens_without_a_folder(collected: Collected, busy: Path) -> None:
    del collected.environment["OPSPAN_CAPTURE_DIR"]
    out, err = collected.run(busy, "unended", "3")

    assert out.split()[0] == "-2"
    assert err == ""
    assert not collected.captures()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [pytest.param("nvtx", marks=RELEASE), "itt"])
def test_a_hostile_client_lives_on_and_its_capture_can_be_read(
    protocol: str, collected: Collected, client: Callable[..., Path]
) -> None:
    # The sanitizers run five times as many rounds.
    program = client(f"stress_{protocol}_hostile.cpp", "-DOPSPAN_CLIENT", "-DOPSPAN_ROUNDS=4000", "-I", NATIVE)
    out, _ = collected.run(program)
    trace = opspan.load(collected.folder)

    assert "served on" in out
    last = trace.ranges.filter(name="still recorded")
    assert last["end_ns"].is_not_null().all()
    assert last.height == 1
    assert trace.ranges.height > 4_000


def test_short_threads_take_a_page_each(collected: Collected, busy: Path) -> None:
    collected.run(busy, "short-threads", "3000")
    capture = collected.capture()

    assert sum(len(units) for units in capture.threads.values()) == 3000 * 2
    assert capture.path.stat().st_size < 3000 * 4096 + 200_000
