"""VTune's tables as data: which columns are read of which, and what refers to what. Nothing is read here.

    task_data(start_tsc, end_tsc, count, attr, __bucket_idx)    attr -> dd_task -> dd_task_type -> dd_domain
                                                                __bucket_idx -> dd_band -> dd_thread -> dd_process

A reference is the row id of the other table; NULL, and -1 where row ids begin at 0, are none. Columns came and went
between versions (docs/formats/vtune.md): one that a file has not reads as null.
"""

from __future__ import annotations

from collections.abc import Mapping

from opspan.formats.sqlite import ROWID, Type

Columns = Mapping[str, Type]


def ints(names: str) -> dict[str, Type]:
    return dict.fromkeys(names.split(), "int")


# --- what a file says of itself

REFERENCES = "_schema_refs"  # ('region_data.attr', 'dd_region')
REFERENCES_COLUMNS: Columns = {"path": "text", "ref": "text"}
INSTANCES = "_schema_instance_tables"  # those of what happened
INSTANCES_COLUMNS: Columns = {"name": "text"}

# --- what happened: all have these columns

TASKS, FRAMES, REGIONS = "task_data", "frame_data", "region_data"
MARKERS = ("marker_global_data", "marker_data")
CPU_USAGE = "cpu_usage_data"
ELAPSED = ("global_elapsed_time_data", "elapsed_time_data")  # how long the collection took: of all, of each process
INSTANCE_COLUMNS: Columns = ints("start_tsc end_tsc attr __bucket_idx")

# --- what happened, in two tables under a view: a band has the rows of data from data_start_rowid to data_end_rowid

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

# --- what it was

TASK = "dd_task"
TASK_COLUMNS: Columns = {**ints(f"{ROWID} type"), "parameter": "text"}
TASK_TYPE = "dd_task_type"
FRAME = "dd_frame"
FRAME_COLUMNS: Columns = ints(f"{ROWID} instance type domain")
FRAME_TYPE = "dd_frame_type"
REGION_INSTANCE = "dd_region_instance"
REGION_INSTANCE_COLUMNS: Columns = {**ints(f"{ROWID} region"), "parameter": "text"}
REGION = "dd_region"
REGION_COLUMNS: Columns = ints(f"{ROWID} type domain process")
REGION_TYPE = "dd_region_type"
REGION_TYPE_COLUMNS: Columns = {**ints(f"{ROWID} type_name"), "name": "text"}  # 2013 has the name, later ones refer
REGION_TYPE_NAME = "dd_region_type_name"
MARKER = "dd_marker"
MARKER_COLUMNS: Columns = {**ints(f"{ROWID} type"), "parameter": "text"}
MARKER_TYPE = "dd_marker_type"
COUNTER = "dd_counter"
COUNTER_COLUMNS: Columns = ints(f"{ROWID} type")
COUNTER_TYPE = "dd_counter_type"
USAGE = "dd_cpu_usage"
USAGE_COLUMNS: Columns = {ROWID: "int", "value": "float"}

NAME_COLUMNS: Columns = {ROWID: "int", "name": "text"}
NAME_IN_DOMAIN_COLUMNS: Columns = {**ints(f"{ROWID} domain"), "name": "text"}
DOMAIN = "dd_domain"
# A name of VTune's own begins with this.
BUILTIN = "%"
# Where tasks are that the program gave no domain.
NO_DOMAIN = "%User"

# --- where

BAND = "dd_band"
OWNER_COLUMNS: Columns = ints(f"{ROWID} dd_thread")
THREAD = "dd_thread"
THREAD_COLUMNS: Columns = {**ints(f"{ROWID} thread_id process ignored"), "user_name": "text", "name": "text"}
PROCESS = "dd_process"
PROCESS_COLUMNS: Columns = {**ints(f"{ROWID} pid start_tsc end_tsc"), "name": "text"}

# --- samples

SAMPLE = "dd_sample"
SAMPLE_COLUMNS: Columns = ints(f"{ROWID} event_type cpu callsite")
EVENT_TYPE = "dd_sample_event_type"
EVENT_TYPE_COLUMNS: Columns = {**ints(f"{ROWID} events_per_sample"), "name": "text"}  # 2013: a name, later a reference
EVENT_NAME = "dd_sample_event_name"
EVENT_NAME_COLUMNS: Columns = {ROWID: "int", "value": "text"}
PROCESSOR = "dd_hw_context"
CALLSITE = "dd_callsite"
CALLSITE_COLUMNS: Columns = ints(f"{ROWID} code_loc parent parent_raw")
CODE = "dd_code_location"
CODE_COLUMNS: Columns = ints(f"{ROWID} func_range")
FUNCTION_RANGE = "dd_function_range"
FUNCTION_RANGE_COLUMNS: Columns = ints(f"{ROWID} func_inst")
FUNCTION_INSTANCE = "dd_function_instance"
FUNCTION_INSTANCE_COLUMNS: Columns = ints(f"{ROWID} function type")
LOOP = 2  # a type of function instance
FUNCTION = "dd_function"

# --- the result itself

CONTEXT = "dd_context_value"
CONTEXT_COLUMNS: Columns = {"key": "text", "value": "text"}
MARKER_INFO = "dd_marker_info"
MARKER_INFO_COLUMNS: Columns = ints("utc_time sys_tsc sys_frequency")
NODE = "dd_hw_node"
NODE_COLUMNS: Columns = {"machine_name": "text"}
SYSTEM = "dd_os_info"
SYSTEM_COLUMNS: Columns = {"name": "text", "kernel_release": "text"}

# Dimensions that hold events which nothing refers to in any file seen: counted as skipped.
UNREAD_DIMENSIONS = frozenset({"dd_compute_task"})
# What VTune makes of other tables, or keeps of its own work; and what describes.
DERIVED_PREFIXES = ("_", "sqlite_", "temp")
DERIVED_SUFFIX = "TempTable"
DIMENSIONS = "dd_"
PARTS_OF_VIEWS = (data(""), bands(""))


def is_event(table: str) -> bool:
    """Whether a table is of events, as far as its name tells."""
    if table.startswith(DERIVED_PREFIXES) or table.endswith(DERIVED_SUFFIX):
        return False
    return table.endswith(PARTS_OF_VIEWS) or not table.startswith(DIMENSIONS)
