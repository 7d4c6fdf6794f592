"""NCCL's data about its collectives, in the schemas of today's exports; metrics of GPUs against sums in SQL."""

from __future__ import annotations

import json
import sqlite3
import struct
from pathlib import Path

import polars as pl

import opspan
from builders import nsys as build

# Schema and fields as NCCL registers them: (type, name, offset). 16777232 is an enumeration that exports do not have.
COMMUNICATOR = (18, "NCCL communicator ID", None)
SIZE = (22, "Message size [bytes]", 8)
REDUCTION = 16_777_232
FIELDS = {
    16_777_218: [COMMUNICATOR, (5, "No. of ranks", 8), (5, "Rank", 12), (5, "CUDA device", 16)],
    16_777_220: [COMMUNICATOR, SIZE],
    16_777_223: [COMMUNICATOR, SIZE, (REDUCTION, "Reduction operation", 16)],
    16_777_226: [COMMUNICATOR, SIZE, (5, "Peer rank", 16)],
}
SIZES = {16_777_218: 24, 16_777_220: 16, 16_777_223: 24, 16_777_226: 24}
WHO = 2**63 + 5


def test_nccl_says_who_and_how_much(tmp_path: Path) -> None:
    texts = ("NCCL", "ncclCommInitRank", "ncclAllGather", "ncclAllReduce", "ncclSend")
    said = [
        (2, 16_777_218, struct.pack("<Qiiixxxx", WHO, 8, 3, 1)),
        (3, 16_777_220, struct.pack("<QQ", WHO, 4096)),
        (4, 16_777_223, struct.pack("<QQixxxx", WHO, 512, 0)),
        (5, 16_777_226, struct.pack("<QQixxxx", WHO, 64, 7)),
    ]
    domain = {"start": 0, "eventType": build.DOMAIN, "textId": 1, "globalTid": build.tid(9), "domainId": 1}
    events = [
        {
            "start": 10 * at,
            "end": 10 * at + 5,
            "eventType": build.PUSH_POP,
            "globalTid": build.tid(9),
            "domainId": 1,
            "textId": text,
            "binaryData": build.payload(1, schema, raw).hex(),
        }
        for at, (text, schema, raw) in enumerate(said)
    ]
    schemas = [{"domainId": 1, "schemaId": id_, "type": 1, "payloadSize": size} for id_, size in SIZES.items()]
    entries = [
        {"domainId": 1, "schemaId": id_, "idx": at, "flags": None, "type": type_, "name": name, "offset": offset}
        for id_, fields in FIELDS.items()
        for at, (type_, name, offset) in enumerate(fields)
    ]
    # Each of two processes registers them.
    tables = {
        "StringIds": build.strings(*texts),
        "NVTX_EVENTS": [domain, *events],
        "NVTX_PAYLOAD_SCHEMAS": schemas * 2,
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": entries * 2,
    }

    trace = opspan.load(build.export(tmp_path / "nccl.sqlite", tables))

    started, gathered, reduced, sent = map(json.loads, trace.ranges["payload_json"])
    assert trace.ranges["domain"].to_list() == ["NCCL"] * 4
    assert started == {"NCCL communicator ID": WHO, "No. of ranks": 8, "Rank": 3, "CUDA device": 1}
    assert gathered == {"NCCL communicator ID": WHO, "Message size [bytes]": 4096}
    assert sent == {"NCCL communicator ID": WHO, "Message size [bytes]": 64, "Peer rank": 7}
    # No table says the meaning of the enumeration: other fields are read, the bytes stay, and the payload is counted.
    assert reduced == {"NCCL communicator ID": WHO, "Message size [bytes]": 512, "bytes": said[2][2].hex()}
    assert trace.issues.select("code", "count").rows() == [("undecoded_payload", 1)]


METRIC_SUMS = """
select m.metricName,
       g.typeId & 255,
       count(*),
       sum(g.value),
       sum(g.timestamp)
from GPU_METRICS g join TARGET_INFO_GPU_METRICS m on m.typeId = g.typeId and m.metricId = g.metricId
group by 1, 2
"""


def test_metrics_of_gpus_add_up_to_what_sql_says(tmp_path: Path) -> None:
    base = 0x1000100000000
    names = ["SMs Active [%]", "DRAM Read [%]", "GPC Clock [Hz]"]
    tables = {
        "StringIds": build.strings("x"),
        "GPU_METRICS": [
            {
                "timestamp": 100 * tick,
                "typeId": base + gpu,
                "metricId": metric,
                "value": (tick * 7 + metric * gpu) % 101,
            }
            for tick in range(500)
            for gpu in (0, 1)
            for metric in range(3)
        ],
        "TARGET_INFO_GPU_METRICS": [
            {"typeId": base + gpu, "metricId": metric, "metricName": name}
            for gpu in (0, 1)
            for metric, name in enumerate(names)
        ],
        "SCHED_EVENTS": [{"start": 1, "cpu": 0, "isSchedIn": 1, "globalTid": build.tid(9)}] * 7,
    }
    path = build.export(tmp_path / "metrics.sqlite", tables)

    trace = opspan.load(path)

    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as file:
        expected = sorted(file.execute(METRIC_SUMS).fetchall())
    sums = trace.counters.group_by(pl.col("name").cast(pl.String), "device_id").agg(
        pl.len(), pl.col("value").sum(), pl.col("time_ns").sum()
    )
    assert sorted(sums.rows()) == expected
    assert len(expected) == 6
    assert trace.issues.select("code", "count").rows() == [("skipped_tables", 7)]
