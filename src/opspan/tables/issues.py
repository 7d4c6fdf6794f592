"""Lists the kinds of issues: problems that do not prevent reading, and other facts that a user should know. Each kind
has a code, a severity and advice.

A reader collects the issues of a trace in an object `Issues`. A Trace has them in its table `issues`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import polars as pl

from opspan.printable import LONGEST_LINE, as_utf8, printable, shortened
from opspan.tables import compiled
from opspan.tables.code import Code as Code
from opspan.tables.schema import ISSUES

MOST_DETAILS = 100  # maximum number of distinct details of one code; issues with further details are counted together
OTHERS = "others, each of them different"


CODES: dict[str, Code] = {
    # --- files
    "truncated_file": Code(
        "warning",
        "parts of the file are missing at its end",
        "Everything before the cut was read. Copy the file again, or capture again with more disk space.",
    ),
    "damaged_file": Code(
        "error",
        "parts of the file are damaged and were skipped",
        "Copy the file again. If the original is damaged too, capture again.",
    ),
    "unreadable_file": Code(
        "warning",
        "files in the folder could not be read and were left out",
        "Check the path and its permissions. The other files were read completely.",
    ),
    "no_traces": Code(
        "info",
        "files in the folder are no traces and were left out",
        "Name a file itself to see what it is.",
    ),
    "not_kept": Code(
        "info",
        "exports of reports were not kept for the next time, because other users could change them in the cache folder",
        "Set OPSPAN_CACHE_DIR to a folder that you own and that only you can write to.",
    ),
    "over_budget": Code(
        "warning",
        "parts of the file would take more memory or time than is allowed and were left out",
        "Undamaged files stay far below the limits. If you trust the file, OPSPAN_BUDGET=10 allows ten times as much.",
    ),
    "disk_full": Code(
        "warning",
        "captures ended early because the disk was full",
        "Free some space, or send the capture elsewhere with `-o DIR`.",
    ),
    "still_written": Code(
        "warning",
        "programs are still writing the file",
        "What they had written so far was read. Load it again once they have ended.",
    ),
    "lost_events": Code(
        "warning",
        "events could not be written while capturing",
        "Free some disk space or memory, and capture again. The ranges that were written are right.",
    ),
    # --- contents of the file, and messages of the tool that wrote it
    "odd_cells": Code(
        "warning",
        "cells hold a value of the wrong type for their column and were read as null",
        "Another tool changed the file, or it is damaged: export it again.",
    ),
    "skipped_tables": Code(
        "info",
        "rows are in tables that opspan does not read",
        "Everything that opspan shows is complete. The tool that wrote the file can show these rows.",
    ),
    "skipped_views": Code(
        "warning",
        "views or virtual tables stand where tables were expected, and were not read",
        "To read one would run a query from the file, which may never end. If you trust it, copy what it shows into a "
        "real table of that name (CREATE TABLE ... AS SELECT), and load that.",
    ),
    "skipped_events": Code(
        "info",
        "events are of kinds that opspan does not read",
        "Everything that opspan shows is complete. They repeat other events, or are for the viewer of the file's tool.",
    ),
    "unknown_categories": Code(
        "info",
        "events are of categories that opspan does not know, and were read as ranges",
        "Their times are right. The column `category` names the category.",
    ),
    "unknown_types": Code(
        "info",
        "ranges have inputs of types that opspan does not know",
        "Their times are right. How many bytes these ops read and write is not known, and so not in `opspan flops`.",
    ),
    "unknown_work": Code(
        "warning",
        "events on the tracks of devices are of categories that opspan does not know, and count as no device time",
        "The table `work` has them, with the kind `other`. Update opspan and read the file again.",
    ),
    "counter_ranges": Code(
        "info",
        "ranges hold figures of hardware counters, not times of kernels, and were left out",
        "Kernels are in a trace that was recorded without the counters' profiler.",
    ),
    "no_tasks": Code(
        "warning",
        "the result holds no tasks of the program",
        "Label the program and collect its tasks: `vtune -collect hotspots -knob enable-user-tasks=true -r r000hs -- "
        "opspan exec train.py`; other analyses may have a switch of another name (`vtune -help collect NAME`).",
    ),
    "no_time": Code(
        "warning",
        "rows have no time, or an impossible one, and were left out",
        "The tool's buffers overflowed, or the file is damaged: capture a shorter part of the run.",
    ),
    "shared_pids": Code(
        "warning",
        "process ids are used by several processes, on different machines",
        "Their rows cannot be told apart by pid: load the report of each machine by itself.",
    ),
    "unknown_process": Code(
        "warning",
        "rows do not say which of the file's processes they belong to",
        "They cannot be attributed to ops. Record again so that the file says it: with nvprof a file for each process "
        "(`nvprof -o file.%p`), with perf the process beside the thread (`perf script -F +pid`).",
    ),
    "unknown_functions": Code(
        "info",
        "calls are to functions whose names this version does not know",
        "They are shown as `cbid` and a number. Nothing else is missing.",
    ),
    "mangled_names": Code(
        "info",
        "kernels have names that could not be demangled",
        "They are shown as the compiler wrote them. `cu++filt` of the CUDA toolkit may be able to demangle them.",
    ),
    "unmatched_replays": Code(
        "info",
        "launches of graphs fit none of the captures that were given, so that the ops of their kernels are unknown",
        "Their device time is right. Record the capture of each graph that the run launches.",
    ),
    "tool_messages": Code("info", "messages from the tool that captured", "They are the tool's own words."),
    "tool_warnings": Code("warning", "warnings from the tool that captured", "They are the tool's own words."),
    "tool_errors": Code("error", "errors from the tool that captured", "They are the tool's own words."),
    # --- recordings, ends of ranges, and times
    "not_closed": Code(
        "info",
        "processes ended without closing their capture",
        "They were killed, crashed, or are still running. All that they recorded until then was read.",
    ),
    "several_runs": Code(
        "warning",
        "runs that took place one after the other are in this folder, and were read as one trace",
        "Load the files of one of them by name, or record each run into a folder of its own.",
    ),
    "several_recordings": Code(
        "info",
        "recordings that ran at the same time are in this folder, and were read as one run",
        "That is right for the ranks of one run. Otherwise load the files of one recording by name.",
    ),
    "open_ranges": Code(
        "info",
        "ranges had not ended when the capture ended",
        "They were still open, or their thread was killed. Their end is null.",
    ),
    "end_without_start": Code(
        "warning",
        "ends of ranges have no begin in the file",
        "These ranges began before the capture did.",
    ),
    "negative_duration": Code(
        "warning",
        "ranges end before they begin; their end was set to null",
        "The file is damaged, or the machine's clock was wrong.",
    ),
    "impossible_device_times": Code(
        "error",
        "kernels and copies have times that cannot be; the times were left out",
        "They count as launches, without device time. torch's collection is known to give wrong times now and then, "
        "above all if a process collects several times: record once per process, or use nsys.",
    ),
    "clock_stepped": Code(
        "warning",
        "processes saw the UTC clock jump while capturing",
        "Times within the trace are right. Be careful when you compare its UTC times with those of other machines.",
    ),
    "clocks_not_aligned": Code(
        "warning",
        "files have no UTC time to align them with the first one",
        "Times within each rank are right. Do not compare them across ranks.",
    ),
    "clocks_aligned": Code(
        "info",
        "ranks were moved in time to agree with the others on when collectives ended",
        "Clocks of hosts differ. Times of different ranks are right within the error that is given.",
    ),
    "clocks_of_hosts": Code(
        "info",
        "hosts have clocks of their own, and no collectives say how far these are apart",
        "Times within each host are right. Those of different hosts are as near as the hosts' clocks were.",
    ),
    # --- ranks, runs and windows
    "unknown_rank": Code(
        "warning",
        "files do not say which rank they are, though others do",
        "They were numbered after the others. Put the rank into the file's name (rank3.json).",
    ),
    "doubled_rank": Code(
        "warning",
        "files say that they are a rank that is there already",
        "They were numbered after all others. Load the files of one run only, each rank once.",
    ),
    "missing_rank": Code(
        "warning",
        "ranks of the run are not here",
        "What they did, and who waited for them, is not known. Give the files of all ranks together.",
    ),
    "mixed_runs": Code(
        "warning",
        "files are of different runs, and were put side by side as ranks of one",
        "Load the files of one run only. To compare two runs: opspan diff A B.",
    ),
    "assumed_cycles": Code(
        "warning",
        "files of one process id, whose times do not overlap, were read as cycles of one process",
        "If they are of several processes, name the files by rank (rank3.json); if of several runs, load those of one.",
    ),
    "overlapping_cycles": Code(
        "warning",
        "files of one host and process id overlap in time, and were read as ranks",
        "They are of several containers, or copies of one file. Put the rank into the names of the files (rank3.json).",
    ),
    "outside_window": Code(
        "info",
        "rows are outside of the part that was asked for and were left out",
        "To have them, load the trace without `between`, `step`, --between and --step.",
    ),
    # --- two tools in one run, and pauses
    "seen_twice": Code(
        "info",
        "ranges that both tools recorded were made one",
        "Their times are those of the first trace; what only the other trace knew was added.",
    ),
    "told_twice": Code(
        "info",
        "ranges that the program sent through both NVTX and ITT were made one",
        "Their times are those of the NVTX range; what only the ITT task knew was added.",
    ),
    "aligned_by_clocks": Code(
        "warning",
        "traces were aligned by the clocks in their files alone, not by ranges that both tools recorded",
        "Events less than a millisecond apart may be in the wrong order. Label the program for both tools.",
    ),
    "clocks_disagree": Code(
        "info",
        "times the clocks of the two files disagreed with the ranges that both tools recorded",
        "The traces were aligned by the ranges.",
    ),
    "collection_paused": Code(
        "info",
        "times the program paused the collection",
        "Nothing was recorded during a pause; the counter `collecting` is 0 there.",
    ),
    "pause_asked_for": Code(
        "info",
        "times the program asked to pause the collection",
        "opspan's capture went on all the same; the counter `collecting` is 0 where the program wanted a pause.",
    ),
    # --- reports
    "unmatched_metrics": Code(
        "info",
        "names in the report are not in the trace",
        "Their metrics are in the table `metrics`, but beside no op. Take a report of the same run, grouped by task.",
    ),
    "report_notes": Code(
        "info",
        "lines of the report are neither figures nor rows of a table, and were left out",
        "Nothing is missing if they are the tool's advice or output of the program.",
    ),
    # --- texts, references, payloads and counters
    "unknown_strings": Code(
        "error",
        "texts are missing from the file",
        "Names that refer to them are null. Capture again.",
    ),
    "undecoded_text": Code("info", "texts are not valid UTF-8", "Their invalid bytes were replaced by U+FFFD."),
    "unknown_units": Code(
        "warning",
        "events are of a kind that this version does not know",
        "Update opspan and read the file again.",
    ),
    "dangling_data": Code(
        "warning",
        "attributes, payloads or ids refer to a range that is not in the file",
        "The file is damaged or was cut.",
    ),
    "missing_rows": Code(
        "warning",
        "references are to rows that are not in the file",
        "What those rows would say (a name, a thread, a stack) is null. The times are right.",
    ),
    "dangling_relations": Code(
        "info",
        "relations or parents refer to a range that is not in the file",
        "That range began before the capture did, or never began.",
    ),
    "undecoded_payload": Code(
        "info",
        "extended payloads could not be decoded",
        "Their schema is not in the file, or uses types that opspan does not read. The bytes are kept as hex.",
    ),
    "rounded_counters": Code(
        "info",
        "counter values are integers above 2^53 and were rounded",
        "Let the program count in larger units.",
    ),
    **compiled.CODES,
}


MOST = 2**63 - 1  # the largest count (Int64); a damaged file may state a larger one


@dataclass(frozen=True)
class Issue:
    """Something that was skipped, repaired or unusual, and how many times."""

    code: str
    count: int
    path: str | None = None
    detail: str = ""  # a text to show after the message of the code

    @property
    def severity(self) -> str:
        return CODES[self.code].severity

    def __str__(self) -> str:
        # The detail may quote the file, so it is cut to one printable line of limited length.
        detail = f": {shortened(printable(self.detail), LONGEST_LINE)}" if self.detail else ""
        return f"{CODES[self.code].message} ({self.count:,}){detail}"


@dataclass
class Issues:
    """The issues that a reader has collected so far. Equal issues are counted together, and counts of 0 are ignored."""

    path: str | None = None
    _found: dict[tuple[str, str], Issue] = field(default_factory=dict)
    _details: Counter[str] = field(default_factory=Counter)  # code -> how often `add` got a detail not in `_found`

    def __post_init__(self) -> None:
        self.path = None if self.path is None else as_utf8(self.path)

    def add(self, code: str, count: int = 1, detail: str = "") -> None:
        if code not in CODES:
            raise KeyError(f"no such issue: {code}")
        if count <= 0:
            return
        if (code, detail) not in self._found:
            # A damaged file could give millions of different details.
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
