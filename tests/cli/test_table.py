"""opspan table: torch's table of any trace, and what is said below it."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan as package
from builders import kineto
from emit.running import cpu_seconds, environment, on_terminal, opspan
from opspan import analysis
from opspan.printable import printable
from opspan.questions import BY
from views.sources import HOSTILE, capture, nsys


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nsys(tmp_path_factory.mktemp("nsys") / "run.sqlite", scale=1000)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return capture(tmp_path_factory.mktemp("capture") / "100-1.opspan")


def found(*arguments: str | Path) -> dict[str, Any]:
    done = opspan("table", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class TestText:
    def test_wide_with_kernels_it_is_torchs_text_to_the_letter(self, exported: Path) -> None:
        done = opspan("table", exported, "--kernels", "--wide", "--sort-by", "self_cuda_time_total", "--limit", "5")

        averages = package.load(exported).events().key_averages()
        for average in averages:  # one name is no fit sight for a terminal, and its width shows
            average.key = printable(average.key)
        whole = {"max_name_column_width": None, "max_shapes_column_width": None}
        expected = averages.table(sort_by="self_cuda_time_total", row_limit=5, **whole)
        assert done.stdout.startswith(expected + "3 more rows")

    def test_by_name_is_torchs_table(self, captured: Path) -> None:
        done = opspan("table", captured, "--sort-by", "self_cpu_time_total", "--limit", "5")

        averages = package.load(captured).events().key_averages()
        shown, below = done.stdout.split("4 more rows: --limit -1 shows all\n")
        # The name that is no fit sight for a terminal is not among the five; how wide it is shows, though.
        assert squeezed(shown) == squeezed(averages.table(sort_by="self_cpu_time_total", row_limit=5))
        assert below.startswith("\nCoverage: ")
        assert done.stderr == ""

    def test_by_shape_is_torchs_table_by_shape(self, exported: Path) -> None:
        done = opspan("table", exported, "--by", "shape", "--kernels", "--sort-by", "cpu_time_total", "--limit", "5")

        averages = package.load(exported).events().key_averages(group_by_input_shapes=True)
        expected = averages.table(sort_by="cpu_time_total", row_limit=5)
        assert squeezed(done.stdout.split("3 more rows")[0]) == squeezed(expected)
        assert "[[2, 4], [3, 4]]" in done.stdout

    def test_issues_and_coverage_stand_below_it(self, captured: Path) -> None:
        below = opspan("table", captured).stdout.split("Self CPU time total: 9.500us\n")[1]

        assert below.splitlines() == [
            "",
            "Coverage: 1 of 1 backward ranges are linked to their forward op",
            "Issue (warning): events could not be written while capturing (3). Free some disk space or memory, and "
            f"capture again. The ranges that were written are right. [{captured}]",
        ]

    def test_the_largest_device_time_comes_first_else_the_largest_cpu_time(
        self, exported: Path, captured: Path
    ) -> None:
        assert first_name(opspan("table", exported, "--kernels").stdout) == "void"  # void gemm<float>(int)
        assert first_name(opspan("table", exported).stdout) == "LinearBackward0"
        assert first_name(opspan("table", captured).stdout) == "ProfilerStep*"

    @pytest.mark.parametrize("by", ["name", "shape"])
    def test_names_do_not_reach_the_terminal_as_they_are(self, by: str, captured: Path) -> None:
        shown = opspan("table", captured, "--by", by).stdout

        assert "\x1b" not in shown
        assert r'a";</script>\x1b[31m\n\\u2028,=é' in shown

    @pytest.mark.parametrize(
        ("by", "titles", "line"),
        [
            ("module", "Module Self CPU % Self CPU Backward CPU # of Calls # of Ranges",
             "Net.layer 56.84% 5.400us 1.500us 1 5"),
            ("step", "Step Self CPU % Self CPU Backward CPU # of Steps # of Ranges",
             "ProfilerStep#7 100.00% 9.500us 1.500us 1 9"),
            ("phase", "Phase Self CPU % Self CPU Backward CPU # of Ranges", "backward 15.79% 1.500us 0.000us 2"),
        ],
    )  # fmt: skip
    def test_by_what_surrounds_a_range(self, by: str, titles: str, line: str, captured: Path) -> None:
        lines = [" ".join(line.split()) for line in opspan("table", captured, "--by", by).stdout.splitlines()]

        assert lines[1] == titles
        assert line in lines

    @pytest.mark.parametrize(
        ("by", "titles", "line"),
        [
            ("kernel", "Kind Name CUDA total % CUDA total CUDA time avg CUDA time min CUDA time max Tensor cores "
             "# of Calls",
             "kernel gemm 94.00% 784.000us 112.000us 50.000us 199.000us unknown 7"),
            ("stream", "Rank Device Context Stream CUDA total % CUDA total CUDA time avg # of Calls",
             "0 0 1 8 6.00% 50.000us 50.000us 1"),
        ],
    )  # fmt: skip
    def test_by_what_ran_on_devices(self, by: str, titles: str, line: str, exported: Path) -> None:
        lines = [" ".join(line.split()) for line in opspan("table", exported, "--by", by).stdout.splitlines()]

        assert lines[1] == titles
        assert line in lines
        assert "Self CUDA time total: 834.000us" in lines

    def test_nothing_to_show_is_said(self, captured: Path) -> None:
        done = opspan("table", captured, "--by", "kernel")

        assert done.returncode == 0
        assert done.stdout.startswith("Nothing to show: there are no kernels or copies. The trace holds 9 ranges, ")
        assert done.stdout.splitlines()[0].endswith("; try --by name")

    def test_an_encoding_without_the_letters_is_no_error(self, captured: Path) -> None:
        done = opspan("table", captured, env={"PYTHONIOENCODING": "ascii"})

        assert done.returncode == 0
        assert r"=\xe9" in done.stdout


def squeezed(table: str) -> list[str]:
    """Lines with single spaces, without the rules: their width depends on the longest name, shown or not."""
    return [" ".join(line.split()) for line in table.splitlines() if not line.startswith("---")]


def first_name(table: str) -> str:
    return table.splitlines()[3].split()[0]


class TestNumbers:
    def test_times_of_ranges_are_those_of_the_files_own_sql(self, exported: Path) -> None:
        sql = """
            SELECT CASE WHEN text LIKE 'ProfilerStep#%' THEN 'ProfilerStep*' ELSE text END AS label,
                   count(*), sum("end" - start)
            FROM NVTX_EVENTS WHERE eventType IN (59, 60) GROUP BY 1"""
        with sqlite3.connect(exported) as database:
            expected = {}
            for text, count, took in database.execute(sql):
                name = text if text == HOSTILE else text.split(",")[0]
                counted, taken = expected.get(name, (0, 0))
                expected[name] = (counted + count, taken + took)

        rows = found(exported)["rows"]

        assert {row["name"]: (row["count"], row["cpu_ns"]) for row in rows if row["device"] == "cpu"} == expected

    def test_times_of_kernels_are_those_of_the_files_own_sql(self, exported: Path) -> None:
        with sqlite3.connect(exported) as database:
            count, took, least, most = database.execute(
                'SELECT count(*), sum("end" - start), min("end" - start), max("end" - start) '
                "FROM CUPTI_ACTIVITY_KIND_KERNEL"
            ).fetchone()

        (row,) = (row for row in found(exported, "--by", "kernel")["rows"] if row["kind"] == "kernel")

        assert row == {
            "kind": "kernel",
            "name": "gemm",
            "count": count,
            "device_ns": took,
            "average_device_ns": took / count,
            "least_device_ns": least,
            "most_device_ns": most,
            "blocks_per_sm": None,
            "occupancy": None,
            "uses_tensor_cores": "unknown",
        }

    @pytest.mark.parametrize("by", BY["table"])
    def test_sums_of_a_table_are_those_of_the_ranges(self, by: str, exported: Path) -> None:
        trace = analysis.analyse(package.load(exported))
        rows = pl.DataFrame(found(exported, "--by", by)["rows"])
        of_work = analysis.averages(trace.work, trace.work, "kernel") if by in ("stream", "kernel") else None
        if of_work is not None:
            assert rows["device_ns"].sum() == of_work["device_ns"].sum() == 834_000
        else:
            on_cpu = rows.filter(pl.col("device") == "cpu") if "device" in rows.columns else rows
            assert on_cpu["self_cpu_ns"].sum() == trace.ranges["self_ns"].sum()
            outside = 50_000 * (by in ("line", "source-op"))  # kernels in no range
            assert on_cpu["self_device_ns"].sum() == trace.ranges["self_device_ns"].sum() + outside
            assert on_cpu["ranges" if "ranges" in rows.columns else "count"].sum() == 10

    def test_several_files_are_ranks(self, captured: Path, tmp_path: Path) -> None:
        other = capture(tmp_path / "other.opspan")

        rows = found(captured, other)["rows"]

        assert sorted((row["rank"], row["count"]) for row in rows if row["name"] == "aten::mm") == [(0, 1), (1, 1)]
        assert "Node ID" in opspan("table", captured, other).stdout


class TestDocuments:
    def test_json_has_rows_issues_and_coverage(self, captured: Path, exported: Path) -> None:
        document = found(captured)
        coverage = found(exported)["coverage"]

        assert list(document) == ["schema", "by", "rows", "issues", "coverage"]
        assert document["schema"] == 1
        assert [(issue["code"], issue["count"]) for issue in document["issues"]] == [("lost_events", 3)]
        assert coverage["work_in_range"] == {
            "count": 7, "of": 8, "ns": 784_000, "of_ns": 834_000, "fraction": 784 / 834,
        }  # fmt: skip
        assert (coverage["backward"], coverage["linked"]) == (2, 2)

    def test_data_has_names_as_they_are(self, captured: Path) -> None:
        rows = list(csv.DictReader(io.StringIO(opspan("table", captured, "--format", "csv").stdout, newline="")))

        assert HOSTILE in {row["name"] for row in found(captured)["rows"]}
        assert HOSTILE in {row["name"] for row in rows}

    def test_csv_is_data_alone_and_the_rest_goes_to_stderr(self, captured: Path) -> None:
        done = opspan("table", captured, "--by", "step", "--format", "csv")

        assert list(csv.DictReader(io.StringIO(done.stdout))) == [
            {
                "step": "ProfilerStep#7",
                "count": "1",
                "ranges": "9",
                "self_cpu_ns": "9500",
                "self_device_ns": "0",
                "backward_cpu_ns": "1500",
                "backward_device_ns": "0",
            }
        ]
        assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["Coverage", "Issue (warning)"]

    def test_shapes_are_lists(self, exported: Path) -> None:
        (row,) = (row for row in found(exported, "--by", "shape")["rows"] if row["name"] == "aten::linear")

        assert row["sizes"] == [[2, 4], [3, 4]]

    def test_data_has_no_limit_unless_asked(self, exported: Path) -> None:
        assert len(found(exported)["rows"]) == 6
        assert len(found(exported, "--limit", "2")["rows"]) == 2


class TestSorting:
    @pytest.mark.parametrize(
        ("asked", "column"),
        [("self_cuda_time_total", "self_device_ns"), ("cpu_time", "average_cpu_ns"), ("count", "count")],
    )
    def test_by_a_column_or_torchs_name_of_it(self, asked: str, column: str, exported: Path) -> None:
        values = [row[column] for row in found(exported, "--sort-by", asked)["rows"]]

        assert values == sorted(values, reverse=True)
        assert len(set(values)) > 1

    def test_texts_go_up(self, exported: Path) -> None:
        names = [row["name"] for row in found(exported, "--sort-by", "name")["rows"]]

        assert names == sorted(names)

    @pytest.mark.slow
    @pytest.mark.parametrize("by", BY["table"])
    def test_an_unknown_column_names_those_there_are(self, by: str, exported: Path) -> None:
        done = opspan("table", exported, "--by", by, "--sort-by", "nope")

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error: the table by {by} has no column 'nope'")
        assert done.stderr.count("\n") == 1
        columns = found(exported, "--by", by)["rows"][0]
        assert all(name in done.stderr for name in columns)


class TestTrouble:
    @pytest.mark.parametrize(
        ("name", "content"),
        [("missing", None), ("empty", b""), ("text", b"hello"), ("cut.sqlite", b"SQLite format 3\0" + bytes(80))],
    )
    def test_bad_input_is_one_line_and_two(self, name: str, content: bytes | None, tmp_path: Path) -> None:
        if content is not None:
            (tmp_path / name).write_bytes(content)

        done = opspan("table", tmp_path / name)

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert name in done.stderr

    @pytest.mark.parametrize("arguments", [(), ("--by", "colour"), ("--limit", "-2"), ("--format", "xml")])
    def test_bad_use_is_one_line_and_two(self, arguments: tuple[str, ...], captured: Path) -> None:
        done = opspan("table", *arguments, *([captured] if arguments else []))

        assert (done.returncode, done.stderr.count("\n")) == (2, 1)

    def test_a_reader_that_goes_away_is_no_traceback(self, exported: Path) -> None:
        command = f"{sys.executable} -m opspan table {exported} --format json | head -c 1"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment())

        assert (done.stdout, done.stderr) == ("{", "")


@pytest.mark.slow
def test_a_small_file_takes_little_more_than_it_takes_to_import_what_reads_it(exported: Path) -> None:
    # In turn, as a machine that is slow is so for both.
    imports, tables = zip(
        *(
            (
                cpu_seconds("-c", "import polars, adbc_driver_sqlite, click"),
                cpu_seconds("-m", "opspan", "table", str(exported)),
            )
            for _ in range(3)
        ),
        strict=True,
    )
    assert min(tables) < 4 * min(imports), (imports, tables)


def test_a_table_loads_no_more_than_it_needs(exported: Path) -> None:
    code = (
        "import sys\nfrom opspan.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "table", exported], capture_output=True, text=True, env=environment()
    )

    loaded = set(done.stderr.split())
    assert "polars" in loaded
    assert not loaded & {"torch", "numpy", "rich", "sqlite_utils", "pyarrow", "pandas"}


def test_python_looks_for_garbage_neither_while_a_table_is_made_nor_after_it(exported: Path) -> None:
    code = (
        "import atexit, gc, sys\nfrom opspan.cli import main\nlooked = []\n"
        "atexit.register(lambda: print(len(looked), gc.get_freeze_count() > 10_000, file=sys.stderr))\n"
        "gc.callbacks.append(lambda *_: looked.append(1))\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "table", exported], capture_output=True, text=True, env=environment()
    )

    assert done.stderr.splitlines()[-1] == "0 True"


class TestProgress:
    SLOW = (
        "import sys, time\n"
        "import opspan.cli.loading as loading, opspan.readers as readers\n"
        "loading.PATIENCE_S = 0.2\n"
        "read = readers.read_file\n"
        "def slow(*paths, **options):\n    trace = read(*paths, **options)\n    time.sleep(1.5)\n    return trace\n"
        "readers.read_file = slow\n"
        "from opspan.cli import main\nmain(sys.argv[1:])"
    )

    @pytest.mark.slow
    def test_a_long_load_shows_a_bar_on_a_terminal(self, captured: Path) -> None:
        shown = self.progress(captured)

        assert f"reading {captured.name!r}" in shown
        assert "0/2" in shown

    @pytest.mark.slow
    @pytest.mark.parametrize("source", ["exported", "captured", "kineto"])
    def test_it_counts_the_rows_that_were_read(
        self, source: str, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        path = kineto.write(tmp_path / "x.json") if source == "kineto" else request.getfixturevalue(source)

        counts = {int(found.replace(",", "")) for found in re.findall(r"([0-9,]+) rows", self.progress(path))}

        trace = package.load(path)
        assert max(counts) >= trace.ranges.height + trace.work.height + trace.calls.height > 0

    @pytest.mark.slow
    def test_elsewhere_it_shows_nothing(self, captured: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-c", self.SLOW, "table", captured], capture_output=True, text=True, env=environment()
        )

        assert (done.returncode, done.stderr) == (0, "")

    def progress(self, path: Path) -> str:
        env = {"TERM": "xterm", "COLUMNS": "100"}
        return on_terminal(self.SLOW, "table", path, stream="stderr", env=env)
