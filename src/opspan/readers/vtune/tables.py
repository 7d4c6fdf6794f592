"""Lists VTune's tables as data: the columns that are read of each table, and the references between tables.

    task_data(start_tsc, end_tsc, count, attr, __bucket_idx)    attr -> dd_task -> dd_task_type -> dd_domain
                                                                __bucket_idx -> dd_band -> dd_thread -> dd_process

A reference is the row id in the other table. NULL means none; in a file whose row ids begin at 0, -1 means none too.
Columns differ between versions (docs/formats/vtune.md): a column that a file lacks is read as null.
"""

from __future__ import annotations

from opspan.formats.columns import Columns, ints
from opspan.formats.sqlite import ROWID

# --- the file's lists of references and event tables

REFERENCES = "_schema_refs"  # a row is, for example, ('region_data.attr', 'dd_region')
REFERENCES_COLUMNS: Columns = {"path": "text", "ref": "text"}
INSTANCES = "_schema_instance_tables"  # the file's list of the tables of events
INSTANCES_COLUMNS: Columns = {"name": "text"}

# --- events in one table: all have INSTANCE_COLUMNS

TASKS, FRAMES, REGIONS = "task_data", "frame_data", "region_data"
MARKERS = ("marker_global_data", "marker_data")
CPU_USAGE = "cpu_usage_data"
ELAPSED = ("global_elapsed_time_data", "elapsed_time_data")  # duration of the collection, in total and per process
INSTANCE_COLUMNS: Columns = ints("start_tsc end_tsc attr __bucket_idx")

# --- events in two tables under a view: a row of `bands` has the times and the thread of some rows of `data` (from
# data_start_rowid to data_end_rowid)

SAMPLES = ("cpu_data", "pmu_data")
COUNTERS = "counter_data"
BAND_COLUMNS: Columns = ints("start_tsc end_tsc data_start_rowid data_end_rowid __bucket_idx")
DATA_COLUMNS: Columns = ints(f"{ROWID} duration count attr")


def bands(view: str) -> str:
    return f"{view}_agg_band"


def data(view: str) -> str:
    return f"{view}_agg_data"


PAUSED = "dd_paused_range"
PAUSED_COLUMNS: Columns = ints("start_tsc end_tsc")

# --- details of events: tasks, frames, regions, markers, counters

TASK = "dd_task"
DETAILS_COLUMNS: Columns = {**ints(f"{ROWID} type"), "parameter": "text"}  # columns of dd_task and dd_marker
TASK_TYPE = "dd_task_type"
FRAME = "dd_frame"
FRAME_COLUMNS: Columns = ints(f"{ROWID} instance type domain")
FRAME_TYPE = "dd_frame_type"
REGION_INSTANCE = "dd_region_instance"
REGION_INSTANCE_COLUMNS: Columns = {**ints(f"{ROWID} region"), "parameter": "text"}
REGION = "dd_region"
REGION_COLUMNS: Columns = ints(f"{ROWID} type domain process")
REGION_TYPE = "dd_region_type"
REGION_TYPE_COLUMNS: Columns = {
    **ints(f"{ROWID} type_name"),
    "name": "text",
}  # version 2013 has `name`, later versions have the reference `type_name`
REGION_TYPE_NAME = "dd_region_type_name"
MARKER = "dd_marker"
MARKER_TYPE = "dd_marker_type"
COUNTER = "dd_counter"
COUNTER_COLUMNS: Columns = ints(f"{ROWID} type")
COUNTER_TYPE = "dd_counter_type"
USAGE = "dd_cpu_usage"
USAGE_COLUMNS: Columns = {ROWID: "int", "value": "float"}

NAME_COLUMNS: Columns = {ROWID: "int", "name": "text"}
NAME_IN_DOMAIN_COLUMNS: Columns = {**ints(f"{ROWID} domain"), "name": "text"}
DOMAIN = "dd_domain"
BUILTIN = "%"  # the prefix of VTune's own names
OWN_DOMAIN = "VTune"  # the domain of counters that VTune made itself
NO_DOMAIN = "%User"  # the domain of tasks that the program created without a domain

# --- bands, threads and processes

