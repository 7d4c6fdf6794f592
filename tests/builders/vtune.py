"""Tiny VTune results by hand: any tables with any rows, and one small run as each schema version would have it.

    path = result(tmp_path / "r000hs", {"task_data": [task(10, 20, attr=1)], ...}, version="9.211")
    path = run(tmp_path / "r001hs", "2020")

No file of a real tool is in here; the columns are those that docs/formats/vtune.md describes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from builders.sqlite import created
from builders.vtune_columns import COLUMNS, VIEW, VIEWS

Rows = Sequence[Mapping[str, Any]]
Tables = Mapping[str, Rows]

# Age -> version of the schema, in the two parts that the file has it in.
VERSIONS = {"2013": "3.62", "2015": "8.102", "2020": "9.211", "2022": "9.246", "2024": "9.261", "2025": "9.263"}
PRODUCTS = {
    "2013": "Amplifier XE 2013 Update 15",
    "2015": "Amplifier XE 2015 Update 3",
    "2020": "Profiler 2020 Update 2",
    "2022": "Profiler 2022.0.0",
    "2024": "Profiler 2024.0.0",
    "2025": "Profiler 2025.0.1",
}
PID, MAIN, WORKER = 1520, 1520, 1533
BAND, BAND_OF_WORKER = 3, 4  # rows of dd_band
EPOCH_NS = 1_199_145_600_000_000_000
ZERO_UTC_NS = 1_603_249_159_000_000_000  # the first event of the run
ZERO_MONO_NS = 4_016_592_000_000_000

RECORD = "<Q7i3qd4x"
METADATA = """<?xml version='1.0' encoding='UTF-8'?>
<bag xmlns:unsignedLong="http://www.w3.org/2001/XMLSchema#unsignedLong">
 <entry path="end_tsc" unsignedLong:size="{rows}">
  <indexFields>{indexes}</indexFields>
  <int64Fields><field path="duration"/><field path="count"/><field path="start_tsc"/></int64Fields>
  <doubleFields><field path="nextCpuUsageDelta"/></doubleFields>
 </entry>
</bag>
"""
INDEXES = (
    "dd_sample attr.callsite attr.event_type attr.cpu __bucket_idx.dd_thread nextSampleAttr.event_type "
    "nextSampleAttr.callsite"
)
DESCRIPTOR = """<?xml version="1.0" encoding="UTF-8"?>
<root>
 <rdmgr>
  <hostname type="string">node7</hostname>
  <os type="string">linux</os>
  <product type="string">Intel® VTune™ {product}</product>
  <buildNumber type="s32_t">610396</buildNumber>
  <collectionTimeBegin type="u64_t">1603249158</collectionTimeBegin>
  <collectionTimeEnd type="u64_t">1603249160</collectionTimeEnd>
  <variables><at type="string">hs</at></variables>
 </rdmgr>
</root>
"""
MACHINE = """<?xml version='1.0' encoding='UTF-8'?>
<bag xmlns:int="http://www.w3.org/2001/XMLSchema#int">
 <contextValue id="CPU_NAME" value="{name}"/>
 <contextValue id="PMU" value="{events}"/>
 <contextValue id="cpuFamily" int:value="6"/>
</bag>
"""
OPTIONS = "-r\nr000hs\n--itt-config=frame\n--itt-config={tasks}event,counter\n--\npython\ntrain.py\n--name=a b\n"


def tsc(ns: int) -> int:
    """A time of the run, in ns from its zero, in VTune's ticks."""
    return (ZERO_UTC_NS + ns - EPOCH_NS) * 10


def at(start: int, end: int, attr: int, bucket: int = BAND) -> dict[str, int]:
    return {"start_tsc": tsc(start), "end_tsc": tsc(end), "count": 1, "attr": attr, "__bucket_idx": bucket}


def band(start: int, end: int, first: int, last: int, bucket: int = BAND) -> dict[str, int]:
    rows = {"data_start_rowid": first, "data_end_rowid": last}
    return {"start_tsc": tsc(start), "end_tsc": tsc(end), **rows, "__bucket_idx": bucket}


