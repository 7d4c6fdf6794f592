"""Lists each collective of a trace once, whether a kernel, a range around it or torch's record shows it.

    collectives(trace) -> a row for each collective on each device, or in each process if it used no device:
        rank, pid, device_id, stream_id, tid, start_ns, end_ns, name: those of the kernel, or of the range.
        time_ns (Int64): how long the collective took; null if only its start is in the trace.
        kind (String): all_reduce, all_gather, ... (collective_names.py); null if it is unknown.
        bytes (Int64): counted as in NCCL's tests, such as the whole output of all_gather.
        element, algorithm, protocol (String): null if they are unknown.
        group, group_size, members, seq: name and size of the group, its ranks, and torch's sequence number.
        own_rank, source, target: the row's own rank, and the two ranks of a send or a receive. They are numbered as in
            the program, or as in the group if its members are unknown.
        work (UInt32): row of the kernel, or of the first of several; null if only ranges show the collective.
        range (UInt32): row of the range that started the collective.

Kernels that one range started on one stream are one collective, from the first start to the last end. docs/analysis.md,
"communication", says what counts. `trace` must be attributed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.collective_names import (
    element_bytes,
    input_bytes,
    kernels_named,
    kinds,
    ranges_named,
    untyped_elements,
)
from opspan.analysis.kernels import is_communication
from opspan.analysis.nest import nearest
from opspan.analysis.spans import PROCESS, length, number_groups
from opspan.row_numbers import ROW_NUMBER

if TYPE_CHECKING:
    from opspan.tables import Metadata, Tables

_col = pl.col
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "pid": pl.Int64,
    "device_id": pl.Int32,
    "stream_id": pl.Int64,
    "tid": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "name": pl.String,
    "time_ns": pl.Int64,
    "kind": pl.String,
    "bytes": pl.Int64,
    "element": pl.String,
    "algorithm": pl.String,
    "protocol": pl.String,
    "group": pl.String,
    "group_size": pl.Int64,
    "members": pl.String,
    "seq": pl.Int64,
    "own_rank": pl.Int64,
    "source": pl.Int64,
    "target": pl.Int64,
    "work": ROW_NUMBER,
    "range": ROW_NUMBER,
}
_MOST = 2**50  # elements or bytes of one collective; only damaged files have more


def _text(key: str) -> pl.Expr:
    return _col("payload_json").str.extract(f'"{re.escape(key)}": ?"([^"]+)"')


def _number(key: str) -> pl.Expr:
    number = _col("payload_json").str.extract(f'"{re.escape(key)}": ?"?(-?[0-9]{{1,19}})').cast(pl.Int64, strict=False)
    return pl.when(number < _MOST).then(number)


# The fields in the payloads of torch's records, of torch's kernels and of NCCL's own ranges.
FIELDS = {
    "collective": _text("Collective name"),
    "element": _text("dtype"),
    "in_elements": _number("In msg nelems"),
    "out_elements": _number("Out msg nelems"),
    "group": pl.coalesce(_text("Process Group Name"), _number("Process Group ID").cast(pl.String)),
    "members": _text("Process Group Ranks"),
    "group_size": _number("Group size"),
    "seq": _number("Seq"),
    "own_rank": _number("Rank"),
    "source": _number("Src Rank"),
    "target": _number("Dst Rank"),
}
# Ranges of torch's backends name both ranks by their numbers in the group. The rank of the range itself comes first:
# "nccl:send 0->1", "nccl:recv 1<-0".
_PEERS = r"^\w+:(?:send|recv) (\d+)(?:->|<-)(\d+)$"
# For these kinds, the field Rank of torch's record is not the row's own rank. It is the root of the collective, or the
# peer of a send or a receive.
_OF_ANOTHER = ("broadcast", "reduce", "gather", "scatter", "send", "recv", "send_recv")
_COMMUNICATOR = _col("payload_json").str.extract('"NCCL communicator ID": ?"?([^",}]+)')
_MESSAGE = _number("Message size [bytes]")
_OF_KERNELS = ("start_ns", "end_ns", "name", "device_id", "stream_id", "range", "call", "graph_node_id", "payload_json")


def collectives(trace: Tables) -> pl.DataFrame:
    ranges, root_of = _collective_ranges(trace.ranges)
    roots = _roots(ranges)
    kernels = _kernels(trace.work, root_of, ranges, roots)
    rows = pl.concat([kernels, _without_kernels(roots, kernels)], how="diagonal")
    rows = _with_groups(rows, trace)
    rows = rows.with_columns(
        bytes=_bytes(element_bytes(rows["told_element"]), element_bytes(rows["name_element"])),
        time_ns=pl.when("is_timed", length() > 0).then(length()),
    )
    return rows.select(_col(name).cast(dtype) for name, dtype in SCHEMA.items())


def _collective_ranges(ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Returns the ranges of collectives. Also returns, for every range of the trace, its root; null outside of
    collectives. A root is the outermost of the nested ranges that belong to one collective."""
    names = ranges_named(ranges["name"])
    is_named = ranges["name"].is_in(names["name"].implode()).fill_null(value=False)
    columns = (*PROCESS, "tid", "name", "start_ns", "end_ns", "sizes", "input_types", "payload_json", "overlaps")
    rows = ranges.select(*columns).with_row_index("range").filter(is_named)
    rows = rows.join(names, on="name", how="left", maintain_order="left")
    if not rows.height:
        nothing = pl.Series([None], dtype=ROW_NUMBER).new_from_index(0, ranges.height)
        return rows.with_columns(_col("range").alias("root")), nothing
    around = nearest(ranges, is_named).gather(ranges["parent"])
    root_of = nearest(ranges, is_named & around.is_null())
    rows = rows.with_columns(root_of.gather(rows["range"]).alias("root"))
    return _with_overlapping(rows), root_of


