"""Ranges, marks, async ranges and frames of a capture file -> the tables ranges and relations.

The columns are the same, whoever reported a range. `record` writes a label into the unit itself; an NVTX range has it
in its text, 64-bit payload, category or extended payload; an ITT task has it in its metadata. docs/labels.md says which
form has which field where. Ranges are not nested here, and backward is not linked to forward: the analysis does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.formats.pieces import Columns
from opspan.labels import KIND_NAMES, Kind, kind_expr, parse_column
from opspan.readers.capture import ends, payloads
from opspan.readers.capture.attributes import Attributes, json_members, one_a_row, own_columns, scattered
from opspan.readers.capture.file import (
    ASYNC,
    ATTRIBUTE,
    FRAME,
    HAS_COLOR,
    HAS_FORWARD,
    HAS_INPUTS,
    HAS_LABEL,
    HAS_OVERLOAD,
    HAS_STACK,
    ITT,
    MARK,
    NAME,
    NO_OWNER,
    NVTX,
    OWNER_BY_ID,
    RANGE,
    TORCH,
    USER,
    VALUE_DOUBLE,
    VALUE_INT,
    VALUE_MASK,
    VALUE_UINT,
    CaptureFile,
    Ints,
    Units,
    distinct,
)
from opspan.readers.capture.ids import TaskIds, relations
from opspan.readers.capture.tables import note_texts
from opspan.tables import Issues
from opspan.tables.schema import KIND, empty

SOURCES = pl.Series([None, "torch", "user", "nvtx", "itt"], dtype=pl.Categorical)
KINDS = pl.Series(KIND_NAMES, dtype=KIND)

OWN_DOMAIN = "opspan"
# Where, beside the default domain, a text may be one of torch's labels or of ours. Elsewhere it is only text.
LABELLED_DOMAINS = (OWN_DOMAIN, "PyTorch", "pytorch")
# Kinds whose 64-bit payload is the user's; for the other kinds it is a sequence number.
USERS_KINDS = (Kind.USER, Kind.MODULE, Kind.STEP)


def read_ranges(file: CaptureFile, issues: Issues) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables ranges and relations. This frees the units of the file's ranges: the columns take as much memory."""
    tasks = TaskIds(file, issues)
    ended = ends.read(file, issues)
    said = _Said(
        ended,
        payloads.read(file, ended.ended, issues),
        _attributes(file, tasks, issues),
        tasks.bearers(),
        tasks.parents(issues),
        _category_names(file),
    )
    related = relations(file, tasks, issues)
    del tasks
    columns = Columns()
    for first, units in file.ranges.taken():
        columns.add(_piece(file, said, first, units, issues))
    return columns.frame(empty("ranges")), related


@dataclass(frozen=True)
class _Said:
    """What other units say of ranges, by the rows of the ranges and in this order."""

    ends: ends.Ends
    extended: payloads.Extended
    attributes: Attributes
    bearers: Ints  # rows of ranges that have an ITT id
    parents: tuple[Ints, Ints]
    categories: dict[tuple[int, int], str | None]


def _piece(file: CaptureFile, said: _Said, first: int, units: Units, issues: Issues) -> pl.DataFrame:
    """Rows of the table ranges. `first`: the row of the first unit."""
    count = len(units)
    note_texts(file, units, issues)
    end_ns, end_tid = said.ends.of(first, units, file.tids[units.logs], issues)
    children, parents = _between(said.parents[0], first, count)
    frame = _raw(file, units, first).with_columns(
        end_ns=end_ns,
        end_tid=end_tid,
        parent_id=scattered(pl.Series(said.parents[1][parents], dtype=pl.Int64), children, count),
        category=_categories(file, units, said.categories),
    )
    extended = {name: _scattered(said.extended.own, name, first, count) for name in payloads.OWN_COLUMNS}
    bears = np.zeros(count, dtype=np.bool_)
    bears[_between(said.bearers, first, count)[0]] = True
    # If the label is carried beside the name, the name is only a name, even if it looks like a label.
    apart = pl.Series(bears) & (frame["source_number"] == ITT) | extended["x_kind"].is_not_null()
    beside = frame["own"] & apart | frame["has_label"]
    users = frame["own"] & (frame["source_number"] == NVTX) & frame["number"].is_in(USERS_KINDS)
    frame = frame.with_columns(**_labels(file, frame, frame["labelled"] & ~beside, users))

    rows, some = _between(said.attributes.rows, first, count)
    attributes = Attributes(said.attributes.units.at(some), rows, said.attributes.texts)
    described = (frame["own"] | frame["source_number"].is_in((TORCH, USER))).to_numpy()[rows]
    own = described & (attributes.own >= 0)
    frame = frame.with_columns(**own_columns(attributes.where(own), count), **extended)
    _, some = _between(said.extended.members["row"].to_numpy(), first, count)
    others = said.extended.members[some].with_columns(pl.col("row") - first)
    json = one_a_row(pl.concat([json_members(attributes.where(~own)), others]))
    written = "{" + scattered(json["members"], json["row"].to_numpy(), count) + "}"
    frame = frame.with_columns(payload_json=written, color=pl.when(pl.col("flags") & HAS_COLOR != 0).then("raw_color"))
    return _columns(file.header.pid, frame)


