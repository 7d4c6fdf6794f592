"""The table of many ranks, of what each says for itself: `parts` of one, and `rows` of all together.

Rows by name, shape and stack are of a rank each, as in torch's own table; the others are sums over ranks. Of files that
were read as one trace the table is made by table.py, from the same sums.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.parts import Part, Parts
from opspan.events import events_of
from opspan.events.table import Facts
from opspan.tables.names import matching, names_of
from opspan.views import contents, missing
from opspan.views import table as tables
from opspan.views.op_table import OF_EVENTS, OpRows, RankRows, schema_of
from opspan.views.table import Asked, Table

_NTH = "nth"
_FACTS = {name: pl.Boolean for name in Facts._fields if name.startswith("has_")}
_TYPES: dict[str, Any] = {name: _FACTS.get(name, pl.Int64) for name in Facts._fields}
_TYPES |= {"use_device": pl.String, "self_cpu_us": pl.Float64, "self_device_us": pl.Float64}
_RULES = dict.fromkeys(_FACTS, "any") | {"use_device": "first", "least_flops": "least"}
_RULES |= dict.fromkeys(("longest_name", "longest_shapes", "longest_stack_entry"), "most")


def parts(analysis: Analysis, asked: Asked) -> Parts:
    tables.check(asked)
    if asked.memory and analysis.tables.memory.height:
        analysis = analysis.with_memory()
    trace = tables.looked_at(analysis, asked)
    known = names_of(trace.ranges)
    names = None if asked.op is None else matching(known, asked.op)
    facts = {
        "is_xpu": tables.has_xpu(trace),
        "has_memory": trace.memory.height > 0,
        "nothing": contents.nothing_by(trace, asked.by),
        "without": missing.without(trace, asked.by),
    }
    rules = {"is_xpu": "any", "has_memory": "any", "nothing": "first", "without": "first"}
    common = {
        "facts": Part(pl.DataFrame([facts]), (), rules),
        "names": _texts([] if asked.op is None else known),
        "missing": _texts(missing.lines(analysis, asked.by)),
    }
    if asked.by not in OF_EVENTS:
        part = tables.averaged(trace, asked, names)
        texts = [name for name, dtype in part.rows.schema.items() if dtype == pl.Categorical]
        return common | {"rows": replace(part, rows=part.rows.with_columns(pl.col(texts).cast(pl.String)))}
    rows = OpRows(analysis, events_of(analysis), asked.by, names, kernels=True)
    of_all = [] if rows.facts is None else [rows.facts._asdict()]
    return common | {
        "rows": _of_ops(rows.frame, asked.by),
        "of all": Part(pl.DataFrame(of_all, schema=_TYPES), (), _RULES),
    }


def _of_ops(rows: pl.DataFrame, by: str) -> Part:
    """Rows of one rank are those of its cycles together. Where a rank has several of a name, an op and a range that is
    called so, the first belongs to the first."""
    key = ("rank", "name", "device", *(name for name in ("sizes", "stack") if name in rows.columns))
    numbers = schema_of(by, has_memory=True)
    rules = {name: "first" for name in rows.columns if name not in numbers}
    return Part(rows.with_columns(pl.int_range(pl.len()).over(key).alias(_NTH)), (*key, _NTH), rules)


def _texts(texts: list[str]) -> Part:
    return Part(pl.DataFrame({"text": texts}, schema={"text": pl.String}), ("text",))


def rows(parts: Parts, asked: Asked) -> Table:
    facts = parts["facts"].rows.row(0, named=True)
    if asked.op is not None:
        tables.names_of_op_in(parts["names"].rows["text"].to_list(), asked.op)  # an error where no rank has it
    if asked.by in OF_EVENTS:
        found = _of_events(parts, asked)
    else:
        found = tables.of_averages(parts["rows"], asked, facts["is_xpu"])
    notes = [facts["nothing"]] if not found.rows.height else []
    if found.rows.height and tables.is_one_group(found):
        notes.append(facts["without"])
    if asked.memory and not facts["has_memory"]:
        notes.append(tables.NO_MEMORY)
    return replace(found, notes=(*notes, *found.notes))


def _of_events(parts: Parts, asked: Asked) -> Table:
    frame = parts["rows"].rows.drop(_NTH)
    for time in ("cpu", "device"):
        frame = frame.with_columns((pl.col(f"{time}_ns") / pl.col("count")).alias(f"average_{time}_ns"))
    of_all = parts["of all"].rows
    facts = None
    if of_all.height:
        facts = Facts(**of_all.row(0, named=True))
        facts = facts._replace(has_nodes=frame["rank"].n_unique() > 1)
    shown = RankRows(frame, facts, asked.kernels, has_ops=asked.op is not None)
    return tables.of_ops(shown, asked, is_one_rank=frame["rank"].n_unique() <= 1)
