"""Defines KinetoStepTracker, which counts the steps of a program. Unlike torch's class, it does not inform a profiler.

A profiler and each optimizer may count the same steps. So each requester has its own count, and the highest count is
the program's. In a trace, steps are ranges, which `opspan.analysis.steps` finds.
"""

from __future__ import annotations


class KinetoStepTracker:
    """Counts steps by requester, as torch's class does. The counts belong to the whole process, and are not shared with
    torch."""

    _current_step = 0
    _step_dict: dict[str, int] = {}  # noqa: RUF012 - named and placed as in torch; shared on purpose

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Begins to count for `requester`, from the program's current step."""
        cls._step_dict[requester] = cls._current_step

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Forgets `requester`, and returns whether it was known. The program's step does not change."""
        return cls._step_dict.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Counts one more step of `requester`, and returns the program's step. `requester` may be new."""
        if requester not in cls._step_dict:
            cls.init_step_count(requester)
        cls._step_dict[requester] += 1
        cls._current_step = max(cls._current_step, *cls._step_dict.values())
        return cls._current_step

    @classmethod
    def current_step(cls) -> int:
        """Returns the program's step, which is the highest count of all requesters."""
        return cls._current_step
