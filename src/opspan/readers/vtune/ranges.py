"""Tasks, frames, regions and markers -> the table ranges.

    task_data: start_tsc, end_tsc, attr 1, __bucket_idx 44
    dd_task 1: type 1, parameter NULL       dd_task_type 1: 'aten::mm, seq = 3', domain 4       dd_domain 4: 'PyTorch'

VTune keeps no task ids, parents or relations; nesting is analysis. What it keeps of a task's metadata was never seen in
a file; what there is stands in dd_task.parameter, and the fields of a label are looked for in it however it is written.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future

import polars as pl

from opspan import json_columns, native
from opspan.formats.columns import LABELLED_DOMAINS, OWN_DOMAIN, constant, parse_labels
from opspan.formats.sqlite import ROWID, THREADS
from opspan.labels import KIND_NAMES, Kind
from opspan.readers.vtune import tables
from opspan.readers.vtune.database import Database, builtin
from opspan.tables.schema import KIND

# What the parts have in common, before it is known what their names say.
_PART = {
    "pid": pl.Int64,
    "tid": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "label": pl.String,
    "domain": pl.Categorical,
    "category": pl.Categorical,
    "parameter": pl.String,
    "payload_json": pl.String,
    "is_async": pl.Boolean,
    "is_mark": pl.Boolean,
}

_NOTHING = pl.Series([None], dtype=pl.String)


def begin(database: Database, beside: Executor) -> tuple[pl.DataFrame, Future[pl.DataFrame]]:
    """Read what the ranges are made of: whose they are and when; and the table, which is made beside."""
    tasks = _cast(_tasks(database))
    said = beside.submit(_said, tasks)  # tasks are most of them
    parts = [_frames(database), _regions(database), *(_markers(database, table) for table in tables.MARKERS)]
    others = pl.concat([_cast(part) for part in parts])
    whole = pl.concat([tasks, others]) if others.height else tasks
    return whole, beside.submit(_together, whole, said, others)


def _together(whole: pl.DataFrame, said: Future[pl.DataFrame], others: pl.DataFrame) -> pl.DataFrame:
    of_all = pl.concat([said.result(), _said(others)], how="diagonal") if others.height else said.result()
    return _table(whole, of_all)


def _cast(part: pl.DataFrame) -> pl.DataFrame:
    return part.select(pl.col(name).cast(kind) for name, kind in _PART.items())


def _tasks(database: Database) -> pl.DataFrame:
    found = database.instances(tables.TASKS)
    found = database.follow(found, tables.TASKS, "attr", tables.TASK_COLUMNS, tables.TASK)
    found = database.follow(found, tables.TASK, "type", tables.NAME_IN_DOMAIN_COLUMNS, tables.TASK_TYPE)
    found = database.in_domain(found, tables.TASK_TYPE)
    return _part(found, "name", "domain_name", parameter="parameter", is_async=pl.lit(value=False))


def _frames(database: Database) -> pl.DataFrame:
    """A frame has no name: it is one of its domain's."""
    found = database.instances(tables.FRAMES)
    found = database.follow(found, tables.FRAMES, "attr", tables.FRAME_COLUMNS, tables.FRAME)
    found = database.in_domain(found, tables.FRAME)
    found = database.follow(found, tables.FRAME, "type", tables.NAME_COLUMNS, tables.FRAME_TYPE)
    instance = pl.col("instance").cast(pl.String).fill_null("null")
    rate = pl.lit(json_columns.written(found.select(builtin("name")).to_series(), json_columns.text)).fill_null("null")
    json = pl.concat_str(pl.lit('{"instance": '), instance, pl.lit(', "rate": '), rate, pl.lit("}"))
    return _of_process(database, _part(found, "domain_name", "domain_name", payload_json=json))


def _regions(database: Database) -> pl.DataFrame:
    """A region is called like its domain, unless that is one of VTune's own; then like its type."""
    found = database.instances(tables.REGIONS)
    of, column = tables.REGIONS, "attr"
    if database.target(of, column, tables.REGION_INSTANCE, tables.REGION) == tables.REGION:
        found = found.with_columns(pl.col("attr").alias("region"), pl.lit(None, dtype=pl.String).alias("parameter"))
    else:
        found = database.follow(found, of, column, tables.REGION_INSTANCE_COLUMNS, tables.REGION_INSTANCE)
        of, column = tables.REGION_INSTANCE, "region"
    found = database.follow(found, of, "region", tables.REGION_COLUMNS, tables.REGION, named=column)
    found = database.follow(found, tables.REGION, "type", tables.REGION_TYPE_COLUMNS, tables.REGION_TYPE)
    names = database.names(tables.REGION_TYPE_NAME).select(ROWID, later="name")
    found = database.referred(found, "type_name", names, f"{tables.REGION_TYPE}.type_name", tables.REGION_TYPE_NAME)
    found = found.with_columns(pl.coalesce("later", "name").alias("kind"))
    found = database.in_domain(found, tables.REGION)
    owners = database.processes.select(ROWID, owner="pid")
    found = database.referred(found, "process", owners, f"{tables.REGION}.process", tables.PROCESS)
    found = found.with_columns(
        pl.coalesce("pid", "owner").alias("pid"), pl.coalesce("domain_name", builtin("kind")).alias("called")
    )
    return _of_process(
        database, _part(found, "called", "domain_name", category=builtin("kind"), parameter=pl.col("parameter"))
    )


