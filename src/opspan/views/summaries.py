"""The ready-made views of the analysis database: for each view its SQL, and a sentence on what it shows.

The views have the same figures as opspan's averages, because the SQL is made from the same definitions: marks do not
count as ranges, and device time includes neither waits nor the profiler's own activity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opspan.analysis.averages import (
    DEVICE_KINDS,
    OF_RANGES,
    OF_WORK,
    RANGE_ORDER,
    RANGE_SUMS,
    WORK_ORDER,
    WORK_SUMS,
    Measure,
)


@dataclass(frozen=True)
class Summary:
    name: str
    sentence: str
    sql: str


def _sql(columns: Sequence[str], of: str, where: str, keys: Sequence[str], order: Sequence[str]) -> str:
    shown = ",\n       ".join([*keys, "count(*) AS count", *columns])
    sorted_by = ", ".join([*(f"{name} DESC" for name in order), *keys])
    return f"SELECT {shown}\nFROM {of}\nWHERE {where}\nGROUP BY {', '.join(keys)}\nORDER BY {sorted_by}"


def _sums(of: Sequence[Measure]) -> list[str]:
    return [f"coalesce(sum({measure.of}), 0) AS {measure.name}" for measure in of]


def _spread(what: str, *aggregates: str) -> list[str]:
    """Returns SQL columns with the average, least or largest duration."""
    sql = {"average": "sum(duration_ns) / count(duration_ns)", "min": "min(duration_ns)", "max": "max(duration_ns)"}
    return [f"{sql[name]} AS {name}_{what}_ns" for name in aggregates]


_IS_RANGE = "NOT coalesce(is_mark, 0)"
_BUSY = f"kind IN ({', '.join(map(repr, DEVICE_KINDS))}) AND NOT coalesce(is_overhead, 0)"


def _range_sql(by: str, *aggregates: str) -> str:
    # A module, step or phase may contain nested ranges. Sums of whole times would count the inner ranges twice.
    sums = RANGE_SUMS if "name" in OF_RANGES[by] else [measure for measure in RANGE_SUMS if not measure.is_whole]
    return _sql([*_sums(sums), *_spread("cpu", *aggregates)], "ranges", _IS_RANGE, OF_RANGES[by], RANGE_ORDER)


def _work_sql(by: str, *columns: str) -> str:
    return _sql([*_sums(WORK_SUMS), *columns], "work", _BUSY, OF_WORK[by], WORK_ORDER)


_COPIES = """\
SELECT name,
       copy_from,
       copy_to,
       count(*) AS count,
       sum(bytes) AS bytes,
       sum(duration_ns) AS device_ns,
       1e9 * sum(bytes) / nullif(sum(duration_ns), 0) AS bytes_per_s
FROM work
WHERE kind IN ('memcpy', 'memset') AND NOT coalesce(is_overhead, 0)
GROUP BY name, copy_from, copy_to
ORDER BY device_ns DESC"""

_CALLS = """\
SELECT api,
       name,
       count(*) AS count,
       sum(duration_ns) AS cpu_ns,
       sum(duration_ns) / count(duration_ns) AS average_cpu_ns,
       max(duration_ns) AS max_cpu_ns
FROM calls
GROUP BY api, name
ORDER BY cpu_ns DESC, count DESC, api, name"""

_THREADS = """\
SELECT ranges.rank,
       ranges.pid,
       ranges.tid,
       (SELECT threads.name
        FROM threads
        WHERE threads.rank IS ranges.rank AND threads.pid IS ranges.pid AND threads.tid IS ranges.tid) AS name,
       count(*) AS count,
       coalesce(sum(ranges.self_ns), 0) AS self_cpu_ns,
       sum(ranges.self_device_ns) AS self_device_ns
FROM ranges
WHERE NOT coalesce(ranges.is_mark, 0)
GROUP BY ranges.rank, ranges.pid, ranges.tid
ORDER BY self_cpu_ns DESC"""

_KERNELS_OF_OPS = f"""\
SELECT ranges.name AS op,
       ranges.sizes,
       work.kind,
       work.name AS kernel,
       count(*) AS count,
       sum(work.duration_ns) AS device_ns
FROM work
JOIN ranges ON ranges.id = work.range_id
WHERE work.{_BUSY.replace("coalesce(", "coalesce(work.")}
GROUP BY ranges.name, ranges.sizes, work.kind, work.name
ORDER BY device_ns DESC"""

_WORK_WITHOUT_RANGE = f"""\
SELECT kind,
       name,
       call_id IS NOT NULL AS has_call,
       count(*) AS count,
       sum(duration_ns) AS device_ns
FROM work
WHERE range_id IS NULL AND {_BUSY}
GROUP BY kind, name, has_call
ORDER BY device_ns DESC"""

_BACKWARD_OF_FORWARD = """\
SELECT forward.id AS forward_id,
       forward.name AS forward_name,
       forward.tid AS forward_tid,
       forward.seq,
       forward.sizes,
       forward.module,
       forward.duration_ns AS forward_cpu_ns,
       forward.device_ns AS forward_device_ns,
       backward.id AS backward_id,
       backward.name AS backward_name,
       backward.tid AS backward_tid,
       backward.duration_ns AS backward_cpu_ns,
       backward.device_ns AS backward_device_ns,
       backward.link
FROM ranges AS backward
JOIN ranges AS forward ON forward.id = backward.forward_id
WHERE backward.link <> 'by nesting'
ORDER BY backward.start_ns"""

SUMMARIES = (
    Summary(
        "op_summary",
        "Ranges by name, the most device time of their own first.",
        _range_sql("name", "average", "min", "max"),
    ),
    Summary("op_shape_summary", "The same, apart by the sizes of the inputs.", _range_sql("shape", "average")),
    Summary("module_summary", "Ranges by the innermost module around them.", _range_sql("module")),
    Summary("step_summary", "Ranges by the step in which they began.", _range_sql("step")),
    Summary("phase_summary", "Ranges by phase, of training or serving.", _range_sql("phase")),
    Summary("thread_summary", "Ranges by thread.", _THREADS),
    Summary("call_summary", "Calls into libraries by function.", _CALLS),
    Summary(
        "kernel_summary",
        "What ran on devices by kind and name.",
        _work_sql("kernel", *_spread("device", "average", "min", "max")),
    ),
    Summary(
        "stream_summary",
        "What ran on devices by stream.",
        _work_sql("stream", "min(start_ns) AS first_start_ns", "max(end_ns) AS last_end_ns"),
    ),
    Summary("copy_summary", "Copies and fills by direction, with their rate.", _COPIES),
    Summary("kernels_of_ops", "Which kernels the ops of a name and shape ran.", _KERNELS_OF_OPS),
    Summary("work_without_range", "What ran on devices and belongs to no range, by name.", _WORK_WITHOUT_RANGE),
    Summary("backward_of_forward", "Each backward range beside the forward op it is of.", _BACKWARD_OF_FORWARD),
)
