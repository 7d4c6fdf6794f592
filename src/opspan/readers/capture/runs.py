"""What the files of one folder are to each other: processes of a run, forks of a recording, runs that were mixed."""

from __future__ import annotations

from collections.abc import Sequence

from opspan.readers.capture.file import OPEN, Header
from opspan.tables import Issues

RECORD = 1  # the header's `producer` of opspan.record


def note_folder(headers: Sequence[Header], issues: Issues) -> None:
    """What is wrong with the folder as a whole, as issues."""
    # Forks end with the session that they were made in, or by _exit, as those of multiprocessing do: what they have
    # written is whole all the same.
    ended = {header.session for header in headers if not header.forked and header.state != OPEN}
    issues.add(
        "not_closed",
        sum(header.state == OPEN and not (header.forked and header.session in ended) for header in headers),
    )
    recordings: dict[tuple[int, int] | None, list[Header]] = {}
    for header in headers:
        # The processes of `opspan run` each have a session: the run is all of them.
        recordings.setdefault(header.session if header.producer == RECORD else None, []).append(header)
    if len(recordings) > 1:
        runs = _runs([_span(files) for files in recordings.values()])
        issues.add("several_runs", runs if runs > 1 else 0)
        issues.add("several_recordings", len(recordings) if runs == 1 else 0)


def _span(files: Sequence[Header]) -> tuple[int, float]:
    """From the first opening to the last closing, in UTC; one that was never closed may have gone on for ever."""
    ends = [file.close_utc_ns or float("inf") for file in files if not file.forked or file.close_utc_ns]
    return min(file.open_utc_ns for file in files), max(ends, default=float("inf"))


def _runs(spans: Sequence[tuple[int, float]]) -> int:
    """Recordings that overlap are of one run, as the ranks of torchrun are."""
    runs, until = 0, float("-inf")
    for begin, end in sorted(spans):
        runs += begin > until
        until = max(until, end)
    return runs
