"""Findings are the same whichever thread looks for them, and nothing is looked for twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from opspan.findings.memo import Memo


def test_what_two_threads_ask_for_is_looked_for_memo() -> None:
    memo, began, asked = Memo(), threading.Barrier(8), []

    def find() -> Iterator[int]:
        asked.append(threading.get_ident())
        yield from memo("what it needs", lambda: [1, 2])

    def ask(_: int) -> list[int]:
        began.wait(10)
        return memo("key", find)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [[1, 2]] * 8
    assert len(asked) == 1


def test_what_fails_is_looked_for_again() -> None:
    memo = Memo()

    with pytest.raises(ZeroDivisionError):
        memo("key", lambda: [1 // 0])
    assert memo("key", lambda: [3]) == [3]
