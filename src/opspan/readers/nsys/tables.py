"""nsys' tables as data: which columns are read of which table, and what each stands for. Nothing is read here.

    CUPTI_ACTIVITY_KIND_RUNTIME(start, end, eventClass, globalTid, correlationId, nameId, returnValue, callchainId)

Columns come and go from version to version, so these are the columns of all versions: one that a file has not reads as
null. docs/formats/nsys.md says what was seen in which version.
"""

from __future__ import annotations

from collections.abc import Mapping

from opspan.formats.sqlite import Type

Columns = Mapping[str, Type]


def ints(names: str) -> dict[str, Type]:
    return dict.fromkeys(names.split(), "int")


# --- ranges

NVTX = "NVTX_EVENTS"
NVTX_COLUMNS: Columns = {**ints("start end eventType globalTid textId domainId"), "text": "text"}
# Mostly empty: read only where there is anything in them.
NVTX_EXTRAS: Columns = {
    **ints("endGlobalTid category color uint64Value int64Value uint32Value int32Value jsonTextId"),
    "doubleValue": "float",
    "floatValue": "float",
    "jsonText": "text",
    "binaryData": "bytes",
    "eventId": "int",
}
# Payloads are in these columns.
PAYLOADS = frozenset(NVTX_EXTRAS) - {"endGlobalTid", "category", "color"}

# Names of ENUM_NSYS_EVENT_TYPE and the numbers they have where a file has no such table.
EVENT_TYPES = {
    "NvtxCategory": 33,
    "NvtxMark": 34,
    "NvtxThread": 39,
    "NvtxPushPopRange": 59,
    "NvtxStartEndRange": 60,
    "NvtxtCategory": 64,
    "NvtxtMark": 65,
    "NvtxtPushPopRange": 70,
    "NvtxtStartEndRange": 71,
    "NvtxtMetaThread": 72,
    "NvtxDomainCreate": 75,
    "NvtxDomainDestroy": 76,
}
# Imported from text files (Nvtxt) or reported by the program.
RANGES = ("NvtxPushPopRange", "NvtxStartEndRange", "NvtxtPushPopRange", "NvtxtStartEndRange")
ASYNC_RANGES = ("NvtxStartEndRange", "NvtxtStartEndRange")
MARKS = ("NvtxMark", "NvtxtMark")
THREADS = ("NvtxThread", "NvtxtMetaThread")
CATEGORIES = ("NvtxCategory", "NvtxtCategory")
DOMAINS = ("NvtxDomainCreate",)

# --- calls: any table that has these and a name is a table of calls

CALL_COLUMNS: Columns = ints("start end globalTid")
CALL_NAMES = ("nameId", "textId")
# Beside these, what a table of calls has goes into payload_json.
CALL_KNOWN = frozenset("start end globalTid nameId textId eventClass correlationId returnValue callchainId".split())

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
RUNTIME_COLUMNS: Columns = {**CALL_COLUMNS, **ints("nameId eventClass correlationId returnValue")}
GRAPH_TABLES = ("CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS")
GRAPH_COLUMNS: Columns = ints(
    "start end globalTid nameId graphNodeId originalGraphNodeId graphId originalGraphId graphExecId"
)

# The first that matches says whose functions a table's are; no match: the name of the table itself.
APIS = (
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "cuda"),
    ("CUDA_GRAPH(_NODE)?_EVENTS", "cuda_graph"),
    ("CUPTI_ACTIVITY_KIND_OPENACC", "openacc"),
    ("OPENMP_", "openmp"),
    ("MPI_", "mpi"),
    ("UCP_", "ucx"),
    ("TRACE_PROCESS_EVENT_(.*)", ""),
    ("(.*?)(_API|_EVENTS?)?$", ""),
)
RUNTIME_CLASSES = {0: "cuda_runtime", 1: "cuda_driver", 67: "cuda_backtrace"}
# The same calls once more, under the same correlation ids, to hang call chains on.
BACKTRACES = 67

# They look like calls and are not.
NOT_CALLS = frozenset({NVTX, "PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD", "KHR_DEBUG_EVENTS"})

# --- work

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
OVERHEAD_TABLES = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")

_ON_DEVICE: dict[str, Type] = {
    **ints("start end contextId streamId correlationId globalPid graphNodeId"),
    "deviceId": "int32",
}
KERNEL_COLUMNS: Columns = {
    **_ON_DEVICE,
    **ints("shortName demangledName staticSharedMemory dynamicSharedMemory"),
    **dict.fromkeys("gridX gridY gridZ blockX blockY blockZ registersPerThread".split(), "int32"),
}
MEMCPY_COLUMNS: Columns = {
    **_ON_DEVICE,
    **ints("bytes copyKind srcKind dstKind"),
    **dict.fromkeys(("srcDeviceId", "dstDeviceId"), "int32"),
}
MEMSET_COLUMNS: Columns = {**_ON_DEVICE, **ints("bytes memKind")}
SYNC_COLUMNS: Columns = {**_ON_DEVICE, **ints("syncType")}
GRAPH_TRACE_COLUMNS: Columns = {**_ON_DEVICE, **ints("graphId graphExecId")}
OVERHEAD_COLUMNS: Columns = ints("start end globalTid nameId correlationId overheadType")