def _between(rows: Ints, first: int, count: int) -> tuple[Ints, slice]:
    """Which of the sorted rows are in a piece, as rows of the piece; and the slice of `rows` that they are."""
    begin, end = np.searchsorted(rows, (first, first + count)).tolist()
    return rows[begin:end] - first, slice(begin, end)


def _scattered(frame: pl.DataFrame, name: str, first: int, count: int) -> pl.Series:
    rows, some = _between(frame["row"].to_numpy(), first, count)
    return scattered(frame[name][some], rows, count)


def _raw(file: CaptureFile, units: Units, first: int) -> pl.DataFrame:
    """The fields of the units, and who reported them."""
    texts, unit, source, flags = file.texts, units.u8(0), units.u8(1), units.u16(1)
    told = np.isin(source, (NVTX, ITT))
    has_inputs = (source == TORCH) & (flags & HAS_INPUTS != 0)
    domains = np.where(has_inputs, 0, units.u32(10))
    # A frame without a name of its own is called like its domain.
    name = np.where((unit == FRAME) & (units.u32(1) == 0), domains, units.u32(1))

    def some(word: int, where: npt.NDArray[np.bool_]) -> pl.Series:
        """Most captures have none of these."""
        if not where.any():
            return pl.Series([None], dtype=pl.Categorical).new_from_index(0, len(units))
        return texts.categories(np.where(where, units.u32(word), 0))

    has_stack = (source == TORCH) & (flags & (HAS_STACK | HAS_FORWARD) == HAS_STACK)
    has_overload = (source == TORCH) & (flags & HAS_OVERLOAD != 0)
    raw_name, overload = _without_overload(texts.categories(name), has_overload)
    domain = texts.categories(domains)
    return pl.DataFrame(
        {
            "id": np.arange(first, first + len(units)),
            "tid": file.tids[units.logs],
            "start_ns": units.i64(1),
            "flags": flags,
            "value_type": flags & VALUE_MASK,
            "value": units.i64(3),
            "unit_id": units.i64(4),
            "name_id": name,
            "raw_name": raw_name,
            "overload": overload,
            "domain": domain,
            "own": told & (domain == OWN_DOMAIN).fill_null(value=False).to_numpy(),
            # Whether the label is in the unit itself.
            "has_label": (source == TORCH) | (told & (unit == RANGE) & (flags & HAS_LABEL != 0)),
            "labelled": told & (domain.is_null() | domain.is_in(LABELLED_DOMAINS)).to_numpy(),
            "number": units.u32(11),  # a Kind, or the tool's category
            "forward": units.u32(12),
            "raw_sizes": texts.categories(units.u32(13)),
            "inputs": some(10, has_inputs),
            "input_types": some(14, has_inputs),
            "input_strides": some(15, has_inputs),
            "stack": some(12, has_stack),
            "raw_color": units.u32(14),
            "has_schema": (units.u32(15) != 0) & ~has_inputs,
            "source_number": source,
            "source": SOURCES.gather(np.where(source <= ITT, source, 0)),
            "is_async": np.isin(unit, (ASYNC, FRAME)),
            "is_mark": unit == MARK,
        }
    )


def _without_overload(names: pl.Series, has_overload: npt.NDArray[np.bool_]) -> tuple[pl.Series, pl.Series]:
    """aten::add.Tensor is aten::add, and Tensor."""
    none = pl.Series([None], dtype=pl.Categorical)
    if not has_overload.any():
        return names, none.new_from_index(0, len(names))
    whole = names.zip_with(pl.Series(has_overload), none)
    distinct = whole.unique().drop_nulls()
    parts = distinct.cast(pl.String).str.extract_groups(r"^(?<name>.*)\.(?<overload>[^.]*)$").struct.unnest()
    name, overload = (
        whole.replace_strict(distinct, parts[part], default=None, return_dtype=pl.Categorical)
        for part in ("name", "overload")
    )
    return name.zip_with(name.is_not_null(), names), overload


def _category_names(file: CaptureFile) -> dict[tuple[int, int], str | None]:
    """Domain and number -> name."""
    names = file.units.of(NAME)
    places = zip(names.u32(4).tolist(), names.u32(3).tolist(), strict=True)
    return dict(zip(places, file.texts.of(names.u32(1)), strict=True))


def _categories(file: CaptureFile, units: Units, known: Mapping[tuple[int, int], str | None]) -> pl.Series:
    """Names of the categories of NVTX ranges. In opspan's own domain the first numbers are kinds and not categories."""
    domains, numbers = units.u32(10), units.u32(11)
    codes = np.where(units.u8(1) == NVTX, domains.astype(np.int64) << 32 | numbers, 0)
    used, places = np.unique(codes, return_inverse=True)
    pairs = [(code >> 32, code & 0xFFFFFFFF) for code in used.tolist()]
    own = (file.texts.of(np.array([domain for domain, _ in pairs])) == OWN_DOMAIN).fill_null(value=False)
    texts = [
        None if number == 0 or (is_own and number < len(KIND_NAMES)) else known.get((domain, number)) or str(number)
        for (domain, number), is_own in zip(pairs, own, strict=True)
    ]
    return pl.Series(texts, dtype=pl.Categorical).gather(places)


