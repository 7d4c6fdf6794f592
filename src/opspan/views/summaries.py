"""The ready-made views of the analysis database: SQL, with a sentence each.

They say the same as opspan's own averages: ranges without marks, device time without waits and the profiler's own
doing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    name: str
    sentence: str
    sql: str


_OPS = """\
SELECT name,
       count(*) AS count,
       sum(duration_ns) AS cpu_ns,
       coalesce(sum(self_ns), 0) AS self_cpu_ns,
       sum(duration_ns) / count(duration_ns) AS average_cpu_ns,
       min(duration_ns) AS min_cpu_ns,
       max(duration_ns) AS max_cpu_ns,
       sum(device_ns) AS device_ns,
       sum(self_device_ns) AS self_device_ns
FROM ranges
WHERE NOT coalesce(is_mark, 0)
GROUP BY name
ORDER BY self_device_ns DESC, self_cpu_ns DESC, count DESC, name"""

_OPS_BY_SHAPE = """\
SELECT name,
       sizes,
       count(*) AS count,
       sum(duration_ns) AS cpu_ns,
       coalesce(sum(self_ns), 0) AS self_cpu_ns,
       sum(duration_ns) / count(duration_ns) AS average_cpu_ns,
       sum(device_ns) AS device_ns,
       sum(self_device_ns) AS self_device_ns
FROM ranges
WHERE NOT coalesce(is_mark, 0)
GROUP BY name, sizes
ORDER BY self_device_ns DESC, self_cpu_ns DESC, count DESC, name, sizes"""

_BY_CONTEXT = """\
SELECT {key},
       count(*) AS count,
       coalesce(sum(self_ns), 0) AS self_cpu_ns,
       sum(self_device_ns) AS self_device_ns
FROM ranges
WHERE NOT coalesce(is_mark, 0)
GROUP BY {key}
ORDER BY self_device_ns DESC, self_cpu_ns DESC, count DESC, {key}"""

_BUSY = "kind IN ('kernel', 'memcpy', 'memset', 'graph') AND NOT coalesce(is_overhead, 0)"

_KERNELS = f"""\
SELECT kind,
       name,
       count(*) AS count,
       sum(duration_ns) AS device_ns,
       sum(duration_ns) / count(duration_ns) AS average_device_ns,
       min(duration_ns) AS min_device_ns,
       max(duration_ns) AS max_device_ns
FROM work
WHERE {_BUSY}
GROUP BY kind, name
ORDER BY device_ns DESC, count DESC, kind, name"""

_STREAMS = f"""\
SELECT rank,
       device_id,
       context_id,
       stream_id,
       count(*) AS count,
       sum(duration_ns) AS device_ns,
       min(start_ns) AS first_start_ns,
       max(end_ns) AS last_end_ns
FROM work
WHERE {_BUSY}
GROUP BY rank, device_id, context_id, stream_id
ORDER BY device_ns DESC"""

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
    Summary("op_summary", "Ranges by name, the most device time of their own first.", _OPS),
    Summary("op_shape_summary", "The same, apart by the sizes of the inputs.", _OPS_BY_SHAPE),
    Summary("module_summary", "Ranges by the innermost module around them.", _BY_CONTEXT.format(key="module")),
    Summary("step_summary", "Ranges by the step in which they began.", _BY_CONTEXT.format(key="step")),
    Summary("phase_summary", "Ranges by phase: forward, backward, optimizer, data.", _BY_CONTEXT.format(key="phase")),
    Summary("thread_summary", "Ranges by thread.", _THREADS),
    Summary("call_summary", "Calls into libraries by function.", _CALLS),
    Summary("kernel_summary", "What ran on devices by kind and name.", _KERNELS),
    Summary("stream_summary", "What ran on devices by stream.", _STREAMS),
    Summary("copy_summary", "Copies and fills by direction, with their rate.", _COPIES),
    Summary("kernels_of_ops", "Which kernels the ops of a name and shape ran.", _KERNELS_OF_OPS),
    Summary("work_without_range", "What ran on devices and belongs to no range, by name.", _WORK_WITHOUT_RANGE),
    Summary("backward_of_forward", "Each backward range beside the forward op it is of.", _BACKWARD_OF_FORWARD),
)
