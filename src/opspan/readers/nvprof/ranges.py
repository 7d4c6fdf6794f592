"""Reads MARKER and MARKER_DATA into the table `ranges`. A range is two rows with the same id: its start (with the name)
and its end.

    flags 2, timestamp 1583975501698746387, id 181132, objectKind 2, objectId x'7B7100004097EC4C00000000', name 7
    flags 4, timestamp 1583975501698801221, id 181132, objectKind 2, objectId x'7B7100004097EC4C00000000', name 0

docs/labels.md lists the fields of each form of label. A thread's id here is the result of pthread_self(), not the
operating system's id. So the forward thread in a label of opspan matches no row, and is left out.
"""

from __future__ import annotations

import polars as pl

from opspan import native
from opspan.formats.columns import LABELLED_DOMAINS, OWN_DOMAIN, USERS_KINDS, constant, in_time, narrow, parse_labels
from opspan.labels import KIND_NAMES
from opspan.readers.nvprof import tables
from opspan.readers.nvprof.profile import Profile
from opspan.tables.schema import KIND

MANGLED_NODE = "N5torch8autograd"
PAIR = ["pid", "id", "nth"]


def read(profile: Profile) -> pl.DataFrame:
    issues, col = profile.issues, pl.col
    rows = profile.frame(tables.MARKER, tables.MARKER_COLUMNS).rename({"timestamp": "start"})
    # 0 means that CUPTI does not know the time.
    rows = in_time(rows.with_columns(pl.when(col("start") != 0).then("start")), tables.MARKER, issues)
    rows = rows.with_columns(profile.owners(rows, tables.MARKER)).drop("objectId")

    is_mark, is_start, is_end = (
        (col("flags") & bit != 0).fill_null(value=False) for bit in (tables.MARK, tables.START, tables.END)
    )
    begun = _with_nth(rows.filter(is_mark | is_start).with_columns(is_mark=is_mark))
    ended = _with_nth(rows.filter(is_end & ~is_mark & ~is_start))
    issues.add("unknown_units", rows.height - begun.height - ended.height, f"{tables.MARKER}, flags")

    ends = ended.select(*PAIR, end_ns="start_ns", last_tid="tid")
    stray = ends.join(begun.filter(~col("is_mark")), on=PAIR, how="anti", nulls_equal=True)
    issues.add("end_without_start", stray.height, tables.MARKER)
    events = begun.join(ends, on=PAIR, how="left", nulls_equal=True, maintain_order="left")
    events = events.with_columns(pl.when(~col("is_mark")).then("end_ns").alias("end_ns"))
    backward = (col("end_ns") < col("start_ns")).fill_null(value=False)
    issues.add("negative_duration", events.filter(backward).height, tables.MARKER)
    issues.add("open_ranges", events.filter(col("end_ns").is_null() & ~col("is_mark")).height, tables.MARKER)
    events = events.with_columns(
        pl.when(~backward).then("end_ns").alias("end_ns"),
        end_tid=pl.when(col("last_tid") != col("tid")).then("last_tid"),
        domain=profile.names(events["domain"], tables.MARKER),
    )
    return _ranges(profile, pl.concat([_with_data(profile, events), _labels(profile, events)], how="horizontal"))


