"""Reads the form of rocprofv3 and rocprof-sys (schema 3): each run has separate tables, with the run's suffix.

    rocpd_region           an interval on a thread: a call or a marker (roctx). The category of its event says which.
    rocpd_kernel_dispatch  a kernel
    rocpd_memory_copy      a copy
    rocpd_memory_allocate  an allocation, or a free
    rocpd_event            category and stack id for each row above. GPU work has the stack id of its call.

`pid` and `tid` in these tables are ids of rows in rocpd_info_process and rocpd_info_thread. The environment of a
process is JSON: {"RANK": "3", "WORLD_SIZE": "8", ...}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from opspan.formats.columns import constant, labelled, numbered
from opspan.formats.kernel_names import kernel_names
from opspan.formats.sqlite import Type
from opspan.readers.rocpd.database import RocpdDatabase, base_name
from opspan.tables import Metadata, Tables, Told
from opspan.tables.metadata import VARIABLES, from_environment
from opspan.tables.processes import in_ranks
from opspan.tables.schema import WORK_KIND

_col = pl.col
_MARKER = "MARKER"  # categories of markers begin with this word, such as MARKER_CORE_API
_WHERE: dict[str, Type] = {"guid": "text", "pid": "int", "tid": "int", "start": "int", "end": "int", "event_id": "int"}
REGION: dict[str, Type] = {**_WHERE, "name_id": "int", "extdata": "text"}
GRID = ("x", "y", "z")
_NUMBERS = ("agent_id", "kernel_id", "queue_id", "stream_id", "group_segment_size")
_SIZES = tuple(f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in GRID)
DISPATCH: dict[str, Type] = {**_WHERE, **dict.fromkeys((*_NUMBERS, *_SIZES), "int")}
COPY: dict[str, Type] = {
    **_WHERE,
    **dict.fromkeys(("name_id", "dst_agent_id", "src_agent_id", "queue_id", "stream_id", "size"), "int"),
}
ALLOCATION: dict[str, Type] = {**_WHERE, "agent_id": "int", "size": "int", "type": "text", "address": "text"}


def matches(tables: Iterable[str]) -> bool:
    bases = {base_name(table) for table in tables}
    return {"rocpd_string", "rocpd_event", "rocpd_region", "rocpd_kernel_dispatch", "rocpd_info_process"} <= bases


class RunTables:
    """The tables that rows of other tables refer to by guid and id."""

    def __init__(self, database: RocpdDatabase) -> None:
        self.database = database
        frame = self.keyed
        self.strings = frame("rocpd_string", {"string": "text"})
        self.events = frame("rocpd_event", {"category_id": "int", "stack_id": "int"})
        process: dict[str, Type] = {"nid": "int", "ppid": "int", "pid": "int", "command": "text", "environment": "text"}
        self.processes = frame("rocpd_info_process", process)
        self.threads = frame("rocpd_info_thread", {"pid": "int", "tid": "int", "name": "text"})
        self.agents = frame(
            "rocpd_info_agent", {"type": "text", "type_index": "int", "name": "text", "product_name": "text"}
        )

    def keyed(self, table: str, columns: Mapping[str, Type]) -> pl.DataFrame:
        keys: dict[str, Type] = {"guid": "text", "id": "int"}
        return self.database.frame(table, {**keys, **columns}).unique(["guid", "id"], keep="first", maintain_order=True)

    def rows(self, table: str, columns: Mapping[str, Type]) -> pl.DataFrame:
        """Returns the rows of a table with their times, the pid and tid of the operating system, the category, and the
        stack id. A call and the work that it started have the same stack id."""
        frame = self.database.timed(table, columns)
        frame = self.look_up(frame, "event_id", self.events, {"category_id": "category_id", "stack_id": "stack_id"})
        frame = self.look_up(frame, "category_id", self.strings, {"string": "category"})
        frame = self.look_up(frame, "pid", self.processes, {"pid": "os_pid"})
        frame = self.look_up(frame, "tid", self.threads, {"tid": "os_tid"})
        return frame.with_columns(pl.coalesce("os_pid", "pid").alias("pid"), pl.coalesce("os_tid", "tid").alias("tid"))

    def look_up(self, frame: pl.DataFrame, number: str, of: pl.DataFrame, columns: Mapping[str, str]) -> pl.DataFrame:
        rows = of.select("guid", _col("id").alias(number), *(_col(old).alias(new) for old, new in columns.items()))
        return self.database.written.join(frame, rows, ["guid", number])

    def gpu(self, frame: pl.DataFrame, number: str, name: str) -> pl.DataFrame:
        """Adds a column with the agent's index among the GPUs; null if the agent is not a GPU. `number`: the column of
        `frame` with the agent's id. `name`: the name of the new column."""
        gpus = self.agents.filter(_col("type") == "GPU").with_columns(_col("type_index").cast(pl.Int32, strict=False))
        return self.look_up(frame, number, gpus, {"type_index": name})


