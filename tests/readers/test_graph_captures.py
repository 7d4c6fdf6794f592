"""Recordings of captured graphs are found where engines write them."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import opspan
from builders.graphs import Graph, Op, Step, capture, execution
from opspan.analysis.captured_launches import captured_launches
from opspan.cli import main
from opspan.errors import NotATrace, NotReadable, ReadError

SIZES = (2, 4)
GRAPHS = {size: Graph((Op("aten::mm", ("gemm",), f"[[{size}, 2]]"),)) for size in SIZES}
VLLM = "execute_{0}_context_0(sq0sk0sqsq0sqsk0)_generation_{0}(sq{0}sk9sqsq{0}sqsk9)"


def _shapes(trace: opspan.Trace) -> list[str]:
    return trace.kernels()["shape"].to_list()


def test_vllm_lists_batch_sizes_in_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "capture_traces"
    for size, graph in GRAPHS.items():
        capture(folder / f"graph_capture_rank_0.{size}.pt.trace.json.gz", graph)
    rows = [
        {"file": f"graph_capture_rank_0.{size}.pt.trace.json.gz", "batch_size": size, "mode": "FULL"} for size in SIZES
    ]
    (folder / "execution_details.json").write_text(json.dumps(rows))
    run = execution(tmp_path / "rank_0.json.gz", *(Step(VLLM.format(size), (GRAPHS[size],)) for size in SIZES))

    trace = opspan.load(run)

    assert _shapes(trace) == ["[[2, 2]]", "[[4, 2]]"]
    assert set(trace.work["replay"]) == {"batch size"}


def test_the_list_may_lie_beside_the_folder(tmp_path: Path) -> None:
    for size, graph in GRAPHS.items():
        capture(tmp_path / "capture_traces" / f"{size}.json.gz", graph)
    rows = [{"file": f"{size}.json.gz", "batch_size": size, "mode": "FULL"} for size in SIZES]
    (tmp_path / "execution_details.json").write_text(json.dumps(rows))
    run = execution(tmp_path / "run.json.gz", Step(VLLM.format(3), (GRAPHS[2],)))

    assert _shapes(opspan.load(run)) == ["[[4, 2]]"]


def test_sglang_has_the_batch_size_in_the_name(tmp_path: Path) -> None:
    for size, graph in GRAPHS.items():
        capture(tmp_path / "capture_traces" / f"bs_{size}_rank0.json.gz", graph)
    run = execution(tmp_path / "run.json.gz", Step("step[DECODE bs=3]", (GRAPHS[2],)))

    trace = opspan.load(run)

    assert _shapes(trace) == ["[[4, 2]]"]
    assert set(trace.work["replay"]) == {"batch size"}


def test_xdit_has_one_recording_for_each_rank_and_other_ranks_are_left_out(tmp_path: Path) -> None:
    for rank in (0, 3):
        graph = Graph((Op("aten::mm", ("gemm",), f"[[{rank}]]"),))
        capture(tmp_path / "capture_traces" / f"capture_trace_rank_{rank}.json.gz", graph)
    step = Step("iteration_0_execute_diffusion_1_256x256", (GRAPHS[2],))
    told = execution(tmp_path / "run.json.gz", step)  # the trace says that it is rank 3
    named = execution(tmp_path / "trace_rank_0.json.gz", step, distributedInfo={})

    assert _shapes(opspan.load(told)) == ["[[3]]"]
    assert _shapes(opspan.load(named)) == ["[[0]]"]


@pytest.mark.parametrize(
    "text",
    ["", "[", "{}", "[1, null]", '[{"file": 3, "batch_size": 2}]', '[{"file": "x", "batch_size": "2"}]', "[" * 9999],
)
def test_a_damaged_list_says_nothing(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "capture_traces"
    for size, graph in GRAPHS.items():
        capture(folder / f"{size}.json.gz", graph)
    (folder / "execution_details.json").write_text(text)
    run = execution(tmp_path / "run.json.gz", Step(VLLM.format(2), (GRAPHS[2],)))

    assert set(opspan.load(run).work["replay"]) == {"ambiguous"}


def test_a_damaged_recording_beside_the_trace_is_an_issue_and_a_named_one_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "capture_traces"
    whole = capture(folder / "bs_2_rank3.json.gz", GRAPHS[2])
    (folder / "bs_4_rank3.json.gz").write_bytes(whole.read_bytes()[:60])
    run = execution(tmp_path / "run.json.gz", Step(None, (GRAPHS[2],)))

    trace = opspan.load(run)

    assert _shapes(trace) == ["[[2, 2]]"]
    with pytest.raises(ReadError, match=r"bs_4_rank3"):
        opspan.load(run, captures=[folder / "bs_4_rank3.json.gz"])


def test_a_missing_folder_and_one_without_traces_are_errors(tmp_path: Path) -> None:
    run = execution(tmp_path / "run.json.gz", Step(None, (GRAPHS[2],)))
    (tmp_path / "empty").mkdir()

    with pytest.raises(NotReadable, match=r"no file .*missing"):
        opspan.load(run, captures=tmp_path / "missing")
    with pytest.raises(NotATrace, match=r"empty.* has no trace in it"):
        opspan.load(run, captures=tmp_path / "empty")


def test_the_command_line_has_the_option_on_each_verb(tmp_path: Path) -> None:
    run = execution(tmp_path / "run.json.gz", Step("my step", (GRAPHS[2],)))
    captures = capture(tmp_path / "c" / "a.json.gz", GRAPHS[2]).parent
    for verb in (
        "table",
        "summary",
        "findings",
        "idle",
        "launches",
        "waits",
        "path",
        "flops",
        "steps",
        "memory",
        "comm",
    ):
        done = CliRunner().invoke(main, [verb, str(run), "--captures", str(captures), "--format", "json"])
        assert done.exit_code == 0, (verb, done.output)
        assert json.loads(done.stdout)["issues"] == []
    table = CliRunner().invoke(main, ["table", str(run), "--captures", str(captures), "--processes", "1"])
    assert "aten::mm" in table.output
    assert "ops are unknown" in CliRunner().invoke(main, ["table", str(run)]).output
    wrong = CliRunner().invoke(main, ["table", str(run), "--captures", str(tmp_path / "missing")])
    assert wrong.exit_code == 2
    assert "missing" in wrong.output


def test_a_folder_of_ranks_leaves_the_engines_recordings_out(tmp_path: Path) -> None:
    for rank in (0, 1):
        execution(
            tmp_path / "run" / f"rank_{rank}.json.gz",
            Step("my step", (GRAPHS[2],)),
            distributedInfo={"rank": rank, "world_size": 2},
        )
        capture(tmp_path / "run" / "capture_traces" / f"bs_2_rank{rank}.json.gz", GRAPHS[2])

    ranks = opspan.load_many(tmp_path / "run", processes=1)

    assert len(ranks) == 2
    assert ranks.table().rows.filter(pl.col("name") == "aten::mm")["count"].to_list() == [1, 1]


def test_a_real_recording_agrees_with_other_peoples_figures(traces_dir: Path, tmp_path: Path) -> None:
    """TraceLens' figures of the same pair, after its own merge."""
    run = tmp_path / "rank_0.json.gz"
    shutil.copyfile(traces_dir / "kineto" / "vllm_graph_execution.json.gz", run)
    folder = tmp_path / "capture_traces"
    folder.mkdir()
    shutil.copyfile(traces_dir / "kineto" / "vllm_graph_capture.json.gz", folder / "graph_capture_rank_0.1.json.gz")

    trace = opspan.load(run)
    table = trace.table().rows.filter(pl.col("self_device_ns") > 0, pl.col("device") == "cpu")
    ours = {row["name"]: row for row in table.iter_rows(named=True)}

    with (traces_dir / "compiled" / "csvs" / "vllm_piecewise_ops_summary.csv").open(newline="") as stream:
        theirs = list(csv.DictReader(stream))
    assert {row["name"] for row in theirs} == set(ours)
    for row in theirs:
        own = ours[row["name"]]
        assert own["self_device_ns"] / 1e3 == pytest.approx(float(row["total_direct_kernel_time_sum"]), abs=0.1)
        # They count kernels of 24 calls of SortTokens and TopK as we count the calls.
        assert own["count"] == int(row["Count"]), row["name"]
    how = dict(trace.work["replay"].value_counts().iter_rows())
    assert how == {None: 62, "unique": 4, "capture": 12, "order": 345}
    assert trace.work["is_replay_sure"].drop_nulls().all()
    assert (
        trace.kernels()["module"].null_count()
        == trace.kernels().filter(pl.col("op").cast(str).str.contains("^aten::(sub|index|copy_)$")).height
    )


