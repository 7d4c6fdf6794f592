"""Resolves the ids of ITT tasks. Parents, relations and some attributes refer to tasks by these ids.

An id is three words. A later task may have the same id. So an id means the last task with this id that began before the
reference. If there is no such task, the id means the first task with this id that began after the reference.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from opspan.readers.capture import layout
from opspan.readers.capture.file import CaptureFile, Ints, Units, find, last_of_each
from opspan.tables import Issues

ID = ["a", "b", "c"]
# The second word of the ids that opspan gives to tasks. The third word is 0 for an op, 1 for a user's own range.
TAG = 0x6F7073
# Names of the values 0, 1, 2, ... of __itt_relation.
_NAMES = """\
is_unknown is_dependent_on is_sibling_of is_parent_of is_continuation_of is_child_of is_continued_by is_predecessor_to
"""
RELATIONS = pl.Series(_NAMES.split(), dtype=pl.Categorical)


class TaskIds:
    def __init__(self, capture: CaptureFile, issues: Issues) -> None:
        self.units = capture.units.of(layout.IDS)
        rows = capture.ranges.rows(self.units.owners)
        named = rows >= 0
        self._is_part = capture.is_part
        if not self._is_part:
            issues.add("dangling_data", int((~named & (self.units.i64(1) != layout.NO_OWNER)).sum()), "ids")
        beside = self.units.where(named)
        ops, within = _own_ops(capture)
        self.rows = np.concatenate([rows[named], ops])
        self.starts = np.concatenate([capture.ranges.at(rows[named]).i64(1), within[:, 0]])
        self.tasks = pl.concat([_ids(beside, 2), _of_ops(within[:, 1])]).with_columns(
            row=pl.Series(self.rows, dtype=pl.Int64),
            time_ns=pl.Series(self.starts, dtype=pl.Int64),
        )
        self.parent_ids = pl.concat([_ids(beside, 5), _of_ops(within[:, 2])])
        self.unique = self.tasks.height == self.tasks.select(pl.struct(ID).n_unique()).item()

    def find(self, ids: pl.DataFrame, times: Ints | None) -> Ints:
        """Finds a range for each id: the last range with this id that had begun by the id's time, or else the first
        range with this id that began later. Returns the rows of these ranges, and -1 for ids that no range has.
        `times`: a time for each id; None means the end of the file for all ids."""
        if not ids.height or not self.tasks.height:
            return np.full(ids.height, -1, dtype=np.int64)
        if self.unique:
            rows = ids.join(self.tasks, on=ID, how="left", maintain_order="left")["row"]
        else:
            end = np.full(ids.height, np.iinfo(np.int64).max)
            wanted = ids.with_columns(time_ns=pl.Series(end if times is None else times)).with_row_index("i")
            wanted, tasks = wanted.sort("time_ns", maintain_order=True), self.tasks.sort("time_ns", "row")
            before = wanted.join_asof(tasks, on="time_ns", by=ID, check_sortedness=False)
            after = wanted.join_asof(tasks, on="time_ns", by=ID, strategy="forward", check_sortedness=False)
            rows = before.with_columns(pl.coalesce("row", after["row"])).sort("i")["row"]
        return rows.fill_null(-1).to_numpy()

    def of_units(self, keys: Ints) -> Ints:
        """Returns for each IDS unit the row of the range that has the unit's id, or -1 if no range has the id. `keys`:
        the keys of the units."""
        at = find(self.units.keys, keys)
        rows = np.full(len(keys), -1, dtype=np.int64)
        rows[at >= 0] = self.find(_ids(self.units, 2)[at[at >= 0]], None)
        return rows

    def bearers(self) -> Ints:
        """Returns the rows of the ranges that have an id."""
        return np.unique(self.rows)

    def parents(self, issues: Issues) -> tuple[Ints, Ints]:
        """Returns the rows of the ranges that have a parent, ascending, and the rows of the parents."""
        has = self.parent_ids.select(pl.any_horizontal(pl.col(ID) != 0)).to_series().to_numpy()
        children = self.rows[has]
        parents = self.find(self.parent_ids.filter(has), self.starts[has])
        if not self._is_part:
            issues.add("dangling_relations", int((parents < 0).sum()), "parents")
        # If a range has several parents, the last one counts.
        order = np.argsort(children, kind="stable")
        order = order[last_of_each(children[order])]
        order = order[parents[order] >= 0]
        return children[order], parents[order]


def _own_ops(capture: CaptureFile) -> tuple[Ints, Ints]:
    """Returns the rows of the ops that opspan itself reported through ITT, and three words of each op: its start, its
    id, and its parent's id."""
    rows, words = [np.empty(0, dtype=np.int64)], [np.empty((0, 3), dtype=np.int64)]
    for first, units in capture.ranges:
        ops = np.flatnonzero(
            (units.u16(1) & layout.HAS_LABEL != 0) & (units.u8(1) == layout.ITT) & (units.kinds == layout.RANGE)
        )
        rows.append(ops + first)
        words.append(units.words[ops][:, [1, 4, 7]])
    return np.concatenate(rows), np.concatenate(words)


def _ids(units: Units, k: int) -> pl.DataFrame:
    return pl.DataFrame({"a": units.i64(k), "b": units.i64(k + 1), "c": units.i64(k + 2)})


def _of_ops(words: Ints) -> pl.DataFrame:
    """Expands ids that opspan wrote as one word into ids of three words. A word 0 means that the op has no id."""
    a, c = words & np.int64(2**63 - 1), (words < 0).astype(np.int64)
    return pl.DataFrame({"a": a, "b": np.where(words != 0, np.int64(TAG), 0), "c": c})


def _null_if_negative(rows: Ints) -> pl.Series:
    return pl.select(pl.when(pl.lit(pl.Series(rows)) >= 0).then(pl.lit(pl.Series(rows)))).to_series()


def relations(capture: CaptureFile, tasks: TaskIds, issues: Issues) -> pl.DataFrame:
    units = capture.units.of(layout.RELATION)
    times, kinds = units.i64(1), units.u16(1)
    heads, tails = tasks.find(_ids(units, 2), times), tasks.find(_ids(units, 5), times)
    if not capture.is_part:
        issues.add("dangling_relations", int(((heads < 0) | (tails < 0)).sum()), "relations")
    return pl.DataFrame(
        {
            "range_id": _null_if_negative(heads),
            "relation": RELATIONS.gather(np.where(kinds < len(RELATIONS), kinds, 0)),
            "other_id": _null_if_negative(tails),
            "time_ns": times,
        }
    )
