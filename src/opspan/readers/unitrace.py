"""Reads the Chrome traces of Intel's unitrace (PTI): <app>.<pid>[.<rank>].json. docs/formats/unitrace.md has more.

{"ph": "M", "name": "process_name", "pid": 7, "ts": 1767189312000000, "args": {"name": "RANK 0 HOST<node-3>"}},
{"ph": "X", "tid": 7, "pid": 7, "name": "PyTorch::aten::mm", "cat": "cpu_op", "ts": 1767189312000100, "dur": 40, ...},
{"ph": "X", "tid": 7, "pid": 7, "name": "zeCommandListAppendLaunchKernel", "cat": "cpu_op", "ts": ..., "id": 0},
{"ph": "s", "tid": 7, "pid": 7, "name": "dep", "cat": "Flow_H2D_12_0", "ts": ..., "id": 12},
{"ph": "X", "tid": 4294967295, "pid": 4294967295, "name": "gemm[SIMD32 {8; 1; 1} {256; 1; 1}]", "cat": "gpu_op",
 "ts": 1767189312000120, "dur": 9, "args": {"id": "12"}},

An arrow (phase s) has the id of the command that the device runs. The file has an arrow after the call in which the
arrow starts. If the program was killed, the file has no closing brackets.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from opspan.formats import chrome
from opspan.formats.chrome import INTEGER, LIST, ONE, TEXT, Arg, ChromeFile, Groups, gathered, is_utc, times
from opspan.formats.columns import LABELLED_DOMAINS, OWN_DOMAIN, SIZES, constant, labelled, narrow, numbered
from opspan.formats.keys import ascends, looked_up, places
from opspan.tables import Issues, Metadata, Tables, chrome_keys
from opspan.tables.metadata import told
from opspan.tables.same import rows_once
from opspan.tables.schema import KIND, WORK_KIND

HOST, PARTS, MARKS, DEVICE, ARROWS, NAMES = "host parts marks device arrows names".split()

# API -> pattern for the names of the API's calls. An event whose name matches no pattern is a range.
_APIS = {"level_zero": r"^ze[stx]?[A-Z]", "sycl": r"^(ur|pi|piext)[A-Z]", "opencl": r"^cl[A-Z]", "mpi": r"^P?MPI_"}
_FLOWS = (
    "Flow_H2D",
    "Flow_D2H",
    "CL_Flow_H2D",
    "CL_Flow_D2H",
)  # categories of arrows begin like this, followed by _<command>_<queue>
_TASK = r"(?s)^([^:\s(<]+)::(.+)$"  # <domain>::<name>
_HOST_NAME = r"HOST<([^>]*)>"
_RANK = r"^RANK ([0-9]+) "
# The text after a kernel's name: how many groups there are in x, y and z, and how many work items are in a group.
_GROUPS_AND_ITEMS = r"\[SIMD[0-9]+ \{([0-9]+); ([0-9]+); ([0-9]+)\} \{([0-9]+); ([0-9]+); ([0-9]+)\}\]"
_BYTES = r"\[([0-9]+) bytes\]"
_COPIES = {"memcpy": r"Append(Image|Memory)Copy|Enqueue(Read|Write|Copy|SVMMemcpy)", "memset": r"AppendMemoryFill|Fill"}

_ARGS = (
    Arg("own_seq", ONE, ("seq",)),
    Arg("own_op", ONE, ("op_id",)),
    Arg("own_forward", ONE, ("fwd_tid",)),
    Arg("said_sizes", LIST, ("sizes",)),
    Arg("command", INTEGER, ("id",)),
    Arg("given", TEXT, ("name",)),
)
_SPAN = ("name", "pid", "tid", "ts_ns", "dur_ns", "at")
_NUMBERS = ("own_seq", "own_op", "own_forward")
_SAID = (*_NUMBERS, "said_sizes", "rest")
_col = pl.col
_text = pl.col("text")


def _group_of(phase: str | None, category: str | None) -> str | None:
    if phase == "M":
        return NAMES
    if phase in ("s", "t") and (category or "").endswith("Flow_H2D"):
        return ARROWS
    if category == "gpu_op":
        return DEVICE if phase == "X" else None
    if category == "cpu_op":
        return {"X": HOST, "B": PARTS, "E": PARTS, "R": MARKS, "i": MARKS}.get(phase or "")
    return None


_GROUPS = Groups(
    keys={"ph": _col("ph"), "cat": _col("cat")},
    of=_group_of,
    columns={
        HOST: (*_SPAN, *_SAID),
        PARTS: ("ph", *_SPAN, *_SAID),
        MARKS: (*_SPAN, *_SAID),
        DEVICE: (*_SPAN, "command", "rest"),
        ARROWS: ("ph", "id", "pid", "tid", "ts_ns", "at"),
        NAMES: ("name", "pid", "tid", "given"),
    },
    args=_ARGS,
    timeless=frozenset({NAMES}),
    stems=_FLOWS,
)


def sniff(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return False
    members, events = chrome.beginning(path, head)
    if not events.height or chrome_keys.MARK in members:
        return False
    is_name = (_col("ph") == "M") & _col("rest").str.contains(_HOST_NAME)
    is_unitraces = (_col("cat") == "gpu_op") | _col("cat").cast(pl.String).str.contains(rf"^({'|'.join(_FLOWS)})_")
    return bool(events.select((is_name | is_unitraces).any()).item())


def read(path: Path) -> Tables:
    issues = Issues(str(path))
    chrome_file = ChromeFile(path, issues)
    groups = gathered(chrome_file, _GROUPS, issues)
    issues.add("not_closed", int(chrome_file.is_open_ended))
    host = groups[HOST]
    if groups[PARTS].height:
        host = pl.concat([host, _pair(groups[PARTS], issues)], how="diagonal")
    host = _in_order(host)
    host = host.hstack(_parse_each(host["name"], {"api": _api()}))
    with ThreadPoolExecutor(1) as beside:
        begun = beside.submit(_ranges, host.filter(_col("api").is_null()), groups[MARKS])
        calls = host.filter(_col("api").is_not_null()).with_row_index("call")
        launched = _launches(calls, groups[ARROWS])
        devices = _devices(groups[DEVICE], groups[NAMES])
        work = _work(groups[DEVICE], devices, launched, issues)
        threads = pl.concat([rows_once(frame, "pid", "tid") for frame in (host, groups[MARKS])]).drop_nulls().unique()
        ranges = begun.result()
    called = _calls(calls)
    return Tables(
        (_metadata(path, groups[NAMES], ranges, called, work),),
        ranges=ranges,
        calls=called,
        work=work,
        threads=threads.sort("pid", "tid").with_columns(rank=pl.lit(0, dtype=pl.Int32)),
        processes=threads.select("pid").unique().sort("pid").with_columns(rank=pl.lit(0, dtype=pl.Int32)),
        devices=devices.drop("pid"),
        issues=issues.frame(),
    )


def _pair(parts: pl.DataFrame, issues: Issues) -> pl.DataFrame:
    """Pairs begin and end events, and returns the spans. An end event belongs to the last begin event of its thread
    that has no end yet."""
    place = ["pid", "tid"]
    is_begin = _col("ph") == "B"
    ordered = parts.sort("ts_ns", "at").with_columns(
        level=pl.when(is_begin).then(1).otherwise(-1).cum_sum().over(place)
    )
    # Among the events of the same thread and nesting level, a begin and its end are adjacent.
    ordered = ordered.with_columns(level=pl.when(is_begin).then("level").otherwise(_col("level") + 1))
    next_is_end = (_col("ph").shift(-1) == "E").over(*place, "level")
    ended = _col("ts_ns").shift(-1).over(*place, "level")
    spans = ordered.with_columns(dur_ns=pl.when(next_is_end).then(ended - _col("ts_ns"))).filter(is_begin)
    ends = ordered.height - spans.height
    closed = spans["dur_ns"].count()
    issues.add("open_ranges", spans.height - closed)
    issues.add("end_without_start", ends - closed)
    return spans.drop("ph", "level")


def _in_order(events: pl.DataFrame) -> pl.DataFrame:
    return events if events["at"].is_sorted() else events.sort("at")


def _api() -> pl.Expr:
    """Returns an expression for the API of a call with the name `text`; null if the name is that of a range."""
    api = pl.lit(None, dtype=pl.String)
    for owner, pattern in _APIS.items():
        api = pl.when(_text.str.contains(pattern)).then(pl.lit(owner)).otherwise(api)
    return api


def _parse_each(texts: pl.Series, columns: dict[str, pl.Expr]) -> pl.DataFrame:
    """Returns the given columns for each text. Computes them only once for each distinct text."""
    distinct = texts.unique()
    of_distinct = distinct.cast(pl.String).to_frame("text").select(**columns)
    return of_distinct[places(_codes(texts), _codes(distinct))]


def _codes(texts: pl.Series) -> pl.DataFrame:
    """Returns for each text its number among the categories of the column, or -1 for null."""
    return texts.to_physical().cast(pl.Int64).fill_null(-1).to_frame("text")


def _ranges(tasks: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    frame = pl.concat(
        [tasks.with_columns(is_mark=pl.lit(value=False)), marks.with_columns(is_mark=pl.lit(value=True))],
        how="diagonal",
    )
    parts = _parse_each(
        frame["name"], {"domain": _text.str.extract(_TASK, 1), "label": pl.coalesce(_text.str.extract(_TASK, 2), _text)}
    )
    may_be = parts["domain"].is_null() | parts["domain"].is_in(LABELLED_DOMAINS)
    nothing = pl.Series([None], dtype=pl.String)
    labels = labelled(parts["label"].zip_with(may_be, nothing))
    labels = labels.rename({"seq": "p_seq", "op_id": "p_op", "forward_tid": "p_forward", "sizes": "p_sizes"})
    own_sizes = {"own_sizes": _text.str.extract(r'^\["(.*)"\]$').cast(pl.Categorical)}
    frame = frame.with_columns(_parse_each(frame["said_sizes"], own_sizes))
    others = frame.select(pl.exclude("name"), own=(parts["domain"] == OWN_DOMAIN).fill_null(value=False))
    frame = pl.concat([others, labels, parts], how="horizontal")
    seq = pl.coalesce("own_seq", "p_seq")
    is_backward = _col("own_forward").is_not_null()  # only backward ops have a forward thread
    kind = pl.when(is_backward & (_col("kind") != "engine")).then(pl.lit("backward", KIND)).otherwise("kind")
    beside = pl.any_horizontal(_col(_NUMBERS).is_not_null())
    # In a text label of opspan, a missing forward thread means the main thread. Thread 0 means unknown.
    main = pl.when(_col("own") & (_col("kind") == "backward") & ~beside).then("pid")
    return numbered(
        frame.select(
            "pid",
            "tid",
            *times(),
            pl.coalesce("name", _col("label").cast(pl.Categorical)).alias("name"),
            "text",
            kind.alias("kind"),
            pl.when(_col("domain").is_null()).then(constant("unitrace")).otherwise(constant("itt")).alias("source"),
            _col("domain").cast(pl.Categorical),
            pl.when(seq >= 0).then(seq).alias("seq"),
            pl.coalesce("own_op", "p_op").replace(0, None).alias("op_id"),
            pl.coalesce("own_forward", "p_forward", main).replace(0, None).alias("forward_tid"),
            pl.coalesce("own_sizes", "p_sizes").alias("sizes"),
            "input_op_ids",
            "class_name",
            "args",
            _col("rest").alias("payload_json"),
            pl.lit(value=False).alias("is_async"),
            "is_mark",
        )
    )


def _calls(calls: pl.DataFrame) -> pl.DataFrame:
    return numbered(
        calls.select(
            "pid",
            "tid",
            *times(),
            "name",
            _col("api").cast(pl.Categorical),
            _col("call").cast(pl.Int64).alias("correlation_id"),
            _col("rest").alias("payload_json"),
        )
    )


def _launches(calls: pl.DataFrame, arrows: pl.DataFrame) -> pl.DataFrame:
    """Returns for each command the call that launched the command, and the process of the call. This call begins at the
    time of the command's arrow. If several calls begin at this time, the last one before the arrow in the file
    counts."""
    place = ["pid", "tid", "ts_ns"]
    starts = arrows.filter(_col("ph") == "s").select(*place, command="id", arrow="at")
    if ascends(calls["ts_ns"]):  # if so, all calls began at different times
        its = calls.select(*place, "call", "at")[places(starts.select("ts_ns"), calls.select("ts_ns"))]
        pairs = starts.hstack(its.select("call", "at")).filter(
            (its["pid"] == starts["pid"]) & (its["tid"] == starts["tid"])
        )
    else:
        pairs = starts.join(calls.select(*place, "call", "at"), on=place)
    if not ascends(pairs["command"]):
        order = pl.when(_col("at") <= _col("arrow")).then(_col("at").cast(pl.Int64)).otherwise(-1)
        pairs = pairs.sort("command", order, "call").unique("command", keep="last", maintain_order=True)
    return pairs.select("command", "call", process="pid")


def _work(commands: pl.DataFrame, devices: pl.DataFrame, launched: pl.DataFrame, issues: Issues) -> pl.DataFrame:
    frame = looked_up(_in_order(commands), "command", launched, "command")
    frame = looked_up(frame, "pid", devices.select("pid", "device_id"), "pid")
    only = rows_once(launched, "process").to_series()
    frame = frame.with_columns(process=pl.coalesce("process", pl.lit(only[0] if len(only) == 1 else None, pl.Int64)))
    frame = frame.hstack(_parse_each(frame["name"], _command_columns()))
    frame = narrow(frame, "kernels", dict.fromkeys(SIZES, pl.Int32), issues)
    return numbered(
        frame.select(
            _col("process").alias("pid"),
            "device_id",
            _col("tid").alias("stream_id"),
            *times(),
            "kind",
            _col("short").alias("name"),
            _col("name").alias("full_name"),
            _col("call").cast(pl.Int64).alias("correlation_id"),
            "bytes",
            *SIZES,
            pl.concat_str(pl.lit('{"command": '), "command", pl.lit("}")).alias("payload_json"),
        )
    )


def _command_columns() -> dict[str, pl.Expr]:
    """Returns the expressions that parse the name of a command."""
    kind = pl.lit("kernel")
    for name, pattern in _COPIES.items():
        kind = pl.when(_text.str.contains(pattern)).then(pl.lit(name)).otherwise(kind)
    sizes = {
        axis: _text.str.extract(_GROUPS_AND_ITEMS, at + 1).cast(pl.Int64, strict=False) for at, axis in enumerate(SIZES)
    }
    return {
        "kind": kind.cast(WORK_KIND),
        "short": _text.str.replace(r"\[[^\[\]]*\]$", "").cast(pl.Categorical),
        "bytes": _text.str.extract(_BYTES).cast(pl.Int64, strict=False),
        **sizes,
    }


def _devices(commands: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Returns the table devices, with the pid that unitrace uses for each device. unitrace assigns these pids in
    descending order."""
    pids = rows_once(commands, "pid").to_series().drop_nulls().sort(descending=True)
    titles = names.filter(_col("name") == "process_name").unique("pid", keep="last").select("pid", title="given")
    named = pids.to_frame("pid").join(titles, on="pid", how="left", maintain_order="left")
    return named.select(
        "pid",
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        pl.int_range(pl.len(), dtype=pl.Int32).alias("device_id"),
        constant("xpu").alias("kind"),
        _col("title").alias("name"),
    )


def _metadata(path: Path, names: pl.DataFrame, *frames: pl.DataFrame) -> Metadata:
    titles = names.filter(_col("name") == "process_name")["given"].cast(pl.String)
    host = titles.str.extract(_HOST_NAME).drop_nulls()
    rank = titles.str.extract(_RANK).drop_nulls().unique()
    known = is_utc(*frames)  # with UNITRACE_SystemTime=1, times are of CLOCK_MONOTONIC_RAW
    return Metadata(
        "unitrace",
        (str(path),),
        tool="unitrace",
        host=host[0] if len(host) else None,
        clock=None if known else "CLOCK_MONOTONIC_RAW",
        origin_utc_ns=0 if known else None,
        told=told("RANK of unitrace", rank[0] if len(rank) == 1 else None),
    )
