"""Files are cycles of one process, or ranks; and the issue if that is not certain."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from opspan.tables import Metadata
from opspan.tables.cycles import RecordingSpan, lanes, merge_cycles
from opspan.tables.metadata import told
from opspan.tables.ranks import decided

S = 10**9
NAME = "{}_{}.170000000000000000{}.pt.trace.json"


def of(path: str, begin: int, pid: int = 7, steps: tuple[int, int] | None = None, long: int = 1, **more: object):
    """A file of torch.profiler's, recorded from `begin` on, in seconds."""
    rank = more.pop("rank", None)
    given: dict[str, object] = {"source": "kineto", "origin_utc_ns": 1, **more}
    return (
        Metadata(paths=(path,), told=told("distributedInfo", rank, 8), **given),  # type: ignore[arg-type]
        RecordingSpan(begin * S, (begin + long) * S, True, frozenset([pid]), steps),
    )


def found(*files: tuple[Metadata, RecordingSpan]) -> tuple[list[tuple[int, int | None]], dict[str, str]]:
    """Rank and cycle of each file, and the issues."""
    ranks, issues = decided([one for one, _ in files], [when for _, when in files])
    return [(one.rank, one.cycle) for one in ranks], {issue.code: issue.detail for issue in issues}


def test_files_of_one_host_and_process_are_cycles() -> None:
    files = [of(f"{name}.json", at * 10, host="a") for at, name in enumerate("xyz")]

    for order in permutations(range(3)):
        assert found(*(files[at] for at in order)) == ([(0, at + 1) for at in order], {})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"host": "a"}, {"host": "b"}),  # containers: all have pid 1
        ({"host": "a", "rank": 0}, {"host": "a", "rank": 1}),
        ({"host": "a", "origin_utc_ns": 1}, {"host": "a", "origin_utc_ns": 2}),  # another process with the same pid
        ({"host": "a", "source": "nsys"}, {"host": "a"}),
        ({"host": "a", "pid": 1}, {"host": "a", "pid": 2}),
    ],
)
def test_files_that_differ_in_what_a_process_has_are_ranks(first: dict, second: dict) -> None:
    numbers, issues = found(of("x.json", 0, **first), of("y.json", 10, **second))

    assert [cycle for _, cycle in numbers] == [None, None]
    assert len({rank for rank, _ in numbers}) == 2
    assert not {"assumed_cycles", "overlapping_cycles"} & set(issues)


@pytest.mark.parametrize("names", [("rank0.json", "rank1.json"), ("rank0/t.json", "rank1/t.json")])
def test_ranks_by_name_are_ranks(names: tuple[str, str]) -> None:
    numbers, _ = found(of(names[0], 0, pid=1), of(names[1], 10, pid=1))

    assert numbers == [(0, None), (1, None)]


def test_numbers_in_names_are_those_of_cycles() -> None:
    assert found(of("trace.0.json", 0, host="a"), of("trace.1.json", 10, host="a")) == ([(0, 1), (0, 2)], {})


def test_files_that_overlap_are_ranks() -> None:
    numbers, issues = found(of("x.json", 0, host="a", pid=1), of("y.json", 0, host="a", pid=1))

    assert numbers == [(0, None), (1, None)]
    assert issues == {"overlapping_cycles": "x.json, y.json"}


def test_containers_without_a_name_overlap_and_nothing_is_odd() -> None:
    assert found(of("x.json", 0, pid=1), of("y.json", 0, pid=1)) == ([(0, None), (1, None)], {})


def test_overlapping_files_in_folders_are_cycles_of_each_folder() -> None:
    files = [of(f"{folder}/{at}.json", at * 10, pid=1, host="a") for folder in "xy" for at in (0, 1)]

    assert found(*files) == ([(0, 1), (0, 2), (1, 1), (1, 2)], {})


def test_the_name_of_the_handler_has_the_host() -> None:
    of_one = [of(NAME.format("a", 7, at), at * 10) for at in (0, 1)]
    of_two = [of(NAME.format(host, 7, at), at * 10) for at, host in enumerate("ab")]

    assert found(*of_one) == ([(0, 1), (0, 2)], {})
    assert found(*of_two)[0] == [(0, None), (1, None)]


def test_the_name_of_a_worker_is_enough() -> None:
    files = [of(f"worker.{at}.pt.trace.json", at * 10, pid=1) for at in (0, 1)]

    assert found(*files) == ([(0, 1), (0, 2)], {})


def test_a_rank_that_is_told_is_enough() -> None:
    numbers, issues = found(of("x.json", 0, rank=3), of("y.json", 10, rank=3))

    assert numbers == [(3, 1), (3, 2)]
    assert "doubled_rank" not in issues
    assert "assumed_cycles" not in issues


def test_without_host_and_rank_it_is_said_that_they_may_be_others() -> None:
    numbers, issues = found(of("x.json", 0), of("y.json", 10))

    assert numbers == [(0, 1), (0, 2)]
    assert issues == {"assumed_cycles": "x.json, y.json: no file names its host or rank"}


def test_steps_that_begin_again_may_be_of_another_run() -> None:
    goes_on = found(of("x.json", 0, host="a", steps=(2, 3)), of("y.json", 10, host="a", steps=(6, 7)))
    again = found(of("x.json", 0, host="a", steps=(2, 3)), of("y.json", 10, host="a", steps=(2, 3)))

    assert goes_on == ([(0, 1), (0, 2)], {})
    assert again == ([(0, 1), (0, 2)], {"assumed_cycles": "x.json, y.json: numbers of steps begin again"})


def test_nothing_is_known_of_who_recorded() -> None:
    files = [of("x.json", 0, host="a"), of("y.json", 10, host="a")]

    numbers, _ = decided([one for one, _ in files], [])
    pidless, _ = decided([one for one, _ in files], [when._replace(pids=frozenset()) for _, when in files])

    assert [one.cycle for one in (*numbers, *pidless)] == [None] * 4


def test_time_between_cycles_makes_no_other_run() -> None:
    assert found(of("x.json", 0, host="a"), of("y.json", 9999, host="a"), of("z.json", 0, host="a", pid=8))[1] == {}


def test_a_file_that_is_gone_does_not_move_the_numbers_of_others() -> None:
    """Rank 1 has only the file of the second cycle."""
    files = [
        of("a.json", 0, rank=0, steps=(2, 3)),
        of("b.json", 10, rank=0, steps=(6, 7)),
        of("c.json", 10, rank=1, pid=8, steps=(6, 7)),
    ]

    assert found(*files)[0] == [(0, 1), (0, 2), (1, 2)]


def test_lanes_are_numbered_by_rank_and_cycle() -> None:
    files = [of(name, at, rank=rank, pid=rank) for name, at, rank in (("a", 10, 1), ("b", 0, 1), ("c", 0, 0))]
    numbered, _ = decided([one for one, _ in files], [when for _, when in files])
    ranks = [merge_cycles([one for one in numbered if one.rank == rank]) for rank in (1, 0)]

    found = lanes(ranks)

    assert found is not None
    assert dict(found.of) == {0: (0, 1), 1: (1, 1), 2: (1, 2)}
    assert [one.paths for one in found.ranks] == [("c",), ("b",), ("a",)]
    assert ranks[0].paths == ("b", "a")
    assert lanes([replace(one, cycle=None) for one in numbered[:1]]) is None
