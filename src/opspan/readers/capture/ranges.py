"""Reads ranges, marks, async ranges and frames of a capture file into the tables ranges and relations.

The columns are the same for every source of ranges. `record` writes a label into the unit itself. An NVTX range has its
label in its text, 64-bit payload, category or extended payload. An ITT task has its label in its metadata.
docs/labels.md lists the fields of each form. The analysis, not this module, nests ranges and links backward ops to
forward ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.formats.overloads import without_overload
from opspan.formats.pieces import Columns
from opspan.labels import KIND_NAMES, Kind, kind_expr, parse_column
from opspan.readers.capture import ends, layout, payloads
from opspan.readers.capture.attributes import Attributes, join_members, json_members, own_columns, scatter
from opspan.readers.capture.file import CaptureFile, Ints, Units, distinct
from opspan.readers.capture.ids import TaskIds, relations
from opspan.readers.capture.tables import note_texts
from opspan.tables import Issues
from opspan.tables.schema import KIND, empty

SOURCES = pl.Series([None, "torch", "user", "nvtx", "itt"], dtype=pl.Categorical)
KINDS = pl.Series(KIND_NAMES, dtype=KIND)

OWN_DOMAIN = "opspan"
# In these domains and the default domain, a text may be a label of torch or opspan. In other domains it is only text.
LABELLED_DOMAINS = (OWN_DOMAIN, "PyTorch", "pytorch")
# In ranges of these kinds the 64-bit payload is a number that the user gave. In all other ranges of opspan it is a
# sequence number.
USERS_KINDS = (Kind.USER, Kind.MODULE, Kind.STEP)


def read_ranges(capture: CaptureFile, issues: Issues) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the tables ranges and relations. Frees the units of ranges as soon as they are translated, because the
    columns need as much memory."""
    tasks = TaskIds(capture, issues)
    ended = ends.read(capture, issues)
    extras = _Extras(
        ended,
        payloads.read(capture, ended.ended, issues),
        _attributes(capture, tasks, issues),
        tasks.bearers(),
        tasks.parents(issues),
        _category_names(capture),
    )
    related = relations(capture, tasks, issues)
    del tasks
    columns = Columns()
    for first, units in capture.ranges.pop_pieces():
        columns.add(_piece(capture, extras, first, units, issues))
    return columns.frame(empty("ranges")), related


@dataclass(frozen=True)
class _Extras:
    """Data that other units hold about the ranges, sorted by the rows of the ranges."""

    ends: ends.Ends
    extended: payloads.ExtendedPayloads
    attributes: Attributes
    bearers: Ints  # rows of ranges that have an ITT id
    parents: tuple[Ints, Ints]
    categories: dict[tuple[int, int], str | None]


def _piece(capture: CaptureFile, extras: _Extras, first: int, units: Units, issues: Issues) -> pl.DataFrame:
    """Returns the rows of the table ranges for these units. `first`: the row of the first unit."""
    count = len(units)
    note_texts(capture, units, issues)
    end_ns, end_tid = extras.ends.of(first, units, capture.tids[units.logs], issues)
    children, parents = _between(extras.parents[0], first, count)
    frame = _raw(capture, units, first).with_columns(
        end_ns=end_ns,
        end_tid=end_tid,
        parent_id=scatter(pl.Series(extras.parents[1][parents], dtype=pl.Int64), children, count),
        category=_categories(capture, units, extras.categories),
    )
    extended = {name: _scatter(extras.extended.own, name, first, count) for name in payloads.OWN_COLUMNS}
    bears = np.zeros(count, dtype=np.bool_)
    bears[_between(extras.bearers, first, count)[0]] = True
    # If another field than the name holds the label, the name is not parsed, even if it looks like a label.
    apart = pl.Series(bears) & (frame["source_number"] == layout.ITT) | extended["x_kind"].is_not_null()
    beside = frame["own"] & apart | frame["has_label"]
    users = frame["own"] & (frame["source_number"] == layout.NVTX) & frame["number"].is_in(USERS_KINDS)
    frame = frame.with_columns(**_labels(capture, frame, frame["labelled"] & ~beside, users))

    rows, some = _between(extras.attributes.rows, first, count)
    attributes = Attributes(extras.attributes.units.at(some), rows, extras.attributes.texts)
    described = (frame["own"] | frame["source_number"].is_in((layout.TORCH, layout.USER))).to_numpy()[rows]
    own = described & (attributes.own >= 0)
    frame = frame.with_columns(**own_columns(attributes.where(own), count), **extended)
    _, some = _between(extras.extended.members["row"].to_numpy(), first, count)
    others = extras.extended.members[some].with_columns(pl.col("row") - first)
    json = join_members(pl.concat([json_members(attributes.where(~own)), others]))
    written = "{" + scatter(json["members"], json["row"].to_numpy(), count) + "}"
    frame = frame.with_columns(
        payload_json=written, color=pl.when(pl.col("flags") & layout.HAS_COLOR != 0).then("raw_color")
    )
    return _columns(capture.header.pid, frame)


