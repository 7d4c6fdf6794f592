"""Many files that are asked several things, and read once."""

from __future__ import annotations

import functools
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from opspan.many import task


class ReadOnce(Executor):
    """Answers in this process, of files that it keeps open. Ranks has them read again for each answer: here, what is
    answered is tested, and takes a fraction of reading."""

    def __init__(self) -> None:
        self._opened = functools.cache(task.open_files)

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(task, "open_files", self._opened)
            future.set_result(function(*arguments, **named))
        return future
