"""Everything that can be wrong with a trace and still let it be read, in one place: code, severity, advice.

A reader collects findings in an `Issues`; a Trace carries them as its table `issues`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import polars as pl

from opspan.printable import LONGEST_LINE, as_utf8, printable, shortened
from opspan.tables.schema import ISSUES

MOST_DETAILS = 100  # of one code; what more there is of it is counted together
OTHERS = "others, each by another name"


@dataclass(frozen=True)
class Code:
    severity: str  # info: worth knowing; warning: something is missing; error: do not trust the rest
    message: str  # what was found; how often is added
    advice: str


CODES: dict[str, Code] = {
    # --- files
    "truncated_file": Code(
        "warning",
        "parts of the file are missing at its end",
        "Everything before the cut was read. Copy the file again, or capture again with more disk space.",
    ),
    "damaged_file": Code(
        "error",
        "places in the file do not hold what they should and were skipped",
        "Copy the file again; if it is damaged at its origin, capture again.",
    ),
    "unreadable_file": Code(
        "warning",
        "files in the folder could not be read and were left out",
        "Look at the path and its permissions; what the other files hold is complete.",
    ),
    "not_kept": Code(
        "info",
        "exports were not kept for the next time, for others could change them there",
        "Set OPSPAN_CACHE_DIR to a folder that is yours, and that only you can write.",
    ),
    "over_budget": Code(
        "warning",
        "parts of the file would cost more than is allowed and were left out",
        "Sound files stay far below. docs/security.md has the limits.",
    ),
    "disk_full": Code(
        "warning",
        "captures ended early because the disk was full",
        "Free some space, or send the capture elsewhere with `-o DIR`.",
    ),
    "still_written": Code(
        "warning",
        "programs still write the file",
        "What they had written so far was read: load it again once they have ended.",
    ),
    "lost_events": Code(
        "warning",
        "events could not be written while capturing",
        "Free some space or memory, and capture again; the ranges around the gaps are right.",
    ),
    # --- databases
    "odd_cells": Code(
        "warning",
        "cells do not hold what their column should and were read as null",
        "Another tool wrote into the file, or it is damaged: export it again.",
    ),
    "skipped_tables": Code(
        "info",
        "rows are in tables that opspan does not read",
        "Nothing that opspan shows is missing; the file's own tool has more.",
    ),
    "skipped_views": Code(
        "warning",
        "views and virtual tables of the file have names of tables, and were not read",
        "To read one is to run what the file says, which need not end. If you trust it, write what it shows into a "
        "real table of that name (CREATE TABLE ... AS SELECT), and load that.",
    ),
    "skipped_events": Code(
        "info",
        "events are of kinds that opspan does not read",
        "Nothing that opspan shows is missing; they repeat what others say, or are for the file's own viewer.",
    ),
    "unknown_categories": Code(
        "info",
        "events are of categories that opspan does not know, and are read as ranges",
        "They have their times; the column category says which they are.",
    ),
    "no_tasks": Code(
        "warning",
        "the result holds no tasks of the program",
        "Label the program and collect its tasks: `vtune -collect hotspots -knob enable-user-tasks=true -r r000hs -- "
        "opspan exec train.py`; other analyses may have a switch of another name (`vtune -help collect NAME`).",
    ),
    "no_time": Code(
        "warning",
        "rows have no time, or one that cannot be, and were left out",
        "The tool's buffers overflowed, or the file is damaged: capture a shorter stretch.",
    ),
    "shared_pids": Code(
        "warning",
        "numbers of processes stand for several processes, on different machines",
        "Their rows cannot be told apart by pid: load the report of each machine by itself.",
    ),
    "unknown_process": Code(
        "warning",
        "rows do not say which of the processes in the file they are of",
        "They cannot be attributed: profile each process into a file of its own (nvprof -o file.%p).",
    ),
    "unknown_functions": Code(
        "info",
        "calls are of functions whose names this version does not know",
        "They show as `cbid` and the number; nothing else is missing.",
    ),
    "mangled_names": Code(
        "info",
        "kernels have names that could not be demangled",
        "They stay as the compiler wrote them; `cu++filt` of the CUDA toolkit may know more.",
    ),
    "tool_messages": Code("info", "messages from the tool that captured", "They are the tool's own words."),
    "tool_warnings": Code("warning", "warnings from the tool that captured", "They are the tool's own words."),
    "tool_errors": Code("error", "errors from the tool that captured", "They are the tool's own words."),
    # --- times
    "not_closed": Code(
        "info",
        "processes ended without closing their capture",
        "They were killed, crashed, or are still running; all that they recorded until then is here.",
    ),
    "several_runs": Code(
        "warning",
        "runs that came one after the other are in this folder, and were read as one trace",
        "Load the files of one of them by name, or record each run into a folder of its own.",
    ),
    "several_recordings": Code(
        "info",
        "recordings that ran at the same time are in this folder, and were read as one run",
        "That is as it should be for the ranks of one run; else load the files of one of them by name.",
    ),
    "open_ranges": Code(
        "info",
        "ranges had not ended when the capture ended",
        "They were open at the end, or their thread was killed; their end is null.",
    ),
    "end_without_start": Code(
        "warning",
        "ends belong to no range in the file",
        "The ranges began before the capture did.",
    ),
    "negative_duration": Code(
        "warning",
        "ranges ended before they began; their end was made null",
        "The file is damaged, or the machine's clock is.",
    ),
    "clock_stepped": Code(
        "warning",
        "processes saw the UTC clock move by more than a second while capturing",
        "Times within the trace are right; compare its UTC times to other machines' with care.",
    ),
    "clocks_not_aligned": Code(
        "warning",
        "files have no UTC time to align them with the first one",
        "Times within each rank are right; do not compare them across ranks.",
    ),
    "outside_window": Code(
        "info",
        "rows lie outside of the part that was asked for and were left out",
        "Load the trace without `between`, `step`, --between and --step to have them.",
    ),
    # --- two tools, one run
    "seen_twice": Code(
        "info",
        "ranges that both tools saw are there once",
        "The first trace's times hold; what only the other one knew of them was added.",
    ),
    "told_twice": Code(
        "info",
        "ranges that the program told through NVTX and through ITT are there once",
        "The times are those of the NVTX range; what only the ITT task knew of it was added.",
    ),
    "aligned_by_clocks": Code(
        "warning",
        "times were aligned by the files' own clocks alone: no ranges that both tools saw bear them out",
        "Within a millisecond or so do not trust the order of what different tools saw. Label the program for both.",
    ),
    "clocks_disagree": Code(
        "info",
        "times the clocks of the two files disagreed with the ranges that both tools saw",
        "The ranges were believed.",
    ),
    "collection_paused": Code(
        "info",
        "times the program paused the collection",
        "Nothing was recorded in between; counter `collecting` says when.",
    ),
    "pause_asked_for": Code(
        "info",
        "times the program asked for the collection to pause",
        "opspan's own capture goes on all the same; counter `collecting` says when the program did not want it.",
    ),
    # --- reports
    "unmatched_metrics": Code(
        "info",
        "names in the report stand for nothing in the trace",
        "Their metrics are in the table `metrics` and beside no op: take a report of the same run, by task.",
    ),
    "report_notes": Code(
        "info",
        "lines of the report are neither figures nor rows of a table",
        "Nothing is missing if they are the tool's advice or the program's own output.",
    ),
    # --- labels
    "unknown_strings": Code(
        "error",
        "texts are missing from the file",
        "The names in question are null; capture again.",
    ),
    "undecoded_text": Code(
        "info",
        "texts are not UTF-8",
        "The bytes that are not were replaced by U+FFFD.",
    ),
    "unknown_units": Code(
        "warning",
        "events are of a kind that this version does not know",
        "Update opspan and read the file again.",
    ),
    "dangling_data": Code(
        "warning",
        "attributes, payloads or ids belong to no range in the file",
        "The file is damaged or was cut.",
    ),
    "missing_rows": Code(
        "warning",
        "references lead nowhere",
        "What they would have told, a name, a thread or a stack, is null; the times are right.",
    ),
    "dangling_relations": Code(
        "info",
        "relations or parents name a range that is not in the file",
        "It began before the capture did, or was never begun.",
    ),
    "undecoded_payload": Code(
        "info",
        "extended payloads could not be taken apart",
        "Their schema is not in the file or uses what opspan does not read; the bytes are kept as hex.",
    ),
    "rounded_counters": Code(
        "info",
        "counter values are integers past 2^53 and were rounded",
        "Count in larger units.",
    ),
}


MOST = 2**63 - 1  # a damaged file may say that it has lost more


@dataclass(frozen=True)
class Issue:
    code: str
    count: int
    path: str | None = None
    detail: str = ""  # said after the message of the code

    @property
    def severity(self) -> str:
        return CODES[self.code].severity

    def __str__(self) -> str:
        # For people, though the detail may name what is in a file: never two lines, nor one without an end.
        detail = f": {shortened(printable(self.detail), LONGEST_LINE)}" if self.detail else ""
        return f"{CODES[self.code].message} ({self.count:,}){detail}"


@dataclass
class Issues:
    """A list under construction. Adding nothing adds nothing, so a reader adds its counts without asking; the same
    thing found again is counted with the first."""

    path: str | None = None
    _found: dict[tuple[str, str], Issue] = field(default_factory=dict)
    _details: Counter[str] = field(default_factory=Counter)  # how many a code has

    def __post_init__(self) -> None:
        self.path = None if self.path is None else as_utf8(self.path)

    def add(self, code: str, count: int = 1, detail: str = "") -> None:
        if code not in CODES:
            raise KeyError(f"no such issue: {code}")
        if count <= 0:
            return
        if (code, detail) not in self._found:
            # A file may have as many places, each with a name of its own, as it has bytes.
            if self._details[code] >= MOST_DETAILS:
                detail = OTHERS
            self._details[code] += 1
        before = self._found.get((code, detail), Issue(code, 0, self.path, detail))
        self._found[code, detail] = replace(before, count=before.count + count)

    @property
    def found(self) -> list[Issue]:
        return list(self._found.values())

    def __iter__(self) -> Iterator[Issue]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self._found)

    def frame(self) -> pl.DataFrame:
        rows = [
            {
                "rank": 0,
                "code": issue.code,
                "severity": issue.severity,
                "count": min(issue.count, MOST),
                "message": str(issue),
                "advice": CODES[issue.code].advice,
                "path": issue.path,
            }
            for issue in self
        ]
        return pl.DataFrame(rows, schema=ISSUES.schema)