def _between(rows: Ints, first: int, count: int) -> tuple[Ints, slice]:
    """Finds which of the sorted `rows` are in a piece. Returns these rows, counted from the piece's first row, and
    their slice of `rows`."""
    begin, end = np.searchsorted(rows, (first, first + count)).tolist()
    return rows[begin:end] - first, slice(begin, end)


def _scatter(frame: pl.DataFrame, name: str, first: int, count: int) -> pl.Series:
    rows, some = _between(frame["row"].to_numpy(), first, count)
    return scatter(frame[name][some], rows, count)


def _raw(capture: CaptureFile, units: Units, first: int) -> pl.DataFrame:
    texts, unit, source, flags = capture.texts, units.u8(0), units.u8(1), units.u16(1)
    collected = np.isin(source, (layout.NVTX, layout.ITT))
    has_inputs = (source == layout.TORCH) & (flags & layout.HAS_INPUTS != 0)
    domains = np.where(has_inputs, 0, units.u32(10))
    # A frame without a name has the name of its domain.
    name = np.where((unit == layout.FRAME) & (units.u32(1) == 0), domains, units.u32(1))

    def some(word: int, where: npt.NDArray[np.bool_]) -> pl.Series:
        """Returns for each unit the text whose id is in word number `word`. `where`: True for units that have such a
        text. In most captures no unit has such a text, and the lookup is skipped."""
        if not where.any():
            return pl.Series([None], dtype=pl.Categorical).new_from_index(0, len(units))
        return texts.categories(np.where(where, units.u32(word), 0))

    has_stack = (source == layout.TORCH) & (flags & (layout.HAS_STACK | layout.HAS_FORWARD) == layout.HAS_STACK)
    has_overload = (source == layout.TORCH) & (flags & layout.HAS_OVERLOAD != 0)
    raw_name, overload = without_overload(texts.categories(name), pl.Series(has_overload))
    domain = texts.categories(domains)
    return pl.DataFrame(
        {
            "id": np.arange(first, first + len(units)),
            "tid": capture.tids[units.logs],
            "start_ns": units.i64(1),
            "flags": flags,
            "value_type": flags & layout.VALUE_MASK,
            "value": units.i64(3),
            "unit_id": units.i64(4),
            "name_id": name,
            "raw_name": raw_name,
            "overload": overload,
            "domain": domain,
            "own": collected & (domain == OWN_DOMAIN).fill_null(value=False).to_numpy(),
            # True if the label is in the unit itself.
            "has_label": (source == layout.TORCH)
            | (collected & (unit == layout.RANGE) & (flags & layout.HAS_LABEL != 0)),
            "labelled": collected & (domain.is_null() | domain.is_in(LABELLED_DOMAINS)).to_numpy(),
            "number": units.u32(11),  # a Kind, an NVTX category, or the scope of an ITT marker
            "forward": units.u32(12),
            "raw_sizes": texts.categories(units.u32(13)),
            "inputs": some(10, has_inputs),
            "input_types": some(14, has_inputs),
            "input_strides": some(15, has_inputs),
            "stack": some(12, has_stack),
            "raw_color": units.u32(14),
            "has_schema": (units.u32(15) != 0) & ~has_inputs,
            "source_number": source,
            "source": SOURCES.gather(np.where(source <= layout.ITT, source, 0)),
            "is_async": np.isin(unit, (layout.ASYNC, layout.FRAME)),
            "is_mark": unit == layout.MARK,
        }
    )


