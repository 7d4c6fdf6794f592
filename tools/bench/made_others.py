"""Makes files of other profilers of any size, from the same rows as made.py: what torch.profiler would have written of
the same training, and so on. No file of a real tool is in here.

    kineto(path, Size(ranges=1_000_000, calls=600_000, work=600_000, shapes=True))
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from made import AUTOGRAD, MAIN, PID, STRINGS, Size, _frames

_col = pl.col
_BASE_NS = 1_767_189_312_000_000_000
_LABEL = r"^(?<name>.*?)(?:, seq = (?<seq>[0-9]+))?, op_id = (?<op>[0-9]+)(?:, sizes = (?<sizes>.*), input_op_ids.*)?$"


def kineto(path: Path, size: Size) -> Path:
    """A Chrome trace in the layout that torch.profiler gives it."""
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "baseTimeNanoseconds": _BASE_NS}
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(head, indent=2)[:-2] + ',\n  "traceEvents": [\n')
        separator = ""
        for table, frame in _frames(size):
            for line in _LINES.get(table, ()):
                texts = frame.select(line().alias("line"))["line"].to_list()
                file.write(separator + ",\n".join(texts))
                separator = ",\n" if texts else separator
        file.write("\n  ]\n}\n")
    return path


def _us(time: pl.Expr) -> pl.Expr:
    return pl.concat_str(time // 1000, pl.lit("."), (time % 1000).cast(pl.String).str.zfill(3))


def _op() -> pl.Expr:
    label = _col("text").str.extract_groups(_LABEL).struct
    seq, sizes = label.field("seq"), label.field("sizes")
    thread = pl.when((_col("globalTid") & 0xFFFFFF) == AUTOGRAD).then(1).otherwise(0)
    return pl.concat_str(
        pl.format(
            '  {\n    "ph": "X", "cat": "cpu_op", "name": "{}", "pid": {}, "tid": {},\n    "ts": {}, "dur": {},\n'.replace(
                "  {\n", "  %\n", 1
            ),
            label.field("name"),
            pl.lit(PID),
            _col("globalTid") & 0xFFFFFF,
            _us(_col("start")),
            _us(_col("end") - _col("start")),
        ),
        pl.format('    "args": %\n      "External id": {},"Record function id": 0', label.field("op")),
        pl.format(', "Sequence number": {}, "Fwd thread id": {}', seq, thread).fill_null(""),
        pl.format(
            ', "Concrete Inputs": ["", "", ""], "Input type": ["float", "float", ""], "Input Strides": {}'
            ', "Input Dims": {}',
            sizes,
            sizes,
        ).fill_null(""),
        pl.format(', "Ev Idx": {}\n    $\n  $', label.field("op")),
    ).str.replace_many(["%", "$"], ["{", "}"])


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
