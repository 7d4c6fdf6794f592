"""The text of VTune's reports: what is a table, a figure or neither; and what is no report at all.

Reports of any shape are put together at random, and what is read of them is compared with what was put in, and with a
count of the lines under the dashes that knows nothing of the parser.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

import opspan
from opspan.errors import NotATrace, UsageError
from opspan.readers.vtune.reports import read
from opspan.trace import Trace

RULE = re.compile(r" *-+(  +-+)+ *")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report"


def frame(file: Path, text: str) -> pl.DataFrame:
    file.write_text(text, encoding="utf-8")
    return opspan.load_vtune_report(file)


def notes(file: Path, text: str) -> tuple[str, ...]:
    file.write_text(text, encoding="utf-8")
    return read(file).notes


# --- put together at random

KEYS = ("Function", "Task Type", "Source Line", "Module", "Sync Object", "Function / Thread", "Call Stack", "Core")
METRICS = ("CPU Time", "Wait Time", "Task Count", "Spin Time", "Wait Count", "Instructions Retired", "CPI Rate")
TEXTS = ("Module", "Function (Full)", "Source File")
NAMES = (
    "main",
    "operator new",
    "f<a, b>",
    "[Others]",
    "autograd::engine: Add",
    "µ-kernel",
    "x | y",
    "-1",
    "a-b",
    "№ 5",
)
CELLS = ("1.234s", "12.5%", "1,234", "0s", "2.1e9", "30,000", "0.0", "7")


def table(chance: random.Random, indent: str = "", empty: float = 0.0) -> tuple[list[str], list[list[str]]]:
    """Lines of a table as VTune prints it, and its cells."""
    titles = [chance.choice(KEYS), chance.choice(METRICS), *chance.sample(METRICS + TEXTS, chance.randint(0, 4))]
    rows = []
    for _ in range(chance.choice((0, 1, 2, 5, 30))):
        cells = [
            chance.choice(CELLS) if title in METRICS else chance.choice(("a.so", "libc.so.6")) for title in titles[1:]
        ]
        rows.append([chance.choice(NAMES), *("" if chance.random() < empty else cell for cell in cells)])
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    aligns = ["<" if title not in METRICS else ">" for title in titles]
    lines = [titles, ["-" * width for width in widths], *rows]
    adjusted = [
        "  ".join(
            f"{cell:{'<' if row < 2 else align}{width}}"
            for cell, align, width in zip(line, aligns, widths, strict=True)
        )
        for row, line in enumerate(lines)
    ]
    return [indent + line for line in adjusted], rows


def rows_below_dashes(lines: Iterable[str], like: str) -> int:
    """The twin: lines below dashes that look like this, up to one that does not."""
    count, inside = 0, False
    for line in lines:
        if RULE.fullmatch(line):
            inside = True
        elif inside and re.search(like, line):
            count += 1
        else:
            inside = False
    return count


@pytest.mark.parametrize("seed", range(60))
def test_a_report_of_one_table_has_all_of_its_rows(file: Path, seed: int) -> None:
    chance = random.Random(seed)
    lines, rows = table(chance, empty=chance.choice((0, 0, 0.5)))
    expected = rows_below_dashes(lines, r"\S")
    for _ in range(chance.choice((0, 0, 1, 3))):  # blocks
        lines.insert(chance.randint(2, len(lines)), "")
    if chance.random() < 0.3:
        lines = [line.rstrip() for line in lines]
    before = chance.choice(("", "war: Column filter is ON.\n", "vtune: Executing actions 75 % Generating a report\n\n"))
    after = chance.choice(("", "vtune: Executing actions 100 % done\n"))

    found = frame(file, before + "\n".join(lines) + "\n" + after)

    assert found.height == len(rows) == expected
    assert found.get_column(found.columns[0]).to_list() == [row[0] for row in rows]
    assert read(file).notes == ()


@pytest.mark.parametrize("seed", range(60))
def test_a_summary_has_all_of_its_figures_and_rows(file: Path, seed: int) -> None:
    chance = random.Random(seed)
    lines = ["Elapsed Time: 9.094s", "    Paused Time: 0s"]
    figures = [("Elapsed Time", None), ("Paused Time", "Elapsed Time")]
    expected = cells = advice = 0
    for number in range(chance.randint(1, 6)):
        section, indent = f"Figure {number}", " " * 4 * chance.randint(0, 2)
        kind = chance.choice(("figures", "table", "advice"))
        if kind == "table":
            table_lines, rows = table(chance, indent)
            lines += [""] * chance.randint(0, 1) + [f"{indent}Top Things {number}", *table_lines]
            lines += [""] * chance.randint(0, 1)
            expected += len(rows)
            cells += len(rows) * (len(table_lines[1].split()) - 1)
            continue
        lines += [f"{section}: 12.3% of Clockticks"]
        figures.append((section, None))
        if kind == "advice":
            said = ["the metric value: is low", "- which may be: bad", "Wait Time: 3s"][: chance.randint(1, 3)]
            lines += [f" | {text}" for text in said] + [" |"]
            advice += len(said)
        lines += ["    Inner One: 5", "        Deep: 0.5s"]
        figures += [("Inner One", section), ("Deep", f"{section} / Inner One")]
    lines += ["Collection and Platform Info", "    Computer Name: node7", "    CPU", "        Logical CPU Count: 40"]
    figures += [("Computer Name", "Collection and Platform Info")]
    figures += [("Logical CPU Count", "Collection and Platform Info / CPU")]
    closing = [*CLOSING] if chance.random() < 0.5 else []

    assert rows_below_dashes(lines, r"\S  +\S") == expected
    found = frame(file, "\n".join([*lines, *([""] if closing else []), *closing]) + "\n")

    told = found.filter(pl.col("metric").is_null())
    assert told.select("name", "section").rows() == figures
    assert found.height - told.height == cells
    assert len(read(file).notes) == advice + len(closing)


CLOSING = (
    "If you want to skip descriptions of detected performance issues in the report,",
    "enter: vtune -report summary -report-knob show-issues=false -r <my_result_dir>.",
    "Alternatively, you may view the report in the csv format: vtune -report",
    "<report_name> -format=csv.",
)


# --- one thing each


UNDERLINED = """\
solving from node 1: wait
elapsed process CPU time = 3892226802 nanoseconds

