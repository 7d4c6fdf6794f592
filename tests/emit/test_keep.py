"""Values of keep=, dump_on= and the like, and when a dump is written by itself: without torch."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path

import pytest

from opspan.emit import dumps
from opspan.emit.dumps import Dumping
from opspan.emit.keep import Retention, parse
from opspan.errors import CaptureError, UsageError


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("30s", Retention(ns=30_000_000_000)),
        ("0.5 min", Retention(ns=30_000_000_000)),
        ("2h", Retention(ns=7_200_000_000_000)),
        ("2GB", Retention(bytes=2_000_000_000)),
        ("1.5 GB", Retention(bytes=1_500_000_000)),
        (["30s", "2GB"], Retention(ns=30_000_000_000, bytes=2_000_000_000)),
        ("1 step", Retention(steps=1, bytes=4_000_000_000)),
        (("50 steps", "16MB"), Retention(steps=50, bytes=16_000_000)),
    ],
)
def test_amounts(asked: str, expected: Retention) -> None:
    assert parse(asked) == expected


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("", "keep='' is no amount"),
        ("30", "keep='30' is no amount"),
        ("30 parsecs", "expected a number and one of s, min, h, MB, GB, TB, step, steps"),
        ("-1s", "is no amount"),
        ("1e9s", "is no amount"),
        ("٣s", "is no amount"),  # another script's digits are no number here
        (30, "keep=30 is no amount"),
        ("0s", "expected at least 0.1s"),
        ("1MB", "expected at least 16MB"),
        ("0 steps", "expected at least 1 step"),
        ("1.5 steps", "whole steps"),
        ("9" * 400 + "s", "cannot be kept"),
        (["1s", "2s"], "the same kind twice"),
        ([], "names no amount"),
    ],
)
def test_what_is_no_amount_is_said_in_a_line(asked: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as error:
        parse([asked] if isinstance(asked, int) else asked)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("on", "slow", "most", "said"),
    [
        (("crash",), 3.0, 10, "expected some of 'exception', 'signal', 'slow step', 'exit'"),
        ((), 3.0, 10, "expected some of"),
        (("exit",), 1.0, 10, "slow=1.0: expected"),
        (("exit",), float("nan"), 10, "slow=nan: expected"),
        (("exit",), 3.0, 0, "dumps=0: expected"),
    ],
)
def test_what_makes_no_sense_is_refused(on: tuple[str, ...], slow: float, most: int, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        Dumping("dumps", on, slow, most)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


def slow_steps(took: list[float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The steps after which there was a dump."""
    clock, at = Clock(), []
    monkeypatch.setattr(dumps.time, "perf_counter", clock.perf_counter)
    dumping = Dumping(tmp_path, ("slow step",), 3.0, 10)
    dumping.start(lambda _: at.append(step))
    for step, seconds in enumerate(took):  # noqa: B007  # the dump looks at it
        clock.now += seconds
        dumping.step()
    dumping.stop()
    return at


def test_a_step_of_more_than_so_many_medians_is_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert slow_steps([1.0] * 20 + [2.9, 3.1, 1.0], monkeypatch, tmp_path) == [21]


def test_the_first_steps_are_never_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert slow_steps([1.0] * 9 + [100.0], monkeypatch, tmp_path) == []


def test_many_slow_steps_are_one_dump_in_fifty_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert slow_steps([1.0, 1.0, 1.0, 9.0] * 40, monkeypatch, tmp_path) == [11, 63, 115]


def test_of_many_dumps_the_last_ones_stay(tmp_path: Path) -> None:
    dumping = Dumping(tmp_path / "dumps", ("exit",), 3.0, 3)
    dumping.start(lambda target: target.mkdir())
    made = [dumping.dump("exit") and dumping.written[-1] for _ in range(7)]
    dumping.stop()

    assert sorted((tmp_path / "dumps").iterdir()) == sorted(made[-3:])
    assert dumping.written == made[-3:]


def test_the_signals_handler_is_put_back_and_was_called_too(tmp_path: Path) -> None:
    heard: list[str] = []
    before = signal.signal(signal.SIGUSR2, lambda *_: heard.append("program"))
    try:
        mine = signal.getsignal(signal.SIGUSR2)
        dumping = Dumping(tmp_path, ("signal",), 3.0, 3)
        dumping.check()
        dumping.start(lambda _: heard.append("dump"))
        signal.raise_signal(signal.SIGUSR2)
        dumping.stop()
        signal.raise_signal(signal.SIGUSR2)
        assert heard == ["dump", "program", "program"]
        assert signal.getsignal(signal.SIGUSR2) is mine
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_signal_can_be_waited_for_on_the_main_thread_alone(tmp_path: Path) -> None:
    said: list[str] = []

    def work() -> None:
        with pytest.raises(CaptureError, match="enter the recording on the main thread") as error:
            Dumping(tmp_path, ("signal",), 3.0, 3).check()
        said.append(str(error.value))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(said) == 1


def test_a_dump_that_fails_by_itself_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    dumping = Dumping(tmp_path / "file", ("exit",), 3.0, 3)
    dumping.start(lambda target: target.mkdir())
    with pytest.warns(UserWarning, match="exit: .*File exists"):
        assert not dumping.dump("exit")
    dumping.stop()
    assert dumping.written == []
