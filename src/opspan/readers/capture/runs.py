"""How the files of a folder are related: processes of one run, forks of one recording, or several runs."""

from __future__ import annotations

from collections.abc import Sequence

from opspan.readers.capture.file import OPEN, Header
from opspan.tables import Issues

RECORD = 1  # the header's `producer` of opspan.record


def note_folder(headers: Sequence[Header], issues: Issues) -> None:
    """What is wrong with the folder as a whole, as issues."""
    # Forks end with their session, or by _exit, as those of multiprocessing do: what they have written is complete,
    # even if their file was not closed.
    ended = {header.session for header in headers if not header.forked and header.state != OPEN}
    issues.add(
        "not_closed",
        sum(header.state == OPEN and not (header.forked and header.session in ended) for header in headers),
    )
    recordings: dict[tuple[int, int] | None, list[Header]] = {}
    for header in headers:
        # With `opspan run` each process has a session of its own, and all of them are one run.
        recordings.setdefault(header.session if header.producer == RECORD else None, []).append(header)
    if len(recordings) > 1:
        runs = _runs([_span(files) for files in recordings.values()])
        issues.add("several_runs", runs if runs > 1 else 0)
        issues.add("several_recordings", len(recordings) if runs == 1 else 0)


def _span(files: Sequence[Header]) -> tuple[int, float]:
    """From the first opening to the last closing, in UTC. A file that was never closed has no end."""
    ends = [file.close_utc_ns or float("inf") for file in files if not file.forked or file.close_utc_ns]
    return min(file.open_utc_ns for file in files), max(ends, default=float("inf"))


def _runs(spans: Sequence[tuple[int, float]]) -> int:
    """How many runs there are. Recordings that overlap in time belong to one run, as the ranks of torchrun do."""
    runs, until = 0, float("-inf")
    for begin, end in sorted(spans):
        runs += begin > until
        until = max(until, end)
    return runs
