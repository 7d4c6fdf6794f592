"""Finds ranges that a program sent twice at the same time, through NVTX and ITT. Merges the two rows of a range.

    nvtx push "step" | itt push "step" | ... | itt pop | nvtx pop        the two pops may also be the other way round

Two ranges are a pair if they have equal names and different protocols, and if nothing else happens on their thread
between their beginnings or between their ends. Nested ranges with one name in one protocol are not a pair.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.readers.capture.file import Bools, Ints
from opspan.tables import Issues

# Marks have no end to compare. So two marks with the same name are a pair if the time between them is at most this
# long.
MARKS_APART_NS = 1_000_000
# The merged row takes these columns from the NVTX row. Only if its kind is unknown, the kind is taken from the ITT row.
# Other columns (except payload_json, which is joined) come from the NVTX row, or from the ITT row if NVTX has no value.
_OF_THE_ROW = ("id", "rank", "pid", "tid", "end_tid", "start_ns", "end_ns", "name", "kind", "source", "domain")
_MORE = ("payload_json", "parent_id", "is_async", "is_mark")


def merge_pairs(ranges: pl.DataFrame, relations: pl.DataFrame, issues: Issues) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the tables with one row for each range. The rows get new ids."""
    is_itt, is_nvtx = ((ranges["source"] == source).fill_null(value=False) for source in ("itt", "nvtx"))
    if not is_itt.any() or not is_nvtx.any():
        return ranges, relations
    itt, nvtx = is_itt.to_numpy(), is_nvtx.to_numpy()
    first, second = _pairs(ranges, nvtx, itt)
    if not len(first):
        return ranges, relations
    issues.add("told_twice", len(first))
    of_nvtx, of_itt = np.where(nvtx[first], first, second), np.where(nvtx[first], second, first)

    stays = np.ones(ranges.height, dtype=np.bool_)
    stays[of_itt] = False
    numbers = np.cumsum(stays) - 1  # the new id of each old row
    numbers[of_itt] = numbers[of_nvtx]
    renamed = pl.Series(numbers)

    itt_ranges = ranges[of_itt].select(pl.all().exclude(_OF_THE_ROW[1:9]).name.suffix("_itt"), kind_itt="kind")
    itt_ranges = itt_ranges.with_columns(id_itt=pl.Series(of_nvtx, dtype=ranges["id"].dtype))
    joined = ranges.filter(pl.Series(stays)).join(
        itt_ranges, left_on="id", right_on="id_itt", how="left", maintain_order="left"
    )
    filled = [name for name in ranges.columns if name not in (*_OF_THE_ROW, *_MORE)]
    members = pl.col("payload_json", "payload_json_itt").str.slice(1).str.strip_suffix("}")
    json = pl.concat_str(members, separator=", ", ignore_nulls=True)
    merged = joined.with_columns(
        *(pl.coalesce(name, f"{name}_itt").alias(name) for name in filled),
        kind=pl.when(pl.col("kind") == "unknown").then(pl.coalesce("kind_itt", "kind")).otherwise("kind"),
        parent_id=pl.coalesce("parent_id", "parent_id_itt"),
        payload_json=pl.when(pl.any_horizontal(pl.col("payload_json", "payload_json_itt").is_not_null())).then(
            "{" + json + "}"
        ),
    ).select(ranges.columns)
    merged = merged.with_columns(_renumbered(merged, name, renamed) for name in ("id", "parent_id"))
    merged = merged.with_columns(parent_id=pl.when(pl.col("parent_id") != pl.col("id")).then("parent_id"))
    return merged, relations.with_columns(_renumbered(relations, name, renamed) for name in ("range_id", "other_id"))


def _renumbered(frame: pl.DataFrame, name: str, numbers: pl.Series) -> pl.Series:
    return numbers.gather(frame[name]).cast(frame[name].dtype).alias(name)


def _pairs(ranges: pl.DataFrame, nvtx: Bools, itt: Bools) -> tuple[Ints, Ints]:
    """Returns pairs of rows that are the same range; each row is in at most one pair."""
    tid, start = ranges["tid"].to_numpy(), ranges["start_ns"].to_numpy()
    mark = ranges["is_mark"].to_numpy()
    has_end = ranges["end_ns"].is_not_null().to_numpy() & ~mark
    end = ranges["end_ns"].fill_null(0).to_numpy()
    end_tid = ranges.select(pl.coalesce("end_tid", "tid")).to_series().to_numpy()
    begins, ends = _places(tid, start, end_tid, end, has_end)

    order = np.argsort(begins, kind="stable")
    one, other = order[:-1], order[1:]
    name = ranges["name"].to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    asynchronous, seq = ranges["is_async"].to_numpy(), ranges["seq"].fill_null(-1).to_numpy()
    same = (begins[other] - begins[one] == 1) & (name[one] == name[other]) & (name[one] >= 0)
    same &= (nvtx[one] & itt[other]) | (itt[one] & nvtx[other])
    same &= (mark[one] == mark[other]) & (asynchronous[one] == asynchronous[other])
    same &= (seq[one] == seq[other]) | (seq[one] < 0) | (seq[other] < 0)
    together = np.where(
        has_end[one] & has_end[other], np.abs(ends[one] - ends[other]) == 1, ~has_end[one] & ~has_end[other]
    )
    same &= np.where(mark[one], start[other] - start[one] <= MARKS_APART_NS, together)
    # In a recursion (nvtx f, itt f, nvtx f, itt f) the rows are paired two by two, from the outermost on.
    at = np.arange(len(same))
    run_start = np.maximum.accumulate(np.where(same, -1, at)) + 1
    chosen = same & ((at - run_start) % 2 == 0)
    return one[chosen], other[chosen]


def _places(tid: Ints, start: Ints, end_tid: Ints, end: Ints, has_end: Bools) -> tuple[Ints, npt.NDArray[np.int64]]:
    """Sorts all begins and ends by thread and time, and returns the positions of each row's begin and end. Position -1
    means no end. The positions of neighbours in this order differ by 1 if they are on the same thread, and by 2
    otherwise."""
    count, ended = len(tid), np.flatnonzero(has_end)
    threads = np.concatenate([tid, end_tid[ended]])
    times = np.concatenate([start, end[ended]])
    # At equal times ends come before begins, except the end of a range that also begins at that time.
    late = np.concatenate([np.ones(count, dtype=np.int8), np.where(end[ended] == start[ended], 2, 0).astype(np.int8)])
    order = np.lexsort((late, times, threads))
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order)) + np.concatenate([[0], np.cumsum(np.diff(threads[order]) != 0)])
    ends = np.full(count, -1, dtype=np.int64)
    ends[ended] = places[count:]
    return places[:count], ends
