"""Replays of graphs get the ops that were captured: by example, and against a search by brute force."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders.graphs import TAKES, Graph, Op, Step, both, capture, execution, layers

LABEL = "execute_{0}_context_0(sq0sk0sqsq0sqsk0)_generation_{0}(sq{0}sk9sqsq{0}sqsk9)"
TOOK_NS = int(TAKES * 1000)


def _kernels(trace: opspan.Trace) -> pl.DataFrame:
    """Returns the kernels with what is known of their ops."""
    known = trace.work.select("id", "replay", "is_replay_sure")
    return trace.kernels(copies=True).join(known, on="id", how="left", maintain_order="left")


def _one(*ops: Op, **more: object) -> Graph:
    return Graph(ops, **more)  # type: ignore[arg-type]


def test_a_replay_whose_names_stand_in_one_place_only_has_the_ops_of_this_place(tmp_path: Path) -> None:
    graph = _one(Op("aten::mm", ("gemm",), "[[2, 3]]", "Linear_0"), Op("aten::relu", ("relu", "Memset"), "[[2]]"))
    other = _one(Op("aten::add", ("add",)))
    captures = capture(tmp_path / "c.json.gz", other, graph)
    run = execution(tmp_path / "run.json.gz", Step(LABEL.format(8), (graph,)), Step(None, (graph,)))

    rows = _kernels(opspan.load(run, captures=captures))

    assert rows["op"].to_list() == ["aten::mm", "aten::relu", "aten::relu"] * 2
    assert rows["shape"].to_list() == ["[[2, 3]]", "[[2]]", "[[2]]"] * 2
    assert rows["module"].to_list() == ["Linear_0", None, None] * 2
    assert rows["stack"].to_list() == ["nn.Module: Linear_0", None, None] * 2
    assert rows["step"].to_list() == [LABEL.format(8)] * 3 + [None] * 3
    assert rows["phase"].to_list() == ["decode"] * 3 + ["forward"] * 3
    assert set(rows["replay"]) == {"unique"}
    assert rows["is_replay_sure"].all()


def test_each_replay_of_layers_that_are_alike_has_the_capture_of_its_number(tmp_path: Path) -> None:
    graphs = layers(3, 8)
    captures = capture(tmp_path / "c.json.gz", *graphs)
    run = execution(tmp_path / "run.json.gz", *(Step(LABEL.format(7), graphs) for _ in range(2)))

    rows = _kernels(opspan.load(run, captures=captures))

    assert rows["op"].to_list() == ["aten::addmm", "aten::native_layer_norm"] * 6
    names = [f"{kind}_{number}" for number in range(3) for kind in ("Linear", "LayerNorm")]
    assert rows["module"].to_list() == names * 2
    assert set(rows["replay"]) == {"order"}
    assert rows["is_replay_sure"].all()


def test_order_says_nothing_if_the_counts_differ_but_ops_that_all_captures_have_are_sure(tmp_path: Path) -> None:
    graphs = layers(3, 8)
    captures = capture(tmp_path / "c.json.gz", *graphs)
    run = execution(tmp_path / "run.json.gz", Step(LABEL.format(7), graphs[:2]))

    rows = _kernels(opspan.load(run, captures=captures))

    assert rows["op"].to_list() == ["aten::addmm", "aten::native_layer_norm"] * 2
    assert rows["module"].to_list() == [None] * 4
    assert rows["stack"].to_list() == [None] * 4
    assert set(rows["replay"]) == {"ambiguous"}
    assert rows["is_replay_sure"].all()


def test_captures_that_differ_in_their_ops_leave_the_kernel_to_the_replay(tmp_path: Path) -> None:
    one, other = (
        _one(Op("aten::mm", ("gemm",)), Op("aten::add", ("add",))),
        _one(Op("aten::bmm", ("gemm",)), Op("aten::add", ("add",))),
    )
    captures = capture(tmp_path / "c.json.gz", one, other)
    run = execution(tmp_path / "run.json.gz", Step("my step", (one,)))

    trace = opspan.load(run, captures=captures)
    rows = _kernels(trace)

    assert rows["op"].to_list() == ["my step", "aten::add"]
    assert rows["is_replay_sure"].to_list() == [False, True]
    assert set(rows["replay"]) == {"ambiguous"}


@pytest.mark.parametrize(("tokens", "expected"), [(3, 4), (4, 4), (5, 8), (8, 8)])
def test_the_next_larger_batch_size_was_replayed(tmp_path: Path, tokens: int, expected: int) -> None:
    graphs = [_one(Op("aten::mm", ("gemm",), f"[[{size}, 2]]"), batch_size=size) for size in (2, 4, 8)]
    captures = capture(tmp_path / "c.json.gz", *graphs)
    run = execution(tmp_path / "run.json.gz", Step(LABEL.format(tokens), graphs[:1]))

    rows = _kernels(opspan.load(run, captures=captures))

    assert rows["shape"].to_list() == [f"[[{expected}, 2]]"]
    assert rows["replay"].to_list() == ["batch size"]


def test_a_batch_that_is_larger_than_all_captures_tells_nothing(tmp_path: Path) -> None:
    graphs = [_one(Op("aten::mm", ("gemm",), f"[[{size}, 2]]"), batch_size=size) for size in (2, 4)]
    captures = capture(tmp_path / "c.json.gz", *graphs)
    run = execution(tmp_path / "run.json.gz", Step(LABEL.format(5), graphs[:1]))

    rows = _kernels(opspan.load(run, captures=captures))

    assert rows["replay"].to_list() == ["ambiguous"]
    assert rows["op"].to_list() == [LABEL.format(5)]


def test_a_whole_capture_is_meant_rather_than_a_part_of_another(tmp_path: Path) -> None:
    short = _one(Op("aten::mm", ("gemm",)))
    long = _one(Op("aten::relu", ("relu",)), Op("aten::bmm", ("gemm",)))
    captures = capture(tmp_path / "c.json.gz", long, short)
    run = execution(tmp_path / "run.json.gz", Step(None, (short,)))

    rows = _kernels(opspan.load(run, captures=captures))

    assert rows["op"].to_list() == ["aten::mm"]
    assert rows["replay"].to_list() == ["capture"]


def test_without_names_only_whole_captures_of_the_same_kinds_fit_and_they_are_never_unique(tmp_path: Path) -> None:
    graph = _one(Op("aten::mm", ("gemm",)), Op("aten::copy_", ("Memcpy DtoD",)), Op("aten::zero_", ("Memset",)))
    other = _one(Op("aten::mm", ("gemm",)), Op("aten::mul", ("mul",)), Op("aten::zero_", ("Memset",)))
    captures = capture(tmp_path / "c.json.gz", other, graph, has_names=False)
    run = execution(tmp_path / "run.json.gz", Step(None, (graph,)))

    trace = opspan.load(run, captures=captures)
    rows = _kernels(trace)

    assert rows["op"].to_list() == ["aten::mm", "aten::copy_", "aten::zero_"]
    assert set(rows["replay"]) == {"order"}
    assert not rows["is_replay_sure"].any()
    assert (trace.coverage.work_in_unsure_replays.count, trace.coverage.work_in_unknown_replays.count) == (3, 0)
    assert "100.0% of device time is in graph replays whose ops are not sure (3" in " ".join(trace.coverage.lines())


def test_a_run_of_names_is_found_where_the_recording_has_no_begin_of_captures(tmp_path: Path) -> None:
    ops = [Op(f"aten::op{number}", (f"kernel{number}",)) for number in range(5)]
    captures = capture(tmp_path / "c.json.gz", _one(*ops), has_bounds=False)
    run = execution(tmp_path / "run.json.gz", Step(None, (_one(*ops[1:4]),)))

    rows = _kernels(opspan.load(run, captures=captures))

    assert rows["op"].to_list() == ["aten::op1", "aten::op2", "aten::op3"]
    assert set(rows["replay"]) == {"unique"}


def test_one_recording_may_have_the_captures_and_the_replays(tmp_path: Path) -> None:
    graph = _one(Op("aten::mm", ("gemm",), module="Linear_0"), Op("aten::relu", ("relu",)))
    run = both(tmp_path / "run.json.gz", [graph], Step("step", (graph, graph)))

    trace = opspan.load(run)
    rows = _kernels(trace)

    assert rows["op"].to_list() == ["aten::mm", "aten::relu"] * 2
    assert rows["module"].to_list() == ["Linear_0", None] * 2
    table = trace.table().rows.filter(pl.col("device") == "cpu")
    assert table.filter(pl.col("name") == "aten::mm")["count"].to_list() == [3]  # once on the host, twice in replays


def test_the_host_did_nothing_for_replayed_ops(tmp_path: Path) -> None:
    graphs = layers(2, 8)
    captures = capture(tmp_path / "c.json.gz", *graphs)
    run = execution(tmp_path / "run.json.gz", Step(LABEL.format(8), graphs))
    alone, joined = opspan.load(run), opspan.load(run, captures=captures)

    table = joined.table().rows
    replayed = table.filter(pl.col("name").is_in(["aten::addmm", "aten::linear", "aten::native_layer_norm"]))
    assert replayed.select("count", "cpu_ns", "self_cpu_ns", "self_device_ns").sort("self_device_ns").rows() == [
        (2, 0, 0, 0),
        (2, 0, 0, 2 * TOOK_NS),
        (2, 0, 0, 2 * TOOK_NS),
    ]
    for name in ("self_cpu_ns", "self_device_ns"):
        assert table[name].sum() == alone.table().rows[name].sum()
    for question in ("launches", "waits", "steps"):
        assert getattr(joined, question)().equals(getattr(alone, question)()), question
    assert joined.idle()["time_ns"].sum() == alone.idle()["time_ns"].sum()


def test_work_of_replays_without_a_capture_is_unknown(tmp_path: Path) -> None:
    graphs = layers(2, 8)
    captures = capture(tmp_path / "c.json.gz", *graphs)
    run = execution(tmp_path / "run.json.gz", Step(LABEL.format(8), graphs))

    alone, joined = opspan.load(run), opspan.load(run, captures=captures)

    unknown = alone.coverage.work_in_unknown_replays
    assert (unknown.count, unknown.of, unknown.fraction) == (4, 4, 1.0)
    assert alone.coverage.work_in_range.count == 0
    assert "unknown-replays" in alone.findings()["id"].to_list()
    assert "unlabelled" not in alone.findings()["id"].to_list()
    assert joined.coverage.work_in_unknown_replays.count == joined.coverage.work_in_unsure_replays.count == 0
    assert joined.coverage.work_in_range.fraction == 1.0
    assert "unknown-replays" not in joined.findings()["id"].to_list()


@pytest.mark.parametrize("name", ["out.json", "out.pftrace"])
def test_exports_name_the_captured_op_on_the_kernel_and_draw_no_op(tmp_path: Path, name: str) -> None:
    graphs = layers(2, 8)
    captures = capture(tmp_path / "c.json.gz", *graphs)
    run = execution(tmp_path / "run.json.gz", Step(LABEL.format(8), graphs))
    trace = opspan.load(run, captures=captures)

    assert trace.export(tmp_path / name) == []

    text = (tmp_path / name).read_bytes()
    assert b"Captured op" in text
    assert b"LayerNorm_1" in text
    if name.endswith(".json"):
        events = json.loads(text)["traceEvents"]
        assert not [event for event in events if event["name"] in ("aten::addmm", "aten::linear")]
        kernels = [event["args"] for event in events if event.get("cat") == "kernel"]
        assert [args["Captured op"] for args in kernels] == ["aten::addmm", "aten::native_layer_norm"] * 2
        assert [args["Captured module"] for args in kernels] == ["Linear_0", "LayerNorm_0", "Linear_1", "LayerNorm_1"]
        assert opspan.load(tmp_path / name).work["start_ns"].equals(trace.work["start_ns"])


def test_a_saved_trace_and_many_ranks_keep_the_ops(tmp_path: Path) -> None:
    graphs = layers(2, 8)
    captures = capture(tmp_path / "c.json.gz", *graphs)
    runs = [
        execution(
            tmp_path / f"rank{rank}.json.gz",
            Step(LABEL.format(8), graphs),
            distributedInfo={"rank": rank, "world_size": 2},
        )
        for rank in range(2)
    ]
    trace = opspan.load(*runs, captures=captures)
    trace.save(tmp_path / "saved")

    for one in (trace, opspan.load(tmp_path / "saved")):
        rows = one.kernels()
        assert (
            rows["op"].to_list() == ["aten::addmm", "aten::native_layer_norm"] * 4
            or rows.group_by("rank", "op").len()["len"].to_list() == [2] * 4
        )
        assert one.table().rows.filter(pl.col("name") == "aten::addmm")["count"].sum() == 4


def test_replays_that_fit_nothing_stay_what_they_were_and_are_counted(tmp_path: Path) -> None:
    captures = capture(tmp_path / "c.json.gz", _one(Op("aten::mm", ("gemm",))))
    run = execution(tmp_path / "run.json.gz", Step("step", (_one(Op("aten::mm", ("other",))),) * 3))

    trace = opspan.load(run, captures=captures)

    assert _kernels(trace)["op"].to_list() == ["step"] * 3
    assert trace.work["replay"].null_count() == 3
    assert trace.issues.filter(pl.col("code") == "unmatched_replays")["count"].to_list() == [3]


def _random_graph(rng: random.Random) -> Graph:
    ops = [
        Op(f"aten::{rng.choice('ab')}", tuple(rng.choices("xy", k=rng.randint(1, 2))), f"[[{rng.randint(1, 2)}]]")
        for _ in range(rng.randint(1, 3))
    ]
    return _one(*ops)


@pytest.mark.parametrize("seed", range(20))
def test_a_search_by_brute_force_finds_the_same_ops(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    graphs = [_random_graph(rng) for _ in range(rng.randint(1, 5))]
    captures = capture(tmp_path / "c.json.gz", *graphs)
    replayed = [rng.choice(graphs) if rng.random() < 0.8 else _random_graph(rng) for _ in range(5)]
    run = execution(tmp_path / "run.json.gz", *(Step("step", (graph,)) for graph in replayed))

    rows = _kernels(opspan.load(run, captures=captures))

    at = 0
    for graph in replayed:
        wanted = [name for name, _ in graph.kernels]
        places = [one.kernels for one in graphs if [name for name, _ in one.kernels] == wanted]
        if not places:
            runs = [
                one.kernels[start : start + len(wanted)]
                for one in graphs
                for start in range(len(one.kernels) - len(wanted) + 1)
            ]
            places = [run for run in runs if [name for name, _ in run] == wanted]
        for number in range(len(wanted)):
            ops = {(place[number][1].name, place[number][1].sizes) for place in places}
            row = rows.row(at, named=True)
            expected = ("step", None) if len(ops) != 1 else ops.pop()
            assert (row["op"], row["shape"]) == expected
            assert row["is_replay_sure"] == (
                None if not places else len({(place[number][1].name, place[number][1].sizes) for place in places}) == 1
            )
            at += 1


def test_captures_of_two_threads_at_the_same_time_are_kept_apart(tmp_path: Path) -> None:
    one = _one(Op("aten::a1", ("k1",)), Op("aten::a2", ("k2",)))
    other = _one(Op("aten::b1", ("k1",)), Op("aten::b2", ("k3",)))
    first, second = (capture(tmp_path / f"{number}.json.gz", graph) for number, graph in enumerate((one, other)))
    document = json.loads(gzip.decompress(first.read_bytes()))
    for event in json.loads(gzip.decompress(second.read_bytes()))["traceEvents"]:
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 1000
        document["traceEvents"].append({**event, "tid": event["tid"] + 1, "ts": event["ts"] + 0.5})
    (tmp_path / "both.json").write_text(json.dumps(document))
    run = execution(tmp_path / "run.json.gz", Step("s", (one,)), Step("s", (other,)))

    rows = _kernels(opspan.load(run, captures=tmp_path / "both.json"))

    assert rows["op"].to_list() == ["aten::a1", "aten::a2", "aten::b1", "aten::b2"]
    assert set(rows["replay"]) == {"unique"}


def test_a_replay_is_no_part_of_two_captures(tmp_path: Path) -> None:
    one, other = _one(Op("aten::mm", ("gemm",)), Op("aten::relu", ("relu",))), _one(Op("aten::bmm", ("gemm2",)))
    captures = capture(tmp_path / "c.json.gz", one, other)
    run = execution(tmp_path / "run.json.gz", Step("s", (_one(Op("?", ("relu", "gemm2"))),)))

    rows = _kernels(opspan.load(run, captures=captures))

    assert rows["op"].to_list() == ["s", "s"]
    assert rows["replay"].null_count() == 2


def test_a_part_of_the_trace_has_the_ops_of_the_whole(tmp_path: Path) -> None:
    graph = _one(Op("aten::mm", ("gemm",), module="Linear_0"), Op("aten::relu", ("relu",)))
    small = _one(Op("aten::small", ("gemm",)))
    run = both(tmp_path / "run.json.gz", [graph, small], *(Step(f"ProfilerStep#{n}", (graph,)) for n in (1, 2)))
    whole = opspan.load(run)
    whole.save(tmp_path / "saved")

    for path in (run, tmp_path / "saved"):
        part = opspan.load(path, step=2)
        assert part.kernels()["op"].to_list() == ["aten::mm", "aten::relu"]
        assert part.kernels()["module"].to_list() == ["Linear_0", None]
        assert part.coverage.work_in_range.fraction == 1.0
    begin = whole.begin_ns("ranges", "calls", "work") or 0
    first = int(whole.kernels()["start_ns"][0]) - begin
    part = opspan.load(run, between=(0, first + 100))
    assert part.kernels()["op"].to_list() == ["aten::mm"]


def test_a_trace_that_was_saved_keeps_what_was_found(tmp_path: Path) -> None:
    graph, unknown = _one(Op("aten::mm", ("gemm",))), _one(Op("?", ("other",)))
    run = both(tmp_path / "run.json.gz", [graph], Step("s1", (graph,)), Step("s2", (unknown,)))
    opspan.load(run).save(tmp_path / "saved")

    again = opspan.load(tmp_path / "saved")

    assert again.kernels()["op"].to_list() == ["aten::mm", "s2"]
    assert again.issues.filter(pl.col("code") == "unmatched_replays")["count"].to_list() == [1]


def test_replays_outside_of_all_ranges_are_in_the_table(tmp_path: Path) -> None:
    graph = _one(Op("aten::mm", ("gemm",)), Op("aten::relu", ("relu",)))
    captures = capture(tmp_path / "c.json.gz", graph)
    run = execution(tmp_path / "run.json.gz", Step(None, (graph, graph)))

    trace = opspan.load(run, captures=captures)

    rows = trace.table().rows.filter(pl.col("device") == "cpu").sort("name")
    assert rows.select("name", "count", "cpu_ns", "device_ns", "self_device_ns").rows() == [
        ("aten::mm", 2, 0, 2 * TOOK_NS, 2 * TOOK_NS),
        ("aten::relu", 2, 0, 2 * TOOK_NS, 2 * TOOK_NS),
        ("cudaGraphLaunch", 2, 0, 4 * TOOK_NS, 0),
    ]
    assert [event.name for event in trace.events()].count("aten::mm") == 2
    assert trace.export(tmp_path / "out.json") == []


def test_only_launches_without_a_name_are_compared_by_their_kind(tmp_path: Path) -> None:
    graph = _one(Op("aten::mm", ("gemm",)), Op("aten::relu", ("relu",)))
    document = json.loads(gzip.decompress(capture(tmp_path / "c.json.gz", graph).read_bytes()))
    for event in document["traceEvents"]:
        if event["args"].get("kernel") == "relu":
            del event["args"]["kernel"]
    (tmp_path / "c.json").write_text(json.dumps(document))
    wrong = _one(Op("?", ("softmax", "relu")))
    run = execution(tmp_path / "run.json.gz", Step("s", (graph,)), Step("s", (wrong,)))

    rows = _kernels(opspan.load(run, captures=tmp_path / "c.json"))

    assert rows["op"].to_list() == ["aten::mm", "aten::relu", "s", "s"]
    assert rows["replay"].to_list() == ["order", "order", None, None]
    assert rows["is_replay_sure"].to_list() == [False, False, None, None]


def test_recordings_without_any_launch_match_nothing(tmp_path: Path) -> None:
    run = execution(tmp_path / "run.json.gz", Step("s", (_one(Op("aten::mm", ("gemm",))),)))
    captures = capture(tmp_path / "c.json.gz", _one(Op("aten::add", ())))

    trace = opspan.load(run, captures=captures)

    assert trace.issues.filter(pl.col("code") == "unmatched_replays")["count"].to_list() == [1]
