"""Ids that ITT gives to tasks, and what is said by them: parents, relations, attributes from afar.

An id is three words. It may be used again for another task, so what names it means the last task that began before.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from opspan.readers.capture.file import IDS, NO_OWNER, RELATION, CaptureFile, Ints, Units, find
from opspan.trace import Issues

ID = ["a", "b", "c"]
# __itt_relation, by number
RELATIONS = pl.Series(
    [
        "is_unknown",
        "is_dependent_on",
        "is_sibling_of",
        "is_parent_of",
        "is_continuation_of",
        "is_child_of",
        "is_continued_by",
        "is_predecessor_to",
    ],
    dtype=pl.Categorical,
)


class TaskIds:
    """The ids of a file's tasks."""

    def __init__(self, file: CaptureFile, ranges: Units, issues: Issues) -> None:
        self.units = file.units.of(IDS)
        self.rows = find(ranges.keys, self.units.owners)
        self.starts = ranges.i64(1)
        named = self.rows >= 0
        issues.add("dangling_data", int((~named & (self.units.i64(1) != NO_OWNER)).sum()), "ids")
        self.tasks = _ids(self.units.where(named), 2).with_columns(
            row=pl.Series(self.rows[named], dtype=pl.Int64),
            time_ns=pl.Series(self.starts[self.rows[named]], dtype=pl.Int64),
        )
        self.unique = self.tasks.height == self.tasks.select(pl.struct(ID).n_unique()).item()

    def find(self, ids: pl.DataFrame, times: Ints | None) -> Ints:
        """Rows of the ranges that bear the ids at these times (None: at the end); -1 where there is none."""
        if not ids.height or not self.tasks.height:
            return np.full(ids.height, -1, dtype=np.int64)
        if self.unique:
            found = ids.join(self.tasks, on=ID, how="left", maintain_order="left")["row"]
        else:
            end = np.full(ids.height, np.iinfo(np.int64).max)
            wanted = ids.with_columns(time_ns=pl.Series(end if times is None else times)).with_row_index("i")
            wanted, tasks = wanted.sort("time_ns", maintain_order=True), self.tasks.sort("time_ns", "row")
            before = wanted.join_asof(tasks, on="time_ns", by=ID, check_sortedness=False)
            after = wanted.join_asof(tasks, on="time_ns", by=ID, strategy="forward", check_sortedness=False)
            found = before.with_columns(pl.coalesce("row", after["row"])).sort("i")["row"]
        return found.fill_null(-1).to_numpy()

    def of_units(self, keys: Ints) -> Ints:
        """Rows of the ranges that bear the ids written in these kIds units."""
        at = find(self.units.keys, keys)
        rows = np.full(len(keys), -1, dtype=np.int64)
        rows[at >= 0] = self.find(_ids(self.units, 2)[at[at >= 0]], None)
        return rows

    def bearers(self, count: int) -> pl.Series:
        """Which of the ranges bear an id?"""
        bears = np.zeros(count, dtype=np.bool_)
        bears[self.rows[self.rows >= 0]] = True
        return pl.Series(bears)

    def parents(self, count: int, issues: Issues) -> pl.Series:
        """parent_id of the ranges."""
        ids = _ids(self.units, 5)
        has = ((self.rows >= 0) & ids.select(pl.any_horizontal(pl.col(ID) != 0)).to_series().to_numpy()).astype(bool)
        children = self.rows[has]
        found = self.find(ids.filter(pl.Series(has)), self.starts[children])
        issues.add("dangling_relations", int((found < 0).sum()), "parents")
        parents = np.full(count, -1, dtype=np.int64)
        parents[children] = found
        return _null_if_negative(parents)


def _ids(units: Units, k: int) -> pl.DataFrame:
    return pl.DataFrame({"a": units.i64(k), "b": units.i64(k + 1), "c": units.i64(k + 2)})


def _null_if_negative(rows: Ints) -> pl.Series:
    return pl.select(pl.when(pl.lit(pl.Series(rows)) >= 0).then(pl.lit(pl.Series(rows)))).to_series()


def relations(file: CaptureFile, tasks: TaskIds, issues: Issues) -> pl.DataFrame:
    """The table relations."""
    units = file.units.of(RELATION)
    times, kinds = units.i64(1), units.u16(1)
    heads, tails = tasks.find(_ids(units, 2), times), tasks.find(_ids(units, 5), times)
    issues.add("dangling_relations", int(((heads < 0) | (tails < 0)).sum()), "relations")
    return pl.DataFrame(
        {
            "range_id": _null_if_negative(heads),
            "relation": RELATIONS.gather(np.where(kinds < len(RELATIONS), kinds, 0)),
            "other_id": _null_if_negative(tails),
            "time_ns": times,
        }
    )
