"""Translates events of the host (ops, annotations, calls, Python functions), and links backward ops to forward ops.

{"ph": "X", "cat": "cpu_op", "name": "MulBackward0", "pid": 7, "tid": 9, "ts": 23.401, "dur": 12.5,
 "args": {"External id": 30, "Sequence number": 4, "Fwd thread id": 1, "Input Dims": [[8, 4], []]}}
{"ph": "s", "id": 1, "pid": 7, "tid": 7, "ts": 2.1, "cat": "fwdbwd", "name": "fwdbwd"}           at the forward op
{"ph": "f", "id": 1, "pid": 7, "tid": 9, "ts": 23.401, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"}  at the backward op

An arrow consists of two events: phase s at a forward op, phase f at its backward op. In a backward op, "Fwd thread id"
is torch's own number for the thread of the forward op. In a forward op it is 0. The arrows show which thread of the
operating system has this number.
"""

from __future__ import annotations

import polars as pl

from opspan import inputs
from opspan.formats.chrome import times
from opspan.formats.columns import constant, numbered
from opspan.formats.overloads import have_overload, without_overload
from opspan.labels import Kind, kind_of
from opspan.tables.schema import KIND

_col = pl.col
_RELATION = "is_dependent_on"
_OWN_MARKS = "cpu_instant_event"
ARROWS = ("fwdbwd", "forward_backward")


def ranges(spans: pl.DataFrame, others: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Returns the table ranges. `others`: complete events of unknown categories. The column category holds these
    categories."""
    seq = pl.when(_col("seq") >= 0).then("seq")
    frame = pl.concat(
        [
            spans.with_columns(seq, is_mark=pl.lit(value=False)),
            others.with_columns(seq, is_mark=pl.lit(value=False), category="cat"),
            marks.with_columns(is_mark=pl.lit(value=True), category=pl.when(_col("cat") != _OWN_MARKS).then("cat")),
        ],
        how="diagonal",
    )
    is_op = frame.select(~_is_annotation() & ~_col("is_mark") & _col("category").is_null()).to_series()
    name, overload = without_overload(frame["name"], have_overload(frame["name"]) & is_op)
    frame = frame.with_columns(name.alias("name"), overload.alias("overload"))
    return numbered(
        frame.select(
            "pid",
            "tid",
            *times(),
            "name",
            "overload",
            "category",
            "seq",
            "is_mark",
            "forward_thread",
            _kinds(frame).alias("kind"),
            pl.when(_is_annotation()).then(constant("user")).otherwise(constant("torch")).alias("source"),
            pl.when(_col("op_id") > 0).then("op_id").alias("op_id"),
            *(pl.when(_col(name) != "[]").then(name).alias(name) for name in ("sizes", "input_types", "input_strides")),
            inputs.map_texts(frame["inputs"], inputs.from_torch),
            _col("rest").alias("payload_json"),
            pl.lit(value=False).alias("is_async"),
        )
    )


def _is_annotation() -> pl.Expr:
    return (_col("cat") == "user_annotation").fill_null(value=False)


def _kinds(frame: pl.DataFrame) -> pl.Series:
    features = frame.select(
        "name",
        has_seq=_col("seq").is_not_null(),
        # torch numbers threads from 1 on.
        is_backward=(_col("forward_thread") > 0).fill_null(value=False),
        is_annotation=_is_annotation(),
    )
    distinct = features.unique()
    kinds = [_kind(*row).name.lower() for row in distinct.iter_rows()]
    distinct = distinct.with_columns(pl.Series("kind", kinds, dtype=pl.String).cast(KIND))
    return features.join(distinct, on=features.columns, how="left", nulls_equal=True, maintain_order="left")["kind"]


def _kind(name: str | None, has_seq: bool, is_backward: bool, is_annotation: bool) -> Kind:
    guessed = kind_of(name or "", 0 if has_seq else None, None)
    if is_annotation:
        return guessed if guessed is Kind.STEP else Kind.USER
    return Kind.BACKWARD if is_backward and guessed is not Kind.ENGINE else guessed


def link(ranges: pl.DataFrame, flows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Returns the ranges with a new column forward_tid; the relations; and how many arrows do not connect a forward op
    with its backward op. A relation goes from the op where an arrow ends to the op where the arrow starts. Arrows
    from calls to work are ignored, because they only repeat correlation ids."""
    arrows = flows.filter(_col("cat").is_in(ARROWS))
    ops = ranges.filter(~_col("is_mark")).select("pid", "tid", "id", "seq", "kind", "forward_thread", ts_ns="start_ns")
    place = ["pid", "tid", "ts_ns"]
    ends = {
        phase: arrows.filter(_col("ph") == phase)
        .select(_col("id").alias("arrow"), *place)
        .join(ops, on=place, nulls_equal=True)
        for phase in ("s", "f")
    }
    of_backward = _col("kind") == "backward"
    pairs = (
        ends["f"]
        .filter(of_backward)
        .join(ends["s"].filter(~of_backward), on="arrow", suffix="_forward")
        .filter(_col("seq").eq_missing(_col("seq_forward")))
        # If several ops begin in the same nanosecond, the innermost of them created the backward node. It is the last
        # of them in the file.
        .sort("arrow", "id", "id_forward")
        .unique("arrow", keep="last", maintain_order=True)
    )
    relations = pairs.select(
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        _col("id").alias("range_id"),
        constant(_RELATION).alias("relation"),
        _col("id_forward").alias("other_id"),
        _col("ts_ns").alias("time_ns"),
    )
    threads = pairs.select("pid", "forward_thread", forward_tid="tid_forward").unique()
    # If arrows link one number of torch (forward_thread) to two threads, the number is ambiguous, and is left out.
    threads = threads.filter(pl.len().over("pid", "forward_thread") == 1).drop_nulls("forward_thread")
    ranges = ranges.join(threads, on=["pid", "forward_thread"], how="left", nulls_equal=True, maintain_order="left")
    dangling = int((arrows["ph"] == "f").sum()) - relations.height
    return ranges.drop("forward_thread"), relations, dangling


def calls(spans: pl.DataFrame) -> pl.DataFrame:
    is_hip = _col("name").cat.starts_with("hip").fill_null(value=False)
    api = _col("cat").cast(pl.String).str.to_lowercase()
    return numbered(
        spans.select(
            "pid",
            "tid",
            *times(),
            "name",
            "correlation_id",
            pl.when(is_hip)
            .then(pl.lit("hip"))
            .when(api.is_in(["runtime", "driver"]))
            .then(pl.concat_str(pl.lit("cuda_"), api))
            .otherwise(api)
            .cast(pl.Categorical)
            .alias("api"),
            _col("rest").alias("payload_json"),
        )
    )


def functions(spans: pl.DataFrame) -> pl.DataFrame:
    frame = numbered(spans.select("pid", "tid", *times(), "name", "python_id", "python_parent", payload_json="rest"))
    by_number = frame.select("pid", python_parent="python_id", parent_id="id").drop_nulls("python_parent")
    by_number = by_number.unique(["pid", "python_parent"], keep="first")
    frame = frame.join(by_number, on=["pid", "python_parent"], how="left", nulls_equal=True, maintain_order="left")
    return frame.drop("python_id", "python_parent")
