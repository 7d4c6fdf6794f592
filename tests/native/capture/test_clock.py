"""The clock of captures is CLOCK_MONOTONIC, whatever the processor's counter does."""

from __future__ import annotations

import faulthandler
import platform
import subprocess
from pathlib import Path

import pytest

from collectors.running import NATIVE, compiled

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def clocks(shared_folder: Path) -> Path:
    sources = (HERE / "clocks.cpp", NATIVE / "capture/clock.cpp")
    return compiled(shared_folder / "clocks", "g++", "-std=c++20", "-O2", "-I", NATIVE, *sources, "-pthread")


def said(program: Path, *arguments: str) -> list[dict[str, int]]:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return [dict(zip(words[::2], map(int, words[1::2]), strict=True)) for words in lines]


def test_it_is_within_a_microsecond_of_the_system_clock_and_asks_it_seldom(clocks: Path) -> None:
    for thread in said(clocks, "real", "1"):
        assert thread["early"] < 1000
        assert thread["late"] < 1000
        if thread["fit"]:
            assert thread["looks"] < thread["times"] / 5  # to have waited for a processor is a reason to look again


@pytest.mark.skipif(platform.machine() != "aarch64", reason="elsewhere the counter may be unfit, and wrong")
def test_the_counter_of_aarch64_is_right_even_where_it_is_too_coarse(clocks: Path) -> None:
    for thread in said(clocks, "counter", "1"):
        assert thread["early"] < 1000
        assert thread["late"] < 1000
        assert thread["looks"] < thread["times"] / 5


def test_whatever_the_counter_does_it_never_goes_back_and_is_right_again_soon(clocks: Path) -> None:
    (found,) = said(clocks, "made", "1000")
    assert found["most"] < 10_000_000
    assert found["quiet"] < 1000


@pytest.mark.slow
@pytest.mark.release
def test_it_stays_within_a_microsecond_for_ten_minutes(clocks: Path) -> None:
    faulthandler.cancel_dump_traceback_later()  # pytest gives a test no more than that
    assert all(max(thread["early"], thread["late"]) < 1000 for thread in said(clocks, "real", "600"))