def _category_names(capture: CaptureFile) -> dict[tuple[int, int], str | None]:
    """Returns the names of categories by domain and number."""
    names = capture.units.of(layout.NAME)
    places = zip(names.u32(4).tolist(), names.u32(3).tolist(), strict=True)
    return dict(zip(places, capture.texts.of(names.u32(1)), strict=True))


def _categories(capture: CaptureFile, units: Units, known: Mapping[tuple[int, int], str | None]) -> pl.Series:
    """Returns the categories of NVTX ranges. In opspan's own domain the first numbers are kinds, not categories."""
    domains, numbers = units.u32(10), units.u32(11)
    codes = np.where(units.u8(1) == layout.NVTX, domains.astype(np.int64) << 32 | numbers, 0)
    used, places = np.unique(codes, return_inverse=True)
    pairs = [(code >> 32, code & 0xFFFFFFFF) for code in used.tolist()]
    own = (capture.texts.of(np.array([domain for domain, _ in pairs])) == OWN_DOMAIN).fill_null(value=False)
    texts = [
        None if number == 0 or (is_own and number < len(KIND_NAMES)) else known.get((domain, number)) or str(number)
        for (domain, number), is_own in zip(pairs, own, strict=True)
    ]
    return pl.Series(texts, dtype=pl.Categorical).gather(places)


def _labels(capture: CaptureFile, frame: pl.DataFrame, has_label: pl.Series, users: pl.Series) -> dict[str, pl.Series]:
    """Parses texts that are labels, and returns a column p_<field> for each field. Parses each distinct text once.

    `users`: True for the user's own ranges. torch gives these ranges no sequence number, so a text with such a number
    only looks like a label.
    """
    rows = capture.texts.rows(np.where(has_label.to_numpy(), frame["name_id"].to_numpy(), 0))
    used, places = distinct(rows, len(capture.texts.column))
    texts = capture.texts.column.gather(used)
    parsed = (
        parse_column(texts)
        .drop("kind")
        .with_columns(
            pl.when(texts != pl.col("name")).then(texts).alias("text"),
            pl.col("name", "sizes", "class_name").cast(pl.Categorical),
        )
    )
    labels = parsed.select(pl.all().gather(places))
    is_lookalike = pl.any_horizontal(pl.col("seq", "op_id", "forward_tid").is_not_null()) & users
    return {f"p_{column.name}": column for column in labels.select(pl.when(~is_lookalike).then(pl.all()))}


def _attributes(capture: CaptureFile, tasks: TaskIds, issues: Issues) -> Attributes:
    """Returns the attributes of ranges, in the order of the ranges."""
    units = capture.units.of(layout.ATTRIBUTE)
    owners = units.owners
    rows = capture.ranges.rows(owners)
    by_id = (units.u16(1) & layout.OWNER_BY_ID) != 0
    rows[by_id] = tasks.of_units(owners[by_id])
    of_thread = (units.i64(1) == layout.NO_OWNER) & ~by_id
    if not capture.is_part:
        issues.add("dangling_data", int(((rows < 0) & ~of_thread).sum()), "attributes")
    order = np.argsort(rows, kind="stable")
    order = order[rows[order] >= 0]
    return Attributes(units.at(order), rows[order], capture.texts)


def _is_kind(column: str) -> pl.Expr:
    return (pl.col(column) > 0) & (pl.col(column) < len(KIND_NAMES))


