"""Reads tasks, frames, regions and markers into the table `ranges`.

    task_data: start_tsc, end_tsc, attr 1, __bucket_idx 44
    dd_task 1: type 1, parameter NULL       dd_task_type 1: 'aten::mm, seq = 3', domain 4       dd_domain 4: 'PyTorch'

VTune stores no task ids, parents or relations; the analysis nests tasks. The name of a task may be a label, as above.
opspan also sends the fields of a label (seq, op_id, ...) as metadata of the task. VTune would store metadata in
dd_task.parameter, so the fields are searched there, although no known file has metadata.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future

import polars as pl

from opspan import json_columns, native
from opspan.formats.columns import LABELLED_DOMAINS, OWN_DOMAIN, constant, parse_labels
from opspan.formats.sqlite import ROWID, THREADS
from opspan.labels import KIND_NAMES, Kind
from opspan.readers.vtune import tables
from opspan.readers.vtune.database import ResultDatabase, builtin
from opspan.tables.schema import KIND

# Columns of tasks, frames, regions and markers, before their labels are parsed.
_PART = {
    **dict.fromkeys(("pid", "tid", "start_ns", "end_ns"), pl.Int64),
    "label": pl.String,
    "domain": pl.Categorical,
    "category": pl.Categorical,
    **dict.fromkeys(("parameter", "payload_json"), pl.String),
    **dict.fromkeys(("is_async", "is_mark"), pl.Boolean),
}

_NOTHING = pl.Series([None], dtype=pl.String)


def begin(database: ResultDatabase, beside: Executor) -> tuple[pl.DataFrame, Future[pl.DataFrame]]:
    """Returns the ranges with unparsed labels, and a future of the table `ranges`. The executor `beside` makes this
    table in the background."""
    tasks = _cast(_of_types(database, tables.TASKS, tables.TASK, tables.TASK_TYPE))
    fields = beside.submit(_label_fields, tasks)  # started first, because most ranges are tasks
    parts = [_frames(database), _regions(database), *(_markers(database, table) for table in tables.MARKERS)]
    others = pl.concat([_cast(part) for part in parts])
    events = pl.concat([tasks, others]) if others.height else tasks
    return events, beside.submit(_together, events, fields, others)


def _together(events: pl.DataFrame, fields: Future[pl.DataFrame], others: pl.DataFrame) -> pl.DataFrame:
    of_all = pl.concat([fields.result(), _label_fields(others)], how="diagonal") if others.height else fields.result()
    return _table(events, of_all)


def _cast(part: pl.DataFrame) -> pl.DataFrame:
    return part.select(pl.col(name).cast(kind) for name, kind in _PART.items())


def _of_types(database: ResultDatabase, table: str, details: str, types: str) -> pl.DataFrame:
    """Returns tasks or markers. A row of `table` refers to a row of `details`, and this row refers to a row of `types`,
    which has the name."""
    rows = database.follow(database.instances(table), table, "attr", tables.DETAILS_COLUMNS, details)
    rows = database.follow(rows, details, "type", tables.NAME_IN_DOMAIN_COLUMNS, types)
    rows = database.in_domain(rows, types)
    return _part(rows, "name", parameter="parameter", is_async=pl.lit(value=False))


def _frames(database: ResultDatabase) -> pl.DataFrame:
    """Returns the frames. A frame has no name, so it gets the name of its domain."""
    rows = database.instances(tables.FRAMES)
    rows = database.follow(rows, tables.FRAMES, "attr", tables.FRAME_COLUMNS, tables.FRAME)
    rows = database.in_domain(rows, tables.FRAME)
    rows = database.follow(rows, tables.FRAME, "type", tables.NAME_COLUMNS, tables.FRAME_TYPE)
    instance = pl.col("instance").cast(pl.String).fill_null("null")
    rate = pl.lit(json_columns.written(rows.select(builtin("name")).to_series(), json_columns.text)).fill_null("null")
    json = pl.concat_str(pl.lit('{"instance": '), instance, pl.lit(', "rate": '), rate, pl.lit("}"))
    return _of_process(database, _part(rows, "domain_name", payload_json=json))


def _regions(database: ResultDatabase) -> pl.DataFrame:
    """Returns the regions. A region gets the name of its domain, or the name of its type if it has no domain."""
    rows = database.instances(tables.REGIONS)
    of, column = tables.REGIONS, "attr"
    if database.target(of, column, tables.REGION_INSTANCE, tables.REGION) == tables.REGION:
        rows = rows.with_columns(pl.col("attr").alias("region"), pl.lit(None, dtype=pl.String).alias("parameter"))
    else:
        rows = database.follow(rows, of, column, tables.REGION_INSTANCE_COLUMNS, tables.REGION_INSTANCE)
        of, column = tables.REGION_INSTANCE, "region"
    rows = database.follow(rows, of, "region", tables.REGION_COLUMNS, tables.REGION, named=column)
    rows = database.follow(rows, tables.REGION, "type", tables.REGION_TYPE_COLUMNS, tables.REGION_TYPE)
    names = database.names(tables.REGION_TYPE_NAME).select(ROWID, later="name")
    rows = database.look_up(rows, "type_name", names, f"{tables.REGION_TYPE}.type_name", tables.REGION_TYPE_NAME)
    rows = rows.with_columns(pl.coalesce("later", "name").alias("kind"))
    rows = database.in_domain(rows, tables.REGION)
    owners = database.processes.select(ROWID, owner="pid")
    rows = database.look_up(rows, "process", owners, f"{tables.REGION}.process", tables.PROCESS)
    rows = rows.with_columns(
        pl.coalesce("pid", "owner").alias("pid"), pl.coalesce("domain_name", builtin("kind")).alias("called")
    )
    return _of_process(database, _part(rows, "called", category=builtin("kind"), parameter="parameter"))


def _markers(database: ResultDatabase, table: str) -> pl.DataFrame:
    part = _of_types(database, table, tables.MARKER, tables.MARKER_TYPE)
    return _of_process(database, part.with_columns(end_ns=pl.lit(None), is_mark=pl.lit(value=True)))


def _part(rows: pl.DataFrame, label: str, **others: pl.Expr | str) -> pl.DataFrame:
    """Returns a frame with the columns of _PART. `label` is the column of `rows` that has the label."""
    nothing = {name: pl.lit(None) for name in ("category", "parameter", "payload_json")}
    return rows.select(
        *("pid", "tid", "start_ns", "end_ns"),
        pl.col(label).cast(pl.String).alias("label"),
        pl.col("domain_name").alias("domain"),
        pl.lit(value=False).alias("is_mark"),
        **{"is_async": pl.lit(value=True), **nothing, **others},
    )


def _of_process(database: ResultDatabase, part: pl.DataFrame) -> pl.DataFrame:
    """Assigns events without a thread to the program's process, if the program has only one process."""
    pids = database.pids
    return part.with_columns(pl.col("pid").fill_null(pids[0])) if len(pids) == 1 else part