BAND = "dd_band"
OWNER_COLUMNS: Columns = ints(f"{ROWID} dd_thread")
THREAD = "dd_thread"
THREAD_COLUMNS: Columns = {**ints(f"{ROWID} thread_id process ignored"), "user_name": "text", "name": "text"}
PROCESS = "dd_process"
PROCESS_COLUMNS: Columns = {**ints(f"{ROWID} pid start_tsc end_tsc"), "name": "text"}

# --- samples

SAMPLE = "dd_sample"
SAMPLE_COLUMNS: Columns = ints(f"{ROWID} event_type cpu callsite uncore_event_type")
EVENT_TYPE = "dd_sample_event_type"
EVENT_TYPE_COLUMNS: Columns = {
    **ints(f"{ROWID} events_per_sample"),
    "name": "text",
}  # `name` holds the name in version 2013, and a reference in later versions
EVENT_NAME = "dd_sample_event_name"
EVENT_NAME_COLUMNS: Columns = {ROWID: "int", "value": "text"}
UNCORE_TYPE = "dd_uncore_event_type"
UNCORE_TYPE_COLUMNS: Columns = {**ints(f"{ROWID} unit"), "name": "text"}
UNCORE_UNIT = "dd_uncore_event_unit"
PROCESSOR = "dd_hw_context"
CALLSITE = "dd_callsite"
CALLSITE_COLUMNS: Columns = ints(f"{ROWID} code_loc parent parent_raw")
CODE = "dd_code_location"
CODE_COLUMNS: Columns = ints(f"{ROWID} func_range mod_seg")
FUNCTION_RANGE = "dd_function_range"
FUNCTION_RANGE_COLUMNS: Columns = ints(f"{ROWID} func_inst")
FUNCTION_INSTANCE = "dd_function_instance"
FUNCTION_INSTANCE_COLUMNS: Columns = ints(f"{ROWID} function type")
LOOP = 2  # the type of a function instance that is a loop
FUNCTION = "dd_function"
SEGMENT = "dd_module_segment"
SEGMENT_COLUMNS: Columns = ints(f"{ROWID} mod_file")
MODULE = "dd_module_file"
MODULE_COLUMNS: Columns = {ROWID: "int", "bin_path": "text", "bin_name": "text"}

# --- waits

WAITS = "wait_data"
WAIT = "dd_wait"
WAIT_COLUMNS: Columns = ints(f"{ROWID} sync_object signal_cs wait_cs thread_state")
SYNC_OBJECT = "dd_sync_object"
SYNC_OBJECT_COLUMNS: Columns = {**ints(f"{ROWID} type"), "name": "text"}
SYNC_OBJECT_TYPE = "dd_sync_object_type"
THREAD_STATE = "dd_thread_state"

# --- facts about the result

CONTEXT = "dd_context_value"
CONTEXT_COLUMNS: Columns = {"key": "text", "value": "text"}
MARKER_INFO = "dd_marker_info"
MARKER_INFO_COLUMNS: Columns = ints("utc_time sys_tsc sys_frequency")
PACKAGE = "dd_package"
PACKAGE_COLUMNS: Columns = {"brand_name": "text"}
NODE = "dd_hw_node"
NODE_COLUMNS: Columns = {"machine_name": "text"}
SYSTEM = "dd_os_info"
SYSTEM_COLUMNS: Columns = {"name": "text", "kernel_release": "text"}

# A table of events, although its name begins with dd_ like the names of descriptions. No known file refers to it. Its
# rows count as skipped.
UNREAD_DIMENSIONS = frozenset({"dd_compute_task"})
# A table has no events if its name begins with DERIVED_PREFIXES or ends with DERIVED_SUFFIX: it is derived from other
# tables, or left over from VTune's work. A table whose name begins with DIMENSIONS is a description, and has no events
# either, unless the name ends with PARTS_OF_VIEWS.
DERIVED_PREFIXES = ("_", "sqlite_", "temp")
DERIVED_SUFFIX = "TempTable"
DIMENSIONS = "dd_"
PARTS_OF_VIEWS = (data(""), bands(""))


def is_event(table: str) -> bool:
    """Returns whether the name looks like the name of a table of events."""
    if table.startswith(DERIVED_PREFIXES) or table.endswith(DERIVED_SUFFIX):
        return False
    return table.endswith(PARTS_OF_VIEWS) or not table.startswith(DIMENSIONS)
