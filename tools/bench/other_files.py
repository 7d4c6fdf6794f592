"""Makes files of any size in the formats of torch.profiler and other profilers. They show the training that
nsys_files.py makes. Nothing is copied from a file of a real tool.

    kineto(path, Size(ranges=1_000_000, calls=600_000, work=600_000, shapes=True))
    unitrace(path, size)    rpd(path, size)    vtune(folder, size)
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import polars as pl
from nsys_files import AUTOGRAD, PID, STRINGS, Size, frames

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from builders import rocpd
from builders import vtune as build

_col = pl.col
_BASE_NS = 1_767_189_312_000_000_000
_LABEL = r"^(?<name>.*?)(?:, seq = (?<seq>[0-9]+))?, op_id = (?<op>[0-9]+)(?:, sizes = (?<sizes>.*), input_op_ids.*)?$"


def kineto(path: Path, size: Size) -> Path:
    """Writes a Chrome trace in the layout of torch.profiler."""
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "baseTimeNanoseconds": _BASE_NS}
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(head, indent=2)[:-2] + ',\n  "traceEvents": [\n')
        separator = ""
        for table, frame in frames(size):
            for line in _LINES.get(table, ()):
                texts = frame.select(line().alias("line"))["line"].to_list()
                file.write(separator + ",\n".join(texts))
                separator = ",\n" if texts else separator
        file.write("\n  ]\n}\n")
    return path


def unitrace(path: Path, size: Size) -> Path:
    """Writes a trace of unitrace with one event on each line. The events are tasks of opspan, Level Zero calls,
    commands and arrows."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{ "traceEvents":[\n{"ph": "M", "name": "process_name", "pid": ' + str(PID))
        file.write(', "ts": 1, "args": {"name": "HOST<box>"}}')
        for table, frame in frames(size):
            for line in _UNITRACE_LINES.get(table, ()):
                texts = frame.select(line().alias("line"))["line"].to_list()
                file.write("".join(f",\n{text}" for text in texts))
        file.write("\n]\n}\n")
    return path


def rpd(path: Path, size: Size) -> Path:
    """Writes a database of rocmProfileData. Each op is a marker whose text is the one that torch writes. Each call and
    each kernel has a row of its own."""
    rocpd.rpd(path)
    texts = rocpd.TEXTS
    marker, launch, kernel = (texts.index(text) + 1 for text in ("UserMarker", "hipLaunchKernel", "KernelExecution"))
    nothing, gemm = texts.index("") + 1, texts.index("gemm") + 1
    number = len(texts)
    calls = 10_000_000_000  # added to the identifiers of calls, so that markers have different identifiers
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA synchronous = OFF")
        for table, frame in frames(size):
            tid = pl.col("globalTid") & 0xFFFFFF if "globalTid" in frame.columns else pl.lit(0)
            if table == "NVTX_EVENTS":
                rows = frame.select("start", "end", "text", tid.alias("tid")).with_row_index("at", number + 1).rows()
                number += len(rows)
                database.executemany(
                    "INSERT INTO rocpd_string VALUES (?, ?)", ((at, text) for at, _, _, text, _ in rows)
                )
                database.executemany(
                    "INSERT INTO rocpd_api VALUES (?, ?, ?, ?, ?, ?, ?)",
                    ((1000 + at, PID, tid, start, end, marker, at) for at, start, end, _, tid in rows),
                )
            elif table == "CUPTI_ACTIVITY_KIND_RUNTIME":
                rows = frame.select("correlationId", tid.alias("tid"), "start", "end").rows()
                database.executemany(
                    "INSERT INTO rocpd_api VALUES (?, ?, ?, ?, ?, ?, ?)",
                    ((calls + at, PID, tid, start, end, launch, nothing) for at, tid, start, end in rows),
                )
            elif table == "CUPTI_ACTIVITY_KIND_KERNEL":
                rows = frame.select("correlationId", "start", "end").rows()
                ops = ((calls + at, 0, 7, start, end, gemm, kernel) for at, start, end in rows)
                database.executemany("INSERT INTO rocpd_op VALUES (?, ?, ?, ?, ?, ?, ?)", ops)
                pairs = ((calls + at, calls + at, calls + at) for at, _, _ in rows)
                database.executemany("INSERT INTO rocpd_api_ops VALUES (?, ?, ?)", pairs)
    return path


