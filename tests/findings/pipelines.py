"""A pipeline of stages, each on its own rank: a forward and a backward in turn, and what ranks wait for each other.

An activation goes on when it is there, and its receive begins when the stage has nothing else to do; gradients go back
alike. Sends run beside what computes next, so nothing of them is exposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TRANSFER, OPTIMIZER = 20, 300


def order(stage: int, stages: int, batches: int) -> list[tuple[str, int]]:
    """Returns the order of a stage's work in a step: forwards until the last stage is reached, then a backward after
    each forward."""
    ahead = min(stages - stage - 1, batches)
    done = [("forward", number) for number in range(ahead)]
    for number in range(batches - ahead):
        done += [("forward", ahead + number), ("backward", number)]
    return done + [("backward", number) for number in range(batches - ahead, batches)]


def pipeline(forwards: Sequence[int], batches: int, steps: int) -> tuple[list[dict[str, Any]], int]:
    """The sends and receives of a run whose stages take so long for a forward, and twice that for a backward; and how
    long the run took."""
    stages = len(forwards)
    free, rows = [0] * stages, []
    for step in range(steps):
        left = [order(stage, stages, batches) for stage in range(stages)]
        ready: dict[tuple[str, int, int], int] = {}
        while any(left):
            for stage, todo in enumerate(left):
                while todo and (got := _received(stage, todo[0], stages, ready)) is not None:
                    what, number = todo.pop(0)
                    sender, sent = got
                    begin = free[stage]
                    if sender is not None:
                        begin = max(free[stage], sent) + TRANSFER
                        both = {"group": "0", "source": sender, "target": stage, "step": f"step {step}"}
                        for kind, rank, start in (("send", sender, sent), ("recv", stage, free[stage])):
                            times = {"start_ns": start, "end_ns": begin, "time_ns": begin - start}
                            exposed_ns = begin - start if kind == "recv" else 0
                            rows.append({"kind": kind, "rank": rank, "exposed_ns": exposed_ns, **both, **times})
                    free[stage] = begin + forwards[stage] * (1 if what == "forward" else 2)
                    ready[what, stage, number] = free[stage]
        free = [now + OPTIMIZER for now in free]
    return rows, max(free)


def _received(
    stage: int, todo: tuple[str, int], stages: int, ready: dict[tuple[str, int, int], int]
) -> tuple[int | None, int] | None:
    """Returns the sender of the data that a stage needs, and the time when it is sent.

    The sender is None if the stage has the data itself; the result is None if the data was not sent yet.
    """
    what, number = todo
    sender = stage - 1 if what == "forward" else stage + 1
    if not 0 <= sender < stages:
        return None, 0
    sent = ready.get((what, sender, number))
    return None if sent is None else (sender, sent)
