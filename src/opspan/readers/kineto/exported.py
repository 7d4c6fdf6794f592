"""Reads back what opspan exports as a Chrome trace, whole: the trace that was written, but its samples.

tables/chrome_keys.py says which arg is which column. Where the file's own first member is gone (another tool wrote the
file again), it is a trace like torch.profiler's, and read as one.
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
from opspan.tables.metadata import ORDER
from opspan.tables.told import MOST, from_json

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


def _as(table: str, column: str) -> int:
    """Lists, and numbers that 64 bits with a sign do not hold, are read as they are written."""
    dtype = schema.TABLES[table].schema.get(column, pl.Int64)
    if dtype in (pl.UInt64, pl.Float64) or column == "payload_int" or column in keys.LISTS:
        return LIST
    return INTEGER if dtype.is_integer() else TEXT


# Each key once, whichever tables have it; a row has those of its table alone.
_ARGS = {
    key: Arg(key, _as(table, column), (key,)) for table, names in keys.EVENTS.items() for column, key in names.items()
}
_FIRST = {table: next(iter(names.values())) for table, names in keys.EVENTS.items()}


def _of(phase: str | None, category: str | None, *is_of: bool) -> str | None:
    if phase in ("M", "s", "f"):
        return BOOKKEEPING  # names and arrows are made of the tables
    if phase == "e":
        return _ENDS
    if phase == "C":
        return _COUNTERS
    found = [table for table, has in zip(_FIRST, is_of, strict=True) if has]
    return found[0] if phase in ("X", "b", "i") and len(found) == 1 else None


_GROUPS = Groups(
    keys={
        "ph": _col("ph"),
        "cat": _col("cat"),
        **{table: _col(key).is_not_null() for table, key in _FIRST.items()},
    },
    of=_of,
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
    """What the file says of itself, if opspan exported it."""
    try:
        with open_file(path) as file:
            head = file.read(6)
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
    file = ChromeFile(path, issues)
    found = gathered(file, _GROUPS, issues)
    if file.is_open_ended:
        issues.add("truncated_file")
    whole = file.members.get(keys.TABLES)
    whole = whole if isinstance(whole, dict) else {}
    zero_ns, no_thread = _number(mark, "zero_ns"), _number(mark, "no_thread")
    places = _frame(whole.get("places"), {"process": pl.Int64, "rank": pl.Int32, "pid": pl.Int64}, issues)
    places = places.unique("process", keep="first", maintain_order=True)

    def placed(table: str) -> pl.DataFrame:
        frame = found[table].join(places, left_on="pid", right_on="process", how="left", maintain_order="left")
        tid = pl.when(_col("tid") != no_thread).then("tid")
        return frame.with_columns(_col("ts_ns") + zero_ns, tid=tid).drop("pid").rename({"pid_right": "pid"})

    frames = {table: _rows(table, placed(table), found[_ENDS], zero_ns) for table in keys.EVENTS}
    series = _frame(whole.get("series"), {name: schema.COUNTERS.schema[name] for name in _SERIES}, issues)
    frames["counters"] = _counters(placed(_COUNTERS), series)
    for table in keys.WHOLE:
        frames[table] = _frame(whole.get(table), schema.TABLES[table].schema, issues)
    begins = _frame(whole.get(keys.CYCLES), {"rank": pl.Int32, "cycle": pl.Int32, "begin_ns": pl.Int64}, issues)
    if (begins := begins.drop_nulls()).height:
        frames |= {name: cycles.by_time(frames[name], begins) for name in schema.IN_CYCLES if name in frames}
    frames["issues"] = pl.concat([frames["issues"], issues.frame()])
    numbers = {rank: [*some["cycle"]] for (rank,), some in begins.group_by("rank", maintain_order=True)}
    ranks = [
        replace(one, cycles=tuple(replace(one, cycle=number) for number in numbers.get(one.rank, ())))
        for one in _ranks(whole.get("ranks"), path)
    ]
    return Tables(tuple(ranks), **frames)


def _number(mark: Mapping[str, Any], name: str) -> int:
    value = mark.get(name)
    return value if type(value) is int and abs(value) < 1 << 62 else 0


def _frame(columns: Any, dtypes: Mapping[str, schema.Dtype], issues: Issues) -> pl.DataFrame:
    """A table that is held as a whole; cells that are not what they should be are null, and counted."""
    columns = columns if isinstance(columns, dict) else {}
    given = {name: values for name, values in columns.items() if name in dtypes and isinstance(values, list)}
    height = max(map(len, given.values()), default=0)
    found = []
    for name, dtype in dtypes.items():
        values = [value if isinstance(value, (int, float, str)) else None for value in given.get(name, [])]
        texts = pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)
        if dtype == pl.Boolean:
            cells = texts.replace_strict({"True": True, "False": False}, default=None, return_dtype=pl.Boolean)
        else:
            cells = texts.cast(dtype, strict=False)
        issues.add("odd_cells", len(given.get(name, [])) - given.get(name, []).count(None) - cells.count(), name)
        found.append(cells.extend_constant(None, height - len(cells)))
    return pl.DataFrame(found)


def _ranks(ranks: Any, path: Path) -> tuple[Metadata, ...]:
    """As they were; but the file that they came from now is this one."""
    found = []
    for rank in ranks if isinstance(ranks, list) else []:
        rank = rank if isinstance(rank, dict) else {}
        texts: dict[str, Any] = {
            name: rank[name] if isinstance(rank.get(name), str) else None
            for name in ("tool", "tool_version", "host", "clock")
        }
        origin, options = rank.get("origin_utc_ns"), rank.get("options")
        source, number, by = rank.get("source"), rank.get("rank"), rank.get("rank_by")
        found.append(
            Metadata(
                source if isinstance(source, str) else "kineto",
                (str(path),),
                origin_utc_ns=origin if type(origin) is int and abs(origin) < 1 << 62 else None,
                options=options if isinstance(options, dict) else {},
                rank=number if type(number) is int and 0 <= number < MOST else 0,
                rank_by=by if isinstance(by, str) else ORDER,
                told=from_json(rank.get("told")),
                **texts,
            )
        )
    return tuple(found) or (Metadata("kineto", (str(path),)),)


def _rows(table: str, events: pl.DataFrame, ends: pl.DataFrame, zero_ns: int) -> pl.DataFrame:
    """The rows of a table, in the order of their numbers."""
    names = keys.EVENTS[table]
    columns = {column: _cell(table, column, key) for column, key in names.items()}
    name: pl.Expr = pl.when(_col(keys.UNNAMED).is_null()).then("name")
    columns |= {"rank": _col("rank"), "pid": columns.get("pid", _col("pid")), "tid": columns.get("tid", _col("tid"))}
    if table == "memory":
        device, given_back = columns["device_id"], columns["event"] == "free"
        columns["device_id"] = pl.when(device != -1).then(device)
        columns["bytes"] = pl.when(given_back).then(-columns["bytes"]).otherwise(columns["bytes"])
        columns["end_ns"] = _col("ts_ns") + columns["end_ns"]
        return events.select(time_ns="ts_ns", **columns).sort("row", maintain_order=True).drop("row")
    ends = ends.drop_nulls("id").unique("id", keep="first").select("id", pair_ns=_col("ts_ns") + zero_ns)
    events = events.join(ends, on="id", how="left", maintain_order="left")
    is_pair = _col("ph") == "b"  # what has no phase is a row of no table
    end = pl.when(is_pair).then("pair_ns").otherwise(_col("ts_ns") + _col("dur_ns"))
    columns["end_ns"] = pl.when(_col(keys.ENDED).is_null()).then(end)
    if table == "ranges":
        is_async = is_pair & _col(keys.OVERLAPS).is_null()
        columns |= {"is_async": is_async, "is_mark": _col("ph") == "i"}
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
    value = _col(key) if _as(table, column) == INTEGER else _col(key).cast(pl.String)
    return value.cast(dtype, strict=False)


def _counters(events: pl.DataFrame, series: pl.DataFrame) -> pl.DataFrame:
    known = series.with_row_index("series").with_columns(_col("series").cast(pl.Int64))
    rows = events.with_columns(series=_col("cat").cast(pl.String).cast(pl.Int64, strict=False)).drop("name")
    rows = rows.join(known, on="series", how="left", maintain_order="left")
    value = _col("value").cast(pl.String).cast(pl.Float64, strict=False)
    return rows.select("rank", "pid", "tid", *_SERIES, value, time_ns="ts_ns")
