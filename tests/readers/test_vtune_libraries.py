"""The libraries of sampled functions in VTune's results, which are made by hand."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from builders import vtune
from opspan import load
from opspan.trace import Trace


def trace_of(tmp_path: Path, **tables: vtune.Rows) -> Trace:
    rows = {**vtune.around("2022"), **vtune.events("2022"), **tables}
    return load(vtune.database(tmp_path / "dicer.db", rows, "2022"))


def stacks(trace: Trace) -> list[tuple[str, str]]:
    return trace.samples.select("stack", "libraries").unique().rows()


def codes(outer: int | None, inner: int | None) -> vtune.Rows:
    """The places in main, in the loop and in mm, with the segments of main and mm."""
    return [
        {"func_range": 1, "mod_seg": outer},
        {"func_range": 2, "mod_seg": inner},
        {"func_range": 3, "mod_seg": inner},
    ]


@pytest.mark.parametrize("unknown", [None, -1])
def test_a_function_outside_any_module_has_an_unknown_library(tmp_path: Path, unknown: int | None) -> None:
    trace = trace_of(tmp_path, dd_code_location=codes(unknown, 3))

    assert stacks(trace) == [("main;mm<a,b>", "?;/opt/a,b/libmm.so")]
    assert "missing_rows" not in trace.issues["code"].cast(pl.String)


@pytest.mark.parametrize(
    ("module", "library"),
    [
        ({"bin_name": "libmm.so", "bin_path": "/lib/libmm.so"}, "/lib/libmm.so"),
        ({"bin_name": "libmm.so"}, "libmm.so"),
        ({"bin_name": "libmm.so", "bin_path": ""}, "libmm.so"),
        ({"bin_name": "", "bin_path": ""}, "?"),
        ({"bin_name": "[Dynamic code]", "bin_path": "[Dynamic code]"}, "[Dynamic code]"),
        ({"bin_name": "train.py", "bin_path": "/srv/train.py"}, "/srv/train.py"),
    ],
)
def test_a_library_is_the_path_of_the_module_or_else_its_name(
    tmp_path: Path, module: dict[str, str], library: str
) -> None:
    trace = trace_of(tmp_path, dd_module_file=[{"bin_path": "/usr/bin/python3"}, module])

    assert stacks(trace) == [("main;mm<a,b>", f"/usr/bin/python3;{library}")]


def test_modules_that_are_gone_are_counted(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, dd_code_location=codes(1, 9), dd_module_file=[])

    assert stacks(trace) == [("main;mm<a,b>", "?;?")]
    lost = trace.issues.filter(pl.col("code") == "missing_rows")["message"].to_list()
    assert [message.split(": ")[1] for message in lost] == [
        "dd_code_location.mod_seg to rows of dd_module_segment",
        "dd_module_segment.mod_file to rows of dd_module_file, which has none",
    ]


def test_the_file_says_which_table_has_the_modules(tmp_path: Path) -> None:
    refs = [*vtune.references("2022"), {"path": "dd_code_location.mod_seg", "ref": "dd_domain"}]
    trace = trace_of(tmp_path, _schema_refs=refs)

    assert stacks(trace) == [("main;mm<a,b>", "?;?")]


@pytest.mark.parametrize("part", ["function", "module"])
def test_long_texts_in_many_deep_stacks_are_bounded(tmp_path: Path, part: str) -> None:
    """A text of 5 kB is in the file once, and 40,000 times in stacks, which would take 200 MB."""
    count, long = 200, "x" * 5_000
    sites = [{"code_loc": 1, "parent": above} for above in (-1, *range(1, count))]
    sites += [{"code_loc": 3, "parent": count} for _ in range(count)]
    tables: dict[str, vtune.Rows] = {
        "dd_callsite": sites,
        "dd_sample": [{"event_type": 1, "callsite": count + 1 + row} for row in range(count)],
        "cpu_data_agg_band": [vtune.band(20, 30, 1, count)],
        "cpu_data_agg_data": [{"duration": 10, "count": 1, "attr": 1 + row} for row in range(count)],
    }
    if part == "function":
        tables["dd_function"] = vtune.names(long, "loop", "mm")
    else:
        tables["dd_module_file"] = [{"bin_path": long}, {"bin_path": "/lib/libmm.so"}]
    trace = trace_of(tmp_path, **tables)

    assert trace.samples.height == count
    assert trace.samples["stack"].null_count() == trace.samples["libraries"].null_count()
    assert 0 < trace.samples["stack"].null_count() < count
    assert "over_budget" in trace.issues["code"].cast(pl.String)
