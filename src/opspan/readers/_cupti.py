"""CUPTI's names, which the databases of nsys and nvprof share."""

from __future__ import annotations

from opspan.formats.columns import enumeration

# Column of CUPTI's tables -> column of opspan's table `work`.
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

SYNC_KINDS = enumeration("Unknown, Event sync, Stream wait, Stream sync, Context sync")
