"""Collectives matched over ranks, against nested loops; who is last; files that were cut at different times."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import twins_of_ranks
from opspan.analysis.collectives import SCHEMA
from opspan.analysis.over_ranks import matched

ROW = dict.fromkeys(SCHEMA) | {"pid": 1, "device_id": 0, "stream_id": 7, "group": "0", "kind": "all_reduce"}


def frame(rows: list[dict]) -> pl.DataFrame:
    return pl.DataFrame([ROW | row for row in rows], schema=SCHEMA)


def run(rank: int, *times: tuple[int, int], **more: object) -> list[dict]:
    """(begin, end) of each."""
    spans = [{"start_ns": begin, "end_ns": end, "time_ns": end - begin} for begin, end in times]
    return [{"rank": rank, **span, **more} for span in spans]


def pairs(rows: list[dict]) -> list[set[int]]:
    """Row numbers of those that are one."""
    found: dict[int, set[int]] = {}
    for number, match in enumerate(matched(frame(rows))["match"]):
        if match is not None:
            found.setdefault(match, set()).add(number)
    return sorted(found.values(), key=min)


def test_who_takes_the_shortest_time_came_last_and_the_others_waited_for_it() -> None:
    clock_apart = 10**15
    found = matched(frame([*run(0, (0, 100)), *run(1, (60, 100)), *run(2, (clock_apart, clock_apart + 90))]))
    assert found["transfer_ns"].to_list() == [40, 40, 40]
    assert found["waiting_ns"].to_list() == [60, 0, 50]
    assert found["is_last"].to_list() == [False, True, False]


def test_a_file_that_was_cut_earlier_is_laid_where_kinds_and_sizes_agree() -> None:
    sizes = [4, 8, 4, 16, 4]
    whole = [row | {"bytes": size} for row, size in zip(run(0, *((t, t + 5) for t in range(5))), sizes, strict=True)]
    part = [row | {"rank": 1} for row in whole[2:]]
    assert pairs([*whole, *part]) == [{2, 5}, {3, 6}, {4, 7}]


def test_where_several_places_agree_the_clocks_decide_or_nobody_does() -> None:
    whole = run(0, *((100 * t, 100 * t + 50) for t in range(6)), bytes=4)
    near = run(1, *((100 * t + 20, 100 * t + 51) for t in range(1, 5)), bytes=4)
    far = run(1, *((100 * t, 100 * t + 50) for t in range(10**6, 10**6 + 4)), bytes=4)
    assert pairs([*whole, *near]) == [{1, 6}, {2, 7}, {3, 8}, {4, 9}]
    assert pairs([*whole, *far]) == []
    assert set(matched(frame([*whole, *far]))["unmatched"]) == {"counts differ"}


def test_numbers_of_torch_match_whatever_is_missing_between() -> None:
    numbered = [row | {"seq": seq} for row, seq in zip(run(0, (0, 1), (2, 3), (4, 5)), (5, 6, 8), strict=True)]
    other = [row | {"seq": seq} for row, seq in zip(run(1, (0, 1), (2, 3)), (6, 8), strict=True)]
    assert pairs([*numbered, *other]) == [{1, 3}, {2, 4}]


def test_a_send_matches_its_receive_and_no_other() -> None:
    sends = run(0, (0, 5), kind="send", own_rank=0, target=1) + run(0, (5, 9), kind="send", own_rank=0, target=2)
    receives = run(2, (1, 9), kind="recv", own_rank=2, source=0) + run(1, (1, 5), kind="recv", own_rank=1, source=0)
    unknown = run(1, (8, 9), kind="recv")
    found = matched(frame([*sends, *receives, *unknown]))
    assert pairs([*sends, *receives, *unknown]) == [{0, 3}, {1, 2}]
    assert found["unmatched"][4] == "peers unknown"


def test_ranks_count_their_sends_and_receives_each_by_itself() -> None:
    sends = run(0, (0, 5), (6, 9), kind="send", own_rank=0, target=1)
    receives = run(1, (1, 5), (7, 9), kind="recv", own_rank=1, source=0)
    # The receiver sent on between them.
    numbered = [row | {"seq": seq} for row, seq in zip([*sends, *receives], (1, 2, 2, 4), strict=True)]
    assert pairs(numbered) == [{0, 2}, {1, 3}]


def test_groups_that_are_not_told_match_only_where_they_can_be_one() -> None:
    two_devices = [*run(0, (0, 10), (20, 30), group=None), *run(0, (1, 10), (21, 30), group=None, device_id=1)]
    assert pairs(two_devices) == [{0, 2}, {1, 3}]
    at_other_times = [*run(0, (0, 10), group=None), *run(0, (11, 20), group=None, device_id=1)]
    assert pairs(at_other_times) == []
    one_of_three = [*two_devices, *run(0, (50, 60), group=None), *run(0, (70, 80), group=None, device_id=1)]
    assert pairs(one_of_three) == []
    assert set(matched(frame(one_of_three))["unmatched"]) == {"at other times"}
    more_streams = [*two_devices, *run(0, (40, 50), group=None, stream_id=9)]
    assert set(matched(frame(more_streams))["unmatched"]) == {"groups unknown"}


def test_what_matches_with_no_other_has_no_transfer_and_no_waiting() -> None:
    found = matched(frame([*run(0, (0, 10)), *run(1, (0, 10), group="1"), *run(2, (0, 10), kind=None)]))
    assert found.select("ranks", "transfer_ns", "waiting_ns", "is_last").null_count().row(0) == (3, 3, 3, 3)
    assert found["unmatched"].to_list() == ["alone", "alone", "unknown"]
    assert matched(frame([])).height == 0


peers = st.sampled_from([None, 0, 1])
rows_of_ranks = st.lists(
    st.fixed_dictionaries(
        {
            "rank": st.integers(0, 2),
            "device_id": st.sampled_from([0, 0, 0, 1]),
            "stream_id": st.sampled_from([7, 7, 7, 8]),
            "start_ns": st.sampled_from([*range(12), None]),
            "length": st.sampled_from([1, 2, 5, None]),
            "kind": st.sampled_from(["all_reduce", "all_reduce", "broadcast", "all_to_all", "send", "recv", None]),
            "bytes": st.sampled_from([None, 4, 8]),
            "group": st.sampled_from(["0", "0", "1", None]),
            "seq": st.sampled_from([None, 1, 2, 3]),
            "own_rank": peers,
            "source": peers,
            "target": peers,
        }
    ),
    max_size=12,
)
plain = st.lists(
    st.fixed_dictionaries(
        {
            "rank": st.integers(0, 2),
            "start_ns": st.integers(0, 40),
            "length": st.integers(1, 4),
            "bytes": st.sampled_from([4, 4, 8]),
            "group": st.sampled_from(["0", None]),
        }
    ),
    max_size=16,
)


@given(st.one_of(rows_of_ranks, plain))
def test_rows_match_as_nested_loops_match_them(given_rows: list[dict]) -> None:
    rows = [ROW | row for row in given_rows]
    for row in rows:
        length = row.pop("length")
        is_known = None not in (row["start_ns"], length)
        row["end_ns"] = row["start_ns"] + length if is_known else None
        row["time_ns"] = length if is_known else None
    found = matched(frame(rows))
    expected = twins_of_ranks.over_ranks(rows)
    for number, (row, twin) in enumerate(zip(found.to_dicts(), expected, strict=True)):
        same = (
            None if row["match"] is None else [at for at, other in enumerate(found["match"]) if other == row["match"]]
        )
        assert {"with": same} | {name: row[name] for name in ("ranks", "transfer_ns", "waiting_ns", "is_last")} == twin
        assert (row["unmatched"] is None) == (row["match"] is not None), number
