"""What the columns of a trace are called in the Chrome traces that opspan writes (views/chrome.py) and reads back
(readers/kineto/exported.py). Where torch.profiler has a name for the same thing, it is that one.

    {"opspan": {"version": 1, "zero_ns": 5000}, "opspanTables": {"ranks": [...], "threads": {...}, ...},
     "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", ..., "args": {"range": 12, ...}}, ...]}

The first key of each table's says which table the event is a row of, and holds the number of the row.
"""

from __future__ import annotations

from opspan.tables import schema

VERSION = 1
MARK, TABLES = "opspan", "opspanTables"  # members of the file
ENDED, NOT_ENDED = "Ended", "no"  # of a range, call or work that was open at the end: it is drawn until there
OVERLAPS = "Overlaps"  # is there where a range is drawn apart, and was not reported as async
API = "API"  # of a call whose category is another: the one that torch.profiler has for it
UNNAMED = "Unnamed"  # is there where the name of the event is none of the row's

CYCLES = "cycles"  # of a trace that has some, beside the tables: when each began
# Tables that are no events: held as a whole.
WHOLE = ("relations", "threads", "processes", "devices", "metrics", "issues")

RANGES = {
    "id": "range",
    "kind": "Kind",
    "op_id": "Record function id",
    "seq": "Sequence number",
    "forward_tid": "Fwd thread id",
    "sizes": "Input Dims",
    "input_types": "Input type",
    "input_strides": "Input Strides",
    "inputs": "Concrete Inputs",
    "class_name": "Class",
    "args": "Args",
    "source": "Source",
    "domain": "Domain",
    "category": "Category",
    "color": "Color",
    "payload_int": "Payload",
    "payload_uint": "Payload without sign",
    "payload_float": "Payload as real number",
    "payload_json": "Data",
    "text": "Text",
    "input_op_ids": "Input op ids",
    "parent_id": "Parent range",
    "end_tid": "Ended on thread",
}
CALLS = {
    "id": "call",
    "correlation_id": "correlation",
    "return_code": "result",
    "graph_node_id": "graph node id",
    "original_graph_node_id": "original graph node id",
    "graph_id": "graph id",
    "original_graph_id": "original graph id",
    "graph_exec_id": "graph exec id",
    "payload_json": "Data",
}
WORK = {
    "id": "work",
    "kind": "Kind",
    "name": "Short name",
    "pid": "process",
    "tid": "thread",
    "device_id": "device",
    "context_id": "context",
    "stream_id": "stream",
    "correlation_id": "correlation",
    "named_range_id": "Named range",
    "graph_id": "graph id",
    "graph_exec_id": "graph exec id",
    "graph_node_id": "graph node id",
    "bytes": "bytes",
    "copy_from": "copy from",
    "copy_to": "copy to",
    "peer_device_id": "peer device",
    "registers": "registers per thread",
    "static_shared_bytes": "static shared memory",
    "dynamic_shared_bytes": "dynamic shared memory",
    "payload_json": "Data",
}
LISTS = ("sizes", "input_types", "input_strides", "inputs")  # of ranges: columns whose texts are JSON lists
SIZES = {"grid": "grid", "block": "block"}  # of work: three columns each
FUNCTIONS = {"id": "Python id", "parent_id": "Python parent id", "payload_json": "Data"}
MEMORY = {
    "row": "memory",
    "event": "Event",
    "bytes": "Bytes",
    "address": "Addr",
    "device_id": "Device Id",
    "total_bytes": "Total Allocated",
    "kind": "Kind",
    "name": "Name",
    "correlation_id": "correlation",
    "count": "Count",
    "payload_json": "Data",
    "end_ns": "Ended after ns",
}
# What of a row is in its event itself, or in several keys.
_PLACE = {"rank", "pid", "tid", "start_ns", "end_ns", "name"}
_IN_THE_EVENT = {
    "ranges": _PLACE | {"is_async", "is_mark"},
    "calls": _PLACE | {"api"},
    "work": {"rank", "start_ns", "end_ns", "full_name", "is_overhead"}
    | {f"{of}_{axis}" for of in SIZES for axis in "xyz"},
    "functions": _PLACE,
    "memory": {"rank", "pid", "tid", "time_ns"},
}
# No payload may have these keys, whichever table the event is a row of.
OTHERS = (ENDED, OVERLAPS, UNNAMED, API, "range", "call", "work", "memory", "Python id")


def _with_others(table: str, keys: dict[str, str]) -> dict[str, str]:
    """A column that has no key here has its own name, so that none is lost."""
    others = [name for name in schema.TABLES[table].schema if name not in keys and name not in _IN_THE_EVENT[table]]
    return {**keys, **{name: name for name in others}}


EVENTS = {
    "ranges": _with_others("ranges", RANGES),
    "calls": _with_others("calls", CALLS),
    "work": _with_others("work", WORK),
    "functions": _with_others("functions", FUNCTIONS),
    "memory": _with_others("memory", MEMORY),
}