def _labels(file: CaptureFile, frame: pl.DataFrame, has_label: pl.Series, users: pl.Series) -> dict[str, pl.Series]:
    """p_<field>: the fields in texts that are labels. Each distinct text is parsed once.

    `users`: the user's own ranges, which have no numbers of torch's. If one seems to, its text only looks like a label.
    """
    rows = file.texts.rows(np.where(has_label.to_numpy(), frame["name_id"].to_numpy(), 0))
    used, places = distinct(rows, len(file.texts.column))
    texts = file.texts.column.gather(used)
    parsed = (
        parse_column(texts)
        .drop("kind")
        .with_columns(
            pl.when(texts != pl.col("name")).then(texts).alias("text"),
            pl.col("name", "sizes", "class_name").cast(pl.Categorical),
        )
    )
    labels = parsed.select(pl.all().gather(places))
    told = pl.any_horizontal(pl.col("seq", "op_id", "forward_tid").is_not_null()) & users
    return {f"p_{column.name}": column for column in labels.select(pl.when(~told).then(pl.all()))}


def _attributes(file: CaptureFile, tasks: TaskIds, issues: Issues) -> Attributes:
    """The attributes of ranges, in order of these ranges."""
    units = file.units.of(ATTRIBUTE)
    owners = units.owners
    rows = file.ranges.rows(owners)
    by_id = (units.u16(1) & OWNER_BY_ID) != 0
    rows[by_id] = tasks.of_units(owners[by_id])
    of_thread = (units.i64(1) == NO_OWNER) & ~by_id
    if not file.is_part:
        issues.add("dangling_data", int(((rows < 0) & ~of_thread).sum()), "attributes")
    order = np.argsort(rows, kind="stable")
    order = order[rows[order] >= 0]
    return Attributes(units.at(order), rows[order], file.texts)


def _is_kind(column: str) -> pl.Expr:
    return (pl.col(column) > 0) & (pl.col(column) < len(KIND_NAMES))


def _columns(pid: int, frame: pl.DataFrame) -> pl.DataFrame:
    """The table ranges: each column takes its value from the first place that has one."""
    col, none = pl.col, pl.lit(None, dtype=pl.Int64)
    torch, user, nvtx = col("source_number") == TORCH, col("source_number") == USER, col("source_number") == NVTX
    is_kind = _is_kind("number")
    number = pl.when(is_kind).then("number")
    integer = col("value_type").is_in((VALUE_INT, VALUE_UINT))
    # The form PAYLOAD: sequence number in the 64-bit payload, kind in the category.
    has_seq = col("has_label") | (nvtx & col("own") & is_kind & ~col("number").is_in(USERS_KINDS))
    named = frame.with_columns(
        name=pl.coalesce(col("a_name").cast(pl.Categorical), "p_name", "raw_name"),
        seq=pl.coalesce(
            pl.when(has_seq & integer).then("value"), pl.when(col("x_seq") >= 0).then("x_seq"), "a_seq", "p_seq"
        ),
        op_id=pl.coalesce(pl.when("has_label").then("unit_id"), "x_op_id", "a_op_id", "p_op_id").replace(0, None),
        class_name=pl.coalesce(col("a_class").cast(pl.Categorical), "p_class_name"),
        value_type=pl.when(has_seq & integer).then(0).otherwise(pl.coalesce("a_payload_type", "value_type")),
        value=pl.coalesce("a_payload", "value"),
    )
    guessed = pl.when("labelled").then(kind_expr(col("name").cast(pl.String), col("seq"), col("class_name")))
    carried = pl.when(torch | user | (nvtx & col("own"))).then(number)
    beside = [pl.when(_is_kind(column)).then(column) for column in ("x_kind", "a_kind")]
    named = named.with_columns(kind=pl.coalesce(carried, *beside, guessed, 0))
    # A label of ours without the field means the main thread, which is left out so that there are few names. But if the
    # field has a place of its own (extended payload, ITT metadata, our own units), nothing there means not known.
    has_place = col("has_label") | col("has_schema") | col("a_op_id").is_not_null()
    in_text = col("own") & ~has_place & (col("kind") == Kind.BACKWARD)
    forward = pl.coalesce(
        pl.when(col("has_label") & (col("flags") & HAS_FORWARD != 0)).then("forward"),
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
        pl.when(col("value_type") == VALUE_INT).then("value").alias("payload_int"),
        pl.when(col("value_type") == VALUE_UINT).then(col("value").reinterpret(signed=False)).alias("payload_uint"),
        pl.when(col("value_type") == VALUE_DOUBLE).then(floats).alias("payload_float"),
        "payload_json",
        "parent_id",
        "is_async",
        "is_mark",
    )
