"""nvprof's tables as data: which columns are read of which table, and what each stands for. Nothing is read here.

    CUPTI_ACTIVITY_KIND_RUNTIME(_id_, cbid, start, end, processId, threadId, correlationId, returnValue)

Columns were only ever appended from version to version, so these are the columns of all versions: one that a file has
not reads as null. docs/formats/nvprof.md says which came when. The numbers are those of CUPTI's enumerations.
"""

from __future__ import annotations

from collections.abc import Mapping

from opspan.formats.sqlite import Type

Columns = Mapping[str, Type]


def ints(names: str) -> dict[str, Type]:
    return dict.fromkeys(names.split(), "int")


def activity(kind: str) -> str:
    return f"CUPTI_ACTIVITY_KIND_{kind}"


STRINGS = "StringTable"
STRING_COLUMNS: Columns = {"_id_": "int", "value": "text"}
VERSION = "Version"
VERSION_COLUMNS: Columns = ints("version")

# Which process or thread, or which device, context and stream: objectId is a blob of three little-endian u32.
PROCESS, THREAD = 1, 2
OWNER_COLUMNS: Columns = {"objectKind": "int", "objectId": "bytes"}

# --- ranges

MARKER = activity("MARKER")
MARKER_COLUMNS: Columns = {**ints("flags timestamp id name domain"), **OWNER_COLUMNS}
MARK, START, END = 1, 2, 4  # bits of flags; 8 to 64 are of locks

MARKER_DATA = activity("MARKER_DATA")
MARKER_DATA_COLUMNS: Columns = {**ints("flags id payloadKind color category"), "payload": "bytes"}
HAS_COLOR = 2
DOUBLE, UINT64, PERCENT, THROUGHPUT, INT64 = 0, 1, 2, 3, 4  # kinds of payloads

# --- calls

RUNTIME, DRIVER = activity("RUNTIME"), activity("DRIVER")
CALL_COLUMNS: Columns = ints("cbid start end processId threadId correlationId returnValue")

# --- work

# Kernels are in the second with --metrics or --concurrent-kernels off, in the third if a kernel launched them.
KERNELS = (activity("CONCURRENT_KERNEL"), activity("KERNEL"), activity("CDP_KERNEL"))
MEMCPY, PEER_MEMCPY = activity("MEMCPY"), activity("MEMCPY2")
MEMSET = activity("MEMSET")
SYNC = activity("SYNCHRONIZATION")
OVERHEAD = activity("OVERHEAD")

_ON_DEVICE: dict[str, Type] = {**ints("start end contextId streamId correlationId"), "deviceId": "int32"}
_OF_GRAPH = ints("graphNodeId graphId")  # 0: none
KERNEL_COLUMNS: Columns = {
    **_ON_DEVICE,
    **_OF_GRAPH,
    **ints("name staticSharedMemory dynamicSharedMemory"),
    **dict.fromkeys("gridX gridY gridZ blockX blockY blockZ registersPerThread".split(), "int32"),
}
MEMCPY_COLUMNS: Columns = {**_ON_DEVICE, **_OF_GRAPH, **ints("bytes copyKind srcKind dstKind")}
PEER_MEMCPY_COLUMNS: Columns = {**MEMCPY_COLUMNS, **dict.fromkeys(("srcDeviceId", "dstDeviceId"), "int32")}
MEMSET_COLUMNS: Columns = {**_ON_DEVICE, **_OF_GRAPH, **ints("bytes memoryKind")}
SYNC_COLUMNS: Columns = ints("start end contextId streamId correlationId type")
OVERHEAD_COLUMNS: Columns = {**ints("start end overheadKind"), **OWNER_COLUMNS}

# What the column on the device is called in the table work
WORK_NAMES = {
    "deviceId": "device_id",
    "contextId": "context_id",
    "streamId": "stream_id",
    "correlationId": "correlation_id",
    "graphNodeId": "graph_node_id",
    "graphId": "graph_id",
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
}
MEMORY_KINDS = {
    0: "unknown",
    1: "pageable",
    2: "pinned",
    3: "device",
    4: "array",
    5: "managed",
    6: "device static",
    7: "managed static",
}
SYNC_KINDS = {0: "Unknown", 1: "Event sync", 2: "Stream wait", 3: "Stream sync", 4: "Context sync"}
OVERHEAD_KINDS = {
    0: "Unknown",
    1: "Driver JIT compiler (CUDA)",
    1 << 16: "Buffer flush (Profiler)",
    2 << 16: "Instrumentation (Profiler)",
    3 << 16: "Resource creation/destruction (Profiler)",
    4 << 16: "Runtime module loading (CUDA)",
    5 << 16: "Lazy function loading (CUDA)",
    6 << 16: "Command buffer full (CUDA)",
}

# --- memory

UNIFIED = activity("UNIFIED_MEMORY_COUNTER")
UNIFIED_COLUMNS: Columns = {
    **ints("counterKind value start end address processId"),
    **dict.fromkeys(("srcId", "dstId"), "int32"),
}

# --- devices and names

DEVICE = activity("DEVICE")
DEVICE_COLUMNS: Columns = {
    **ints("id name globalMemoryBandwidth globalMemorySize coreClockRate computeCapabilityMajor"),
    **ints("computeCapabilityMinor numMultiprocessors"),
    "uuid": "bytes",
}
CONTEXT = activity("CONTEXT")
CONTEXT_COLUMNS: Columns = {**ints("contextId nullStreamId"), "deviceId": "int32"}
STREAM = activity("STREAM")
STREAM_COLUMNS: Columns = ints("contextId streamId priority flag")

NAME = activity("NAME")
NAME_COLUMNS: Columns = {**OWNER_COLUMNS, "name": "int"}

# What describes the file and its machine: never counted as skipped
DESCRIPTIONS = frozenset({STRINGS, VERSION, activity("PCIE"), activity("NVLINK"), activity("DEVICE_ATTRIBUTE")})
