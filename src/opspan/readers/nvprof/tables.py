"""Lists nvprof's tables as data: the columns that are read of each table, and the values of enumerations.

    CUPTI_ACTIVITY_KIND_RUNTIME(_id_, cbid, start, end, processId, threadId, correlationId, returnValue)

New versions only added columns, so these are the columns of all versions: a column that a file lacks is read as null.
docs/formats/nvprof.md says which version added which column. The values are from CUPTI's enumerations.
"""

from __future__ import annotations

from opspan.formats.columns import Columns, enumeration, ints
from opspan.formats.sqlite import Type


def activity(kind: str) -> str:
    return f"CUPTI_ACTIVITY_KIND_{kind}"


STRINGS = "StringTable"
STRING_COLUMNS: Columns = {"_id_": "int", "value": "text"}
VERSION = "Version"
VERSION_COLUMNS: Columns = ints("version")

# Kinds of objects. objectId is a blob of three little-endian u32: the process and thread, or the device, context and
# stream.
PROCESS, THREAD = 1, 2
OWNER_COLUMNS: Columns = {"objectKind": "int", "objectId": "bytes"}

# --- ranges

MARKER = activity("MARKER")
MARKER_COLUMNS: Columns = {**ints("flags timestamp id name domain"), **OWNER_COLUMNS}
MARK, START, END = 1, 2, 4  # values of flags; the values 8 to 64 are for locks

MARKER_DATA = activity("MARKER_DATA")
MARKER_DATA_COLUMNS: Columns = {**ints("flags id payloadKind color category"), "payload": "bytes"}
HAS_COLOR = 2
DOUBLE, UINT64, PERCENT, THROUGHPUT, INT64 = 0, 1, 2, 3, 4  # kinds of payloads

# --- calls

RUNTIME, DRIVER = activity("RUNTIME"), activity("DRIVER")
CALL_COLUMNS: Columns = ints("cbid start end processId threadId correlationId returnValue")

# --- work

# With --metrics or --concurrent-kernels off, kernels are in KERNEL. Kernels that a kernel launched are in CDP_KERNEL.
KERNELS = (activity("CONCURRENT_KERNEL"), activity("KERNEL"), activity("CDP_KERNEL"))
MEMCPY, PEER_MEMCPY = activity("MEMCPY"), activity("MEMCPY2")
MEMSET = activity("MEMSET")
SYNC = activity("SYNCHRONIZATION")
OVERHEAD = activity("OVERHEAD")

_ON_DEVICE: dict[str, Type] = {**ints("start end contextId streamId correlationId"), "deviceId": "int32"}
_OF_GRAPH = ints("graphNodeId graphId")  # 0 means no graph
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

COPY_KINDS = enumeration("Unknown, HtoD, DtoH, HtoA, AtoH, AtoA, AtoD, DtoA, DtoD, HtoH, PtoP")
MEMORY_KINDS = enumeration("unknown, pageable, pinned, device, array, managed, device static, managed static")
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

# Tables that describe the file and its machine. They never count as skipped.
DESCRIPTIONS = frozenset({STRINGS, VERSION, activity("PCIE"), activity("NVLINK"), activity("DEVICE_ATTRIBUTE")})