def names(*texts: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": text, **more} for text in texts]


def database(path: Path, tables: Tables, age: str = "2020") -> Path:
    """The tables of an age with these rows. A row's `rowid` numbers it, else its place does, from 1."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = created(path)
    for name, ages in COLUMNS.items():
        known = [columns for first, columns in ages.items() if first <= age]
        if not known or (name not in tables and name.endswith("_data") and age > "2020"):
            continue  # later versions leave out what was not collected
        columns = known[-1].split()
        declared = [f"{column} INTEGER PRIMARY KEY" if column == "__explicit_rowid__" else column for column in columns]
        connection.execute(f"CREATE TABLE {name}({', '.join(declared)})")
        for place, row in enumerate(tables.get(name, ()), 1):
            given = {column: row.get(column) for column in columns if column != "__explicit_rowid__"}
            holes = ", ".join("?" * (len(given) + 1))
            values = [row.get("rowid", place), *given.values()]
            connection.execute(f"INSERT INTO {name}(rowid, {', '.join(given)}) VALUES ({holes})", values)
    for view in VIEWS:
        connection.execute(VIEW.format(view))
    connection.commit()
    connection.close()
    return path


def container(folder: Path, records: Sequence[Sequence[Any]]) -> Path:
    """Records of pmu_data: end_tsc, seven indexes, duration, count, start_tsc, a share."""
    (folder / "end_tsc").mkdir(parents=True)
    indexes = "".join(f'<field path="{name}"/>' for name in INDEXES.split())
    (folder / "container.metadata").write_text(METADATA.format(rows=len(records), indexes=indexes))
    (folder / "end_tsc" / "0").write_bytes(b"".join(struct.pack(RECORD, *record) for record in records))
    return folder


def result(folder: Path, tables: Tables, age: str = "2020", tasks: bool = True) -> Path:
    """A finalised result with these rows in its database."""
    database(folder / "sqlite-db" / "dicer.db", tables, age)
    suffix = ".amplxe" if age < "2018" else ".vtune"
    (folder / f"{folder.name}{suffix}").write_text(DESCRIPTOR.format(product=PRODUCTS[age]), encoding="utf-8")
    (folder / "config").mkdir()
    (folder / "config" / "runss.options").write_text(OPTIONS.format(tasks="task," if tasks else ""))
    name = "Intel(R) Xeon(R) Processor code named Broadwell"
    (folder / "config" / "context_values.cfg").write_text(MACHINE.format(name=name, events="broadwell_server"))
    (folder / "data.0").mkdir()
    (folder / "data.0" / "1.trace").write_bytes(b"\0\1raw")
    return folder


# --- one run: an op and its backward on another thread; a user's task; a frame, a region, a mark, a counter, samples

DOMAINS = ("%OpenMP", "%TBB", "%DirectX", "%User", "PyTorch", "opspan", "Solver")  # row ids from 0
OPENMP, USER, PYTORCH, OWN, SOLVER = 0, 3, 4, 5, 6


def around(age: str) -> dict[str, Rows]:
    """The process, its threads, its clock: what every result has."""
    major, minor = VERSIONS[age].split(".")
    numbered = " (0x5f0)" if age == "2013" else f" (TID: {MAIN})"
    return {
        "dd_context_value": [
            {"rowid": 0, "key": "__internal@internalSchemaMinor@version", "value": int(major)},
            {"rowid": 1, "key": "__internal@schemaMinor@version", "value": int(minor)},
        ],
        "dd_marker_info": [
            {
                "utc_time": ZERO_UTC_NS // 100,
                "sys_tsc": ZERO_MONO_NS,
                "sys_frequency": 1_000_000_000,
                "cpu_tsc": 1,
                "cpu_frequency": 2,
            }
        ],
        "dd_hw_node": [{"machine_name": "node7"}],
        "dd_package": [{"name": f"package_{row}", "brand_name": "Intel(R) Xeon(R) CPU E5-2630 v4"} for row in (0, 1)],
        "dd_os_info": [{"name": "Linux", "kernel_release": "5.4.0"}],
        "dd_process": [
            {"name": "amplxe-runss", "pid": PID, "start_tsc": tsc(-9), "end_tsc": tsc(-9)},
            {"name": "python", "pid": PID, "start_tsc": tsc(-5), "end_tsc": tsc(900)},
        ],
        "dd_thread": [
            {"thread_id": PID, "process": 1, "user_name": "amplxe-runss", "name": "amplxe-runss", "ignored": 1},
            {"thread_id": MAIN, "process": 2, "user_name": "trainer", "name": f"trainer{numbered}"},
            {"thread_id": WORKER, "process": 2, "name": f"Thread (TID: {WORKER})"},
        ],
        "dd_band": [{"rowid": 0}, {"rowid": BAND, "dd_thread": 2}, {"rowid": BAND_OF_WORKER, "dd_thread": 3}],
        "dd_domain": [{"rowid": row, "name": name} for row, name in enumerate(DOMAINS)],
    }


def events(age: str) -> dict[str, Rows]:
    region_type = names("%OpenMP") if age == "2013" else [{"type_name": 1}]
    event = "Samples" if age < "2018" else 1
    return {
        **noise(age),
        "dd_task_type": [
            *names("aten::mm, seq = 4, sizes = [[2, 3], [3, 4]]", "MmBackward0, seq = 4", domain=PYTORCH),
            *names("aten::add", domain=OWN),
            *names("load batch", domain=USER),
        ],
        "dd_task": [
            {"type": 1},
            {"type": 2},
            {"type": 3, "parameter": '{"seq": 7, "op_id": 12, "sizes": "[[2]]"}'},
            {"type": 4},
        ],
        "task_data": [at(10, 60, 1), at(200, 290, 2, BAND_OF_WORKER), at(70, 90, 3), at(0, 100, 4)],
        "dd_frame_type": names("%GoodFrame", domain=SOLVER),
        "dd_frame": [{"instance": 1, "type": 1, "domain": SOLVER}],
        "frame_data": [at(100, 400, 1, -1)],
        "dd_region_type_name": names("%OpenMP"),
        "dd_region_type": region_type,
        "dd_region": [{"type": 1, "domain": SOLVER, "process": 2}],
        "dd_region_instance": [] if age == "2015" else [{"region": 1}],
        "region_data": [at(110, 300, 1, -1)],
        "dd_marker_type": names("here", domain=SOLVER),
        "dd_marker": [{"type": 1}],
        "marker_global_data": [at(120, 120, 1, -1)],
        "dd_counter_type": names("loss", domain=SOLVER),
        "dd_counter": [{"type": 1}],
        "counter_data_agg_band": [band(130, 140, 1, 1)],
        "counter_data_agg_data": [{"duration": 100, "count": 42, "attr": 1}],
        "dd_cpu_usage": [{"rowid": 0, "value": 0.0}, {"rowid": 1, "value": 1.0}],
        "cpu_usage_data": [at(0, 500, 1, -1)],
        "dd_paused_range": [
            {"start_tsc": tsc(500), "end_tsc": tsc(600)},
            {"start_tsc": tsc(550), "end_tsc": tsc(700)},
            {"start_tsc": tsc(800), "end_tsc": tsc(900)},
        ],
        "dd_sample_event_name": [{"value": "Samples"}, {"value": "CPU_CLK"}, {"value": "INST_RETIRED"}],
        "dd_sample_event_type": [
            {"name": event, "events_per_sample": 1},
            {"name": 2, "events_per_sample": 1000},
            {"name": 3, "events_per_sample": 0},
        ],
        "dd_hw_context": names("cpu_0", "cpu_5"),
        "dd_function": names("main", "[Loop at line 7 in mm]", "mm<a;b>"),
        "dd_function_instance": [{"function": 1, "type": 0}, {"function": 2, "type": 2}, {"function": 3, "type": 0}],
        "dd_function_range": [{"func_inst": 1}, {"func_inst": 2}, {"func_inst": 3}],
        "dd_code_location": [{"func_range": row, "mod_seg": segment} for row, segment in ((1, 1), (2, 2), (3, 3))],
        "dd_module_segment": [{"mod_file": 1}, {"mod_file": 1}, {"mod_file": 2}],
        "dd_module_file": [{"bin_path": "/usr/bin/python3"}, {"bin_name": "libmm.so", "bin_path": "/opt/a;b/libmm.so"}],
        "dd_callsite": [
            {"code_loc": 1, "parent": -1},
            {"code_loc": 2, "parent": 3, "parent_raw": 1},
            {"code_loc": 3, "parent": 1},
        ],
        "dd_sample": [
            {"event_type": 1, "callsite": 2},
            {"event_type": 2, "cpu": 2, "callsite": 1},
            {"event_type": 3, "callsite": -1},
        ],
        "cpu_data_agg_band": [band(20, 30, 1, 2)],
        "cpu_data_agg_data": [{"duration": 100, "count": 1, "attr": 1}, {"duration": 50, "count": 1, "attr": 1}],
        "sched_data": [at(0, 1, 1), at(1, 2, 1)],
        **waits(),
    }


def waits() -> dict[str, Rows]:
    """Returns waits: of the main thread inside the op, and of the worker for a thread. Row ids of objects, types and
    states begin at 0."""
    texts = {
        "dd_sync_object_type": ("%Unknown", "%Mutex", "%Thread"),
        "dd_thread_state": ("%None", "%CPU Time", "%Wait"),
    }
    return {
        **{table: [{"rowid": row, "name": text} for row, text in enumerate(rows)] for table, rows in texts.items()},
        "dd_sync_object": [
            {"rowid": 0, "type": 1, "user_name": "", "name": 'Mutex "a" 0x7bbe'},
            {"rowid": 1, "type": 2, "user_name": "%Join", "name": "%Join"},
        ],
        "dd_wait": [
            {"sync_object": 0, "wait_cs": 2, "signal_cs": 1, "thread_state": 2},
            {"sync_object": 1, "thread_state": 2},
            {"sync_object": -1},
        ],
        "wait_data": [wait(20, 35, 1), wait(210, 250, 2, BAND_OF_WORKER), wait(300, 310, 3)],
    }


def wait(start: int, end: int, attr: int, bucket: int = BAND) -> dict[str, int]:
    return {**at(start, end, attr, bucket), "multi_band_start_tsc": tsc(end), "multi_band_index": bucket}


def noise(age: str) -> dict[str, Rows]:
    """Returns tables that readers must ignore: facts about the result, leftovers of the finaliser, and total times."""
    leftovers = ("EventDataTempTable", "eventCreateTempTable", "tempPauseResumeTimestampsTable")
    elapsed = ("global_elapsed_time_data", "elapsed_time_data")
    listed = [name for name in COLUMNS if name.endswith("_data") and name[0] not in "_d"]
    return {
        "_schema_instance_tables": names(*listed, *VIEWS),
        "_schema_refs": references(age),
        **{name: [{"type": 1, "__bucket_idx": 0}] for name in leftovers},
        **{name: [at(0, 900, 1, -1)] for name in elapsed if age > "2013"},
    }


def references(age: str) -> Rows:
    region = "dd_region" if age == "2015" else "dd_region_instance"
    stated = {"task_data.attr": "dd_task", "region_data.attr": region, "dd_region_instance.region": "dd_region"}
    return [{"path": path, "ref": ref} for path, ref in stated.items()]


def run(folder: Path, age: str) -> Path:
    result(folder, {**around(age), **events(age)}, age)
    if age > "2018":
        sampled = (tsc(40), 2, 1, 2, 2, 2, 0, 0, 0, 1000, tsc(35), 0.5)
        counted = (tsc(900), 3, 0, 3, 0, 2, 0, 0, 0, 123456, tsc(0), 0.0)
        container(folder / "sqlite-db" / "pmu_data", [sampled, counted])
    return folder


def one_task(folder: Path, name: str) -> Path:
    """A database with a task of torch's and nothing else: no kernels, no samples."""
    tables = {
        **around("2020"),
        "dd_task_type": names(name, domain=PYTORCH),
        "dd_task": [{"type": 1}],
        "task_data": [at(10, 60, 1)],
    }
    return database(folder / "dicer.db", tables)


# Every source goes through the tests of tests/readers/samples.py with these files.
SAMPLES = {"of 2024": lambda folder: run(folder / "r000hs", "2024")}
