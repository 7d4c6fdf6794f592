"""Output of `vtune -report`: all its forms become the same frame, and its metrics stand beside names."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import vtune
from opspan import load
from opspan.errors import NotATrace, NotReadable, UsageError
from opspan.trace import Trace
from opspan.views import table

ROWS = [
    ["Task Type", "CPU Time", "CPU Time", "Memory Bound(%)", "Module"],
    ["[Outside any task]", "12.5", "1", "3.0", "a.so"],
    ["aten::mm", "1.234", "0.5", "12.5", "b, c.so"],
    ["", "0.001", "0", "0.0", ""],
]
EXPECTED = pl.DataFrame(
    {
        "Task Type": ["[Outside any task]", "aten::mm", ""],
        "CPU Time": [12.5, 1.234, 0.001],
        "CPU Time (2)": [1.0, 0.5, 0.0],
        "Memory Bound(%)": [3.0, 12.5, 0.0],
        "Module": ["a.so", "b, c.so", ""],
    }
)
PREAMBLE = """\
vtune: Using result path `/some/r000hs'
vtune: Executing actions 75 % Generating a report        \r
Column filter is ON.
"""
TEXT = """\
Column filter is ON.
Task Type           CPU Time  CPU Time  Memory Bound(%)  Module
------------------  --------  --------  ---------------  -------
[Outside any task]   12.500s        1s             3.0%  a.so
aten::mm              1.234s      0.5s            12.5%  b, c.so
vtune: Executing actions 100 % done
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report"


def read(file: Path, text: str, encoding: str = "utf-8") -> pl.DataFrame:
    file.write_text(text, encoding=encoding)
    return opspan.load_vtune_report(file)


def delimited(delimiter: str) -> str:
    return "".join(delimiter.join(f'"{cell}"' if delimiter in cell else cell for cell in row) + "\n" for row in ROWS)


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|", "^", ":", "~", "@"])
@pytest.mark.parametrize("before", ["", PREAMBLE, "\n\n"])
def test_csv_of_any_delimiter_and_whatever_stands_before_it(file: Path, delimiter: str, before: str) -> None:
    found = read(file, before + delimited(delimiter) + "vtune: Executing actions 100 % done\n")
    assert found.fill_null("").equals(EXPECTED)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_with_a_byte_order_mark_and_ends_of_lines_of_windows(file: Path, encoding: str) -> None:
    assert read(file, delimited(",").replace("\n", "\r\n"), encoding).fill_null("").equals(EXPECTED)


def test_text_is_read_like_csv(file: Path) -> None:
    assert read(file, TEXT).equals(EXPECTED.head(2))


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("Computing Task;Work Size:Global;Computing Task:Total Time", "Computing Task"),
        ("Function;CPU Time;Module", "Function"),
        ("Task Type / Function;CPU Time;Module", "Task Type / Function"),
        ("Something New;CPU Time;Module", "Something New"),
    ],
)
def test_whatever_it_is_grouped_by(file: Path, header: str, key: str) -> None:
    found = read(file, f"{PREAMBLE}{header}\ngemm;128 x 8;0.026427\n")
    assert found.columns == header.split(";")
    assert found.row(0) == ("gemm", "128 x 8", 0.026427)
    assert found.columns[0] == key


def test_many_columns_keep_their_titles(file: Path) -> None:
    titles = ["Function", *(f"CPU Time:{number}" for number in range(300))]
    assert read(file, ",".join(titles) + "\n").columns == titles


def test_one_column_is_a_report_where_vtune_speaks_in_the_same_file(file: Path) -> None:
    assert read(file, PREAMBLE + "Function\nmain\nf\n").rows() == [("main",), ("f",)]
    with pytest.raises(NotATrace):
        read(file, "Function\nmain\nf\n")


def test_a_stack_keeps_its_depth(file: Path) -> None:
    found = read(file, "Function Stack,CPU Time:Total,CPU Time:Self\nTotal,3,0\n  main,3,1\n    mm,2,2\n")
    assert found.select("Function Stack", "depth").rows() == [("Total", 0), ("main", 2), ("mm", 4)]
    assert found["CPU Time:Self"].to_list() == [0.0, 1.0, 2.0]


def test_cells_that_are_no_numbers_leave_a_column_text(file: Path) -> None:
    found = read(file, "Function,Count,Start Address\nf,1,0x10\ng,N/A,0x20\n")
    assert found.dtypes == [pl.String] * 3


@pytest.mark.parametrize("bad", ["", "hello\n", "a,b,c\n", '"<html>'])
def test_what_is_no_report_is_refused(file: Path, bad: str) -> None:
    with pytest.raises(NotATrace, match="not a report of VTune"):
        read(file, bad)


def test_binary_files_and_folders_are_refused(file: Path, tmp_path: Path) -> None:
    file.write_bytes(b"\0\1\2" * 100)
    with pytest.raises(NotATrace, match="not text"):
        opspan.load_vtune_report(file)
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(NotReadable):
            opspan.load_vtune_report(path)


# --- summaries


SUMMARY = """\
vtune: Executing actions 50 % Setting data      vtune: Executing actions 75 % Generating   Elapsed Time: 32.5s
    CPU Time: 30.25s
        Spin Time: 0.048s
    Paused Time: 0s

Top Tasks
Task Type     Task Time  Task Count
------------  ---------  ----------
aten::linear     0.816s      30,000
[Others]         4.465s   1,320,000
Effective Physical Core Utilization: 1.5% (0.772 out of 52)
Collection and Platform Info
    Application Command Line: python "x.py" --a: b
    CPU
        Frequency: 2.195 GHz
"""


def test_a_summary_is_one_long_frame(file: Path) -> None:
    found = read(file, SUMMARY)
    assert found.columns == ["section", "name", "metric", "value", "text"]
    assert found.rows() == [
        (None, "Elapsed Time", None, 32.5, "32.5s"),
        ("Elapsed Time", "CPU Time", None, 30.25, "30.25s"),
        ("Elapsed Time / CPU Time", "Spin Time", None, 0.048, "0.048s"),
        ("Elapsed Time", "Paused Time", None, 0.0, "0s"),
        (None, "Effective Physical Core Utilization", None, None, "1.5% (0.772 out of 52)"),
        ("Collection and Platform Info", "Application Command Line", None, None, 'python "x.py" --a: b'),
        ("Collection and Platform Info / CPU", "Frequency", None, None, "2.195 GHz"),
        ("Top Tasks", "aten::linear", "Task Time", 0.816, "0.816s"),
        ("Top Tasks", "[Others]", "Task Time", 4.465, "4.465s"),
        ("Top Tasks", "aten::linear", "Task Count", 30000.0, "30,000"),
        ("Top Tasks", "[Others]", "Task Count", 1320000.0, "1,320,000"),
    ]


def test_a_summary_in_csv(file: Path) -> None:
    found = read(file, "Hierarchy Level\tMetric Name\tMetric Value\n0\tElapsed Time\t1.5\n1\tCPU Time\tN/A\n")
    assert found.rows() == [("0", "Elapsed Time", None, 1.5, "1.5"), ("1", "CPU Time", None, None, "N/A")]


# --- beside the ops of a trace


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    tables = {
        **vtune.around("2020"),
        "dd_task_type": vtune.names("aten::mm, seq = 3", "aten::add", domain=vtune.PYTORCH),
        "dd_task": [{"type": 1}, {"type": 2}],
        "task_data": [vtune.at(10, 60, 1), vtune.at(70, 90, 2)],
    }
    return load(vtune.database(tmp_path / "dicer.db", tables))


def with_report(trace: Trace, file: Path, text: str) -> Trace:
    return trace.with_metrics(read(file, text))


REPORT = "Task Type,CPU Time,Memory Bound(%)\naten::mm,1.5,20\nother,2,30\n[Outside any task],9,9\n"


def test_metrics_are_columns_of_the_table_by_name(trace: Trace, file: Path) -> None:
    found = with_report(trace, file, REPORT)
    rows = found.table()

    assert rows.rows.select("name", "count", "CPU Time", "Memory Bound(%)").rows() == [
        ("aten::mm", 1, 1.5, 20.0),
        ("aten::add", 1, None, None),
    ]
    text = table.as_text(rows, -1).splitlines()
    assert text[1].split("  ")[-3:] == ["CPU Time", "Memory Bound(%)", ""]
    assert text[3].split()[-2:] == ["1.5", "20"]
    assert text[4].split()[-2:] == ["--", "--"]
    assert len({len(line) for line in text[:6]}) == 1


def test_they_make_no_events(trace: Trace, file: Path) -> None:
    found = with_report(trace, file, REPORT)
    assert found.ranges.equals(trace.ranges)
    assert len(found.events()) == len(trace.events())


def test_names_that_are_in_no_range_are_counted(trace: Trace, file: Path) -> None:
    issue = with_report(trace, file, REPORT).issues.row(0, named=True)
    assert (issue["code"], issue["count"]) == ("unmatched_metrics", 1)


def test_labels_of_one_op_are_one_name_and_only_sums_add_up(trace: Trace, file: Path) -> None:
    labels = 'Task Type;CPU Time;Memory Bound(%)\n"aten::mm, seq = 3";1;20\n"aten::mm, seq = 4";2;40\naten::add;4;5\n'
    found = with_report(trace, file, labels).metrics.select(pl.col("name", "metric").cast(pl.String), "value")
    assert sorted(found.rows()) == [
        ("aten::add", "CPU Time", 4.0),
        ("aten::add", "Memory Bound(%)", 5.0),
        ("aten::mm", "CPU Time", 3.0),
    ]


def test_a_summary_gives_what_it_says_of_tasks(trace: Trace, file: Path) -> None:
    found = with_report(trace, file, SUMMARY.replace("aten::linear", "aten::mm    ")).metrics
    assert sorted(found.select(pl.col("metric").cast(pl.String), "value").rows()) == [
        ("Task Count", 30000.0),
        ("Task Time", 0.816),
    ]


def test_they_are_saved_with_the_trace(trace: Trace, file: Path, tmp_path: Path) -> None:
    found = with_report(trace, file, REPORT)
    found.save(tmp_path / "saved")
    assert opspan.load(tmp_path / "saved").metrics.equals(found.metrics)


def test_a_frame_without_numbers_is_refused(trace: Trace) -> None:
    with pytest.raises(UsageError, match="no metrics by name"):
        trace.with_metrics(pl.DataFrame({"Function": ["f"], "Module": ["m"]}))


# --- real ones


REAL = ("hotspots_function.csv", "hw_events.csv")


@pytest.mark.parametrize("name", REAL)
def test_real_csv_against_another_parser(traces_dir: Path, name: str) -> None:
    path = traces_dir / "vtune" / name
    if not path.is_file():
        pytest.skip(f"{name} is not among the recorded traces")
    with path.open(newline="") as opened:
        header, *rows = csv.reader(opened)
    found = opspan.load_vtune_report(path)
    assert found.columns == header
    assert found["Function"].to_list() == [row[0].strip() for row in rows]
    for place, title in enumerate(header):
        if found.schema[title] == pl.Float64:
            assert found[title].to_list() == [float(row[place]) if row[place] else None for row in rows]
    assert sum(dtype == pl.Float64 for dtype in found.dtypes) >= 16


@pytest.mark.parametrize(
    ("name", "elapsed", "tasks", "linear"),
    [("summary_torch_cpu_2026.txt", 324.611, 6, 0.816), ("summary_torch_xpu_2026.txt", 312.283, 6, 2.004)],
)
def test_real_summaries_of_torch(traces_dir: Path, name: str, elapsed: float, tasks: int, linear: float) -> None:
    path = traces_dir / "vtune" / name
    if not path.is_file():
        pytest.skip(f"{name} is not among the recorded traces")
    found = opspan.load_vtune_report(path)
    assert found.filter(pl.col("name") == "Elapsed Time")["value"].to_list() == [elapsed]
    times = found.filter(pl.col("section") == "Top Tasks", pl.col("metric") == "Task Time")
    assert times.height == tasks
    assert times.filter(pl.col("name") == "aten::linear")["value"].to_list() == [linear]
    assert not found["name"].str.contains("Executing").any()


def test_the_real_summary_of_an_offload(traces_dir: Path) -> None:
    path = traces_dir / "vtune" / "summary_xpu_offload.txt"
    if not path.is_file():
        pytest.skip("summary_xpu_offload.txt is not among the recorded traces")
    found = opspan.load_vtune_report(path)
    assert dict(found.group_by("section").agg(pl.col("name").n_unique()).rows()) == {
        "Hottest Host Tasks": 6,
        "Hottest GPU Computing Tasks": 2,
    }
    assert found["value"].null_count() == 0