def _with_nth(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds the column `nth`: how many earlier rows have the same process and id. `rows` has either only starts and
    marks, or only ends. So `nth` is 0 unless the file is damaged or the ids started again."""
    if not rows.select(pl.struct("pid", "id").is_duplicated().any()).item():
        return rows.with_columns(nth=pl.lit(0, dtype=pl.Int64))
    return rows.with_columns(nth=pl.int_range(pl.len(), dtype=pl.Int64).over("pid", "id"))


def _with_data(profile: Profile, events: pl.DataFrame) -> pl.DataFrame:
    """Adds the columns of MARKER_DATA to the events."""
    col = pl.col
    data = profile.frame(tables.MARKER_DATA, tables.MARKER_DATA_COLUMNS)
    first = data.drop_nulls("id").unique("id", keep="first", maintain_order=True)
    known = first.join(events, on="id", how="semi")
    profile.issues.add("dangling_data", data.height - known.height, tables.MARKER_DATA)

    # A payload that is not eight bytes becomes null.
    as_uint, as_float = (
        known.select(col("payload").bin.reinterpret(dtype=dtype, endianness="little")).to_series()
        for dtype in (pl.UInt64, pl.Float64)
    )
    profile.issues.add("odd_cells", as_uint.null_count() - known["payload"].null_count(), tables.MARKER_DATA)
    kind = col("payloadKind")
    known = known.select(
        "id",
        pl.when(col("flags") & tables.HAS_COLOR != 0).then(col("color") & 0xFFFFFFFF).alias("color"),
        pl.when(col("category") != 0).then("category").alias("category"),
        pl.when(kind == tables.INT64).then(as_uint.reinterpret(signed=True)).alias("payload_int"),
        # CUPTI writes 0 for a range without a payload.
        pl.when(kind.is_in([tables.UINT64, tables.THROUGHPUT])).then(as_uint.replace(0, None)).alias("payload_uint"),
        pl.when(kind.is_in([tables.DOUBLE, tables.PERCENT])).then(as_float).alias("payload_float"),
    )
    known = narrow(known, tables.MARKER_DATA, {"color": pl.UInt32}, profile.issues)
    return events.join(known, on="id", how="left", maintain_order="left")


def _labels(profile: Profile, events: pl.DataFrame) -> pl.DataFrame:
    """Returns the fields of the labels, a row for each event. Parses each distinct text once."""
    texts, at = profile.texts(events["name"], tables.MARKER)
    labels = _with_types(parse_labels(texts)).select(pl.all().gather(at))
    plain = texts.cast(pl.Categorical).gather(at)
    may_be = events["domain"].is_null() | events["domain"].is_in(LABELLED_DOMAINS)
    label = labels.with_columns(may_be=may_be, plain=plain).select(
        pl.when("may_be").then("name").otherwise("plain").alias("name"),
        *(pl.when("may_be").then(name).alias(name) for name in labels.columns if name != "name"),
    )
    return label.select(pl.all().name.prefix("p_"))


def _with_types(labels: pl.DataFrame) -> pl.DataFrame:
    """Demangles names of backward nodes. In torch 0.4, these names are mangled C++ types."""
    name = pl.col("name").cast(pl.String)
    mangled = labels.select(name.filter(name.str.starts_with(MANGLED_NODE)).unique()).to_series().to_list()
    if not mangled:
        return labels
    known = name.replace_strict(
        mangled, [native.demangled(text) for text in mangled], default=None, return_dtype=pl.String
    )
    return labels.with_columns(
        pl.when(known.is_not_null()).then(pl.coalesce("text", name)).otherwise("text").alias("text"),
        pl.coalesce(known, name).cast(pl.Categorical).alias("name"),
    )


def _ranges(profile: Profile, frame: pl.DataFrame) -> pl.DataFrame:
    col = pl.col
    own = (col("domain") == OWN_DOMAIN).fill_null(value=False)
    # A label in the form PAYLOAD (docs/labels.md) has the sequence number in the 64-bit payload, and the kind in the
    # category.
    is_kind = own & (col("category") > 0) & (col("category") < len(KIND_NAMES))
    has_seq = (is_kind & ~col("category").is_in(USERS_KINDS)).fill_null(value=False)
    number = pl.coalesce("payload_int", col("payload_uint").reinterpret(signed=True))
    kind = pl.coalesce(pl.when(is_kind).then("category"), "p_kind", pl.lit(0))
    kinds = frame.select(kind).to_series()
    return frame.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        "pid",
        "tid",
        "end_tid",
        "start_ns",
        "end_ns",
        col("p_name").alias("name"),
        col("p_text").alias("text"),
        pl.Series("kind", KIND_NAMES, dtype=KIND).gather(kinds),
        constant("nvtx").alias("source"),
        "domain",
        pl.when(~is_kind.fill_null(value=False)).then(col("category").cast(pl.String)).cast(pl.Categorical),
        "color",
        pl.coalesce(pl.when(has_seq).then(number), "p_seq").alias("seq"),
        col("p_op_id").replace(0, None).alias("op_id"),
        col("p_sizes").alias("sizes"),
        col("p_input_op_ids").alias("input_op_ids"),
        col("p_class_name").alias("class_name"),
        col("p_args").alias("args"),
        pl.when(~has_seq).then("payload_int").alias("payload_int"),
        pl.when(~has_seq).then("payload_uint").alias("payload_uint"),
        "payload_float",
        # A range without a thread, or with its end on another thread, was started and stopped through a handle.
        (~col("is_mark") & (col("tid").is_null() | col("end_tid").is_not_null())).alias("is_async"),
        "is_mark",
    )
