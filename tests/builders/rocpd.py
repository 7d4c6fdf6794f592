"""rocpd databases by hand: both forms, as small as they can be. Nothing here comes from opspan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from builders.sqlite import created

GUIDS = ("00000001-0002-0003-0004-000000000005", "00000001-0002-0003-0004-000000000006")
V3 = {
    "metadata": "id tag value",
    "string": "id guid string",
    "event": "id guid category_id stack_id parent_stack_id correlation_id",
    "info_node": "id guid hostname",
    "info_process": "id guid nid ppid pid command environment",
    "info_thread": "id guid pid tid name",
    "info_agent": "id guid type type_index name product_name",
    "info_kernel_symbol": "id guid kernel_name display_name",
    "region": "id guid nid pid tid start end name_id event_id extdata",
    "kernel_dispatch": "id guid nid pid tid agent_id kernel_id queue_id stream_id start end group_segment_size "
    "grid_size_x grid_size_y grid_size_z workgroup_size_x workgroup_size_y workgroup_size_z event_id",
    "memory_copy": "id guid nid pid tid start end name_id dst_agent_id src_agent_id queue_id stream_id size event_id",
    "memory_allocate": "id guid nid pid tid start end agent_id type address size event_id",
    "pmc_event": "id guid event_id value",
}


def rocprof(path: Path, joined: bool = False, environments: Sequence[object] = ()) -> Path:
    """Two runs of a process each: a marked op that launches a kernel, a copy, an allocation."""
    with closing(created(path)) as database, database:
        for number, guid in enumerate(GUIDS):
            suffix = guid.replace("-", "" if joined else "_")
            rows = {name: [] for name in V3}

            def put(table: str, **values: object) -> int:
                rows[table].append({"id": len(rows[table]) + 1, "guid": guid, **values})  # noqa: B023
                return len(rows[table])  # noqa: B023

            def text(value: str) -> int:
                return put("string", string=value)

            def event(category: str, stack: int) -> int:
                return put("event", category_id=text(category), stack_id=stack)

            put("metadata", tag="schema_version", value="3")
            put("info_node", hostname="box")
            environment = json.dumps(environments[number]) if environments else "{}"
            process = put("info_process", pid=100 + number, ppid=1, command="python train.py", environment=environment)
            thread = put("info_thread", pid=process, tid=200 + number, name="main")
            put("info_agent", type="CPU", type_index=0, name="cpu")
            gpu = put("info_agent", type="GPU", type_index=number, name="gfx942", product_name="MI300X")
            symbol = put("info_kernel_symbol", kernel_name="_Z4gemm.kd", display_name="gemm(float)")
            where = {"pid": process, "tid": thread}

            label = "aten::mm, seq = 3, op_id = 7, sizes = [[2, 4], [4, 2]]"
            marker = event("MARKER_CORE_RANGE_API", 1)
            message = json.dumps({"message": label})
            put(
                "region",
                **where,
                start=1000,
                end=5000,
                name_id=text("roctxThreadRangeA"),
                event_id=marker,
                extdata=message,
            )
            call = event("HIP_RUNTIME_API_EXT", 2)
            put("region", **where, start=2000, end=2100, name_id=text("hipLaunchKernel"), event_id=call, extdata="{}")
            copying = event("HIP_RUNTIME_API_EXT", 3)
            put("region", **where, start=6000, end=6900, name_id=text("hipMemcpy"), event_id=copying, extdata="{}")
            grid = {"grid_size_x": 1000, "grid_size_y": 1, "grid_size_z": 1}
            group = {"workgroup_size_x": 256, "workgroup_size_y": 1, "workgroup_size_z": 1}
            launched = event("KERNEL_DISPATCH", 2)
            on = {"agent_id": gpu, "kernel_id": symbol, "queue_id": 1, "stream_id": 4, "group_segment_size": 64}
            put("kernel_dispatch", **where, **on, **grid, **group, start=2500, end=2800, event_id=launched)
            copied = event("MEMORY_COPY", 3)
            sides = {"dst_agent_id": gpu, "src_agent_id": 1}
            name = text("MEMORY_COPY_HOST_TO_DEVICE")
            put(
                "memory_copy",
                **where,
                **sides,
                start=6100,
                end=6300,
                name_id=name,
                size=4096,
                stream_id=4,
                event_id=copied,
            )
            taken = event("MEMORY_ALLOCATION", 4)
            put("memory_allocate", **where, agent_id=gpu, type="ALLOC", start=500, end=510, size=64, event_id=taken)
            put("pmc_event", event_id=launched, value=1.5)
            for table, columns in V3.items():
                full = f'"rocpd_{table}_{suffix}"'
                database.execute(f"CREATE TABLE {full} ({', '.join(f'[{name}]' for name in columns.split())})")
                for row in rows[table]:
                    row = {key: value for key, value in row.items() if key in columns.split()}
                    keys = ", ".join(f"[{key}]" for key in row)
                    database.execute(
                        f"INSERT INTO {full} ({keys}) VALUES ({', '.join('?' * len(row))})", list(row.values())
                    )
        first = f'"rocpd_string_{GUIDS[0].replace("-", "" if joined else "_")}"'
        database.execute(f"CREATE VIEW rocpd_string AS SELECT * FROM {first}")
        database.execute("CREATE VIEW odd AS SELECT json_extract(string, '$.x') FROM rocpd_string")
    return path


RPD = {
    "rocpd_metadata": "id tag value",
    "rocpd_string": "id string",
    "rocpd_api": "id pid tid start end apiName_id args_id",
    "rocpd_op": "id gpuId queueId start end description_id opType_id",
    "rocpd_api_ops": "id api_id op_id",
    "rocpd_kernelapi": "api_ptr_id gridX gridY gridZ workgroupX workgroupY workgroupZ groupSegmentSize kernelName_id",
    "rocpd_copyapi": "api_ptr_id size",
    "rocpd_monitor": "id deviceType deviceId monitorType start end value",
    "ext_autogradapi": "api_ptr_id autogradName_id seq op_id sizes input_op_ids",
}
TEXTS = ["", "UserMarker", "hipLaunchKernel", "hipGraphLaunch", "KernelExecution", "Task", "CopyHostToDevice", "gemm"]
TEXTS += ["AddmmBackward0, seq = 3, op_id = 9", "aten::linear", "in a graph", "hipMemcpyAsync", "Barrier"]


def rpd(path: Path) -> Path:
    """An op that RPD's tools have taken apart, a backward one they have not; a kernel, a graph of two, a copy."""

    def text(value: str) -> int:
        return TEXTS.index(value) + 1

    rows = {
        "rocpd_metadata": [(1, "schema_version", "2")],
        "rocpd_string": [(number, value) for number, value in enumerate(TEXTS, 1)],
        "rocpd_api": [
            (11, 100, 100, 1000, 3000, text("UserMarker"), text("aten::linear")),
            (12, 100, 100, 1100, 1200, text("hipLaunchKernel"), text("")),
            (13, 100, 101, 4000, 9000, text("UserMarker"), text("AddmmBackward0, seq = 3, op_id = 9")),
            (14, 100, 101, 4100, 4200, text("hipGraphLaunch"), text("in a graph")),
            (15, 100, 100, 1300, 1400, text("hipMemcpyAsync"), text("")),
        ],
        "ext_autogradapi": [(11, text("aten::linear"), "3", "8", "[[2, 4]]", "")],
        "rocpd_op": [
            (21, 0, 0, 1500, 1600, text(""), text("KernelExecution")),
            (22, 1, 0, 4500, 4600, text("gemm"), text("Task")),
            (23, 1, 0, 4600, 4650, text(""), text("Task")),
            (24, 0, 1, 1700, 1900, text(""), text("CopyHostToDevice")),
        ],
        "rocpd_api_ops": [(1, 12, 21), (2, 14, 22), (3, 14, 23), (4, 15, 24)],
        "rocpd_kernelapi": [(12, 4, 2, 1, 64, 1, 1, 16, text("gemm"))],
        "rocpd_copyapi": [(15, 4096)],
        "rocpd_monitor": [(1, "gpu", 0, "sclk", 1000, 2000, "134")],
    }
    with closing(created(path)) as database, database:
        for table, columns in RPD.items():
            names = columns.split()
            database.execute(f"CREATE TABLE {table} ({', '.join(f'[{name}]' for name in names)})")
            database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows[table])
    return path


# Every source goes through the tests of tests/readers/samples.py with these files.
SAMPLES = {
    "of rocprofv3": lambda folder: rocprof(folder / "run.db"),
    "of RPD": lambda folder: rpd(folder / "run.rpd"),
}