Collection and Platform Info
----------------------------
Parameter                 r002hs
------------------------  ---------------------------
Application Command Line  ./bellman-ford "-f"
Operating System          4.4.0-112-generic NAME="Ubuntu"
VERSION="16.04.4 LTS (Xenial Xerus)"
ID=ubuntu

VERSION_CODENAME=xenial
Computer Name             orcrist-22
Result Size               3318051

CPU
---
Parameter          r002hs
-----------------  -------
Logical CPU Count  16

Summary
-------
Elapsed Time:  436.104
Paused Time:   436.104
CPU Time:
"""


def test_underlined_titles(file: Path) -> None:
    found = frame(file, UNDERLINED)
    system = '4.4.0-112-generic NAME="Ubuntu"\nVERSION="16.04.4 LTS (Xenial Xerus)"\nID=ubuntu\nVERSION_CODENAME=xenial'
    assert found.select("section", "name", "text").rows() == [
        ("Collection and Platform Info", "Application Command Line", './bellman-ford "-f"'),
        ("Collection and Platform Info", "Operating System", system),
        ("Collection and Platform Info", "Computer Name", "orcrist-22"),
        ("Collection and Platform Info", "Result Size", "3318051"),
        ("CPU", "Logical CPU Count", "16"),
        ("Summary", "Elapsed Time", "436.104"),
        ("Summary", "Paused Time", "436.104"),
        ("Summary", "CPU Time", None),
    ]
    assert read(file).notes == ("solving from node 1: wait", "elapsed process CPU time = 3892226802 nanoseconds")


def test_the_same_in_csv(file: Path) -> None:
    text = (
        "Collection and Platform Info\nParameter,r002hs\nComputer Name,orcrist-22\n"
        'Operating System,4.4.0 NAME="Ubuntu"\nID=ubuntu\nResult Size,3318051\n\n'
        "CPU\nParameter,r002hs\nLogical CPU Count,16\n\nSummary\nElapsed Time:,436.104\nCPU Time:,\n"
    )
    assert frame(file, text).select("section", "name", "value", "text").rows() == [
        ("Collection and Platform Info", "Computer Name", None, "orcrist-22"),
        ("Collection and Platform Info", "Operating System", None, '4.4.0 NAME="Ubuntu"\nID=ubuntu'),
        ("Collection and Platform Info", "Result Size", 3318051.0, "3318051"),
        ("CPU", "Logical CPU Count", 16.0, "16"),
        ("Summary", "Elapsed Time", 436.104, "436.104"),
        ("Summary", "CPU Time", None, None),
    ]


def test_the_systems_name_may_go_on_over_several_lines(file: Path) -> None:
    found = frame(
        file,
        "Elapsed Time: 5s\n    CPU Time: 4s\n"
        "Collection and Platform Info\n    Operating System: 5.4.0 DISTRIB_ID=Ubuntu\n"
        'DISTRIB_RELEASE=20.04\nHOME_URL="http://a"\n    Computer Name: box\n',
    )
    assert found.select("name", "text").rows()[2:] == [
        ("Operating System", '5.4.0 DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE=20.04\nHOME_URL="http://a"'),
        ("Computer Name", "box"),
    ]


def test_recommendations_are_advice(file: Path) -> None:
    text = "Elapsed Time: 5s\n    CPU Time: 4s\n"
    text += "Recommendations:\n    Hotspots: Start with Hotspots analysis.\n     | Use it.\n"
    assert frame(file, text)["name"].to_list() == ["Elapsed Time", "CPU Time"]
    assert read(file).notes == ("Hotspots: Start with Hotspots analysis.", "Use it.")


def test_a_note_below_a_table_is_no_row_of_it(file: Path) -> None:
    wide = "a" * 60
    text = f"Top Hotspots\nFunction{' ' * 52}  CPU Time\n{'-' * 60}  --------\n{wide}    1.234s\n"
    text += "*N/A is applied to non-summable metrics.\nPaused Time: 0s\n"
    found = frame(file, text)
    assert found["name"].to_list() == ["Paused Time", wide]
    assert read(file).notes == ("*N/A is applied to non-summable metrics.",)


TOP = """\
Elapsed Time: 5s
    CPU Time: 4s
