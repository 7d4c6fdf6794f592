"""Small frames by hand, and frames that hypothesis makes: threads, processes, domains, ties, nothing where it hurts."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import strategies as st

from opspan.tables import schema

EXTREMES = [-(2**63), -(2**63) + 1, -1, 2**63 - 2, 2**63 - 1]


def table(name: str, rows: list[dict[str, Any]], **defaults: Any) -> pl.DataFrame:
    """Rows of a table, with what is not said null."""
    types = schema.TABLES[name].schema
    given = [defaults | row for row in rows]
    frame = pl.DataFrame({column: [row.get(column) for row in given] for column in types}, schema=types, strict=False)
    return frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("id")) if "id" in types else frame


def ranges(*rows: tuple | dict, **defaults: Any) -> pl.DataFrame:
    """(name, start, end) or a dict each, on one thread if nothing else is said."""
    defaults = {"rank": 0, "pid": 1, "tid": 1, "kind": "op", "is_async": False, "is_mark": False} | defaults
    dicts = [
        dict(zip(("name", "start_ns", "end_ns"), row, strict=True)) if isinstance(row, tuple) else row for row in rows
    ]
    return table("ranges", dicts, **defaults)


times = st.one_of(st.integers(0, 12), st.integers(0, 12), st.sampled_from(EXTREMES))
maybe_times = st.one_of(times, times, st.none())
few = st.integers(1, 2)
seldom = st.sampled_from([False] * 4 + [True, None])
places = {
    "rank": st.sampled_from([0, 0, 0, 1, None]),
    "pid": st.sampled_from([1, 1, 1, 2, None, -(2**63)]),
    "tid": st.sampled_from([1, 1, 1, 2, None, 2**63 - 1]),
}


def range_rows(max_size: int = 14) -> st.SearchStrategy[list[dict]]:
    row = st.fixed_dictionaries(
        {
            **places,
            "end_tid": st.sampled_from([None, None, None, 1, 2]),
            "domain": st.sampled_from([None, None, "NCCL", "cudf"]),
            "start_ns": maybe_times,
            "end_ns": maybe_times,
            "is_async": seldom,
            "is_mark": seldom,
        }
    )
    return st.lists(row, max_size=max_size)


def nested_rows() -> st.SearchStrategy[list[dict]]:
    """Ranges of one or two stacks that push and pop properly, in any order of rows: what a healthy trace has."""

    def rows(actions: list[tuple[int, int, int]]) -> list[dict]:
        stacks: dict[tuple[int, str | None], list[dict]] = {}
        made, now = [], 0
        for tid, what, wait in actions:
            now += wait
            stack = stacks.setdefault((tid, "NCCL" if what == 3 else None), [])
            if what == 0 and stack:
                stack.pop()["end_ns"] = now
                continue
            row = {"rank": 0, "pid": 1, "tid": tid, "end_tid": None, "domain": "NCCL" if what == 3 else None}
            row |= {"start_ns": now, "end_ns": None, "is_async": False, "is_mark": False}
            made.append(row)
            stack.append(row)
        return made

    actions = st.lists(st.tuples(few, st.sampled_from([0, 0, 1, 1, 3]), st.integers(0, 2)), max_size=24)
    return actions.map(rows).flatmap(st.permutations)
