"""Tables of one op, by kernel and by stack, with memory, and of steps by name: against loops over the rows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.cells import cell_len

import opspan
from builders.capture import STEP, Capture
from emit.running import opspan as command
from opspan import analysis
from opspan.errors import UsageError
from opspan.questions import BY, Options
from opspan.tables import Metadata
from opspan.text_columns import Layout
from opspan.trace import Trace
from opspan.views.answer import as_text
from opspan.views.table import Table, table_of
from views.sources import capture, nsys

MS = 1_000_000


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return opspan.load(nsys(tmp_path_factory.mktemp("nsys") / "run.sqlite", scale=1000))


def shown(trace: Trace, options: Options) -> Table:
    return table_of(trace.analysed, options)


def ancestors(rows: list[dict[str, Any]], row: int | None) -> list[int]:
    found = []
    while row is not None:
        found.append(row)
        row = rows[row]["parent"]
    return found


class TestOps:
    @pytest.mark.parametrize("by", ["name", "shape", "stack"])
    def test_kernels_are_rows_only_where_asked(self, by: str, exported: Trace) -> None:
        assert set(shown(exported, Options(by)).rows["device"]) == {"cpu"}
        assert set(shown(exported, Options(by, kernels=True)).rows["device"]) == {"cpu", "cuda"}

    def test_the_totals_below_ops_alone_are_those_of_the_whole_trace(self, exported: Trace) -> None:
        text = as_text(shown(exported, Options()), -1)

        assert "Self CUDA time total: 834.000us" in text  # 50 of them of no op's kernel
        assert "LinearBackward0" in text
        assert "gemm" not in text

    def test_a_trace_of_kernels_alone_shows_those_and_says_so(self, exported: Trace) -> None:
        kernels = Trace(exported.ranks, work=exported.work)
        text = as_text(shown(kernels, Options()), -1)

        assert "gemm<float>" in text
        assert text.endswith("There are no ops: these are kernels and copies\n")

    @pytest.mark.parametrize("op", ["aten::linear", "aten::addmm", "aten::*", "LinearBackward0"])
    def test_the_kernels_of_an_op_are_those_launched_in_it(self, op: str, exported: Trace) -> None:
        trace = analysis.attribute(exported)
        rows = trace.ranges.to_dicts()
        wanted = {
            name for name in trace.ranges["name"].cast(pl.String) if name == op or (op == "aten::*" and "aten" in name)
        }
        expected: Counter[tuple[str, str]] = Counter()
        for work in trace.work.to_dicts():
            if work["kind"] != "sync" and any(rows[row]["name"] in wanted for row in ancestors(rows, work["range"])):
                expected[work["kind"], work["name"]] += work["end_ns"] - work["start_ns"]

        table = shown(exported, Options("kernel", op=op))

        assert {(row["kind"], row["name"]): row["device_ns"] for row in table.rows.to_dicts()} == dict(expected)
        assert expected

    @pytest.mark.parametrize("by", BY["table"])
    def test_an_op_by_anything_has_its_own_sums(self, by: str, exported: Trace) -> None:
        trace = analysis.attribute(exported)
        rows = trace.ranges.filter(pl.col("name") == "aten::addmm")

        table = shown(exported, Options(by, op="aten::addmm"))

        if by in ("stream", "kernel"):
            assert table.rows["device_ns"].sum() == rows["device_ns"].sum() == 2 * (111 + 57 + 50) * 1000 - 50_000
            return
        for name in ("self_cpu_ns", "self_device_ns", "device_ns"):
            if name in table.rows.columns or by not in ("line", "source-op"):
                assert table.rows[name].sum() == rows[name.replace("self_cpu_ns", "self_ns")].sum()
        assert table.rows["ranges" if by in ("line", "source-op") else "count"].sum() == 2

    @pytest.mark.parametrize(
        ("op", "said"), [("aten::adm", "aten::addmm"), ("linear", "did you mean aten::linear?"), ("x*", "lists")]
    )
    def test_an_op_that_is_not_there_is_said_with_those_like_it(self, op: str, said: str, exported: Trace) -> None:
        with pytest.raises(UsageError, match="no op or range is called") as raised:
            shown(exported, Options(op=op))
        assert said in str(raised.value)

    def test_an_op_without_kernels_says_so(self, tmp_path: Path) -> None:
        table = shown(opspan.load(capture(tmp_path / "1.opspan")), Options("kernel", op="aten::mm"))
        assert as_text(table, -1).startswith("Nothing to show: no kernel or copy was launched in aten::mm. ")


class TestCounts:
    def test_modules_count_calls_and_steps_count_steps(self, tmp_path: Path) -> None:
        made = Capture(pid=1)
        main = made.thread(1, "main")
        for begin in (0, 1000, 2000):
            main.range(f"ProfilerStep#{begin // 1000}", begin + 1, begin + 900, source=2, category=STEP)
            for call in (10, 300):
                main.range("Net.layer", begin + call, begin + call + 200, source=2, category=6)
                for op in range(3):
                    main.torch("aten::mm", begin + call + 10 * op + 1, begin + call + 10 * op + 5)
        trace = opspan.load(made.write(tmp_path / "1-1.opspan"))
        if "module" not in trace.ranges["kind"].cast(pl.String).to_list():
            trace = trace.replace(
                ranges=trace.ranges.with_columns(
                    kind=pl.when(pl.col("name") == "Net.layer").then(pl.lit("module")).otherwise("kind")
                )
            )

        modules = shown(trace, Options("module")).rows.to_dicts()
        steps = shown(trace, Options("step")).rows.sort("step").to_dicts()

        assert {row["module"]: (row["count"], row["ranges"]) for row in modules} == {
            "Net.layer": (6, 24),
            None: (None, 3),
        }
        assert [(row["step"], row["count"], row["ranges"]) for row in steps] == [
            (f"ProfilerStep#{number}", 1, 9) for number in range(3)
        ]

    def test_modules_that_python_calls_are_counted_as_calls(self, traces_dir: Path) -> None:
        trace = opspan.load(traces_dir / "kineto" / "norm_layers.json.gz")
        calls = Counter(
            name for name in trace.functions["name"].cast(pl.String).to_list() if name.startswith("nn.Module: ")
        )

        rows = shown(trace, Options("module")).rows.drop_nulls("module").to_dicts()

        assert rows
        for row in rows:
            assert row["count"] == calls["nn.Module: " + row["module"].rpartition(".")[2]]


class TestSteps:
    @pytest.fixture
    def trace(self, tmp_path: Path) -> Path:
        made = Capture(pid=1)
        main = made.thread(1, "main")
        main.range("before", 0, 1 * MS)
        for step in range(3):
            begin = (10 + 10 * step) * MS
            main.range("train step", begin, begin + 8 * MS)
            main.torch("aten::mm", begin + MS, begin + 2 * MS)
        main.range("epoch 1", 45 * MS, 46 * MS)
        return made.write(tmp_path / "1-1.opspan")

    @pytest.mark.parametrize("wanted", ["train step", "train*", "*st?p"])
    def test_ranges_of_a_name_are_steps(self, trace: Path, wanted: str) -> None:
        whole = opspan.load(trace).replace()  # a copy that has no memory of its reader
        part = opspan.load(trace, step=wanted)
        table = shown(part, Options("step", step=wanted))

        assert sorted(part.ranges["name"].cast(pl.String)) == ["aten::mm"] * 3 + ["train step"] * 3
        assert whole.ranges.height == 8
        (row,) = table.rows.to_dicts()
        assert (row["step"], row["count"], row["ranges"]) == ("train step", 3, 6)

    def test_a_source_that_is_read_whole_has_the_same_part(self, trace: Path, tmp_path: Path) -> None:
        opspan.load(trace).save(tmp_path / "saved")
        part = opspan.load(tmp_path / "saved", step="train*")
        assert sorted(part.ranges["name"].cast(pl.String)) == ["aten::mm"] * 3 + ["train step"] * 3

    def test_on_the_command_line(self, trace: Path) -> None:
        done = command("table", trace, "--by", "step", "--step", "train step", "--format", "json")
        (row,) = json.loads(done.stdout)["rows"]
        assert (row["step"], row["count"]) == ("train step", 3)

    def test_a_name_that_no_range_has_is_said(self, trace: Path) -> None:
        with pytest.raises(UsageError, match="no range is called 'train'"):
            opspan.load(trace, step="train")


class TestStacks:
    def test_by_stack_against_a_walk_up_the_functions(self, traces_dir: Path) -> None:
        trace = analysis.attribute(opspan.load(traces_dir / "kineto" / "norm_layers.json.gz"))
        functions = trace.functions.to_dicts()
        places = {one["id"]: one for one in functions}
        expected: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(lambda: [0, 0])
        for row in trace.ranges.to_dicts():
            if row["is_mark"]:
                continue
            stack, at = [], None if row["function"] is None else functions[row["function"]]
            while at is not None and len(stack) < 5:
                stack.append(at["name"])
                at = places.get(at["parent_id"])
            name = "ProfilerStep*" if row["name"].startswith("ProfilerStep#") else row["name"]
            sums = expected[name, tuple(stack)]
            sums[0] += 1
            sums[1] += row["self_ns"] or 0

        rows = shown(trace, Options("stack")).rows.to_dicts()

        found: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(lambda: [0, 0])
        for row in rows:  # users' ranges and ops of one name are rows apart
            sums = found[row["name"], tuple(json.loads(row["stack"]))]
            sums[0] += row["count"]
            sums[1] += row["self_cpu_ns"]
        assert dict(found) == dict(expected)

    def test_without_stacks_it_says_how_to_have_them(self, exported: Trace) -> None:
        assert "with_stack=True" in as_text(shown(exported, Options("stack")), -1)


class TestMemory:
    def test_against_a_loop_over_events_and_ranges(self) -> None:
        ranges = [("outer", 0, 100, 1, 7), ("inner", 10, 50, 1, 7), ("other", 40, 120, 2, 7), ("apart", 0, 200, 1, 8)]
        events = [
            (5, "alloc", 100, None, 7), (10, "alloc", 7, None, 7), (20, "alloc", 30, 0, 7), (45, "free", 100, None, 7),
            (50, "free", 3, 0, 7), (110, "alloc", 11, None, 7), (130, "alloc", 1000, None, 7),
            (60, "alloc", 9, None, 8), (30, "usage", 555, None, 7),
        ]  # fmt: skip
        trace = Trace(
            (Metadata("test"),),
            ranges=pl.DataFrame(ranges, schema=["name", "start_ns", "end_ns", "tid", "pid"], orient="row").with_columns(
                rank=0, kind=pl.lit("op"), id=pl.int_range(pl.len())
            ),
            memory=pl.DataFrame(
                events, schema=["time_ns", "event", "bytes", "device_id", "pid"], orient="row"
            ).with_columns(rank=0),
        )

        rows = {row["name"]: row for row in shown(trace, Options(memory=True)).rows.to_dicts()}

        for name, start, end, _, pid in ranges:
            for of, on_device in (("cpu", False), ("device", True)):
                expected = sum(
                    size * (-1 if event == "free" else 1)
                    for time, event, size, device, process in events
                    if event != "usage"
                    and (device is not None) == on_device
                    and process == pid
                    and start <= time <= end
                )
                assert rows[name][f"{of}_memory_bytes"] == expected, (name, of)
        assert (
            rows["outer"]["self_cpu_memory_bytes"]
            == rows["outer"]["cpu_memory_bytes"] - rows["inner"]["cpu_memory_bytes"]
        )
        text = as_text(shown(trace, Options(memory=True)), -1)
        assert "Self CPU Mem" in text
        modules = shown(trace, Options("phase", memory=True)).rows
        assert modules["self_cpu_memory_bytes"].sum() == sum(row["self_cpu_memory_bytes"] for row in rows.values())

    @pytest.mark.slow
    def test_it_is_what_torch_profiler_says_of_its_ops(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch", "2.13")
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
            torch.nn.Linear(30, 40)(torch.randn(20, 30)).relu().sum().backward()
        profiler.export_chrome_trace(str(tmp_path / "trace.json"))
        expected = {
            one.key: (one.count, one.cpu_memory_usage, one.self_cpu_memory_usage)
            for one in profiler.key_averages()
            if one.key.startswith("aten::")
        }

        rows = shown(opspan.load(tmp_path / "trace.json"), Options(memory=True)).rows.to_dicts()

        found = {row["name"]: row for row in rows}
        same = 0
        for name, (count, total, own) in expected.items():
            assert found[name]["self_cpu_memory_bytes"] == own
            if found[name]["count"] == count:  # torch makes an op and one of its name in it one
                assert found[name]["cpu_memory_bytes"] == total
                same += total != 0
        assert same > 5

    def test_without_any_it_says_how_to_record_it(self, exported: Trace) -> None:
        assert "profile_memory=True" in as_text(shown(exported, Options(memory=True)), -1)

    def test_kernels_have_none(self, exported: Trace) -> None:
        with pytest.raises(UsageError, match="--memory is about ops"):
            shown(exported, Options("kernel", memory=True))


class TestWidth:
    @pytest.mark.parametrize("by", BY["table"])
    @pytest.mark.parametrize("width", [40, 60, 80, 100, 132, 200])
    def test_no_line_is_wider_than_the_terminal(self, by: str, width: int, exported: Trace) -> None:
        table = shown(exported, Options(by))
        whole = as_text(table, -1, Layout(whole_names=True))

        text, notes = table.printer.text(-1, Layout(width))

        lines = text.splitlines()
        assert max(map(len, lines)) <= width
        end = len(lines) - next(n for n, line in enumerate(reversed(lines)) if line.startswith("---"))
        assert end == 3 + table.rows.height * (2 if by == "stack" and "Source" in whole else 1) + 1
        said = " ".join(notes)
        for title in ("Self CPU %", "CPU total %", "CPU time avg", "CUDA time avg", "# of Calls", "CUDA total"):
            if title in whole.splitlines()[1]:
                assert title in lines[1] or title in said, title
        if notes:
            assert len(notes) == 1
            assert "--wide" in notes[0]

    def test_what_matters_most_stays(self, exported: Trace) -> None:
        text, _ = shown(exported, Options()).printer.text(-1, Layout(64))
        titles = text.splitlines()[1]
        assert all(title in titles for title in ("Name", "Self CUDA", "# of Calls"))
        assert "LinearBackward0" in text

    def test_a_name_never_stands_without_a_figure(self, exported: Trace) -> None:
        text, _ = shown(exported, Options()).printer.text(-1, Layout(24))
        assert text.splitlines()[1].split() == ["Name", "#", "of", "Calls"] or "Self CUDA" in text.splitlines()[1]
        assert max(map(len, text.splitlines()[:4])) <= 24

    def test_a_long_name_keeps_both_its_ends(self) -> None:
        name = "autograd::engine::evaluate_function: " + "x" * 60 + " AddmmBackward0"
        ranges = pl.DataFrame({"name": [name], "start_ns": [0], "end_ns": [10], "rank": [0], "tid": [1], "pid": [1]})
        text, notes = shown(Trace((Metadata("test"),), ranges=ranges), Options()).printer.text(-1, Layout(80))
        cell = text.splitlines()[3].split("  ")[0]
        assert cell.startswith("autograd::")
        assert cell.endswith("AddmmBackward0")
        assert notes

    @pytest.mark.parametrize("width", [40, 80, 81, 120])
    def test_a_character_of_two_columns_is_two(self, width: int) -> None:
        names = ["数据加载" * 20, "データ" + "x" * 60, "aten::mm"]
        columns = {"start_ns": [0, 20, 40], "end_ns": [10, 30, 50], "rank": [0] * 3, "tid": [1] * 3, "pid": [1] * 3}
        table = shown(Trace((Metadata("test"),), ranges=pl.DataFrame({"name": names, **columns})), Options())

        rule, *lines = table.printer.text(-1, Layout(width))[0].splitlines()[:6]

        assert len(rule) <= width
        assert {cell_len(line) for line in lines} == {len(rule)}

    @pytest.mark.slow
    def test_the_terminal_says_how_wide(self, tmp_path: Path) -> None:
        path = capture(tmp_path / "1.opspan")

        narrow = command("table", path, env={"COLUMNS": "70"}).stdout
        wide = command("table", path, "--wide", env={"COLUMNS": "70"}).stdout
        piped = command("table", path, env={"COLUMNS": None}).stdout

        assert max(len(line) for line in narrow.splitlines()[:8]) <= 70
        assert "Hidden to fit 70 columns: " in narrow
        for text in (wide, piped):
            assert "CPU time avg" in text.splitlines()[1]
            assert "Hidden" not in text
