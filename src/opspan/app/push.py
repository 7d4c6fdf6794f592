"""Pushes a trace as a profile to a Pyroscope server. The profile has three types of values: host time,
device time and counts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from opspan.analysis import Analysis
from opspan.analysis.line_stacks import FUNCTION
from opspan.analysis.nest import trace_end_ns
from opspan.analysis.runs import pyroscope_runs
from opspan.app.ingest import Server
from opspan.errors import UsageError
from opspan.views.missing import FUNCTIONS, labelling
from opspan.views.pprof import profile_of

# Maps each value of --by to the only kind of frames that the profile keeps. None keeps all kinds.
BY: Final[dict[str, str | None]] = {"op": None, "module": "module", "function": FUNCTION}
RUN: Final = "run_id"
_SAMPLES = json.dumps(
    {name: {"units": unit, "aggregation": "sum", "sampled": False} for name, unit in (
        ("count", "count"), ("host", "nanoseconds"), ("device", "nanoseconds")
    )}
)  # fmt: skip
_APP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,199}")
_KEY = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,99}")
_VALUE = re.compile(r"[^\x00-\x20\x7f,{}=\"]{1,200}")
_MOST = 10  # maximum number of tags that a profile may have


@dataclass(frozen=True)
class Receipt:
    query: str  # the query that finds the profile on the server
    bytes: int
    notes: list[str]


def push(analysis: Analysis, server: Server, app: str, tags: Sequence[str], by: str, is_now: bool) -> Receipt:
    labels = _labels(analysis, app, tags)
    _check_contents(analysis, by)
    trace = analysis.tables
    begin = trace.begin_ns("ranges", "functions", "work") or 0
    duration = max(trace_end_ns(trace.ranges, trace.functions, trace.work) - begin, 0)
    notes = []
    if is_now or trace.origin_utc_ns is None:
        begin_utc = time.time_ns() - duration
        if not is_now:
            notes.append("the trace does not say at which time of day it was: it is pushed as if it had ended now")
    else:
        begin_utc = trace.origin_utc_ns + begin
    data, left_out = profile_of(analysis, BY[by], begin_utc)
    first, end = begin_utc // 10**9, -(-(begin_utc + duration) // 10**9)
    text = ",".join(f"{key}={value}" for key, value in labels.items())
    server.post(
        {
            "name": f"{app}{{{text}}}" if text else app,
            "from": f"{first}",
            "until": f"{max(end, first + 1)}",
            "format": "pprof",
            "spyName": "opspan",
        },
        {"profile": ("profile.pprof", data), "sample_type_config": ("sample_type_config.json", _SAMPLES.encode())},
    )
    query = ", ".join(f'{key}="{value}"' for key, value in {"service_name": app, **labels}.items())
    return Receipt(f"{{{query}}}", len(data), [*notes, *left_out])


def _labels(analysis: Analysis, app: str, tags: Sequence[str]) -> dict[str, str]:
    if not _APP.fullmatch(app):
        raise UsageError(f"--app {app!r}: expected letters, digits and _./-, 200 at most, the first no sign")
    labels = {}
    for tag in tags:
        key, is_pair, value = tag.partition("=")
        if not is_pair or not _KEY.fullmatch(key) or key == "service_name" or not _VALUE.fullmatch(value):
            raise UsageError(f"--tag {tag!r}: expected KEY=VALUE; a value has no space, comma, brace, quote or =")
        labels[key] = value
    if len(labels) > _MOST:
        raise UsageError(f"--tag was given {len(labels)} times: {_MOST} at most, each value is a series at the server")
    runs = [run for run in pyroscope_runs(analysis.tables.ranges) if _VALUE.fullmatch(run)]
    return {RUN: runs[0], **labels} if len(runs) == 1 else labels


def _check_contents(analysis: Analysis, by: str) -> None:
    trace = analysis.tables
    if by == "function" and not trace.functions.height:
        raise UsageError(f"--by function: the trace has no Python functions. {FUNCTIONS}")
    if by == "module" and not (trace.ranges["kind"].cast(str) == "module").any():
        raise UsageError(f"--by module: the trace has no modules; to have them: {labelling(trace, '--modules')}")
    if not (trace.ranges.height or trace.functions.height or trace.work.height):
        raise UsageError("the trace has no range, function or work: there is nothing to push")
