"""Reads ranges, marks and names of threads from NVTX_EVENTS. docs/formats/nsys.md explains the rows.

    start, end, eventType 59, text 'aten::mm, seq = 3, op_id = 7', globalTid          torch's own label, default domain
    start, end, eventType 59, textId 71487, globalTid, domainId 1                     a registered string of NCCL's

A text that looks like a label is parsed. docs/labels.md lists the fields of each form of label.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from opspan.formats.columns import LABELLED_DOMAINS, OWN_DOMAIN, USERS_KINDS, constant, parse_labels, stacked
from opspan.labels import KIND_NAMES, Kind
from opspan.readers.nsys import payloads, tables
from opspan.readers.nsys.export import Export, tid_of, where
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.same import each_once
from opspan.tables.schema import KIND, null

SLICE_ROWS = 1_000_000
# Columns that a frame of events may lack. `_ranges` adds missing columns as nulls.
_OPTIONAL = {**dict.fromkeys(("category", "endGlobalTid", "globalTid", "color"), pl.Int64), **payloads.COLUMNS}
_IS_OWN = (pl.col("domain") == OWN_DOMAIN).fill_null(value=False)


class Nvtx(NamedTuple):
    ranges: pl.DataFrame
    threads: pl.DataFrame  # columns: pid, tid, and name (given by the program)


def read(export: Export) -> Nvtx:
    types = _event_types(export)
    events = export.timed(tables.NVTX, tables.NVTX_COLUMNS, tables.NVTX_EXTRAS)
    place = where(events)
    events = events.with_columns(place)
    if "endGlobalTid" not in events.columns:
        events = events.drop("globalTid")

    present = set(each_once(events, "eventType"))

    def has_type(names: tuple[str, ...]) -> pl.Expr:
        numbers = {types[name] for name in names}
        # Usually all events are ranges. In that case a constant replaces the comparison of each row.
        if present <= numbers or (None not in present and present.isdisjoint(numbers)):
            return pl.lit(present <= numbers)
        return pl.col("eventType").is_in(list(numbers))

    described = events.filter(~has_type(tables.RANGES + tables.MARKS))
    if described.height:
        unknown = described.filter(~pl.col("eventType").is_in(list(types.values())))
        export.issues.add("unknown_units", unknown.height, f"{tables.NVTX}, eventType")
        events = events.filter(has_type(tables.RANGES + tables.MARKS))
        described = described.with_columns(_text(export, described))
    events = events.with_columns(is_mark=has_type(tables.MARKS), is_async=has_type(tables.ASYNC_RANGES))
    is_open = pl.col("end_ns").is_null() & ~pl.col("is_mark")
    export.issues.add("open_ranges", events.select(is_open.sum()).item(), tables.NVTX)

    domains = _of_described(described, has_type(tables.DOMAINS)).select("pid", "domainId", domain="text")
    categories = _of_described(described, has_type(tables.CATEGORIES))
    events = events.with_columns(_domains(events, domains))
    events = events.with_columns(_categories(events, categories))
    threads = _of_described(described, has_type(tables.THREADS)).select("pid", "tid", name="text").drop_nulls("name")
    # Rows with payloads are translated slice by slice, so that the parsed payloads of all rows are never in memory at
    # once.
    slices = [events] if _is_plain(events) else list(events.iter_slices(SLICE_ROWS)) or [events]
    del events, described, categories
    # A column with one value for all rows is a literal, which takes no memory. It is added only after the slices are
    # joined, because joined slices would store it in full.
    same = (column for column in place if not column.meta.root_names())
    ranges = stacked([_ranges(export, slices.pop(0)) for _ in range(len(slices))])
    return Nvtx(ranges.with_columns(*same, source=constant("nvtx")), threads)


def _of_described(described: pl.DataFrame, rows: pl.Expr) -> pl.DataFrame:
    return described.filter(rows) if described.height else described


def _is_plain(events: pl.DataFrame) -> bool:
    """Returns whether the events have only inline texts: no payloads and no registered strings."""
    return tables.PAYLOADS.isdisjoint(events.columns) and not events["textId"].count()


def _event_types(export: Export) -> dict[str, int]:
    rows = export.frame("ENUM_NSYS_EVENT_TYPE", {"id": "int", "name": "text"}).iter_rows()
    in_file = {name: number for number, name in rows if name in tables.EVENT_TYPES and number is not None}
    return tables.EVENT_TYPES | in_file


def _text(export: Export, events: pl.DataFrame) -> pl.Series:
    if not events["textId"].count():
        return events["text"]
    return events["text"].zip_with(events["text"].is_not_null(), export.strings.texts(events["textId"], tables.NVTX))


def _domains(events: pl.DataFrame, names: pl.DataFrame) -> pl.Series | pl.Expr:
    """Returns the name of each event's domain. A domain without a name gets its number, which only identifies it within
    one process. The default domain gets null."""
    if not events.select((pl.col("domainId") != 0).any()).item():
        return null("domain", pl.Categorical)
    used = events.select("pid", "domainId").unique().filter(pl.col("domainId") != 0)
    key = ["pid", "domainId"]
    known = used.join(names.unique(key, keep="last"), on=key, how="left", nulls_equal=True)
    known = known.with_columns(pl.coalesce("domain", pl.col("domainId").cast(pl.String)).cast(pl.Categorical))
    return events.select(key).join(known, on=key, how="left", nulls_equal=True, maintain_order="left")["domain"]


def _categories(events: pl.DataFrame, names: pl.DataFrame) -> pl.Series | pl.Expr:
    """Returns the category of each event: its name, or its number if it has no name. In opspan's own domain, the lowest
    numbers stand for kinds of ranges, so they become null."""
    if "category" not in events.columns:
        return null("category_name", pl.Categorical)
    key = ["pid", "domainId", "category"]
    used = events.select(*key, own=_IS_OWN).unique().filter((pl.col("category") != 0).fill_null(value=False))
    used = used.filter(~(pl.col("own") & (pl.col("category") < len(KIND_NAMES))))
    if "category" in names.columns:
        last_names = names.select(*key, category_name="text").unique(key, keep="last")
        used = used.join(last_names, on=key, how="left", nulls_equal=True)
    else:
        used = used.with_columns(category_name=pl.lit(None, dtype=pl.String))
    used = used.select(*key, pl.coalesce("category_name", pl.col("category").cast(pl.String)).cast(pl.Categorical))
    joined = events.select(key).join(used, on=key, how="left", nulls_equal=True, maintain_order="left")
    return joined["category_name"]


def _labels(export: Export, events: pl.DataFrame) -> pl.DataFrame:
    """Returns the fields of the labels, a row for each event. Parses each registered text once."""
    domain = pl.col("domain")
    may_be, has_text = events.select(
        domain.is_null() | domain.is_in(LABELLED_DOMAINS), has_text=pl.col("text").is_not_null()
    )
    if has_text.all() and may_be.all():
        return parse_labels(events["text"])
    rows = export.strings.rows(events["textId"], tables.NVTX)
    keys = pl.DataFrame({"text": events["text"], "row": rows.zip_with(~has_text, pl.Series([None], dtype=rows.dtype))})
    keys = keys.with_columns(may_be=may_be, place=pl.int_range(pl.len(), dtype=ROW_NUMBER))
    inline = keys.filter(has_text)
    registered = keys.filter(~has_text).group_by("row", "may_be", maintain_order=True).agg("place")
    texts = [inline["text"], export.strings.values.gather(registered["row"])]
    flags = pl.concat([inline["may_be"], registered["may_be"]])
    source = pl.concat([text.rename("text") for text in texts])
    parsed = parse_labels(source.zip_with(flags, pl.Series([None], dtype=pl.String)))
    plain = pl.DataFrame({"name": source.cast(pl.Categorical)})
    parsed = parsed.with_columns(parsed["name"].zip_with(flags, plain["name"]))
    places = pl.concat(
        [
            pl.DataFrame({"place": inline["place"], "at": pl.int_range(inline.height, dtype=ROW_NUMBER, eager=True)}),
            registered.select("place", at=pl.int_range(pl.len(), dtype=ROW_NUMBER) + inline.height).explode("place"),
        ]
    ).sort("place")
    return parsed[places["at"]]


def _ranges(export: Export, events: pl.DataFrame) -> pl.DataFrame:
    col = pl.col
    labels = _labels(export, events).select(pl.all().name.prefix("p_"))
    has_payloads = not tables.PAYLOADS.isdisjoint(events.columns)
    parts = [events.drop("text"), labels, *([payloads.read(export, events)] if has_payloads else [])]
    frame = pl.concat(parts, how="horizontal")
    missing = {name: dtype for name, dtype in _OPTIONAL.items() if name not in frame.columns}
    frame = frame.with_columns(*(null(name, dtype) for name, dtype in missing.items()), own=_IS_OWN)

    is_kind = col("own") & (col("category") > 0) & (col("category") < len(KIND_NAMES))
    kind = pl.when(is_kind).then(col("category").cast(pl.UInt8, strict=False))
    # A label in the form PAYLOAD (docs/labels.md) has the sequence number in the 64-bit payload, and the kind in the
    # category.
    has_seq = (is_kind & ~col("category").is_in(USERS_KINDS)).fill_null(value=False)
    number = pl.coalesce("payload_int", col("payload_uint").reinterpret(signed=True))
    frame = frame.with_columns(
        kind=pl.coalesce(kind, col("x_kind").cast(pl.UInt8), "p_kind", pl.lit(0, dtype=pl.UInt8)),
        seq=pl.coalesce(pl.when(has_seq).then(number), "x_seq", "p_seq"),
        payload_int=pl.when(~has_seq).then("payload_int"),
        payload_uint=pl.when(~has_seq).then("payload_uint"),
    )
    # In a text label of opspan, a missing forward thread means the main thread: opspan omits it to have fewer distinct
    # names. In an extended payload the forward thread is never missing, and 0 means that it is unknown.
    main = pl.when(col("own") & (col("kind") == int(Kind.BACKWARD)) & col("x_forward_tid").is_null()).then("pid")
    frame = export.narrow(tables.NVTX, frame.with_columns(color=col("color") & 0xFFFFFFFF), {"color": pl.UInt32})
    return frame.select(
        "pid",
        "tid",
        pl.when(col("endGlobalTid") != col("globalTid")).then(tid_of("endGlobalTid")).alias("end_tid"),
        "start_ns",
        pl.when(~col("is_mark")).then("end_ns").alias("end_ns"),
        col("p_name").alias("name"),
        col("p_text").alias("text"),
        pl.Series("kinds", KIND_NAMES, dtype=KIND).gather(frame["kind"]).alias("kind"),
        "domain",
        col("category_name").alias("category"),
        "color",
        "seq",
        pl.coalesce("x_op_id", "p_op_id").replace(0, None).alias("op_id"),
        pl.coalesce("x_forward_tid", "p_forward_tid", main).replace(0, None).alias("forward_tid"),
        pl.coalesce(col("x_sizes").cast(pl.Categorical), "p_sizes").alias("sizes"),
        col("p_input_op_ids").alias("input_op_ids"),
        col("p_class_name").alias("class_name"),
        col("p_args").alias("args"),
        "payload_int",
        "payload_uint",
        "payload_float",
        "payload_json",
        "is_async",
        "is_mark",
    )
