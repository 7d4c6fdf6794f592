"""KinetoStepTracker: how many steps a program has made, whoever counts them. It informs no profiler.

A profiler and each optimizer may count the same steps, so each has a count of its own, and the highest is the
program's. In a trace, steps are ranges, which `opspan.analysis.steps` finds.
"""

from __future__ import annotations


class KinetoStepTracker:
    """torch's counter of steps by who counts them. Its state is the class's, one for the process, not torch's."""

    _current_step = 0
    _step_dict: dict[str, int] = {}  # noqa: RUF012 - torch's name and place of it; shared on purpose

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Count for `requester`, from the step that the program is at."""
        cls._step_dict[requester] = cls._current_step

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Forget `requester`; returns whether it was known. The program's own count stays."""
        return cls._step_dict.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Count one more step of `requester`, which need not be known yet; returns the program's step."""
        if requester not in cls._step_dict:
            cls.init_step_count(requester)
        cls._step_dict[requester] += 1
        cls._current_step = max(cls._current_step, *cls._step_dict.values())
        return cls._current_step

    @classmethod
    def current_step(cls) -> int:
        """The program's step: the highest that anyone has counted."""
        return cls._current_step
