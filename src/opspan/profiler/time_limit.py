"""Stops waiting for the list of events after `post_processing_timeout_s` seconds, with torch's warning."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

# The logger on which torch warns, so that programs and tests that look for torch's warning find ours.
_LOG: Final = logging.getLogger("torch.autograd.profiler")


def within(seconds: float, function: Callable[[], T]) -> T | None:
    """Returns the function's result, or None if it takes longer than `seconds`. In that case the function continues in
    its thread, and its result is lost."""
    results: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001  # raised below, on the thread that waits
            errors.append(error)

    if seconds > 0:
        thread = threading.Thread(target=call, name="opspan: events", daemon=True)
        thread.start()
        thread.join(seconds)
    if errors:
        raise errors[0]
    if results:
        return results[0]
    _LOG.warning(
        "Profiler _parse_kineto_results timed out after %.3f seconds, returning partial results with 0 events", seconds
    )
    return None
