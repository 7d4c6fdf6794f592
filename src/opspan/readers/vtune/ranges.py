"""Tasks, frames, regions and markers -> the table ranges.

    task_data: start_tsc, end_tsc, attr 1, __bucket_idx 44
    dd_task 1: type 1, parameter NULL       dd_task_type 1: 'aten::mm, seq = 3', domain 4       dd_domain 4: 'PyTorch'

VTune keeps no task ids, parents or relations; nesting is analysis. What it keeps of a task's metadata was never seen in
a file; what there is stands in dd_task.parameter, and the fields of a label are looked for in it however it is written.
"""

from __future__ import annotations

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


def read(database: Database) -> pl.DataFrame:
    parts = [_tasks(database), _frames(database), _regions(database)]
    parts += [_markers(database, table) for table in tables.MARKERS]
    whole = pl.concat([part.select(pl.col(name).cast(kind) for name, kind in _PART.items()) for part in parts])
    return ranges(whole)


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
    col = pl.col
    may_be = frame["domain"].is_null() | frame["domain"].is_in(LABELLED_DOMAINS)
    own = col("domain").eq_missing(pl.lit(OWN_DOMAIN, dtype=pl.Categorical))
    is_own = frame.select(own).to_series()
    parameters = frame["parameter"]
    of_own = parameters if is_own.all() else parameters.zip_with(is_own, pl.Series([None], dtype=pl.String))
    said = native.metadata(of_own, THREADS)
    frame = frame.with_columns(said.select(pl.all().name.prefix("m_")))
    beside = frame.select(pl.any_horizontal(col("m_seq", "m_op_id", "m_sizes").is_not_null())).to_series()
    nothing = pl.Series([None], dtype=pl.String)
    # Where the label stands beside the name, the name is a name, whatever it looks like; its kind is still guessed.
    whole = parse_labels(frame["label"].zip_with(may_be, nothing))
    plain = frame["label"].cast(pl.Categorical)
    labels = whole.with_columns(beside=beside, may_be=may_be, plain=plain).select(
        pl.when("beside").then("plain").otherwise(pl.coalesce("name", "plain")).alias("p_name"),
        *(
            pl.when(~col("beside")).then(name).alias(f"p_{name}")
            for name in ("text", "seq", "op_id", "forward_tid", "class_name", "args", "sizes", "input_op_ids")
        ),
        col("kind").fill_null(0).alias("p_kind"),
    )
    payload = native.json_objects(parameters, THREADS)
    if frame["payload_json"].count():
        payload = frame.select(pl.coalesce(pl.lit(payload), "payload_json")).to_series()
    frame = pl.concat([frame, labels], how="horizontal")
    # An own label without the field means the main thread, which is left out to keep names few.
    main = own & (col("p_kind") == int(Kind.BACKWARD)) & ~pl.lit(beside)
    return frame.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        "pid",
        "tid",
        "start_ns",
        "end_ns",
        col("p_name").alias("name"),
        col("p_text").alias("text"),
        pl.Series("kind", KIND_NAMES, dtype=KIND).gather(frame["p_kind"]),
        constant("itt").alias("source"),
        "domain",
        "category",
        pl.coalesce("m_seq", "p_seq").alias("seq"),
        pl.coalesce("m_op_id", "p_op_id").replace(0, None).alias("op_id"),
        pl.coalesce("m_forward_tid", "p_forward_tid", pl.when(main).then("pid")).replace(0, None).alias("forward_tid"),
        pl.coalesce("m_sizes", "p_sizes").alias("sizes"),
        col("p_input_op_ids").alias("input_op_ids"),
        col("p_class_name").alias("class_name"),
        col("p_args").alias("args"),
        payload.alias("payload_json"),
        "is_async",
        "is_mark",
    )
