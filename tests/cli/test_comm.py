"""opspan comm: the same collectives whatever they are by, a straggler by name, sizes of files' own JSON, real ranks."""

from __future__ import annotations

import gzip
import json
import struct
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import opspan as package
from builders import kineto
from cli.answers import rows
from emit.running import forked_file, opspan
from opspan.questions import BY, Options, question

US = 1000
RANKS, SLOW, STEPS = 4, 2, 3
TRANSFER, LATE = 40, 25  # microseconds
ELEMENTS = 1 << 20
PROGRAM = Path(__file__).parents[1] / "programs" / "gloo_ranks.py"


def said(collective: str, **more: object) -> dict[str, object]:
    size = {"In msg nelems": ELEMENTS, "Out msg nelems": ELEMENTS, "dtype": "BFloat16", "Group size": RANKS}
    group = {"Process Group Name": "3", "Process Group Ranks": str(list(range(RANKS)))}
    return {"Collective name": collective, **size, **group, **more}


def rank_of(number: int, shift: float = 0) -> dict[str, object]:
    """A step: compute, an all_reduce in 40 us that begins late on the slow rank, an all_gather that all begin at once.
    `shift`: how far the clock of the rank is off."""
    events = []
    for step in range(STEPS):
        at = 1000 * step + shift
        begin = at + 200 + (LATE if number == SLOW else 0)
        for place, (name, more, start, end) in enumerate(
            (
                ("allreduce", {}, begin, at + 200 + LATE + TRANSFER),
                ("_allgather_base", {"In msg nelems": ELEMENTS // RANKS}, at + 400, at + 420),
            )
        ):
            correlation = 10 * step + place
            kernel = kineto.kernel(
                f"ncclDevKernel_{'AllGather_RING_LL' if place else 'AllReduce_Sum_bf16_TREE_LL128'}",
                start,
                end - start,
                correlation,
            )
            kernel["args"] |= said(name, **more)
            events += [
                kineto.op(f"c10d::{name}_", kineto.MAIN, at + 10 + 40 * place, 30),
                kineto.span(
                    "user_annotation",
                    "record_param_comms",
                    kineto.MAIN,
                    at + 12 + 40 * place,
                    25,
                    **said(name, Rank=number, **more),
                ),
                kineto.span("user_annotation", f"nccl:{name}", kineto.MAIN, at + 14 + 40 * place, 20),
                kineto.call("cudaLaunchKernel", kineto.MAIN, at + 16 + 40 * place, 4, correlation),
                kernel,
            ]
        events += [
            kineto.call("cudaLaunchKernel", kineto.MAIN, at + 5, 3, 10 * step + 9),
            kineto.kernel("gemm", at + 100, 120, 10 * step + 9),
        ]
    return kineto.document(events, distributedInfo={"backend": "nccl", "rank": number, "world_size": RANKS})


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("ranks")
    return [kineto.write(folder / f"rank{number}.json", rank_of(number)) for number in range(RANKS)]


def test_the_rank_that_came_last_is_named_and_the_others_waited_for_it(ranks: list[Path]) -> None:
    found = {row["kind"]: row for row in rows("comm", *ranks)}
    assert {kind: (row["count"], row["matched"]) for kind, row in found.items()} == {
        "all_reduce": (RANKS * STEPS, RANKS * STEPS),
        "all_gather": (RANKS * STEPS, RANKS * STEPS),
    }
    assert found["all_reduce"]["transfer_ns"] == RANKS * STEPS * TRANSFER * US
    assert found["all_reduce"]["waiting_ns"] == (RANKS - 1) * STEPS * LATE * US
    assert found["all_gather"]["waiting_ns"] == 0
    loads = {row["rank"]: row for row in rows("comm", *ranks, "--by", "rank")}
    assert loads[SLOW]["waiting_ns"] == 0
    assert loads[SLOW]["last"] >= STEPS
    assert {row["waiting_ns"] for rank, row in loads.items() if rank != SLOW} == {STEPS * LATE * US}
    # The gemm runs for the first 20 us of the all_reduce: of the slow rank it is over before that begins.
    exposed = {rank: row["exposed_ns"] / US / STEPS for rank, row in loads.items()}
    assert exposed == {0: 65, 1: 65, 2: 60, 3: 65}
    assert {row["computing_ns"] for row in loads.values()} == {120 * STEPS * US}


def test_clocks_that_are_apart_change_nothing(ranks: list[Path], tmp_path: Path) -> None:
    moved = [
        kineto.write(tmp_path / f"rank{number}.json", rank_of(number, shift=777 * number)) for number in range(RANKS)
    ]
    columns = ("kind", "transfer_ns", "waiting_ns", "bus_bytes_per_s")
    assert package.load(*moved).comm().select(columns).equals(package.load(*ranks).comm().select(columns))


def test_bandwidth_is_that_of_nccl_tests(ranks: list[Path]) -> None:
    found = {row["kind"]: row for row in rows("comm", *ranks)}
    whole = 2 * ELEMENTS  # bytes of all together: for all_gather four ranks give a quarter each
    for kind, took, factor in (("all_reduce", TRANSFER, 2 * 3 / 4), ("all_gather", 20, 3 / 4)):
        assert found[kind]["bytes"] == RANKS * STEPS * whole
        assert found[kind]["algorithm_bytes_per_s"] == pytest.approx(whole / took * 1e6)
        assert found[kind]["bus_bytes_per_s"] == pytest.approx(factor * whole / took * 1e6)
        assert found[kind]["bandwidth_of"] == "transfer"
    (one, *_) = rows("comm", ranks[0])
    assert (one["bandwidth_of"], one["matched"], one["transfer_ns"]) == ("own", 0, None)


@pytest.mark.parametrize("by", BY["comm"])
def test_it_is_the_same_communication_whatever_it_is_by(ranks: list[Path], by: str) -> None:
    found = package.load(*ranks).comm(by)
    assert rows("comm", *ranks, "--by", by) == found.to_dicts()
    assert (found.height if by == "call" else found["count"].sum()) == 2 * RANKS * STEPS
    assert found["time_ns"].sum() == found["transfer_ns"].sum() + found["waiting_ns"].sum()
    assert found["bytes" if by != "size" else "time_ns"].sum() > 0


def test_each_one_says_what_it_is(ranks: list[Path]) -> None:
    one = rows("comm", *ranks, "--by", "call")[0]
    assert (one["kind"], one["algorithm"], one["protocol"], one["element"]) == (
        "all_reduce",
        "tree",
        "ll128",
        "BFloat16",
    )
    assert (one["group"], one["group_size"], one["members"], one["number"]) == ("3", 4, "[0, 1, 2, 3]", 0)
    assert one["op"] == "nccl:allreduce"


def test_ranks_that_are_missing_are_named(ranks: list[Path]) -> None:
    text = opspan("comm", ranks[0], ranks[3]).stdout
    assert "Of group 3 2 of 4 ranks are here: ranks 1, 2 missing; the transfer may be shorter" in text
    assert "what of their time was waiting for others is not known" in opspan("comm", ranks[0]).stdout


def test_the_name_of_a_group_is_escaped_and_shortened_in_sentences(tmp_path: Path) -> None:
    document = rank_of(0)
    for event in document["traceEvents"]:
        if "Process Group Name" in event.get("args", {}):
            event["args"]["Process Group Name"] = f"pp\x9b2J\u202e{1000 * 'x'}"
    run = package.load(kineto.write(tmp_path / "run.json", document))
    (said,) = (
        note for note in question("comm").answer_of(run.analysed, Options("kind")).notes if note.startswith("Of group")
    )
    assert said.startswith(r"Of group pp\x9b2J\u202ex")
    assert said.isprintable()
    assert len(said) < 300


def test_what_matched_with_no_rank_is_a_warning_and_not_a_time_of_zero(ranks: list[Path], tmp_path: Path) -> None:
    document = rank_of(1)
    document["traceEvents"] = [event for event in document["traceEvents"] if "AllGather" not in event["name"]]
    other = kineto.write(tmp_path / "rank1.json", document)
    found = {row["kind"]: row for row in rows("comm", ranks[0], other)}
    assert (found["all_gather"]["transfer_ns"], found["all_gather"]["waiting_ns"]) == (None, None)
    assert found["all_reduce"]["matched"] == 2 * STEPS
    done = opspan("comm", ranks[0], other)
    assert "Warning: 3 of 9 collectives matched on no other rank: ranks have different numbers of them" in done.stdout


def test_where_only_the_start_is_known_there_is_no_time(tmp_path: Path) -> None:
    """Torch's ops on the host say what was asked for, and nothing of how long it took."""
    document = rank_of(0)
    document["traceEvents"] = [event for event in document["traceEvents"] if event["cat"] != "kernel"]
    path = kineto.write(tmp_path / "run.json", document)
    found = rows("comm", path)
    assert {(row["kind"], row["count"], row["time_ns"]) for row in found} == {
        ("all_reduce", STEPS, None),
        ("all_gather", STEPS, None),
    }
    assert {row["bytes"] for row in found} == {STEPS * 2 * ELEMENTS}
    assert "Warning: how long 6 of 6 collectives took is not known" in opspan("comm", path).stdout


def test_without_collectives_it_says_so(tmp_path: Path) -> None:
    path = kineto.write(tmp_path / "run.json", kineto.document([kineto.op("aten::gather", kineto.MAIN, 1, 5, 9)]))
    for by in BY["comm"]:
        done = opspan("comm", path, "--by", by)
        assert (done.returncode, rows("comm", path, "--by", by)) == (0, [])
        assert "No collective was found in this trace" in done.stdout


def events_of(path: Path) -> list[dict]:
    with gzip.open(path, "rt") as file:
        return json.load(file)["traceEvents"]


def test_a_real_file_has_as_many_bytes_as_its_own_json(traces_dir: Path) -> None:
    path = traces_dir / "kineto/ns_resolution.pt.trace.json.gz"
    expected: Counter = Counter()
    for event in events_of(path):
        args = event.get("args", {})
        if event.get("name") == "record_param_comms" and args["Collective name"] in ("allreduce", "broadcast"):
            expected[args["Collective name"]] += {"Float": 4, "Long": 8}[args["dtype"]] * args["In msg nelems"]
    found = {row["kind"].replace("_", ""): row["bytes"] for row in package.load(path).comm().to_dicts()}
    assert found == expected


@pytest.mark.parametrize("name", ["kineto/rank0_sampled.json.gz", "kineto/b200_eager.json.gz"])
def test_a_real_file_has_each_kernel_once(name: str, traces_dir: Path) -> None:
    kernels = [
        event
        for event in events_of(traces_dir / name)
        if event.get("cat") == "kernel" and ("nccl" in event["name"] or "multimem" in event["name"])
    ]
    found = package.load(traces_dir / name).comm("call")
    assert found.height == len(kernels)
    assert found["time_ns"].sum() == pytest.approx(sum(event["dur"] for event in kernels) * US, rel=1e-6)


def test_two_processes_of_one_nsys_file_match(traces_dir: Path) -> None:
    found = package.load(traces_dir / "nsys/train_fsdp_2gpu.sqlite").comm("call")
    whole = found.filter(pl.col("kind") == "all_to_all")
    assert (whole.height, whole["match"].null_count()) == (64, 0)
    assert whole.group_by("match").agg(pl.col("pid").n_unique())["pid"].unique().to_list() == [2]
    # Both are on one clock there: all of one collective are on at the same time, and end together.
    ends = whole.group_by("match").agg(apart=pl.col("end_ns").max() - pl.col("end_ns").min())
    assert ends["apart"].median() < 100_000


def test_collectives_of_unknown_groups_match_nothing(traces_dir: Path) -> None:
    found = package.load(traces_dir / "nvprof/nccl_4gpu.nvvp").comm("call")
    assert Counter(found["kind"]) == {"broadcast": 12, "all_reduce": 12}
    assert (found["match"].count(), set(found["unmatched"])) == (0, {"groups unknown"})
    assert set(found["algorithm"]) == {"ring", "tree"}


def assert_same_on_other_clocks(trace: package.Trace, paths: list[Path]) -> None:
    """As if rank 1 had run on a host whose clock is 5 s ahead."""
    for file in paths[1].glob("*.opspan"):
        raw = bytearray(file.read_bytes())
        (utc,) = struct.unpack_from("<q", raw, 32)
        struct.pack_into("<q", raw, 32, utc + 5 * 10**9)
        raw[80:144] = b"elsewhere".ljust(64, b"\0")
        file.write_bytes(raw)
    moved = package.load(*paths)
    said = moved.ranks[1].options["aligned"]
    assert abs(said["shift_ns"] + 5 * 10**9) < said["within_ns"] < 10**9
    assert moved.issues.filter(pl.col("code") == "clocks_aligned").height == 1
    what = ("kind", "number", "ranks", "transfer_ns", "waiting_ns", "is_last")
    assert_frame_equal(
        moved.comm("call").select("rank", *what).sort("rank", "kind", "number"),
        trace.comm("call").select("rank", *what).sort("rank", "kind", "number"),
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["record", "opspan", "torch"])
def test_two_real_ranks_match_all_of_theirs(how: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = forked_file(PROGRAM, tmp_path, how)
    assert done.returncode == 0, done.stderr
    paths = [tmp_path / f"rank{rank}{'' if how == 'record' else '.json'}" for rank in (0, 1)]
    trace = package.load(*reversed(paths))
    assert [(rank.rank, rank.told.world_size) for rank in trace.ranks] == [(1, 2), (0, 2)]
    if how == "record":
        assert_same_on_other_clocks(trace, paths)
    calls = trace.comm("call")
    reduces = calls.filter(pl.col("kind") == "all_reduce")
    assert sorted(reduces["bytes"]) == [2048] * 2 + [4000] * 6
    assert (reduces["match"].null_count(), reduces["ranks"].unique().to_list()) == (0, [2])
    assert Counter(calls["kind"]) == {"all_reduce": 8, "broadcast": 2, "barrier": 2}
    # Rank 1 sleeps 100 ms before each of three; before the first, the ranks may have started at different times.
    late = reduces.filter(pl.col("bytes") == 4000, pl.col("number") > 0)
    assert late.filter(pl.col("is_last"))["rank"].to_list() == [1, 1]
    assert late.filter(pl.col("rank") == 0)["waiting_ns"].min() > 30_000_000