def ranges(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the table `ranges` for a frame with the columns of _PART."""
    return _table(frame, _label_fields(frame))


def _table(frame: pl.DataFrame, fields: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        *("pid", "tid", "start_ns", "end_ns", "domain", "category", "is_async", "is_mark"),
        constant("itt").alias("source"),
        *fields.iter_columns(),
    )


def _label_fields(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the fields of labels and parameters, without empty columns."""
    domain, parameters = frame["domain"], frame["parameter"]
    is_own = frame.select(pl.col("domain").eq_missing(pl.lit(OWN_DOMAIN, dtype=pl.Categorical))).to_series()
    own = native.metadata(parameters if is_own.all() else parameters.zip_with(is_own, _NOTHING), THREADS)
    beside = own.select(pl.any_horizontal(pl.col("seq", "op_id", "sizes").is_not_null())).to_series()
    may_be = domain.is_null() | domain.is_in(LABELLED_DOMAINS)
    labels = parse_labels(frame["label"] if may_be.all() else frame["label"].zip_with(may_be, _NOTHING))
    kind = labels["kind"].fill_null(0)
    plain = frame["label"].cast(pl.Categorical)
    # If the parameter has fields of a label, the name is not read as a label, even if the name looks like one. The
    # range's kind is still guessed from the name.
    if beside.any():
        of_others = pl.when(~pl.lit(beside)).then(pl.all())
        labels = labels.clear(1) if beside.all() else labels.with_columns(of_others)
    # In a text label of opspan, a missing forward thread means the main thread: opspan omits it to have fewer distinct
    # names.
    is_main = is_own & (kind == int(Kind.BACKWARD)) & ~beside
    main = frame["pid"].zip_with(is_main, _NOTHING.cast(pl.Int64)) if is_main.any() else None
    payload = native.json_objects(parameters, THREADS)
    columns = [
        _first(labels["name"], plain).alias("name"),
        pl.Series("kind", KIND_NAMES, dtype=KIND)[kind],
        _first(own["seq"], labels["seq"]),
        _number(_first(own["op_id"], labels["op_id"])),
        _number(_first(own["forward_tid"], labels["forward_tid"], main)),
        _first(own["sizes"], labels["sizes"]),
        *(labels[name] for name in ("text", "input_op_ids", "class_name", "args")),
        _first(payload, frame["payload_json"]).alias("payload_json"),
    ]
    return pl.DataFrame([column for column in columns if column.null_count() < len(column)])


def _first(*columns: pl.Series | None) -> pl.Series:
    """Returns for each row the first value that is not null. Is faster than pl.coalesce if columns have no nulls."""
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
    """Replaces 0, which means no number, by null."""
    is_none = (numbers == 0).fill_null(value=False)
    return numbers.set(is_none, None) if is_none.any() else numbers
