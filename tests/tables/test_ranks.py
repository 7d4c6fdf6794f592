"""Numbers of ranks, from traces, names of files and their order; and problems of several files together."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opspan.tables import Metadata, Told
from opspan.tables.cycles import RecordingSpan
from opspan.tables.metadata import NOTHING, from_distributed, from_environment, from_json, told
from opspan.tables.ranks import decided, ranks_in_names

S = 10**9


def of(path: str = "", rank: int | None = None, size: int | None = None, by: str = "RANK", **more: object) -> Metadata:
    run = more.pop("run", None)
    paths = (path,) if path else ()
    return Metadata("test", paths, told=told(by, rank, size, run=run), **more)  # type: ignore[arg-type]


def found(*ranks: Metadata, spans: list[tuple[int, int] | None] | None = None) -> tuple[list[tuple[int, str]], dict]:
    numbered, issues = decided(ranks, [span and RecordingSpan(*span) for span in spans or []])
    return [(one.rank, one.rank_by) for one in numbered], {issue.code: (issue.count, issue.detail) for issue in issues}


# --- names


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["rank3.json"], [3]),
        (["trace_rank_03.json.gz"], [3]),
        (["run.RANK-12.sqlite"], [12]),
        (["rank1.json", "rank0.json"], [1, 0]),
        (["a/rank1/trace.json", "a/rank0/trace.json"], [1, 0]),
        (["runs/rank9/rank1.json", "runs/rank9/rank0.json"], [1, 0]),
        (["t.r1.json", "t.r3.json"], [1, 3]),
        (
            ["report.10.nsys-rep", "report.0.nsys-rep"] + [f"report.{n}.nsys-rep" for n in range(1, 9)],
            [10, 0, *range(1, 9)],
        ),
        (["node1_rank2.json", "node0_rank0.json"], [2, 0]),
        (["host_4411.1700000000000000000.pt.trace.json", "host_4412.1700000000000000001.pt.trace.json"], [None, None]),
        (["host_57.pt.trace.json", "host_58.pt.trace.json"], [None, None]),
        (["100-17.opspan", "101-18.opspan"], [None, None]),
        (["a.1.json", "b.0.json"], [None, None]),
        (["step_0.json", "step_100.json"], [None, None]),
        (["part_0.json", "part_3.json"], [0, 3]),
        (["part_0.json", "part_4.json"], [None, None]),  # as many holes as files: numbers of something else
        (["r000hs"], [None]),
        (["r3.json"], [None]),
        (["r000hs", "r001hs"], [0, 1]),  # also their order
        (["lora_rank16.json"], [None]),
        (["local_rank1.json"], [None]),
        (["tp_rank1_pp_rank0.json"], [None]),
        (["ranking5.json"], [None]),
        (["crank5.json"], [None]),
        (["rank1_of_rank2.json"], [None]),
        (["rank16_0.json", "rank16_1.json"], [0, 1]),
        (["a.json", "b.json"], [None, None]),
    ],
)
def test_what_names_say(names: list[str], expected: list[int | None]) -> None:
    assert ranks_in_names(names) == expected


@given(
    st.lists(st.integers(0, 10**7 - 1), min_size=2, max_size=9, unique=True),
    st.sampled_from(["rank{}", "x.rank_{}.json"]),
)
def test_the_word_rank_is_believed_for_any_numbers(numbers: list[int], form: str) -> None:
    assert ranks_in_names([form.format(number) for number in numbers]) == numbers


@given(st.lists(st.text("ab01./-_rank", max_size=12), max_size=5))
def test_any_names_are_looked_at_without_harm(names: list[str]) -> None:
    assert len(ranks_in_names(names)) == len(names)


# --- numbers


def test_what_traces_say_comes_before_their_names_and_these_before_the_order() -> None:
    assert found(of("rank5.json", 1, 3), of("x.json", 2, 3), of("rank0.json"))[0] == [
        (1, "RANK"),
        (2, "RANK"),
        (0, "name"),
    ]
    assert found(of("rank1.json"), of("rank0.json"))[0] == [(1, "name"), (0, "name")]
    assert found(of("b.json"), of("a.json"))[0] == [(0, "order"), (1, "order")]


def test_one_file_is_the_rank_that_it_says() -> None:
    assert found(of("x.json", 3, 8)) == ([(3, "RANK")], {})
    assert found(of("x.json")) == ([(0, "order")], {})


def test_a_missing_rank_is_said() -> None:
    ranks = [of(f"{rank}.json", rank, 8) for rank in (0, 1, 3, 4, 7)]
    assert found(*ranks)[1] == {"missing_rank": (3, "2, 5 to 6 of 8")}
    # Nobody says how many there are: that 2 is missing is certain all the same.
    assert found(of("rank1.json"), of("rank3.json"))[1] == {"missing_rank": (1, "2")}


def test_a_doubled_rank_gets_a_number_after_all_others() -> None:
    numbers, issues = found(of("a.json", 1, 4), of("b.json", 1, 4), of("c.json", 0, 4), of("d.json", 1, 4))
    assert numbers == [(1, "RANK"), (4, "order"), (0, "RANK"), (5, "order")]
    assert issues["doubled_rank"] == (1, "1 in a.json and in d.json, number 5 here")  # and one of b.json
    assert issues["missing_rank"] == (2, "2 to 3 of 4")


def test_a_file_that_does_not_say_is_no_missing_rank() -> None:
    numbers, issues = found(of("a.json", 0, 2), of("b.json"))
    assert numbers == [(0, "RANK"), (2, "order")]
    assert issues == {"unknown_rank": (1, "b.json is number 2 here"), "missing_rank": (1, "1 of 2")}


def test_a_rank_of_one_of_ncclas_groups_is_no_rank_of_the_run() -> None:
    same = [of(f"{rank}", rank, 2, by="NCCL communicator 0xa") for rank in (1, 0)]
    assert found(*same)[0] == [(1, "NCCL communicator 0xa"), (0, "NCCL communicator 0xa")]
    others = [of(f"{name}", 0, 2, by=f"NCCL communicator 0x{name}") for name in "ab"]
    assert found(*others)[0] == [(0, "order"), (1, "order")]


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(0, 9), st.none() | st.integers(1, 12), st.sampled_from(["", "a.json", "rank3.json"])
        ),
        min_size=1,
        max_size=8,
    )
)
def test_every_trace_gets_a_number_of_its_own(said: list[tuple[int | None, int | None, str]]) -> None:
    ranks = [of(path, rank, size) for rank, size, path in said]
    numbered, _ = decided(ranks)

    assert len({one.rank for one in numbered}) == len(ranks)
    for before, after in zip(ranks, numbered, strict=True):
        if after.rank_by == "RANK":
            assert after.rank == before.told.rank
    # Once they have numbers, they keep them.
    assert decided(numbered)[0] == numbered


# --- runs


def test_files_of_several_runs_are_said() -> None:
    runs = [of("a.json", 0, 2, run="torchrun x"), of("b.json", 1, 2, run="torchrun y")]
    assert found(*runs)[1] == {"mixed_runs": (2, "torchrun x (a.json), torchrun y (b.json)")}
    sizes = [of("a.json", 0, 2), of("b.json", 1, 4)]
    assert found(*sizes)[1]["mixed_runs"] == (2, "world size 2 (a.json), world size 4 (b.json)")
    # Runs of different launchers cannot be compared.
    assert found(of("a.json", 0, 2, run="torchrun x"), of("b.json", 1, 2, run="Slurm 3.0"))[1] == {}


def test_files_that_were_hours_apart_are_of_several_runs() -> None:
    ranks = [of("a.json"), of("b.json")]
    spans: list[tuple[int, int] | None] = [(0, 10 * S), (3600 * S, 3610 * S)]
    assert found(*ranks, spans=spans)[1] == {"mixed_runs": (2, "b.json begins 3,590 s after a.json ended")}
    # Clocks of hosts may be a minute apart; one host's are not; and a run that says its name is one.
    near: list[tuple[int, int] | None] = [(0, 2 * S), (12 * S, 13 * S)]
    assert found(*ranks, spans=near)[1] == {}
    assert found(of("a.json", host="h"), of("b.json", host="h"), spans=near)[1]["mixed_runs"][0] == 2
    named = [of("a.json", run="torchrun x"), of("b.json", run="torchrun x")]
    assert found(*named, spans=spans)[1] == {}
    assert found(*ranks, spans=[(0, 10 * S), (5 * S, 20 * S)])[1] == {}
    assert found(*ranks, spans=[None, (0, 1)])[1] == {}


def test_files_no_further_apart_than_one_of_them_is_long_are_of_one_run() -> None:
    ranks = [of("a.json", host="h"), of("b.json", host="h")]
    for first, second in [((0, 60 * S), (120 * S, 121 * S)), ((0, S), (61 * S, 121 * S))]:
        assert found(*ranks, spans=[first, second])[1] == {}
        begin, end = second
        later = (begin + 1, end) if first[1] == 60 * S else (begin + 1, end + 1)
        assert found(*ranks, spans=[first, later])[1]["mixed_runs"][0] == 2


# --- what a trace says


TORCH = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (TORCH | {"TORCHELASTIC_RUN_ID": "1f2e"}, Told(3, "RANK", 8, 1, "torchrun 1f2e")),
        (TORCH | {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}, Told(3, "RANK", 8, 1, "port 29500")),
        # Slurm's numbers are those of hosts, where it started torchrun on each.
        (TORCH | {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, Told(3, "RANK", 8, 1)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "9"}, Told(1, "SLURM_PROCID", 2, None, "Slurm 9.")),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, Told(1, "OMPI_COMM_WORLD_RANK", 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}, Told(1, "PMI_RANK", 2, 0)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, NOTHING),
        ({"RANK": "3"}, NOTHING),
        ({"RANK": "8", "WORLD_SIZE": "8"}, NOTHING),
        ({"RANK": "-1", "WORLD_SIZE": "8"}, NOTHING),
        ({"RANK": "x", "WORLD_SIZE": "9" * 30}, NOTHING),
        ({}, NOTHING),
    ],
)
def test_what_launchers_say(variables: dict[str, str], expected: Told) -> None:
    assert from_environment(variables) == expected


@pytest.mark.parametrize(
    "said", [None, 3, [], {}, {"rank": True}, {"rank": "x", "world_size": []}, {"rank": 8, "world_size": 8}]
)
def test_damage_says_nothing(said: object) -> None:
    assert from_distributed(said).rank is None
    assert from_json(said).rank is None


def test_what_is_said_of_stretches_reads_as_numbers() -> None:
    ranks = [of(f"{rank}", rank, 2000) for rank in range(0, 2000, 2)]
    _, issues = decided(ranks)
    (issue,) = issues
    assert issue.count == 1000
    assert len(str(issue)) < 400
    assert all(int(a) < int(b) for a, b in pairwise(issue.detail.split(" of ")[0].split(", ")[:5]))