Top Things
Function  CPU Time  Module
--------  --------  ------
main        1.500s  a.so
"""


def test_a_row_of_a_summary_may_have_empty_cells(file: Path) -> None:
    found = frame(file, TOP + "f                   b.so\ng           0.250s\n")
    rows = found.filter(pl.col("section") == "Top Things").select("name", "metric", "text").rows()
    cells = {name: [text or "" for of, _, text in rows if of == name] for name in ("main", "f", "g")}
    assert cells == {"main": ["1.500s", "a.so"], "f": ["", "b.so"], "g": ["0.250s", ""]}


@pytest.mark.parametrize("line", ["main        abc     b.so", "main        abc       def", "main  calls  0.5s  b"])
def test_words_that_keep_to_no_edge_of_a_column_are_no_row(file: Path, line: str) -> None:
    assert frame(file, TOP + line + "\n").equals(frame(file, TOP))
    assert notes(file, TOP + line + "\n") == (line,)


def test_words_above_dashes_that_are_not_theirs_are_a_title(file: Path) -> None:
    text = "The quick brown fox\n---  -----\n    Wait Time: 2s\n"
    assert frame(file, TOP + text).filter(pl.col("name") == "Wait Time")["section"].to_list() == ["The quick brown fox"]


def test_the_programs_own_output_around_a_report_is_noted(file: Path) -> None:
    text = "iteration 1: 3.2\ntotal\nLoss: 0.5\n\nFunction  CPU Time\n--------  --------\nmain        1.5s\n"
    assert frame(file, text).rows() == [("main", 1.5)]
    assert read(file).notes == ("iteration 1: 3.2", "total", "Loss: 0.5")
    assert notes(file, "hello: 1\nFunction,CPU Time\nmain,1.5\n") == ("hello: 1",)


def test_several_reports_in_one_file(file: Path) -> None:
    text = "Function  CPU Time\n--------  --------\nmain        1.5s\nf             1s\n\n"
    text += "Module  CPU Time  Wait Count\n------  --------  ----------\na.out       2.5s         1\n"
    assert frame(file, text).select("name", "metric", "value").rows() == [
        ("main", "CPU Time", 1.5),
        ("f", "CPU Time", 1.0),
        ("a.out", "CPU Time", 2.5),
        ("a.out", "Wait Count", 1.0),
    ]
    csv = "Function,CPU Time\nmain,1.5\n\nModule,CPU Time\na.out,2.5\n"
    assert frame(file, csv).select("name", "value").rows() == [("main", 1.5), ("a.out", 2.5)]


def test_a_report_without_rows(file: Path) -> None:
    assert frame(file, "Function  CPU Time\n--------  --------\n").shape == (0, 2)
    assert frame(file, "Function,CPU Time\n").shape == (0, 2)
    with pytest.raises(UsageError, match="no rows, only titles"):
        Trace(()).with_metrics(frame(file, "Function,CPU Time\n"))


def test_units_are_seconds_and_shares_are_numbers(file: Path) -> None:
    cells = ["1.5s", "12.5ms", "3us", "250ns", "13.5%", "1,234,567", "2.1e9", ""]
    found = frame(file, "Function\tCPU Time\n" + "".join(f"f{row}\t{cell}\n" for row, cell in enumerate(cells)))
    expected = [1.5, 0.0125, 3e-6, 2.5e-7, 13.5, 1234567.0, 2.1e9, None]
    assert found["CPU Time"].to_list() == pytest.approx(expected)


def test_rows_with_too_many_cells_are_counted(file: Path) -> None:
    file.write_text("Function,CPU Time\nf,1,\ng,2,3\nh\n", encoding="utf-8")
    report = read(file)
    assert report.frame.rows() == [("f", 1.0), ("g", 2.0), ("h", None)]
    assert report.cut == 1
    assert [issue.code for issue in report.issues] == ["odd_cells"]


def test_line_ends_of_unicode_are_part_of_a_name(file: Path) -> None:
    assert frame(file, "Function,CPU Time\na\x85b\u2028c\x0bd,1\n")["Function"].to_list() == ["a\x85b\u2028c\x0bd"]


# --- what is none


# fmt: off
OTHERS = {
    "nsys stats": " Time (%)  Total Time (ns)  Name\n --------  ---------------  ----\n 9  1  k\n",
    "nsys csv": "Time (%),Total Time (ns),Instances,Avg (ns),Name\n99.0,123,10,12.3,gemm\n",
    "nvprof": '"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n"GPU activities",9,1,1,1,1,1,"k"\n',
    "ncu": '"ID","Process ID","Process Name","Kernel Name","Metric Name","Metric Value"\n"0","1","a","k","m","1"\n',
    "rocprof": '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"k",1,1,1,100\n',
    "torch": "----  ----------\nName  Self CPU %\n----  ----------\nmm    1%\n",
    "benchmark": "-----------------\nBenchmark    Time     CPU\n-----------------\nBM_a  1 ns  1 ns\n",
    "pandas": ",CPU Time:Self,Spin Time\n0,1.5,2\n",
    "benchmark csv": "name,iterations,real_time,cpu_time,time_unit\nBM_a,100,1.2,1.1,ns\n",
    "times": "Elapsed Time: 3.2 s\nThroughput: 100 it/s\nCPU Time: 3.1\n",
    "profile": "Function,Calls,Time\nf,1,2\n",
    "pip": "Package    Version\n---------- -------\nnumpy      1.0\n",
    "pip csv": "Package,Version\nnumpy,1.0\n",
    "database": "Module  rows  size\n------  ----  ----\na       1     2\n",
    "log": "2024-01-01 10:00:00,123 INFO loader: started\n2024-01-01 10:00:01,123 INFO Thread: x\n",
    "log of VTune": "vtune: Collection started.\nEpoch: 1\nLoss: 0.3\nvtune: Error: Cannot start\n",
    "table in a log": "vtune: Collection started.\nName  Value\n----  -----\na         1\n",
    "settings": "Thread: 1\nModule: torch\nProcess: 3\n",
    "json": '{"Function": "CPU Time"}\n',
    "yaml": "Function:\n    CPU: 3\n    Module:\n        - a\n",
    "markdown": "# CPU Time\n\nFunction | CPU\n--- | ---\nmain | 1\n\nTitle\n-----\n",
    "html": "<!DOCTYPE html>\n<html><body>Elapsed Time: 3s</body></html>\n",
    "code": "def function(module, cpu_time):\n    return module, cpu_time\n",
    "nothing": "\n\n",
    "dashes": "----\n----  ----\n--\n",
}
# fmt: on


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_no_report_is_refused_in_one_sentence(file: Path, what: str) -> None:
    with pytest.raises(
        NotATrace, match=r"is not a report of VTune: .*; expected what `vtune -report hotspots"
    ) as error:
        frame(file, OTHERS[what])
    assert "\n" not in str(error.value)


# --- real ones


REAL = {
    "hotspots_62_rows_with_blank_line.txt": (62, 62),
    "summary_2018_underlined.txt": (13, 0),
    "threading_summary_indented.txt": (17 + 2 * 3 + 3 * 3, 5),
}


@pytest.mark.parametrize("name", REAL)
def test_real_reports_that_were_misread(traces_dir: Path, name: str) -> None:
    path = traces_dir / "vtune" / "reports" / name
    if not path.is_file():
        pytest.skip(f"{name} is not among the recorded traces")
    found = opspan.load_vtune_report(path)
    height, rows = REAL[name]
    assert found.height == height
    if rows:
        lines = [line for line in path.read_text().splitlines() if line.strip() or not name.startswith("hotspots")]
        assert rows_below_dashes(lines, r"\S  +\S" if "name" in found.columns else r"\S") == rows
    if "name" in found.columns:
        assert not found["name"].str.contains(r"\||enter|If you").any()
        assert not found["section"].fill_null("").str.contains(r"\|").any()