def _with_overlapping(rows: pl.DataFrame) -> pl.DataFrame:
    """Finds roots that begin inside another root and end after it: they show a collective that goes on after torch's op
    has returned. Their ranges get the other root, so that both roots count as one collective."""
    is_root, at = _col("range") == _col("root"), (*PROCESS, "tid")
    overlap = _col("overlaps").fill_null(value=False)
    later = rows.filter(is_root, overlap).select("root", *at, "start_ns").sort("start_ns")
    if not later.height:
        return rows
    roots = rows.filter(is_root, ~overlap).select(*at, "start_ns", first="root", until="end_ns").sort("start_ns")
    later, roots = number_groups(at, later, roots)  # because join_asof does not match nulls
    pairs = later.join_asof(roots, on="start_ns", by="of", strategy="backward", check_sortedness=False)
    pairs = pairs.filter(_col("start_ns") < _col("until")).select("root", "first")
    rows = rows.join(pairs, on="root", how="left", maintain_order="left")
    return rows.with_columns(root=pl.coalesce("first", "root")).drop("first")


def _roots(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each root, with the facts that the ranges of its collective show."""
    rows = ranges.with_columns(**FIELDS, communicator=_COMMUNICATOR, message=_MESSAGE)
    text = _col("name").cast(pl.String)
    is_library = text.str.contains("^nccl[A-Z]")
    names = ("named_own", "named_peer")
    rows = rows.with_columns(
        text.str.extract(_PEERS, nth).cast(pl.Int64).alias(name) for nth, name in enumerate(names, 1)
    )
    rows = rows.with_columns(_inputs(rows).alias("inputs"), is_library=is_library)
    rows = rows.with_columns(
        torch_kind=kinds(rows["collective"]),
        sent=pl.when(is_library & (_col("name_kind") == "send")).then("message"),
    )
    # Torch also records waits and the setup of groups, which are not collectives.
    is_other = _col("collective").is_not_null() & _col("torch_kind").is_null()
    rows = rows.with_columns(is_other=is_other).sort("range")
    done = ("is_done", "start_ns", "end_ns", "tid", "name")

    def first(name: str) -> pl.Expr:
        return _col(name).drop_nulls().first()

    roots = rows.group_by("root", maintain_order=True).agg(
        _col(PROCESS).first(),
        *(first(name) for name in FIELDS if name != "collective"),
        *(_col(name).sort_by(~_col("is_done"), "range").first() for name in done),
        kind=pl.coalesce(first("torch_kind"), first("name_kind")),
        communicator=first("communicator"),
        named_own=first("named_own"),
        named_peer=first("named_peer"),
        message=first("message"),
        sent=pl.when(_col("sent").is_not_null().any()).then(_col("sent").sum()),
        inputs=first("inputs"),
        is_other=(_col("is_other") | (_col("name_kind").is_null() & _col("collective").is_null())).all(),
    )
    return roots.with_columns(_col("name").cast(pl.String), inputs_element=_col("inputs").struct.field("element"))


def _inputs(rows: pl.DataFrame) -> pl.Series:
    """Returns the bytes and element type of the input tensors. Ranges of torch's backends (nccl:, gloo:) may have any
    number of tensors. For other ops, the result is known only if there is exactly one tensor."""
    dtype = pl.Struct({"bytes": pl.Int64, "element": pl.String, "untyped": pl.Int64})
    key = ("sizes", "input_types", "is_backend")
    is_backend = _col("name").cast(pl.String).str.contains("^(nccl|xccl|gloo|mpi|ucc):")
    is_op = _col("name").cast(pl.String).str.contains("^(symm_mem|vllm|sglang|_C_custom_ar)::")
    has_inputs = is_backend | (is_op & (_col("name_kind") == "all_reduce"))
    texts = rows.select(_col("sizes", "input_types").cast(pl.String), has_inputs=has_inputs, is_backend=is_backend)
    distinct = texts.filter("has_inputs").select(key).unique()
    values: list[dict[str, Any] | None] = []
    for sizes, types, takes_all in distinct.iter_rows():
        known = input_bytes(sizes, types)
        fits = known is not None and (takes_all or known[0] == 1)
        if known and fits:
            values.append({"bytes": known[1], "element": known[2], "untyped": None})
        else:
            # nsys records only the sizes; the name of the kernel may have the type.
            untyped = untyped_elements(sizes) if takes_all and types is None else None
            values.append({"bytes": None, "element": None, "untyped": untyped} if untyped else None)
    distinct = distinct.with_columns(pl.Series("inputs", values, dtype=dtype), has_inputs=pl.lit(value=True))
    on = ["has_inputs", *key]
    return texts.join(distinct, on=on, how="left", nulls_equal=True, maintain_order="left")["inputs"]


def _kernels(work: pl.DataFrame, root_of: pl.Series, ranges: pl.DataFrame, roots: pl.DataFrame) -> pl.DataFrame:
    names = work["name"].unique().to_frame().filter(is_communication(_col("name")))["name"]
    rows = work.select(*PROCESS, *_OF_KERNELS, "kind", "is_overhead").with_row_index("work")
    rows = on_device(rows.filter(work["name"].is_in(names.implode()), _col("kind").is_in(["kernel", "graph"])))
    rows = rows.join(kernels_named(rows["name"]), on="name", how="left", maintain_order="left").drop("kind")
    moved = ranges.select(_col("range").alias("in_root"), "root")  # `_with_overlapping` changed some roots
    rows = rows.with_columns(root_of.gather(rows["range"]).alias("in_root"))
    rows = rows.join(moved, on="in_root", how="left", maintain_order="left")
    # If a root launched collectives of several kinds, it is unknown which of them the root's fields describe. So no
    # kernel gets these fields.
    several = _col("own_kind").n_unique().over("root") > 1
    rows = rows.with_columns(root=pl.when(~several).then("root"), **FIELDS)
    rows = _merge_kernels(rows)
    own = [_col(name).alias(f"own_{name}") for name in FIELDS if name not in ("collective", "own_rank")]
    rows = rows.with_columns(*own, own_number=_col("own_rank")).drop(*FIELDS)
    of_roots = roots.drop(*PROCESS, "start_ns", "end_ns", "tid", "name", "is_done", "is_other")
    rows = rows.join(of_roots, on="root", how="left", maintain_order="left")
    fields = [name for name in FIELDS if name not in ("collective", "own_rank", "element")]
    return rows.with_columns(
        *(pl.coalesce(f"own_{name}", name).alias(name) for name in fields),
        own_rank=pl.coalesce("own_number", "own_rank"),
        told_element=pl.coalesce("own_element", "element"),
        element=pl.coalesce("own_element", "element", "inputs_element", "name_element"),
        kind=pl.coalesce("payload_kind", "kind", "own_kind"),
        name=_col("name").cast(pl.String),
        is_timed=pl.lit(value=True),
    )


def _merge_kernels(rows: pl.DataFrame) -> pl.DataFrame:
    """Merges the kernels that one range started on one stream. Kernels of a CUDA graph are merged only if one launch of
    the graph started them, because the kernels of all launches of a graph may belong to the same range."""
    rows = rows.with_columns(
        name_element="own_element",
        payload_kind=kinds(rows["collective"]),
        alone=pl.when(_col("root").is_null()).then("work"),
        launch=pl.when(_col("graph_node_id").is_not_null()).then("call"),
    )
    key = (*PROCESS, "device_id", "stream_id", "root", "alone", "launch")
    if rows.select(key).is_unique().all():
        return rows.drop("alone", "launch", "own_element")
    rest = [name for name in rows.columns if name not in (*key, "end_ns", "start_ns", "own_element")]
    rows = rows.sort("start_ns", "work", nulls_last=True)
    merged = rows.group_by(key, maintain_order=True).agg(
        _col(rest).first(),
        _col("start_ns").min(),
        end_ns=pl.when(~_col("end_ns").has_nulls()).then(_col("end_ns").max()),
    )
    return merged.drop("alone", "launch")


def _without_kernels(roots: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Returns the collectives without a kernel: they ran on the host, or only their start is in the trace."""
    rows = roots.filter(~_col("is_other"), _col("kind").is_not_null())
    rows = rows.join(kernels.select("root").unique(), on="root", how="anti")
    is_done = _col("is_done").fill_null(value=False)
    done, started = rows.filter(is_done), rows.filter(~is_done)
    started = started.join(kernels.select(PROCESS).unique(), on=PROCESS, how="anti", nulls_equal=True)
    started = started.join(done.select(*PROCESS, "kind").unique(), on=[*PROCESS, "kind"], how="anti", nulls_equal=True)
    return pl.concat([done, started]).select(
        pl.exclude("element"),
        told_element="element",
        element=pl.coalesce("element", "inputs_element"),
        is_timed=_col("is_done").fill_null(value=False),
        range="root",
    )


def _with_groups(rows: pl.DataFrame, trace: Tables) -> pl.DataFrame:
    """Fills unknown groups, sizes and members: from NCCL's communicators, or from the rank's group if the rank has only
    one. Then fills own_rank, source and target."""
    if (inits := _communicators(trace.ranges)).height:
        rows = rows.join(inits, on="communicator", how="left", maintain_order="left")
    else:
        rows = rows.with_columns(communicator_size=pl.lit(None, dtype=pl.Int64))
    only = [_only_group(rank) for rank in trace.ranks]
    schema = {"rank": pl.Int32, "only": pl.String, "only_size": pl.Int64, "only_members": pl.String, "told": pl.Int64}
    rows = rows.join(pl.DataFrame(only, schema=schema, orient="row"), on="rank", how="left", maintain_order="left")
    is_known = pl.any_horizontal(_col("group", "communicator").is_not_null())
    rows = rows.with_columns(
        group=pl.coalesce("group", "communicator", "only"),
        group_size=pl.coalesce("group_size", "communicator_size", pl.when(~is_known).then(_col("only_size"))),
        members=pl.coalesce("members", pl.when(~is_known).then(_col("only_members"))),
    )
    own, peer = _member("named_own"), _member("named_peer")
    is_send, is_receive = (_col("kind") == kind for kind in ("send", "recv"))
    return rows.with_columns(
        own_rank=pl.coalesce("told", pl.when(~_col("kind").is_in(_OF_ANOTHER)).then(_member("own_rank")), own),
        source=pl.coalesce("source", pl.when(is_send).then(own).when(is_receive).then(peer)),
        target=pl.coalesce("target", pl.when(is_send).then(peer).when(is_receive).then(own)),
    )


def _member(column: str) -> pl.Expr:
    """Turns a rank in the group into a rank in the program. The result is null if the list of members was cut off
    ("...")."""
    members = _col("members").str.extract_all(r"\d+").list.get(_col(column), null_on_oob=True).cast(pl.Int64)
    is_whole = ~_col("members").str.contains("...", literal=True)
    return pl.when(_col("members").is_null()).then(column).when(is_whole).then(members)


def _communicators(ranges: pl.DataFrame) -> pl.DataFrame:
    names = ranges["name"].unique().drop_nulls()
    inits = names.filter(names.cast(pl.String).str.contains("^ncclCommInitRank"))
    rows = ranges.select("name", "payload_json").filter(_col("name").is_in(inits.implode()))
    rows = rows.select(communicator=_COMMUNICATOR, communicator_size=_number("No. of ranks")).drop_nulls()
    return rows.unique("communicator", keep="any") if rows.height else rows


def _only_group(metadata: Metadata) -> tuple[int, str | None, int | None, str | None, int | None]:
    """Returns five facts on a rank: its number in the trace; the name, size and members of its only group (null if it
    has several groups); and the rank number that the program gave."""
    info, rank = metadata.options.get("distributedInfo"), metadata.told.rank
    groups = info.get("pg_config") if isinstance(info, dict) else None
    if not isinstance(groups, list) or len(groups) != 1 or not isinstance(groups[0], dict):
        return metadata.rank, None, None, None, rank
    group = groups[0]
    size = group.get("pg_size") if type(group.get("pg_size")) is int else None
    members = group.get("ranks") if isinstance(group.get("ranks"), list) else None
    return metadata.rank, str(group.get("pg_name", "0")), size, str(members) if members else None, rank


def _bytes(size: pl.Series, size_of_name: pl.Series) -> pl.Expr:
    sent, received = (pl.when(_col(name) > 0).then(_col(name) * size) for name in ("in_elements", "out_elements"))
    of_inputs = _col("inputs").struct.field
    inputs = pl.coalesce(of_inputs("bytes"), of_inputs("untyped") * size_of_name)
    message, all_sent = _col("message"), _col("sent")
    of_all = pl.when(_col("group_size").is_between(1, 2**12)).then("group_size")
    ways = {
        "all_gather": (received, sent * of_all, message * of_all, inputs * of_all),
        "reduce_scatter": (sent, received * of_all, message * of_all, inputs),
        "all_to_all": (sent, received, all_sent, message * of_all, inputs),
        "gather": (sent * of_all, message * of_all, inputs * of_all),
        "scatter": (received * of_all, message * of_all),
        "barrier": (pl.lit(None, dtype=pl.Int64),),
        "send_recv": (all_sent,),
    }
    total = pl.coalesce(pl.max_horizontal(sent, received), message, inputs)
    for kind, sources in ways.items():
        total = pl.when(_col("kind") == kind).then(pl.coalesce(sources)).otherwise(total)
    return total
