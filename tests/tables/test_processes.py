"""One file with the processes of several ranks."""

from __future__ import annotations

import polars as pl

from opspan.tables import Metadata, Tables, side_by_side
from opspan.tables.metadata import NOTHING, Told, told
from opspan.tables.processes import in_ranks

RANK_1, RANK_3 = told("MPI_RANKS", 1, 4), told("MPI_RANKS", 3, 4)


def trace() -> Tables:
    """Processes 11 (ranks 1) and 13 (3) with a device of their own and one that both use; 12 does nothing."""
    work = {"id": [0, 1, 2, 3], "pid": [11, 13, 11, 13], "device_id": [0, 1, 2, 2], "start_ns": [1, 2, 3, 4]}
    return Tables(
        (Metadata("test", ("a",), origin_utc_ns=0),),
        ranges=pl.DataFrame({"id": [0, 1, 2], "rank": 0, "pid": [11, 13, None], "start_ns": [1, 2, 3]}),
        relations=pl.DataFrame({"range_id": [1, 0, 2], "other_id": [0, 1, 1], "rank": 0}),
        work=pl.DataFrame(work).with_columns(rank=0),
        processes=pl.DataFrame({"pid": [11, 12, 13], "rank": 0}),
        devices=pl.DataFrame({"device_id": [0, 1, 2, 3], "rank": 0}),
        counters=pl.DataFrame({"pid": [None, None, None, 13], "device_id": [1, 2, None, 0], "time_ns": 1, "rank": 0}),
        issues=pl.DataFrame({"code": ["x"], "rank": 0}),
    )


def test_rows_are_of_the_ranks_of_their_processes() -> None:
    found = in_ranks(trace(), {11: RANK_1, 13: RANK_3})

    assert [(rank.rank, rank.rank_by, rank.told, rank.paths) for rank in found.ranks] == [
        (1, "MPI_RANKS", RANK_1, ("a",)),
        (3, "MPI_RANKS", RANK_3, ("a",)),
    ]
    assert found.ranges["rank"].to_list() == [1, 3, 1]
    assert found.relations["rank"].to_list() == [3, 1, 1]
    assert found.work["rank"].to_list() == [1, 3, 1, 3]
    assert dict(found.processes.select("pid", "rank").iter_rows()) == {11: 1, 12: 1, 13: 3}
    assert sorted(found.devices.select("device_id", "rank").iter_rows()) == [(0, 1), (1, 3), (2, 1), (2, 3), (3, 1)]
    # Device 2 is used by both: whose figure it is nobody knows, and it stays with the first.
    assert found.counters["rank"].to_list() == [3, 1, 1, 3]
    assert found.issues["rank"].to_list() == [1]
    assert side_by_side([found]) is found


def test_a_process_that_nobody_told_of_comes_last() -> None:
    more = trace()
    ranges = pl.concat(
        [more.ranges, more.ranges.tail(1).with_columns(id=pl.lit(3, pl.Int64), pid=pl.lit(77, pl.Int64))]
    )
    found = in_ranks(Tables(more.ranks, **{**more.frames, "ranges": ranges}), {11: RANK_1, 13: RANK_3})
    assert [(rank.rank, rank.rank_by) for rank in found.ranks] == [(1, "MPI_RANKS"), (3, "MPI_RANKS"), (4, "order")]
    assert found.ranges["rank"].to_list() == [1, 3, 1, 4]


def test_without_two_ranks_it_is_one() -> None:
    one = in_ranks(trace(), {11: RANK_1}, Told(run="torchrun x"))
    assert ([rank.told for rank in one.ranks], one.ranges["rank"].unique().to_list()) == ([RANK_1], [0])
    none = in_ranks(trace(), {}, Told(run="torchrun x"))
    assert [rank.told for rank in none.ranks] == [Told(run="torchrun x")]
    assert in_ranks(trace(), {11: RANK_1, 13: RANK_1}).ranges["rank"].unique().to_list() == [0]
    assert in_ranks(trace(), {11: NOTHING}).metadata.told == NOTHING


def test_files_of_two_nodes_are_all_of_their_ranks() -> None:
    first = in_ranks(trace(), {11: RANK_3, 13: RANK_1})
    other = in_ranks(trace(), {11: told("MPI_RANKS", 0, 4), 13: told("MPI_RANKS", 2, 4)})
    whole = side_by_side([first, other])
    assert sorted(rank.rank for rank in whole.ranks) == [0, 1, 2, 3]
    assert whole.ranges["rank"].to_list() == [3, 1, 1, 0, 2, 0]
    assert whole.issues["code"].to_list() == ["x", "x"]