def read(database: RocpdDatabase, path: Path) -> Tables:
    run = RunTables(database)
    regions = run.look_up(run.rows("rocpd_region", REGION), "name_id", run.strings, {"string": "name"})
    is_marker = _col("category").str.starts_with(_MARKER).fill_null(value=False)
    frames = {
        "ranges": _ranges(regions.filter(is_marker)),
        "calls": numbered(
            regions.filter(~is_marker).select(
                "pid",
                "tid",
                "start_ns",
                "end_ns",
                _col("name").cast(pl.Categorical),
                # HIP_RUNTIME_API_EXT -> hip_runtime
                api=_col("category").str.replace("_API.*$", "").str.to_lowercase().cast(pl.Categorical),
                correlation_id="stack_id",
            )
        ),
        "work": numbered(pl.concat([_kernels(run), _copies(run)], how="diagonal")),
        "memory": _allocations(run),
        "threads": run.look_up(run.threads, "pid", run.processes, {"pid": "os_pid"}).select(
            pl.lit(0, pl.Int32).alias("rank"), _col("os_pid").alias("pid"), "tid", _col("name").cast(pl.Categorical)
        ),
        "processes": _processes(run),
        "devices": _devices(run),
    }
    nodes = database.frame("rocpd_info_node", {"hostname": "text"})["hostname"].drop_nulls()
    tags = database.frame("rocpd_metadata", {"tag": "text", "value": "text"}).drop_nulls()
    options = dict(zip(tags["tag"], tags["value"], strict=True))
    host = nodes[0] if len(nodes) else None
    metadata = Metadata("rocpd", (str(path),), "rocprof", options.get("schema_version"), host, options=options)
    return in_ranks(Tables((metadata,), **frames), _told(run))


def _told(run: RunTables) -> dict[int, Told]:
    """Returns pid -> rank, from the variables that launchers set. Reads no other variables, because the environment
    holds secrets."""
    variables = {name: _col("environment").str.json_path_match(f"$.{name}") for name in sorted(VARIABLES)}
    told: dict[int, set[Told]] = {}
    for pid, *values in run.processes.drop_nulls("pid").select("pid", **variables).iter_rows():
        environment = {name: value for name, value in zip(variables, values, strict=True) if value is not None}
        told.setdefault(pid, set()).add(from_environment(environment))
    # Processes on different hosts may have the same pid. If their ranks differ, the rank of the pid is unknown.
    return {pid: next(iter(ranks)) for pid, ranks in told.items() if len(ranks) == 1}


def _ranges(markers: pl.DataFrame) -> pl.DataFrame:
    # The text of a marker is the message in extdata, or else `name`. With a message, `name` is the name of a roctx
    # function.
    text = markers.select(pl.coalesce(_col("extdata").str.json_path_match("$.message"), "name")).to_series()
    labels = labelled(text)
    no_length = (_col("end_ns") == _col("start_ns")) & _col("name").str.contains("(?i)mark")
    where = markers.select("pid", "tid", "start_ns", "end_ns", is_mark=no_length.fill_null(value=False))
    frame = pl.concat([where, labels], how="horizontal").with_columns(
        source=constant("roctx"),
        is_async=pl.lit(value=False),
        end_ns=pl.when(~_col("is_mark")).then("end_ns"),
        op_id=_col("op_id").replace(0, None),
        forward_tid=_col("forward_tid").replace(0, None),
    )
    return numbered(frame)


