"""Reads compilations and graph breaks from the entries of a TORCH_TRACE log (lines.py). Both become rows of the
tables `compilations` and `graph_breaks`.

torch writes one entry without a payload when it has compiled a frame (a Python function) or a backward:

    {"compilation_metrics": {"co_name": "f", "dynamo_cumulative_compile_time_us": 1806502, "recompile_reason": "0/0:
     tensor 'x' size mismatch at index 0. expected 3, actual 4", ...}, "frame_id": 0, "frame_compile_id": 1, ...}

For a backward, the key is `bwd_compilation_metrics`. `compilation_metrics_runtime` (autotuning in a run) is not read.

A graph break is an entry with the artifact `dynamo_graph_break_reason`. Its payload is text for people:

    Graph break in user code at prog.py:5
    Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

    Failed to trace builtin operator
      Explanation: Dynamo does not know how to trace builtin operator `print` ...
    User code traceback:
      File "prog.py", line 5, in f

Texts differ between versions of torch, and any field may be missing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from opspan.formats.budget import Limit
from opspan.readers.compile_logs.stacks import stack_of
from opspan.tables import Issues
from opspan.tables.compiled import MOST_REASON, MOST_STACK

BREAK = "dynamo_graph_break_reason"
_METRICS = ("compilation_metrics", "bwd_compilation_metrics")
_MOST_NS = 2**62
_MOST_NAME = 1_000  # limit on the characters of a name
_MOST_PAYLOAD = 1_000_000  # limit on the characters of a payload that are parsed
_COMPILATIONS = Limit("compilations are in the log of a process", always=20_000)
_BREAKS = Limit("graph breaks are in the log of a process", always=20_000)
# Column -> the metric in microseconds, and the metric in seconds that older versions write instead.
_PHASES = {
    "dynamo_ns": ("dynamo_cumulative_compile_time_us", "entire_frame_compile_time_s"),
    "aot_autograd_ns": ("aot_autograd_cumulative_compile_time_us", "backend_compile_time_s"),
    "inductor_ns": ("inductor_cumulative_compile_time_us", "inductor_compile_time_s"),
    "code_gen_ns": ("inductor_code_gen_cumulative_compile_time_us", "code_gen_time_s"),
    "triton_ns": ("triton_compile_time_us", ""),
}
_PLACE = re.compile(r"^Graph break in user code at ([^\n]{1,4096}):(\d{1,9})$", re.MULTILINE)
_REASON = re.compile(r"^(?:Graph Break )?Reason: ", re.MULTILINE)
_STACK = re.compile(r"^(?:User code traceback|The graph break occurred in the following user code):$", re.MULTILINE)
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):$", re.MULTILINE)
_PROCESSED = re.compile(r"^=+ The above exception occurred while processing the following code =+$", re.MULTILINE)
_RAISED = re.compile(r"^(?:\w{1,100}\.){0,20}\w{0,100}(?:Unsupported|Error|Exception)\w{0,100}: ", re.MULTILINE)
_WHILE = re.compile(r"Encountered graph break when [^\n]*\n+")

Row = dict[str, Any]


class CompilationLog:
    """Collects the compilations and graph breaks of a process. An entry that occurs twice, as in concatenated logs,
    counts once."""

    def __init__(
        self, pid: int | None, compilations: dict[bytes, Row], breaks: dict[bytes, Row], issues: Issues
    ) -> None:
        self._compilations, self._breaks = compilations, breaks  # digest of an entry -> row
        self._pid = pid
        self._issues = issues
        self._functions: dict[str | None, Row] = {}  # compile_id -> function, file and line of the forward

    def add_metrics(
        self, values: Row, compile_id: str | None, caches: Iterable[str], time_ns: int | None = None
    ) -> None:
        """Adds the compilation that an entry describes. `caches`: hit, miss or bypass for each graph of the
        compilation. `time_ns`: when torch wrote the entry, which is the end of the compilation."""
        name = metrics_of(values)
        if name is None or (digest := _digest(values)) is None:
            return
        if not _has_room(self._compilations, digest, _COMPILATIONS, self._issues):
            return
        row = compilation_row(name, values, compile_id)
        place = {column: row[column] for column in ("function", "file", "line")}
        if row["is_backward"]:
            known = self._functions.get(row["compile_id"], {})
            row |= {column: known.get(column) if value is None else value for column, value in place.items()}
        else:
            self._functions[row["compile_id"]] = place
        names = set(caches)
        row["cache"] = next((one for one in ("miss", "bypass", "hit") if one in names), None)
        self._compilations[digest] = {"pid": self._pid, **row, "end_ns": time_ns}

    def add_break(self, values: Row, compile_id: str | None, payload: str) -> None:
        digest = _digest(values)
        if digest is not None and _has_room(self._breaks, digest, _BREAKS, self._issues):
            attempt = _whole(values.get("attempt"), 2**31)
            ids = {"pid": self._pid, "compile_id": compile_id, "attempt": attempt}
            self._breaks[digest] = ids | break_row(payload[:_MOST_PAYLOAD])


def metrics_of(values: Row) -> str | None:
    """Returns the key of the metrics in an entry; None if the entry does not describe a compilation."""
    return next((name for name in _METRICS if isinstance(values.get(name), dict)), None)


def _digest(values: Row) -> bytes | None:
    """Returns a digest, which is equal for entries with equal values; None if the values are nested too deeply."""
    try:
        text = json.dumps(values, sort_keys=True)
    except RecursionError:
        return None
    return hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()


def _has_room(rows: dict[bytes, Row], digest: bytes, limit: Limit, issues: Issues) -> bool:
    if digest in rows:
        return False
    is_over = len(rows) >= limit.allows()
    if is_over:
        issues.add("over_budget", detail=limit.message())
    return not is_over


def compilation_row(name: str, values: Row, compile_id: str | None) -> Row:
    """Returns the row of a compilation from its entry alone, without pid, cache and end_ns."""
    metrics = values[name]
    phases = {column: _duration_ns(metrics, *fields) for column, fields in _PHASES.items()}
    is_backward = name.startswith("bwd_") or metrics.get("is_forward") is False
    own_id = metrics.get("compile_id")
    return {
        "compile_id": compile_id if compile_id is not None else _text(own_id, _MOST_NAME),
        "attempt": _whole(values.get("attempt"), 2**31),
        "is_backward": is_backward,
        "function": _text(metrics.get("co_name"), _MOST_NAME),
        "file": _text(metrics.get("co_filename"), MOST_REASON),
        "line": _whole(metrics.get("co_firstlineno"), 2**31),
        "duration_ns": _whole_duration_ns(metrics, phases["dynamo_ns"]),
        **phases,
        "recompile_reason": _text(metrics.get("recompile_reason")),
        "fail_type": _text(metrics.get("fail_type"), _MOST_NAME),
        "fail_reason": _text(metrics.get("fail_reason")),
        "restart_reasons": _texts(metrics.get("restart_reasons")),
    }


def _whole_duration_ns(metrics: Row, dynamo_ns: int | None) -> int | None:
    known = _duration_ns(metrics, "duration_us")
    if known is None:
        known = dynamo_ns if dynamo_ns is not None else _duration_ns(metrics, "backward_cumulative_compile_time_us")
    if known is not None:
        return known
    begin, end = (_duration_ns(metrics, name) for name in ("start_time_us", "end_time_us"))
    return end - begin if begin is not None and end is not None and end >= begin else None


def _duration_ns(metrics: Row, microseconds: str, seconds: str = "") -> int | None:
    for name, factor in ((microseconds, 1_000), (seconds, 1_000_000_000)):
        value = metrics.get(name)
        # NaN is left out, because every comparison with NaN is false.
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MOST_NS / factor:
            return round(value * factor)
    return None


def _whole(value: object, end: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end else None


def _text(value: object, most: int = MOST_REASON) -> str | None:
    """Returns the first `most` characters; None if the value is not a text or is blank. Replaces lone surrogates, which
    JSON may hold but UTF-8 may not."""
    if not isinstance(value, str) or not value.strip():
        return None
    return value[:most].encode("utf-8", "replace").decode()


def _texts(values: object) -> str | None:
    """Joins a list of texts into one text. Sorts the list, because torch makes it from a set, which has no order."""
    if isinstance(values, str):
        return _text(values)
    if not isinstance(values, list):
        return None
    return _text("\n\n".join(sorted(one for one in values[:100] if isinstance(one, str))))


def break_row(payload: str) -> Row:
    """Returns reason, detail, file, line, function and stack of a graph break."""
    before, after = _parts(payload)
    stack = stack_of(after)
    own = stack.place if stack is not None else None
    file, line = (own.file, own.line) if own is not None else (None, None)
    if place := _PLACE.search(payload):
        file, line = place[1], int(place[2])
    is_known = own is not None and (own.file, own.line) == (file, line)
    reason, _, detail = _reason(before, payload).partition("\n")
    return {
        "reason": _text(reason.strip()),
        "detail": _text(detail.strip()),
        "file": _text(file),
        "line": line,
        "function": _text(own.function, _MOST_NAME) if own is not None and is_known else None,
        "stack": _text(stack.text[-MOST_STACK:], MOST_STACK) if stack is not None else None,
    }


def _parts(payload: str) -> tuple[str, str]:
    """Splits a payload into the text before the program's stack, and the stack. Cuts off a traceback of the compiler
    that follows the stack."""
    if match := _PROCESSED.search(payload):
        return payload[: match.start()], payload[match.end() :]
    if match := _STACK.search(payload):
        before, after = payload[: match.start()], payload[match.end() :]
    else:
        before, after = payload, ""
    end = _TRACEBACK.search(after)
    return before, after if end is None else after[: end.start()]


def _reason(before: str, payload: str) -> str:
    """Returns the stated reason; without one, the message of the error that was raised last; without an error, the text
    before the stack."""
    if match := _REASON.search(before):
        text = before[match.end() :].strip()
        if (context := _WHILE.match(text)) and text[context.end() :].strip():
            text = text[context.end() :].strip()
        error = _RAISED.match(text)
        return text[error.end() :] if error is not None else text
    if raised := list(_RAISED.finditer(payload)):
        begin = raised[-1].end()
        end = _PROCESSED.search(payload, begin)
        return payload[begin : end.start() if end is not None else None].strip()
    end = _TRACEBACK.search(before)
    return before[: end.start() if end is not None else None].strip()
