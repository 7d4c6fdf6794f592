"""How long work of devices held up a run, against a look at each moment."""

from __future__ import annotations

from typing import Any

from findings.test_any_run import runs
from opspan.analysis import Analysed
from opspan.analysis.averages import on_device
from opspan.findings.held import CLOSE, DRAIN
from opspan.findings.run import Run
from properties import property_of

Row = dict[str, Any]


class Twin:
    """`held` again, moment by moment."""

    def __init__(self, run: Run) -> None:
        found = run.found
        calls = found.attributed.calls["start_ns"].to_list()
        rows = [
            row for row in on_device(found.attributed.work).to_dicts() if None not in (row["start_ns"], row["end_ns"])
        ]
        self.work = sorted(rows, key=lambda row: (row["device_id"], row["start_ns"], row["end_ns"]))
        self.gaps = found.gaps.to_dicts()
        launching = {(gap["rank"], gap["pid"], gap["tid"]) for gap in self.gaps}
        self.waits = [
            row
            for row in found.waits.to_dicts()
            if row["why"] in DRAIN and (row["rank"], row["pid"], row["tid"]) in launching and row["end_ns"] is not None
        ]
        self.full = {device for device in {row["device_id"] for row in self.work} if self.is_full(device)}
        for number, row in enumerate(self.work):
            before = self.work[number - 1] if number else None
            row["since"] = None if row["call"] is None else calls[row["call"]]
            if row["since"] is None and before and before["device_id"] == row["device_id"]:
                is_close = row["device_id"] in self.full and row["start_ns"] - before["end_ns"] <= CLOSE
                row["since"] = before["start_ns"] if is_close else None

    def is_full(self, device: int) -> bool:
        busy = sum(row["end_ns"] - row["start_ns"] for row in self.work if row["device_id"] == device)
        gaps = [gap for gap in self.gaps if gap["device_id"] == device and gap["next"] is not None]
        return sum(gap["unknown_ns"] for gap in gaps) <= 0.1 * busy

    def ns(self, row: Row, others: list[Row]) -> int:
        host, queued = 0, 0
        for moment in range(row["start_ns"], row["end_ns"]):
            if any(other["start_ns"] <= moment < other["end_ns"] for other in others if is_beside(other, row)):
                continue
            is_waiting = any(wait["start_ns"] <= moment < wait["end_ns"] for wait in self.waits)
            host += is_waiting
            queued += not is_waiting and any(
                one["since"] is not None and one["since"] <= moment < one["start_ns"]
                for one in self.work
                if is_beside(one, row)
            )
        return host if self.is_made_up(row) else host + queued

    def is_made_up(self, row: Row) -> bool:
        later = [gap["start_ns"] for gap in self.gaps if is_beside(gap, row) and self.is_late(gap)]
        dry = min((start for start in later if start >= row["end_ns"]), default=None)
        if dry is None:
            return False
        return not any(wait["start_ns"] <= dry and wait["end_ns"] >= row["end_ns"] for wait in self.waits)

    def is_late(self, gap: Row) -> bool:
        most = CLOSE if gap["device_id"] in self.full else 0
        return gap["host_ns"] + gap["launch_ns"] > 0 or gap["unknown_ns"] > most


def is_beside(one: Row, other: Row) -> bool:
    return bool(one["device_id"] == other["device_id"])


@property_of(runs(), few=15, many=600)
def test_it_is_what_a_look_at_each_moment_gives(found: Analysed) -> None:
    run = Run(found)
    rows = run.kernels
    for kind in ("memcpy", "kernel"):
        chosen, others = rows.filter(kind=kind), rows.filter(rows["kind"] != kind)
        twin = Twin(run)
        assert run.held.ns(chosen, others).to_list() == [twin.ns(row, others.to_dicts()) for row in chosen.to_dicts()]