def _kernels(run: RunTables) -> pl.DataFrame:
    rows = run.gpu(run.rows("rocpd_kernel_dispatch", DISPATCH), "agent_id", "device_id")
    symbols = run.keyed("rocpd_info_kernel_symbol", {"kernel_name": "text", "display_name": "text"})
    rows = run.look_up(rows, "kernel_id", symbols, {"kernel_name": "kernel", "display_name": "shown"})
    # grid_size counts work items, but grid_x of the table `work` counts work groups.
    grid = (
        (_col(f"grid_size_{axis}") / _col(f"workgroup_size_{axis}"))
        .ceil()
        .cast(pl.Int32, strict=False)
        .alias(f"grid_{axis}")
        for axis in GRID
    )
    full_name = pl.coalesce("shown", "kernel").cast(pl.Categorical)
    block = (_col(f"workgroup_size_{axis}").cast(pl.Int32, strict=False).alias(f"block_{axis}") for axis in GRID)
    return rows.select(
        *_common("kernel"),
        kernel_names(rows.select(full_name).to_series()).alias("name"),
        full_name.alias("full_name"),
        *grid,
        *block,
        _col("group_segment_size").alias("dynamic_shared_bytes"),
    )


def _copies(run: RunTables) -> pl.DataFrame:
    rows = run.look_up(run.rows("rocpd_memory_copy", COPY), "name_id", run.strings, {"string": "name"})
    rows = run.gpu(run.gpu(rows, "dst_agent_id", "to"), "src_agent_id", "from")
    side = {"from": "copy_from", "to": "copy_to"}
    return rows.with_columns(device_id=pl.coalesce("to", "from")).select(
        *_common("memcpy"),
        _col("name").cast(pl.Categorical),
        _col("size").alias("bytes"),
        *(
            pl.when(_col(agent).is_null()).then(constant("host")).otherwise(constant("device")).alias(name)
            for agent, name in side.items()
        ),
        pl.when(_col("from") != _col("to")).then("from").alias("peer_device_id"),
    )


def _common(kind: str) -> tuple[pl.Expr, ...]:
    kinds = pl.lit(kind, dtype=WORK_KIND).alias("kind")
    where = _col("pid", "device_id", "stream_id", "start_ns", "end_ns")
    return where, kinds, _col("stack_id").alias("correlation_id")


def _allocations(run: RunTables) -> pl.DataFrame:
    rows = run.gpu(run.rows("rocpd_memory_allocate", ALLOCATION), "agent_id", "device_id")
    event = _col("type").str.to_uppercase().replace_strict({"ALLOC": "alloc", "FREE": "free"}, default=None)
    return rows.with_columns(event=event, shown=_col("type").cast(pl.Categorical)).select(
        pl.lit(0, pl.Int32).alias("rank"),
        "pid",
        "tid",
        "device_id",
        _col("start_ns").alias("time_ns"),
        "end_ns",
        "event",
        _col("size").alias("bytes"),
        _col("shown").alias("name"),
        _col("stack_id").alias("correlation_id"),
    )


def _processes(run: RunTables) -> pl.DataFrame:
    return run.processes.select(
        pl.lit(0, pl.Int32).alias("rank"),
        "pid",
        _col("ppid").alias("parent_pid"),
        _col("command").alias("command_line"),
    ).sort("pid")


def _devices(run: RunTables) -> pl.DataFrame:
    return (
        run.agents.filter(_col("type") == "GPU")
        .select(
            pl.lit(0, pl.Int32).alias("rank"),
            _col("type_index").cast(pl.Int32, strict=False).alias("device_id"),
            constant("gpu").alias("kind"),
            pl.coalesce("product_name", "name").cast(pl.Categorical).alias("name"),
            _col("name").cast(pl.Categorical).alias("capability"),
        )
        .unique("device_id", keep="first")
        .sort("device_id")
    )