def vtune(folder: Path, size: Size) -> Path:
    """Writes a VTune result. Each op is a task with metadata. The result has no calls and no kernels."""
    build.run(folder, "2024")
    task_type = build.OWN
    types: dict[str, int] = {}
    number = 1000
    with closing(sqlite3.connect(folder / "sqlite-db" / "dicer.db")) as database, database:
        database.execute("PRAGMA synchronous = OFF")
        for table, frame in frames(size):
            if table != "NVTX_EVENTS":
                continue
            label = pl.col("text").str.extract_groups(_LABEL).struct
            labelled = frame.select(
                "start", "end", *(label.field(name).alias(name) for name in ("name", "seq", "op", "sizes"))
            )
            tasks, instances = [], []
            for start, end, name, seq, op, sizes in labelled.iter_rows():
                if name not in types:
                    types[name] = 1000 + len(types)
                    columns = "(rowid, name, domain)"
                    values = (types[name], name, task_type)
                    database.execute(f"INSERT INTO dd_task_type{columns} VALUES (?, ?, ?)", values)
                number += 1
                metadata = {"seq": seq and int(seq), "op_id": int(op), "sizes": sizes}
                parameter = json.dumps({key: value for key, value in metadata.items() if value is not None})
                tasks.append((number, types[name], parameter))
                times = (build.tsc(start), build.tsc(end))
                instances.append((*times, 1, number, build.BAND))
            database.executemany("INSERT INTO dd_task(rowid, type, parameter) VALUES (?, ?, ?)", tasks)
            columns = "(start_tsc, end_tsc, count, attr, __bucket_idx)"
            database.executemany(f"INSERT INTO task_data{columns} VALUES (?, ?, ?, ?, ?)", instances)
    return folder