def _markers(database: Database, table: str) -> pl.DataFrame:
    found = database.instances(table)
    found = database.follow(found, table, "attr", tables.MARKER_COLUMNS, tables.MARKER)
    found = database.follow(found, tables.MARKER, "type", tables.NAME_IN_DOMAIN_COLUMNS, tables.MARKER_TYPE)
    found = database.in_domain(found, tables.MARKER_TYPE)
    part = _part(found, "name", "domain_name", parameter="parameter", is_async=pl.lit(value=False))
    return _of_process(database, part.with_columns(end_ns=pl.lit(None), is_mark=pl.lit(value=True)))


def _part(found: pl.DataFrame, label: str, domain: str, **others: pl.Expr | str) -> pl.DataFrame:
    nothing = {name: pl.lit(None) for name in ("category", "parameter", "payload_json") if name not in others}
    columns = {"is_async": pl.lit(value=True), **nothing, **others}
    return found.select(
        "pid",
        "tid",
        "start_ns",
        "end_ns",
        pl.col(label).cast(pl.String).alias("label"),
        pl.col(domain).alias("domain"),
        pl.lit(value=False).alias("is_mark"),
        **{name: pl.col(value) if isinstance(value, str) else value for name, value in columns.items()},
    )


def _of_process(database: Database, part: pl.DataFrame) -> pl.DataFrame:
    """What has no thread belongs to the process, where there is only one that is not VTune's own."""
    pids = database.pids
    return part.with_columns(pl.col("pid").fill_null(pids[0])) if len(pids) == 1 else part


def ranges(frame: pl.DataFrame) -> pl.DataFrame:
    """The table ranges, of label, domain, parameter and what else is known."""
    return _table(frame, _said(frame))


def _table(frame: pl.DataFrame, said: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        *("pid", "tid", "start_ns", "end_ns", "domain", "category", "is_async", "is_mark"),
        constant("itt").alias("source"),
        *said.iter_columns(),
    )


def _is_own(frame: pl.DataFrame) -> pl.Series:
    return frame.select(pl.col("domain").eq_missing(pl.lit(OWN_DOMAIN, dtype=pl.Categorical))).to_series()


def _said(frame: pl.DataFrame) -> pl.DataFrame:
    """What labels and parameters say, without the columns that hold nothing."""
    domain, parameters, is_own = frame["domain"], frame["parameter"], _is_own(frame)
    told = native.metadata(parameters if is_own.all() else parameters.zip_with(is_own, _NOTHING), THREADS)
    beside = told.select(pl.any_horizontal(pl.col("seq", "op_id", "sizes").is_not_null())).to_series()
    may_be = domain.is_null() | domain.is_in(LABELLED_DOMAINS)
    labels = parse_labels(frame["label"] if may_be.all() else frame["label"].zip_with(may_be, _NOTHING))
    kind = labels["kind"].fill_null(0)
    plain = frame["label"].cast(pl.Categorical)
    # Where the label stands beside the name, the name is a name, whatever it looks like; its kind is still guessed.
    if beside.any():
        of_others = pl.when(~pl.lit(beside)).then(pl.all())
        labels = labels.clear(1) if beside.all() else labels.with_columns(of_others)
    # An own label without the field means the main thread, which is left out to keep names few.
    is_main = is_own & (kind == int(Kind.BACKWARD)) & ~beside
    main = frame["pid"].zip_with(is_main, _NOTHING.cast(pl.Int64)) if is_main.any() else None
    payload = native.json_objects(parameters, THREADS)
    columns = [
        _first(labels["name"], plain).alias("name"),
        pl.Series("kind", KIND_NAMES, dtype=KIND)[kind],
        _first(told["seq"], labels["seq"]),
        _number(_first(told["op_id"], labels["op_id"])),
        _number(_first(told["forward_tid"], labels["forward_tid"], main)),
        _first(told["sizes"], labels["sizes"]),
        *(labels[name] for name in ("text", "input_op_ids", "class_name", "args")),
        _first(payload, frame["payload_json"]).alias("payload_json"),
    ]
    return pl.DataFrame([column for column in columns if column.null_count() < len(column)])


def _first(*columns: pl.Series | None) -> pl.Series:
    """What the first of the columns holds that holds something in that row."""
    first, *others = (column for column in columns if column is not None)
    for other in others:
        if not first.null_count():
            break
        if other.null_count() < len(other):
            first = (
                other.alias(first.name)
                if first.null_count() == len(first)
                else first.zip_with(first.is_not_null(), other)
            )
    return first


def _number(numbers: pl.Series) -> pl.Series:
    """0 is none."""
    is_none = (numbers == 0).fill_null(value=False)
    return numbers.set(is_none, None) if is_none.any() else numbers
