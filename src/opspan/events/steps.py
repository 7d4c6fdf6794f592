"""KinetoStepTracker: how many steps a program has made, whoever counts them. It does not inform a profiler.

A profiler and each optimizer may count the same steps, so each has a count of its own, and the highest is the
program's. In a trace, steps are ranges, which `opspan.analysis.steps` finds.
"""

from __future__ import annotations


class KinetoStepTracker:
    """Counts steps by requester, as torch's class does. The state is one for the process, and not torch's."""

    _current_step = 0
    _step_dict: dict[str, int] = {}  # noqa: RUF012 - named and placed as in torch; shared on purpose

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Begins to count for `requester`, from the step that the program is at."""
        cls._step_dict[requester] = cls._current_step

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Forgets `requester`, and returns whether it was known. The program's own count stays."""
        return cls._step_dict.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Counts one more step of `requester`, which need not be known yet, and returns the program's step."""
        if requester not in cls._step_dict:
            cls.init_step_count(requester)
        cls._step_dict[requester] += 1
        cls._current_step = max(cls._current_step, *cls._step_dict.values())
        return cls._current_step

    @classmethod
    def current_step(cls) -> int:
        """Returns the program's step: the highest that anyone has counted."""
        return cls._current_step
