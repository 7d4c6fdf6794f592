"""Lists nsys' tables as data: the columns that are read of each table, and the values of enumerations.

    CUPTI_ACTIVITY_KIND_RUNTIME(start, end, eventClass, globalTid, correlationId, nameId, returnValue, callchainId)

Columns differ from version to version, so these are the columns of all versions: a column that a file lacks is read as
null. docs/formats/nsys.md lists the columns of each version.
"""

from __future__ import annotations

from collections.abc import Mapping

from opspan.formats.columns import Columns, enumeration, ints
from opspan.formats.sqlite import Type

# --- ranges

NVTX = "NVTX_EVENTS"
NVTX_COLUMNS: Columns = {**ints("start end eventType globalTid textId domainId"), "text": "text"}
# These columns are mostly empty. A column without any value is left out.
NVTX_EXTRAS: Columns = {
    **ints("endGlobalTid category color uint64Value int64Value uint32Value int32Value jsonTextId"),
    "doubleValue": "float",
    "floatValue": "float",
    "jsonText": "text",
    "binaryData": "bytes",
    "eventId": "int",
}
PAYLOADS = frozenset(NVTX_EXTRAS) - {"endGlobalTid", "category", "color"}

# Name in ENUM_NSYS_EVENT_TYPE -> number, for files without that table.
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
# The program itself reported Nvtx events. Nvtxt events were imported from text files.
RANGES = ("NvtxPushPopRange", "NvtxStartEndRange", "NvtxtPushPopRange", "NvtxtStartEndRange")
ASYNC_RANGES = ("NvtxStartEndRange", "NvtxtStartEndRange")
MARKS = ("NvtxMark", "NvtxtMark")
THREADS = ("NvtxThread", "NvtxtMetaThread")
CATEGORIES = ("NvtxCategory", "NvtxtCategory")
DOMAINS = ("NvtxDomainCreate",)

# --- calls: any table with all of CALL_COLUMNS and one of CALL_NAMES is a table of calls

CALL_COLUMNS: Columns = ints("start end globalTid")
CALL_NAMES = ("nameId", "textId")
# A table of calls may have more columns than these. The other columns go into payload_json.
CALL_KNOWN = frozenset("start end globalTid nameId textId eventClass correlationId returnValue callchainId".split())

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
RUNTIME_COLUMNS: Columns = {**CALL_COLUMNS, **ints("nameId eventClass correlationId returnValue")}
GRAPH_TABLES = ("CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS")
GRAPH_COLUMNS: Columns = ints(
    "start end globalTid nameId graphNodeId originalGraphNodeId graphId originalGraphId graphExecId"
)

# The first pattern that matches a table's name gives its API. "" means that the API is the text in the pattern's group.
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
# Rows of this class repeat calls, with the same correlation ids, only to attach call chains.
BACKTRACES = 67

# Tables that look like tables of calls but are not.
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

# While the table in a key is translated, the tables in its value are read in the background. These three tables
# are the largest of most files.
AHEAD: Mapping[str, Mapping[str, Columns]] = {NVTX: {RUNTIME: RUNTIME_COLUMNS, KERNEL: KERNEL_COLUMNS}}

# --- values of enumerations, for old files without tables of these values


COPY_KINDS = enumeration(
    "Unknown, HtoD, DtoH, HtoA, AtoH, AtoA, AtoD, DtoA, DtoD, HtoH, PtoP, Unified HtoD, Unified DtoH, Unified DtoD"
)
MEMORY_KINDS = enumeration("pageable, pinned, device, array, managed, device static, managed static, unknown")
ACCESS_KINDS = enumeration("unknown, read, write, atomic, prefetch")
POOL_OPERATIONS = enumeration("pool, pool created, pool destroyed, pool trimmed")
OVERHEAD_KINDS = enumeration(
    "Undefined, Unknown, Driver JIT compiler (CUDA), Buffer flush (Profiler), Instrumentation (Profiler), "
    "Resource creation/destruction (Profiler), Runtime module loading (CUDA), Lazy function loading (CUDA), "
    "Command buffer full (CUDA)"
)

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
SAMPLE_STACK_COLUMNS: Columns = ints("id symbol module stackDepth")

METRICS = "GPU_METRICS"
METRIC_COLUMNS: Columns = {**ints("timestamp typeId metricId"), "value": "float"}
METRIC_NAMES = "TARGET_INFO_GPU_METRICS"
METRIC_NAME_COLUMNS: Columns = {**ints("typeId metricId"), "metricName": "text"}

# --- tables that describe the file and its machine: never counted as skipped

DESCRIPTIONS = (
    "StringIds|ThreadNames|PROCESSES|ProcessStreams|EXPORT_META_DATA|META_DATA_.*|TARGET_INFO_.*|ANALYSIS_(DETAILS|FILE)"
    "|ENUM_.*|NVTX_(PAYLOAD_.*|SCOPES|EXPORT_TRANSLATION)|DYNAMIC_NVTXPAYLOAD_.*|NIC_ID_MAP|UnwindMethodType"
    "|DomainStrings|MemcpyOperationStrings|sqlite_.*|GENERIC_EVENT_(SOURCES|TYPES)"
)