def test_a_launch_outside_of_ops_has_the_range_around_it(tmp_path: Path) -> None:
    marked = Op("my range", ("gemm",), module="Linear_0", category="user_annotation")
    graph = Graph((marked, Op("f", ("lone",), category="python_function")))
    captures = capture(tmp_path / "c.json.gz", graph)
    run = execution(tmp_path / "run.json.gz", Step("step[DECODE bs=2]", (graph,)))

    rows = opspan.load(run, captures=captures).kernels().select(pl.col("name", "op", "module").cast(pl.String))

    assert rows.rows() == [("gemm", "my range", "Linear_0"), ("lone", "step[DECODE bs=2]", None)]


def test_no_launch_of_a_real_capture_is_outside_of_all_ranges(traces_dir: Path) -> None:
    trace = opspan.load(traces_dir / "kineto" / "vllm_graph_capture.json.gz").analysed.complete

    launches = captured_launches(trace)

    assert launches["range"].null_count() == 0
    kinds = dict(trace.ranges["kind"].gather(launches["range"]).cast(pl.String).value_counts().iter_rows())
    assert kinds == {"op": 289, "user": 72}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_listed_is_an_error(tmp_path: Path) -> None:
    run = execution(tmp_path / "run.json.gz", Step(None, (GRAPHS[2],)))
    folder = tmp_path / "capture_traces"
    folder.mkdir(mode=0)
    with pytest.raises(ReadError, match="cannot be listed"):
        opspan.load(run, captures=folder)
