"""Reads a Chrome trace that opspan exported. The trace has all tables except the samples.

tables/chrome_keys.py maps args to columns. A JSON member of the file marks exports of opspan (mark_of).
If another tool has rewritten the file without this member, the file is read like a trace of torch.profiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from opspan import inputs
from opspan.errors import NotReadable, TooNew
from opspan.files import open_file
from opspan.formats import chrome
from opspan.formats.chrome import BOOKKEEPING, INTEGER, LIST, TEXT, Arg, ChromeFile, Groups, gathered
from opspan.tables import Issues, Metadata, Tables, cycles, schema
from opspan.tables import chrome_keys as keys
from opspan.tables.metadata import MOST_RANKS, ORDER, from_json

_col = pl.col
_SERIES = ("name", "domain", "device_id")
_ENDS, _COUNTERS = "ends", "counters"
_SPAN = ("ph", "cat", "name", "pid", "tid", "id", "ts_ns", "dur_ns", "at")
_OTHER_ARGS = (
    *(Arg(key, TEXT, (key,)) for key in (keys.ENDED, keys.API)),
    *(Arg(key, INTEGER, (key,)) for key in (keys.UNNAMED, keys.OVERLAPS)),
    Arg("value", LIST, ("value",)),
    *(Arg(of, LIST, (key,)) for of, key in keys.SIZES.items()),
)


def _arg_kind(table: str, column: str) -> int:
    """Returns how a column is read: as integer, as text, or (LIST) exactly as it is in the file. LIST is for lists, and
    for numbers that may not fit into int64."""
    dtype = schema.TABLES[table].schema.get(column, pl.Int64)
    if dtype in (pl.UInt64, pl.Float64) or column == "payload_int" or column in keys.LISTS:
        return LIST
    return INTEGER if dtype.is_integer() else TEXT


# The args to read. Each key occurs once, even if several tables share it. A row has only the keys of its own table.
_ARGS = {
    key: Arg(key, _arg_kind(table, column), (key,))
    for table, names in keys.EVENTS.items()
    for column, key in names.items()
}
_FIRST = {table: next(iter(names.values())) for table, names in keys.EVENTS.items()}


def _group_of(phase: str | None, category: str | None, *is_of: bool) -> str | None:
    if phase in ("M", "s", "f"):
        return BOOKKEEPING  # metadata and arrows only repeat what is in the tables
    if phase == "e":
        return _ENDS
    if phase == "C":
        return _COUNTERS
    tables = [table for table, has in zip(_FIRST, is_of, strict=True) if has]
    return tables[0] if phase in ("X", "b", "i") and len(tables) == 1 else None


_GROUPS = Groups(
    keys={
        "ph": _col("ph"),
        "cat": _col("cat"),
        **{table: _col(key).is_not_null() for table, key in _FIRST.items()},
    },
    of=_group_of,
    columns={
        **{
            table: (*_SPAN, *names.values(), *(arg.column for arg in _OTHER_ARGS))
            for table, names in keys.EVENTS.items()
        },
        _ENDS: ("id", "ts_ns"),
        _COUNTERS: ("cat", "name", "pid", "tid", "ts_ns", "value"),
    },
    args=(*_ARGS.values(), *_OTHER_ARGS),
)


def mark_of(path: Path) -> Mapping[str, Any] | None:
    """Returns the JSON member (version, zero_ns, ...) that marks an export of opspan; None for other files."""
    try:
        with open_file(path) as stream:
            head = stream.read(6)
    except OSError as error:
        raise NotReadable(f"cannot read {path}: {error.strerror or error}") from error
    mark = chrome.beginning(path, head)[0].get(keys.MARK)
    return mark if isinstance(mark, dict) and type(mark.get("version")) is int else None


def read(path: Path, mark: Mapping[str, Any]) -> Tables:
    if mark["version"] > keys.VERSION:
        raise TooNew(
            f"{path} is an export of version {mark['version']}; this opspan reads up to {keys.VERSION}: update it"
        )
    issues = Issues(str(path))
    chrome_file = ChromeFile(path, issues)
    groups = gathered(chrome_file, _GROUPS, issues)
    if chrome_file.is_open_ended:
        issues.add("truncated_file")
    tables = chrome_file.members.get(keys.TABLES)
    tables = tables if isinstance(tables, dict) else {}
    zero_ns, no_thread = _number(mark, "zero_ns"), _number(mark, "no_thread")
    places = _frame(tables.get("places"), {"process": pl.Int64, "rank": pl.Int32, "pid": pl.Int64}, issues)
    places = places.unique("process", keep="first", maintain_order=True)

    def placed(table: str) -> pl.DataFrame:
        frame = groups[table].join(places, left_on="pid", right_on="process", how="left", maintain_order="left")
        tid = pl.when(_col("tid") != no_thread).then("tid")
        return frame.with_columns(_col("ts_ns") + zero_ns, tid=tid).drop("pid").rename({"pid_right": "pid"})

    frames = {table: _rows(table, placed(table), groups[_ENDS], zero_ns) for table in keys.EVENTS}
    series = _frame(tables.get("series"), {name: schema.COUNTERS.schema[name] for name in _SERIES}, issues)
    frames["counters"] = _counters(placed(_COUNTERS), series)
    for table in keys.WHOLE:
        frames[table] = _frame(tables.get(table), schema.TABLES[table].schema, issues)
    begins = _frame(tables.get(keys.CYCLES), {"rank": pl.Int32, "cycle": pl.Int32, "begin_ns": pl.Int64}, issues)
    if (begins := begins.drop_nulls()).height:
        frames |= {name: cycles.by_time(frames[name], begins) for name in schema.IN_CYCLES if name in frames}
    frames["issues"] = pl.concat([frames["issues"], issues.frame()])
    numbers = {rank: [*some["cycle"]] for (rank,), some in begins.group_by("rank", maintain_order=True)}
    ranks = [
        replace(one, cycles=tuple(replace(one, cycle=number) for number in numbers.get(one.rank, ())))
        for one in _ranks(tables.get("ranks"), path)
    ]
    return Tables(tuple(ranks), **frames)


def _number(mark: Mapping[str, Any], name: str) -> int:
    value = mark.get(name)
    return value if type(value) is int and abs(value) < 1 << 62 else 0


def _frame(columns: Any, dtypes: Mapping[str, schema.Dtype], issues: Issues) -> pl.DataFrame:
    """Returns a table that the file holds as columns. Cells of a wrong type become null, and are counted as an
    issue."""
    columns = columns if isinstance(columns, dict) else {}
    columns = {name: values for name, values in columns.items() if name in dtypes and isinstance(values, list)}
    height = max(map(len, columns.values()), default=0)
    series = []
    for name, dtype in dtypes.items():
        values = columns.get(name, [])
        written = [str(value) if isinstance(value, (int, float, str)) else None for value in values]
        texts = pl.Series(name, written, dtype=pl.String)
        if dtype == pl.Boolean:
            cells = texts.replace_strict({"True": True, "False": False}, default=None, return_dtype=pl.Boolean)
        else:
            cells = texts.cast(dtype, strict=False)
        issues.add("odd_cells", len(values) - values.count(None) - cells.count(), name)
        series.append(cells.extend_constant(None, height - len(cells)))
    return pl.DataFrame(series)


def _ranks(ranks: Any, path: Path) -> tuple[Metadata, ...]:
    """Returns the exported metadata of the ranks, but with this file as their path."""
    metadata = []
    for rank in ranks if isinstance(ranks, list) else []:
        rank = rank if isinstance(rank, dict) else {}
        texts: dict[str, Any] = {
            name: rank[name] if isinstance(rank.get(name), str) else None
            for name in ("tool", "tool_version", "host", "clock")
        }
        origin, options = rank.get("origin_utc_ns"), rank.get("options")
        source, number, by = rank.get("source"), rank.get("rank"), rank.get("rank_by")
        metadata.append(
            Metadata(
                source if isinstance(source, str) else "kineto",
                (str(path),),
                origin_utc_ns=origin if type(origin) is int and abs(origin) < 1 << 62 else None,
                options=options if isinstance(options, dict) else {},
                rank=number if type(number) is int and 0 <= number < MOST_RANKS else 0,
                rank_by=by if isinstance(by, str) else ORDER,
                told=from_json(rank.get("told")),
                **texts,
            )
        )
    return tuple(metadata) or (Metadata("kineto", (str(path),)),)


def _rows(table: str, events: pl.DataFrame, ends: pl.DataFrame, zero_ns: int) -> pl.DataFrame:
    """Returns the rows of a table, in the order of their ids."""
    names = keys.EVENTS[table]
    columns = {column: _cell(table, column, key) for column, key in names.items()}
    if table == "functions":
        events = events.filter((_col(names["payload_json"]) != keys.SAMPLED).fill_null(value=True))
    name: pl.Expr = pl.when(_col(keys.UNNAMED).is_null()).then("name")
    columns |= {"rank": _col("rank"), "pid": columns.get("pid", _col("pid")), "tid": columns.get("tid", _col("tid"))}
    if table == "memory":
        device, is_free = columns["device_id"], columns["event"] == "free"
        columns["device_id"] = pl.when(device != -1).then(device)
        columns["bytes"] = pl.when(is_free).then(-columns["bytes"]).otherwise(columns["bytes"])
        columns["end_ns"] = _col("ts_ns") + columns["end_ns"]
        return events.select(time_ns="ts_ns", **columns).sort("row", maintain_order=True).drop("row")
    ends = ends.drop_nulls("id").unique("id", keep="first").select("id", pair_ns=_col("ts_ns") + zero_ns)
    events = events.join(ends, on="id", how="left", maintain_order="left")
    is_pair = _col("ph") == "b"  # never null, because an event without a phase is not a row of any table
    end = pl.when(is_pair).then("pair_ns").otherwise(_col("ts_ns") + _col("dur_ns"))
    columns["end_ns"] = pl.when(_col(keys.ENDED).is_null()).then(end)
    if table == "ranges":
        is_async = is_pair & _col(keys.OVERLAPS).is_null()
        columns |= {"is_async": is_async, "is_mark": _col("ph") == "i"}
        columns["op_id"] = pl.when(columns["op_id"] != 0).then(columns["op_id"])  # 0 means an annotation
        if events["overload"].count():
            full_name, end = _col("name").cast(pl.String), pl.format(".{}", columns["overload"])
            has_overload = full_name.str.ends_with(end).fill_null(value=False)
            name = pl.when(has_overload).then(full_name.str.strip_suffix(end)).otherwise(name).cast(schema.NAME)
    elif table == "calls":
        columns["api"] = pl.coalesce(keys.API, pl.when(_col("cat") != "call").then("cat"))
    elif table == "work":
        short = columns["name"]
        columns["full_name"] = pl.when(short.is_not_null()).then("name")
        name = pl.coalesce(short, name)
        columns["is_overhead"] = (_col("cat") == "overhead").fill_null(value=False)
        for of in keys.SIZES:
            size = _col(of).cast(pl.String).str.strip_chars("[]").str.split(", ")
            columns |= {
                f"{of}_{axis}": size.list.get(at, null_on_oob=True).cast(pl.Int32, strict=False)
                for at, axis in enumerate("xyz")
            }
    columns["name"] = name
    if table == "ranges":
        key = keys.RANGES["inputs"]
        events = events.with_columns(inputs.map_texts(events[key], inputs.from_torch).alias(key))
    return events.select(start_ns="ts_ns", **columns).sort("id", maintain_order=True)


def _cell(table: str, column: str, key: str) -> pl.Expr:
    dtype = schema.TABLES[table].schema.get(column, pl.Int64)
    value = _col(key) if _arg_kind(table, column) == INTEGER else _col(key).cast(pl.String)
    return value.cast(dtype, strict=False)


def _counters(events: pl.DataFrame, series: pl.DataFrame) -> pl.DataFrame:
    known = series.with_row_index("series").with_columns(_col("series").cast(pl.Int64))
    rows = events.with_columns(series=_col("cat").cast(pl.String).cast(pl.Int64, strict=False)).drop("name")
    rows = rows.join(known, on="series", how="left", maintain_order="left")
    value = _col("value").cast(pl.String).cast(pl.Float64, strict=False)
    return rows.select("rank", "pid", "tid", *_SERIES, value, time_ns="ts_ns")
