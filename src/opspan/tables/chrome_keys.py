"""The keys under which the columns of a trace are stored in the Chrome traces that opspan writes (views/chrome.py) and
reads back (readers/kineto/exported.py). If torch.profiler has a key for a column, that key is used.

    {"opspan": {"version": 1, "zero_ns": 5000}, "opspanTables": {"ranks": [...], "threads": {...}, ...},
     "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", ..., "args": {"range": 12, ...}}, ...]}

The first key of each dict below (`range`, `call`, ...) says to which table an event belongs. Its value is the id of the
event's row. Rows of the table `memory` have no ids, so there the value is the number of the row.
"""

from __future__ import annotations

from opspan.tables import schema
from opspan.tables.compiled import COMPILED

VERSION = 1
MARK, TABLES = "opspan", "opspanTables"  # top-level members of the file
# Marks a range, call or work (such as a kernel or a copy) that had not ended when the trace ended. It is drawn until
# the end of the trace.
ENDED, NOT_ENDED = "Ended", "no"
# Marks a range that is drawn on a separate track because it overlaps others, although it was not reported as async.
OVERLAPS = "Overlaps"
API = "API"  # the key for a call's column `api`; written only if the event's category is not the value of `api`
UNNAMED = "Unnamed"  # marks an event whose row has no name

# The payload_json of functions that were derived from the stacks of ops (profiler/sampled_functions.py). These
# functions are not read back.
SAMPLED = '{"sampled": "at ops"}'

CYCLES = "cycles"  # a member of opspanTables that says when each cycle began
# Tables whose rows are not events. The file has their columns under opspanTables.
WHOLE = ("relations", "threads", "processes", "devices", "metrics", *COMPILED, "issues")

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
LISTS = ("sizes", "input_types", "input_strides", "inputs")  # columns of the table ranges that hold JSON lists
SIZES = {"grid": "grid", "block": "block"}  # keys of work that each hold three columns, for x, y and z
REPLAYED = {
    "captured_op": "Captured op",
    "captured_sizes": "Captured sizes",
    "captured_module": "Captured module",
    "replay": "Capture found by",
}
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
# Columns that have no key of their own in args, because the event itself or other keys hold their values.
_PLACE = {"rank", "pid", "tid", "start_ns", "end_ns", "name"}
_IN_THE_EVENT = {
    "ranges": _PLACE | {"is_async", "is_mark"},
    "calls": _PLACE | {"api"},
    # The ops of replayed graphs are not in the file, so replayed_range_id would refer to nothing. Instead, the keys of
    # REPLAYED hold facts about the op.
    "work": {"rank", "start_ns", "end_ns", "full_name", "is_overhead"}
    | {"replayed_range_id", "replay", "is_replay_sure"}
    | {f"{of}_{axis}" for of in SIZES for axis in "xyz"},
    "functions": _PLACE,
    "memory": {"rank", "pid", "tid", "time_ns"},
}
# Keys that opspan writes itself, so a payload must not have them, in any table.
OTHERS = (ENDED, OVERLAPS, UNNAMED, API, "range", "call", "work", "memory", "Python id")


def _with_others(table: str, keys: dict[str, str]) -> dict[str, str]:
    """Adds all other columns that are stored in args, with their names as keys, so that no column is lost."""
    others = [name for name in schema.TABLES[table].schema if name not in keys and name not in _IN_THE_EVENT[table]]
    return {**keys, **{name: name for name in others}}


EVENTS = {
    "ranges": _with_others("ranges", RANGES),
    "calls": _with_others("calls", CALLS),
    "work": _with_others("work", WORK),
    "functions": _with_others("functions", FUNCTIONS),
    "memory": _with_others("memory", MEMORY),
}