# What the column on the device is called in the table work
WORK_NAMES = {
    "deviceId": "device_id",
    "contextId": "context_id",
    "streamId": "stream_id",
    "correlationId": "correlation_id",
    "graphNodeId": "graph_node_id",
    "graphId": "graph_id",
    "graphExecId": "graph_exec_id",
    "gridX": "grid_x",
    "gridY": "grid_y",
    "gridZ": "grid_z",
    "blockX": "block_x",
    "blockY": "block_y",
    "blockZ": "block_z",
    "registersPerThread": "registers",
    "staticSharedMemory": "static_shared_bytes",
    "dynamicSharedMemory": "dynamic_shared_bytes",
}

# The tables that mostly have the most rows, in the order they are asked for: while one is translated those after it are
# read.
AHEAD: Mapping[str, Mapping[str, Columns]] = {NVTX: {RUNTIME: RUNTIME_COLUMNS, KERNEL: KERNEL_COLUMNS}}

# --- enumerations that old files have no table for

COPY_KINDS = {
    0: "Unknown",
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "Unified HtoD",
    12: "Unified DtoH",
    13: "Unified DtoD",
}
MEMORY_KINDS = {
    0: "pageable",
    1: "pinned",
    2: "device",
    3: "array",
    4: "managed",
    5: "device static",
    6: "managed static",
    7: "unknown",
}
SYNC_KINDS = {0: "Unknown", 1: "Event sync", 2: "Stream wait", 3: "Stream sync", 4: "Context sync"}
ACCESS_KINDS = {0: "unknown", 1: "read", 2: "write", 3: "atomic", 4: "prefetch"}
POOL_OPERATIONS = {0: "pool", 1: "pool created", 2: "pool destroyed", 3: "pool trimmed"}
OVERHEAD_KINDS = {
    0: "Undefined",
    1: "Unknown",
    2: "Driver JIT compiler (CUDA)",
    3: "Buffer flush (Profiler)",
    4: "Instrumentation (Profiler)",
    5: "Resource creation/destruction (Profiler)",
    6: "Runtime module loading (CUDA)",
    7: "Lazy function loading (CUDA)",
    8: "Command buffer full (CUDA)",
}

# --- memory, samples, counters

MEMORY_USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
MEMORY_USAGE_COLUMNS: Columns = {
    **ints("start globalPid deviceId address bytes memKind memoryOperationType correlationId"),
    **ints("localMemoryPoolUtilizedSize"),
    "name": "text",
}
MEMORY_POOL = "CUDA_GPU_MEMORY_POOL_EVENTS"
MEMORY_POOL_COLUMNS: Columns = ints(
    "start globalPid deviceId address operationType correlationId localMemoryPoolSize localMemoryPoolUtilizedSize"
)
CPU_FAULTS = "CUDA_UM_CPU_PAGE_FAULT_EVENTS"
CPU_FAULT_COLUMNS: Columns = ints("start globalPid address CpuInstruction")
GPU_FAULTS = "CUDA_UM_GPU_PAGE_FAULT_EVENTS"
GPU_FAULT_COLUMNS: Columns = ints("start end globalPid deviceId address numberOfPageFaults faultAccessType")

SAMPLES = "COMPOSITE_EVENTS"
SAMPLE_COLUMNS: Columns = ints("id start cpu globalTid cpuCycles")
SAMPLE_STACKS = "SAMPLING_CALLCHAINS"
SAMPLE_STACK_COLUMNS: Columns = ints("id symbol stackDepth")

METRICS = "GPU_METRICS"
METRIC_COLUMNS: Columns = {**ints("timestamp typeId metricId"), "value": "float"}
METRIC_NAMES = "TARGET_INFO_GPU_METRICS"
METRIC_NAME_COLUMNS: Columns = {**ints("typeId metricId"), "metricName": "text"}

# --- what describes the file and its machine: never counted as skipped

DESCRIPTIONS = (
    "StringIds|ThreadNames|PROCESSES|ProcessStreams|EXPORT_META_DATA|META_DATA_.*|TARGET_INFO_.*|ANALYSIS_(DETAILS|FILE)"
    "|ENUM_.*|NVTX_(PAYLOAD_.*|SCOPES|EXPORT_TRANSLATION)|DYNAMIC_NVTXPAYLOAD_.*|NIC_ID_MAP|UnwindMethodType"
    "|DomainStrings|MemcpyOperationStrings|sqlite_.*|GENERIC_EVENT_(SOURCES|TYPES)"
)
