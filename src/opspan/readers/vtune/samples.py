"""Reads samples with their stacks into the table `samples`.

    cpu_data   user-mode sampling. A row describes a thread's activity until end_tsc; `duration` is CPU time in ticks.
    pmu_data   hardware sampling at end_tsc. `count` is how many events occurred since the last sample.
               This table is mostly in a container beside the database (containers.py).
    attr -> dd_sample -> dd_callsite (and its parents) -> dd_code_location        references
    dd_code_location -> dd_function_range -> dd_function_instance -> dd_function
    dd_code_location -> dd_module_segment -> dd_module_file, for example the module /usr/lib64/libc-2.28.so

A row of dd_sample with an uncore_event_type is about a part of the processor that all cores share, such as the memory
controller. It has no functions. Its row of pmu_data is a count, and so becomes a counter.

A callsite that is a loop is left out if it has a parent, because the parent is the loop's function. If the tool only
counted events, each event has one row for the whole run. These rows become counters.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from opspan.formats.columns import constant, narrow
from opspan.formats.sqlite import ROWID
from opspan.readers.vtune import containers, tables
from opspan.readers.vtune.database import TICKS_OF_NS, ResultDatabase, timed
from opspan.tables.schema import STACK_SEPARATOR

DEEPEST = 4_096  # limit on frames of a stack, because callsites of a damaged file may form a cycle
UNKNOWN = "?"
MOST_FRAMES = 50_000_000  # limit on the frames of all distinct stacks together
PMU = "pmu_data"
IN_CONTAINER = ("end_tsc", "start_tsc", "count", "dd_sample", "__bucket_idx.dd_thread")
_PARTS = {"stack": "function", "libraries": "library"}  # columns of samples, and what a frame has for each


def read(database: ResultDatabase, sites: pl.DataFrame, beside: tuple[Path, ...]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the table `samples`, and counters of events that were counted but not sampled, and of uncore events.
    `sites` comes from the function `sites`, `beside` are the folders of tables outside SQLite."""
    user, hardware = (database.aggregates(view) for view in tables.SAMPLES)
    user = user.with_columns(weight=pl.col("duration") // TICKS_OF_NS)
    parts = [user, hardware.with_columns(weight="count"), *_read_containers(database, beside)]
    wanted = ["attr", "pid", "tid", "start_ns", "end_ns", "weight"]
    rows = _with_details(database, sites, pl.concat([part.select(wanted) for part in parts]))
    is_uncore = pl.col("uncore").is_not_null()
    is_count = ((pl.col("events_per_sample") == 0) & pl.col("event").is_not_null()).fill_null(value=False)
    # A sample's time is its end, because the sample describes the activity until then.
    time = pl.coalesce("end_ns", "start_ns").alias("time_ns")
    place = (pl.lit(0, pl.Int32).alias("rank"), pl.col("pid", "tid"), time)
    samples = rows.filter(~is_count & ~is_uncore).select(*place, "cpu", "weight", "event", *_PARTS)
    value = pl.col("weight").cast(pl.Float64)
    counters = rows.filter(is_count).select(*place, name="event", value=value)
    uncore = rows.filter(is_uncore).select(
        *place, constant(tables.OWN_DOMAIN).alias("domain"), name="uncore", value=value
    )
    counters = pl.concat([counters, uncore], how="diagonal")
    return narrow(samples, tables.SAMPLE, {"cpu": pl.Int32}, database.issues), counters


def _read_containers(database: ResultDatabase, beside: tuple[Path, ...]) -> list[pl.DataFrame]:
    parts = []
    for folder in beside:
        if folder.name != PMU:
            continue
        rows = containers.read(folder, IN_CONTAINER, database.issues)
        if rows is None:
            count = containers.count(folder, database.issues)
            database.issues.add("skipped_tables", count, f"{folder.name}, in a container of another kind")
            continue
        rows = timed(rows, PMU, database.issues)
        owners = database.of_threads(rows["__bucket_idx.dd_thread"], PMU)
        parts.append(rows.rename({"dd_sample": "attr", "count": "weight"}).with_columns(owners))
    return parts


def _uncore(database: ResultDatabase, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `uncore`: the name of the row's uncore event with its unit and processor, null for other events. The same
    event of another unit is another counter."""
    if rows["uncore_event_type"].null_count() == rows.height:
        return rows.with_columns(uncore=pl.lit(None, dtype=pl.Categorical))
    types = database.rows(tables.UNCORE_TYPE, tables.UNCORE_TYPE_COLUMNS).rename({"name": "uncore"})
    units = database.names(tables.UNCORE_UNIT).rename({"name": "unit_name"})
    types = database.look_up(types, "unit", units, f"{tables.UNCORE_TYPE}.unit", tables.UNCORE_UNIT)
    of = f"{tables.SAMPLE}.uncore_event_type"
    rows = database.look_up(rows, "uncore_event_type", types, of, tables.UNCORE_TYPE)
    place = pl.concat_str("unit_name", "processor", separator=", ", ignore_nulls=True)
    name = pl.when(place != "").then(pl.format("{} ({})", "uncore", place)).otherwise("uncore")
    is_uncore = (pl.col("uncore_event_type") > 0).fill_null(value=False)
    return rows.with_columns(uncore=pl.when(is_uncore).then(name.fill_null(UNKNOWN)).cast(pl.Categorical))


def _with_details(database: ResultDatabase, sites: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds cpu, event, events_per_sample, stack and libraries to the samples."""
    samples = database.rows(tables.SAMPLE, tables.SAMPLE_COLUMNS)
    rows = database.look_up(rows, "attr", samples, f"{' and '.join(tables.SAMPLES)}, attr,", tables.SAMPLE)
    names = database.names(tables.PROCESSOR).select(ROWID, processor="name")
    rows = database.look_up(rows, "cpu", names, f"{tables.SAMPLE}.cpu", tables.PROCESSOR)
    types = database.rows(tables.EVENT_TYPE, tables.EVENT_TYPE_COLUMNS)
    known = database.rows(tables.EVENT_NAME, tables.EVENT_NAME_COLUMNS).select(name_id=ROWID, later="value")
    types = types.with_columns(name_id=pl.col("name").cast(pl.Int64, strict=False))
    types = types.join(known, on="name_id", how="left").select(
        ROWID, "events_per_sample", pl.coalesce("later", "name").cast(pl.Categorical).alias("event")
    )
    rows = database.look_up(rows, "event_type", types, f"{tables.SAMPLE}.event_type", tables.EVENT_TYPE)
    of_sites = stacks(database, sites, rows["callsite"])
    rows = database.look_up(rows, "callsite", of_sites, f"{tables.SAMPLE}.callsite", tables.CALLSITE)
    rows = _uncore(database, rows)
    return rows.with_columns(pl.col("processor").str.extract(r"(\d{1,6})$").cast(pl.Int64).alias("cpu"))


def stacks(database: ResultDatabase, sites: pl.DataFrame, used: pl.Series) -> pl.DataFrame:
    """Returns the stack of each callsite in use, and the libraries of its functions, with the outermost first. `sites`
    comes from the function `sites`."""
    parents = sites.select(at=ROWID, up="parent")
    wanted = pl.DataFrame({ROWID: used.drop_nulls().unique()}).join(sites.select(ROWID), on=ROWID, how="semi")
    at = wanted.with_columns(pl.col(ROWID).alias("at"))
    levels, frames = [], 0
    for depth in range(DEEPEST):
        at = at.filter(pl.col("at").is_not_null())
        frames += at.height
        if not at.height or frames > MOST_FRAMES:
            break
        levels.append(at.with_columns(depth=pl.lit(depth, dtype=pl.Int32)))
        at = at.join(parents, on="at", how="left").select(ROWID, pl.col("up").alias("at"))
    # A callsite gets no stack if it has DEEPEST or more ancestors (a cycle has no end), or if all callsites together
    # have more than MOST_FRAMES frames before its stack is complete.
    endless = at.filter(pl.col("at").is_not_null())[ROWID].unique()
    database.issues.add("damaged_file", len(endless), f"{tables.CALLSITE}, callsites without an end")
    if not levels:
        return pl.DataFrame(schema={ROWID: pl.Int64, **dict.fromkeys(_PARTS, pl.Categorical)})
    calls = pl.concat(levels).filter(~pl.col(ROWID).is_in(endless.implode()))
    calls = calls.join(sites.select("function", "library", "is_hidden", at=ROWID), on="at", how="left")
    calls = _within_budget(database, calls.filter(~pl.col("is_hidden"))).sort("depth", descending=True)
    joined = (pl.col(part).str.join(STACK_SEPARATOR).cast(pl.Categorical).alias(name) for name, part in _PARTS.items())
    return calls.group_by(ROWID).agg(*joined)


def _within_budget(database: ResultDatabase, calls: pl.DataFrame) -> pl.DataFrame:
    """Returns the frames of the stacks whose texts are within the limit of the file: a text is in the file once, but
    any number of stacks may have it."""
    size = pl.sum_horizontal(pl.col(part).str.len_bytes().cast(pl.Int64) + 1 for part in _PARTS.values())
    sizes = calls.group_by(ROWID).agg(size.sum().alias("size")).sort(ROWID)
    fit = database.written.fits(sizes["size"])
    return calls if fit.all() else calls.join(sizes.filter(fit), on=ROWID, how="semi")


def sites(database: ResultDatabase) -> pl.DataFrame:
    """Returns function, library, parent and is_hidden of all callsites. is_hidden is true for a loop whose parent is
    the loop's function."""
    sites = database.rows(tables.CALLSITE, tables.CALLSITE_COLUMNS)
    sites = database.follow(sites, tables.CALLSITE, "code_loc", tables.CODE_COLUMNS, tables.CODE)
    sites = database.follow(sites, tables.CODE, "func_range", tables.FUNCTION_RANGE_COLUMNS, tables.FUNCTION_RANGE)
    instance = tables.FUNCTION_INSTANCE
    sites = database.follow(sites, tables.FUNCTION_RANGE, "func_inst", tables.FUNCTION_INSTANCE_COLUMNS, instance)
    sites = database.follow(sites, instance, "function", tables.NAME_COLUMNS, tables.FUNCTION)
    sites = database.follow(sites, tables.CODE, "mod_seg", tables.SEGMENT_COLUMNS, tables.SEGMENT)
    sites = database.follow(sites, tables.SEGMENT, "mod_file", tables.MODULE_COLUMNS, tables.MODULE)
    above = pl.coalesce("parent", "parent_raw")
    parent = pl.when(above > 0).then(above)
    is_loop = (pl.col("type") == tables.LOOP).fill_null(value=False)
    return sites.select(
        ROWID,
        parent.alias("parent"),
        _text("name").alias("function"),
        _text("bin_path", "bin_name").alias("library"),
        (is_loop & parent.is_not_null()).alias("is_hidden"),
    )


def _text(*columns: str) -> pl.Expr:
    """Returns the first text that is not empty. Names of C++ functions may contain the separator, so it is replaced."""
    texts = (pl.when(pl.col(column) != "").then(pl.col(column)) for column in columns)
    return pl.coalesce(*texts, pl.lit(UNKNOWN)).str.replace_all(STACK_SEPARATOR, ",", literal=True)