def _columns(pid: int, frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the table ranges. A column takes its value from the first of several fields that has a value."""
    col, none = pl.col, pl.lit(None, dtype=pl.Int64)
    torch, user, nvtx = (
        col("source_number") == layout.TORCH,
        col("source_number") == layout.USER,
        col("source_number") == layout.NVTX,
    )
    is_kind = _is_kind("number")
    number = pl.when(is_kind).then("number")
    integer = col("value_type").is_in((layout.VALUE_INT, layout.VALUE_UINT))
    # A label in the form PAYLOAD (docs/labels.md) has the sequence number in the 64-bit payload, and the kind in the
    # category.
    has_seq = col("has_label") | (nvtx & col("own") & is_kind & ~col("number").is_in(USERS_KINDS))
    named = frame.with_columns(
        name=pl.coalesce(col("a_name").cast(pl.Categorical), "p_name", "raw_name"),
        seq=pl.coalesce(
            pl.when(has_seq & integer).then("value"), pl.when(col("x_seq") >= 0).then("x_seq"), "a_seq", "p_seq"
        ),
        op_id=pl.coalesce(
            pl.when(col("has_label") | (user & ~col("is_async"))).then("unit_id"), "x_op_id", "a_op_id", "p_op_id"
        ).replace(0, None),
        class_name=pl.coalesce(col("a_class").cast(pl.Categorical), "p_class_name"),
        value_type=pl.when(has_seq & integer).then(0).otherwise(pl.coalesce("a_payload_type", "value_type")),
        value=pl.coalesce("a_payload", "value"),
    )
    guessed = pl.when("labelled").then(kind_expr(col("name").cast(pl.String), col("seq"), col("class_name")))
    carried = pl.when(torch | user | (nvtx & col("own"))).then(number)
    beside = [pl.when(_is_kind(column)).then(column) for column in ("x_kind", "a_kind")]
    named = named.with_columns(kind=pl.coalesce(carried, *beside, guessed, 0))
    # In a text label of opspan, a missing forward thread means the main thread: opspan omits it to have fewer distinct
    # names. In all other forms (extended payload, ITT metadata, opspan's units) a missing forward thread is unknown.
    has_place = col("has_label") | col("has_schema") | col("a_op_id").is_not_null()
    in_text = col("own") & ~has_place & (col("kind") == Kind.BACKWARD)
    forward = pl.coalesce(
        pl.when(col("has_label") & (col("flags") & layout.HAS_FORWARD != 0)).then("forward"),
        "x_fwd_tid",
        "a_fwd_tid",
        "p_forward_tid",
        pl.when(in_text).then(pid).otherwise(none),
    )
    floats = pl.Series(named["value"].to_numpy().view(np.float64))
    return named.select(
        "id",
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        pl.lit(pid, dtype=pl.Int64).alias("pid"),
        "tid",
        "end_tid",
        "start_ns",
        "end_ns",
        "name",
        col("p_text").alias("text"),
        KINDS.gather(named["kind"]).alias("kind"),
        "source",
        "domain",
        pl.coalesce(col("a_category").cast(pl.Categorical), "category").alias("category"),
        "color",
        "seq",
        "op_id",
        forward.cast(pl.Int64).replace(0, None).alias("forward_tid"),
        pl.coalesce(
            "raw_sizes", col("x_sizes").cast(pl.Categorical), col("a_sizes").cast(pl.Categorical), "p_sizes"
        ).alias("sizes"),
        "input_types",
        "input_strides",
        "inputs",
        col("p_input_op_ids").alias("input_op_ids"),
        "stack",
        "overload",
        "class_name",
        pl.coalesce("a_args", "p_args").alias("args"),
        pl.when(col("value_type") == layout.VALUE_INT).then("value").alias("payload_int"),
        pl.when(col("value_type") == layout.VALUE_UINT)
        .then(col("value").reinterpret(signed=False))
        .alias("payload_uint"),
        pl.when(col("value_type") == layout.VALUE_DOUBLE).then(floats).alias("payload_float"),
        "payload_json",
        "parent_id",
        "is_async",
        "is_mark",
    )