def _us(time: pl.Expr) -> pl.Expr:
    return pl.concat_str(time // 1000, pl.lit("."), (time % 1000).cast(pl.String).str.zfill(3))


def _op() -> pl.Expr:
    label = _col("text").str.extract_groups(_LABEL).struct
    seq, sizes = label.field("seq"), label.field("sizes")
    thread = pl.when(_tid() == AUTOGRAD).then(1).otherwise(0)
    head = '  $\n    "ph": "X", "cat": "cpu_op", "name": "{}", "pid": {}, "tid": {},\n    "ts": {}, "dur": {},\n'
    inputs = (
        ', "Concrete Inputs": ["", "", ""], "Input type": ["float", "float", ""], "Input Strides": {}, "Input Dims": {}'
    )
    parts = (
        pl.format(head, label.field("name"), pl.lit(PID), _tid(), *_times()),
        pl.format('    "args": $\n      "External id": {},"Record function id": 0', label.field("op")),
        pl.format(', "Sequence number": {}, "Fwd thread id": {}', seq, thread).fill_null(""),
        pl.format(inputs, sizes, sizes).fill_null(""),
        pl.format(', "Ev Idx": {}\n    @\n  @', label.field("op")),
    )
    return _braced(pl.concat_str(parts))


def _span(category: str, name: pl.Expr, pid: pl.Expr, tid: pl.Expr, args: pl.Expr) -> pl.Expr:
    return pl.concat_str(
        pl.lit('  {\n    "ph": "X", "cat": "' + category + '", "name": "'),
        name,
        pl.format('", "pid": {}, "tid": {},\n    "ts": {}, "dur": {},\n    "args": ', pid, tid, *_times()),
        pl.lit("{\n      "),
        args,
        pl.lit("\n    }\n  }"),
    )


def _times() -> tuple[pl.Expr, pl.Expr]:
    return _us(_col("start")), _us(_col("end") - _col("start"))


def _arrow(phase: str, pid: pl.Expr, tid: pl.Expr, end: str) -> pl.Expr:
    return pl.concat_str(
        pl.lit('  {\n    "ph": "' + phase + '", "id": '),
        pl.format('{}, "pid": {}, "tid": {}, "ts": {},\n', _col("correlationId"), pid, tid, _us(_col("start"))),
        pl.lit('    "cat": "ac2g", "name": "ac2g"' + end + "\n  }"),
    )


def _call() -> pl.Expr:
    args = pl.format('"External id": 1, "cbid": 211, "correlation": {}', _col("correlationId"))
    return _span("cuda_runtime", pl.lit("cudaLaunchKernel"), pl.lit(PID), _col("globalTid") & 0xFFFFFF, args)


def _kernel() -> pl.Expr:
    names = pl.Series(STRINGS)
    name = (_col("demangledName") - 1).replace_strict(range(len(names)), names, return_dtype=pl.String)
    args = pl.format(
        '"External id": 1, "queued": 0, "device": 0, "context": 1,\n      "stream": 7, "correlation": {},\n      '
        '"registers per thread": 32,\n      "shared memory": 0,\n      "blocks per SM": 1.777778,\n      '
        '"warps per SM": 14.222222,\n      "grid": [256, 1, 1],\n      "block": [256, 1, 1],\n      '
        '"est. achieved occupancy %": 22',
        _col("correlationId"),
    )
    return _span("kernel", name, pl.lit(0), pl.lit(7), args)


_LINES = {
    "NVTX_EVENTS": (_op,),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (_call, lambda: _arrow("s", pl.lit(PID), _col("globalTid") & 0xFFFFFF, "")),
    "CUPTI_ACTIVITY_KIND_KERNEL": (_kernel, lambda: _arrow("f", pl.lit(0), pl.lit(7), ', "bp": "e"')),
}


def _host_line(name: pl.Expr, args: pl.Expr | None = None) -> pl.Expr:
    where = pl.format('$"ph": "X", "tid": {}, "pid": {}, "name": "', _tid(), pl.lit(PID))
    times = pl.format('", "cat": "cpu_op", "ts": {}, "dur": {}, ', _epoch_us(), _us(_col("end") - _col("start")))
    last = pl.lit('"id": 0') if args is None else pl.concat_str(pl.lit('"args": $'), args, pl.lit("@"))
    return _braced(pl.concat_str(where, name, times, last, pl.lit("@")))


def _braced(text: pl.Expr) -> pl.Expr:
    """Replaces `$` and `@` by braces. They stand for braces in texts for pl.format, because pl.format would take real
    braces for placeholders."""
    return text.str.replace_many(["$", "@"], ["{", "}"])


def _tid() -> pl.Expr:
    return _col("globalTid") & 0xFFFFFF


def _epoch_us() -> pl.Expr:
    return _us(_col("start") + _BASE_NS)


def _task() -> pl.Expr:
    label = _col("text").str.extract_groups(_LABEL).struct
    name = pl.concat_str(pl.lit("opspan::"), label.field("name"))
    seq = pl.format('"seq":[{}],', label.field("seq")).fill_null("")
    sizes = pl.format(',"sizes":["{}"]', label.field("sizes")).fill_null("")
    return _host_line(name, pl.concat_str(seq, pl.format('"op_id":[{}]', label.field("op")), sizes))


def _flow(phase: str, tid: pl.Expr, pid: int) -> pl.Expr:
    head = '$"ph": "' + phase + '", "tid": {}, "pid": {}, "name": "dep", "cat": "Flow_H2D_{}_0", "ts": {}, "id": {}@'
    number = _col("correlationId")
    return _braced(pl.format(head, tid, pl.lit(pid), number, _epoch_us(), number))


def _command() -> pl.Expr:
    head = '$"ph": "X", "tid": {}, "pid": {}, "name": "gemm[SIMD32 <8; 1; 1> <256; 1; 1>]", "cat": "gpu_op", "ts": {}, '
    tail = '"dur": {}, "args": $"id": "{}"@@'
    times = (_epoch_us(), _us(_col("end") - _col("start")))
    text = pl.format(head + tail, pl.lit(_GPU), pl.lit(_GPU), *times, _col("correlationId"))
    return _braced(text).str.replace_many(["<", ">"], ["{", "}"])


_GPU = 4294967295
_UNITRACE_LINES = {
    "NVTX_EVENTS": (_task,),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        lambda: _host_line(pl.lit("zeCommandListAppendLaunchKernel")),
        lambda: _flow("s", _tid(), PID),
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (_command, lambda: _flow("t", pl.lit(_GPU), _GPU)),
}
