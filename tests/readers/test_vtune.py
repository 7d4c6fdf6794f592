"""VTune results made by hand, of every version of the schema: every table lands where it belongs, or is counted."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import vtune
from builders.vtune import BAND, BAND_OF_WORKER, MAIN, OWN, PID, PYTORCH, WORKER, ZERO_MONO_NS, ZERO_UTC_NS, at
from opspan import analysis, load
from opspan.errors import NotATrace, NotReadable
from opspan.trace import Trace

AGES = tuple(vtune.VERSIONS)


@pytest.fixture(scope="module", params=AGES)
def age(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory, age: str) -> Trace:
    return load(vtune.run(tmp_path_factory.mktemp("result") / "r000hs", age))


def of_run(frame: pl.DataFrame, *columns: str) -> list[tuple]:
    """Rows with their times from the run's zero, in order of time."""
    times = [name for name in ("start_ns", "end_ns", "time_ns") if name in columns]
    return frame.with_columns(pl.col(times) - ZERO_MONO_NS).sort(times[0]).select(columns).rows()


def issues(trace: Trace) -> dict[str, int]:
    return dict(trace.issues.group_by(pl.col("code").cast(pl.String)).agg(pl.col("count").sum()).rows())


class TestARun:
    def test_tasks_have_their_thread_process_domain_and_times(self, trace: Trace) -> None:
        tasks = trace.ranges.filter(~pl.col("is_async"), ~pl.col("is_mark"))

        assert of_run(tasks, "start_ns", "end_ns", "pid", "tid", "domain", "name", "seq", "sizes") == [
            (0, 100, PID, MAIN, None, "load batch", None, None),
            (10, 60, PID, MAIN, "PyTorch", "aten::mm", 4, "[[2, 3], [3, 4]]"),
            (70, 90, PID, MAIN, "opspan", "aten::add", 7, "[[2]]"),
            (200, 290, PID, WORKER, "PyTorch", "MmBackward0", 4, None),
        ]
        assert set(tasks["source"].cast(pl.String)) == {"itt"}

    def test_the_text_as_the_tool_had_it_is_kept(self, trace: Trace) -> None:
        texts = trace.ranges.filter(pl.col("name") == "aten::mm")["text"]
        assert texts.to_list() == ["aten::mm, seq = 4, sizes = [[2, 3], [3, 4]]"]

    def test_metadata_that_survived_is_read_and_kept(self, trace: Trace) -> None:
        own = trace.ranges.filter(pl.col("domain") == "opspan").row(0, named=True)
        assert (own["seq"], own["op_id"], own["sizes"]) == (7, 12, "[[2]]")
        assert own["payload_json"] == '{"parameter": "{\\"seq\\": 7, \\"op_id\\": 12, \\"sizes\\": \\"[[2]]\\"}"}'

    def test_backward_links_to_forward_by_the_text(self, trace: Trace) -> None:
        ranges = analysis.attribute(trace).ranges
        backward = ranges.filter(pl.col("name") == "MmBackward0").row(0, named=True)
        assert backward["link"] == "linked"
        assert ranges[backward["forward"]]["name"].to_list() == ["aten::mm"]

    def test_frames_regions_and_markers(self, trace: Trace) -> None:
        others = trace.ranges.filter(pl.col("is_async") | pl.col("is_mark"))
        assert of_run(others, "start_ns", "end_ns", "pid", "tid", "name", "domain", "category", "is_mark") == [
            (100, 400, PID, None, "Solver", "Solver", None, False),
            (110, 300, PID, None, "Solver", "Solver", "OpenMP", False),
            (120, None, PID, None, "here", "Solver", None, True),
        ]
        assert others.sort("start_ns")["payload_json"][0] == '{"instance": 1, "rate": "GoodFrame"}'

    def test_waits_are_calls_named_after_their_object(self, trace: Trace) -> None:
        columns = ("start_ns", "end_ns", "pid", "tid", "name", "api", "payload_json")
        held = '{"object": "Mutex \\"a\\" 0x7bbe", "function": "mm<a,b>", "signalled_by": "main"}'
        assert of_run(trace.calls, *columns) == [
            (20, 35, PID, MAIN, "Wait: Mutex", "wait", held),
            (210, 250, PID, WORKER, "Wait: Thread", "wait", '{"object": "Join"}'),
            (300, 310, PID, MAIN, "Wait", "wait", None),
        ]

    def test_waits_are_shown_by_op(self, trace: Trace) -> None:
        rows = trace.waits("op").select("op", "count", "wait_ns", "blocked_ns", "busy_ns").sort("wait_ns").rows()
        assert rows == [(None, 1, 10, 10, None), ("aten::mm", 1, 15, 15, None), ("MmBackward0", 1, 40, 40, None)]

    def test_counters_and_pauses(self, trace: Trace) -> None:
        assert of_run(trace.counters.filter(pl.col("name") == "loss"), "time_ns", "tid", "domain", "value") == [
            (130, MAIN, "Solver", 42.0)
        ]
        busy = trace.counters.filter(pl.col("name") == "busy processors")
        assert of_run(busy, "time_ns", "value") == [(0, 1.0)]
        collecting = trace.counters.filter(pl.col("name") == "collecting")
        assert of_run(collecting, "time_ns", "value") == [(500, 0.0), (700, 1.0), (800, 0.0), (900, 1.0)]

    def test_samples_have_stacks_of_functions_and_their_libraries(self, trace: Trace, age: str) -> None:
        columns = ("time_ns", "tid", "cpu", "weight", "event", "stack", "libraries")
        stack, libraries = "main;mm<a,b>", "/usr/bin/python3;/opt/a,b/libmm.so"
        user = [(30, MAIN, None, weight, "Samples", stack, libraries) for weight in (10, 5)]
        hardware = [(40, MAIN, 5, 1000, "CPU_CLK", "main", "/usr/bin/python3")] if age > "2018" else []
        assert of_run(trace.samples, *columns) == user + hardware

    def test_what_was_only_counted_is_a_counter(self, trace: Trace, age: str) -> None:
        counted = trace.counters.filter(pl.col("name") == "INST_RETIRED")
        assert counted["value"].to_list() == ([] if age < "2018" else [123456.0])

    def test_metadata(self, trace: Trace, age: str) -> None:
        found = trace.metadata
        assert (found.source, found.host, found.clock) == ("vtune", "node7", "CLOCK_MONOTONIC_RAW")
        assert found.origin_utc_ns == ZERO_UTC_NS - ZERO_MONO_NS
        assert found.tool_version == vtune.PRODUCTS[age].split(" ", 2 if age < "2018" else 1)[-1]
        assert found.options["schema_version"] == vtune.VERSIONS[age]
        assert found.options["command_line"] == "python train.py '--name=a b'"
        assert found.options["analysis"] == "hs"
        assert found.options["processor"] == "Intel(R) Xeon(R) CPU E5-2630 v4"
        assert found.options["microarchitecture"] == "broadwell_server"

    def test_threads_and_processes(self, trace: Trace) -> None:
        assert trace.threads.select("pid", "tid", "name").rows() == [(PID, MAIN, "trainer"), (PID, WORKER, None)]
        assert of_run(trace.processes, "start_ns", "end_ns", "pid", "name", "command_line") == [
            (-5, 900, PID, "python", "python train.py '--name=a b'")
        ]

    def test_nothing_is_uncounted(self, trace: Trace) -> None:
        assert issues(trace) == {"collection_paused": 3, "skipped_tables": 2}
        skipped = trace.issues.filter(pl.col("code") == "skipped_tables")["message"][0]
        assert skipped.endswith("sched_data 2")


# --- ways in


@pytest.mark.parametrize("inside", ["", "r000hs.vtune", "sqlite-db/dicer.db"])
def test_a_result_is_found_by_any_of_its_paths(tmp_path: Path, inside: str) -> None:
    folder = vtune.run(tmp_path / "r000hs", "2020")
    trace = opspan.load(folder / inside)
    assert trace.metadata.options["command_line"].startswith("python")
    assert (trace.ranges.height, trace.samples.height) == (7, 3)


def test_a_database_by_itself(tmp_path: Path) -> None:
    path = vtune.run(tmp_path / "r000hs", "2022").joinpath("sqlite-db", "dicer.db").rename(tmp_path / "any.name")
    trace = opspan.load(path)
    assert trace.ranges.height == 7
    assert (trace.metadata.host, trace.metadata.tool_version) == ("node7", None)


def test_load_vtune_gives_events(tmp_path: Path) -> None:
    events = opspan.load_vtune(vtune.run(tmp_path / "r000hs", "2024"))
    assert {event.name for event in events} >= {"aten::mm", "MmBackward0", "load batch"}


def test_nothing_is_written_beside_the_result(tmp_path: Path) -> None:
    folder = vtune.run(tmp_path / "r000hs", "2020")
    before = sorted(folder.rglob("*"))
    opspan.load(folder)
    assert sorted(folder.rglob("*")) == before


# --- results without tasks, or that cannot be read


@pytest.mark.parametrize(
    ("asked", "reason"), [(True, "the program reported none"), (False, "the collector was not asked for tasks")]
)
def test_without_tasks_an_issue_says_why_and_what_to_set(tmp_path: Path, age: str, asked: bool, reason: str) -> None:
    trace = load(vtune.result(tmp_path / "r000hs", vtune.around(age), age, tasks=asked))

    assert trace.ranges.is_empty()
    issue = trace.issues.filter(pl.col("code") == "no_tasks").row(0, named=True)
    assert reason in issue["message"]
    assert "-knob enable-user-tasks=true" in issue["advice"]


def test_without_tasks_a_database_by_itself_does_not_say_why(tmp_path: Path) -> None:
    trace = load(vtune.database(tmp_path / "dicer.db", vtune.around("2024"), "2024"))
    assert "does not say" in trace.issues.filter(pl.col("code") == "no_tasks")["message"][0]


def test_not_finalised_names_the_command(tmp_path: Path) -> None:
    folder = vtune.run(tmp_path / "r 1", "2020")
    (folder / "sqlite-db" / "dicer.db").unlink()
    for path in (folder, folder / "r 1.vtune"):
        with pytest.raises(NotReadable, match=r"not finalised.*vtune -finalize -r '.*r 1'"):
            opspan.load(path)


@pytest.mark.parametrize("text", ["<root>", '<!DOCTYPE a [<!ENTITY b "c">]><root><rdmgr>&b;</rdmgr></root>'])
def test_a_descriptor_that_cannot_be_read_is_an_issue(tmp_path: Path, text: str) -> None:
    folder = vtune.run(tmp_path / "r000hs", "2020")
    (folder / "r000hs.vtune").write_text(f"<?xml version='1.0'?>{text}")
    trace = opspan.load(folder)
    assert issues(trace)["damaged_file"] == 1
    assert trace.metadata.tool_version is None


def test_another_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE dd_band(a)")
    with pytest.raises(NotATrace, match="none of VTune's tables"):
        load(tmp_path / "other.db", source="vtune")


def test_another_folder_or_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for path in (tmp_path, tmp_path / "text"):
        with pytest.raises(NotATrace, match="VTune"):
            load(path, source="vtune")


# --- odd rows


def odd(tmp_path: Path, **tables: vtune.Rows) -> Trace:
    """A result of just some tasks of two names, and what the test makes of them."""
    usual: dict[str, vtune.Rows] = {
        "dd_task_type": vtune.names("aten::mm", "aten::add", domain=PYTORCH),
        "dd_task": [{"type": 1}, {"type": 2}],
        "task_data": [at(10, 20, 1)],
    }
    return load(vtune.database(tmp_path / "dicer.db", {**vtune.around("2020"), **usual, **tables}))


def test_a_task_of_no_known_name_or_thread_is_counted(tmp_path: Path) -> None:
    trace = odd(tmp_path, task_data=[at(10, 20, 9), at(30, 40, 1, 77), at(50, 60, 1)])
    assert of_run(trace.ranges, "start_ns", "name", "tid") == [
        (10, None, MAIN),
        (30, "aten::mm", None),
        (50, "aten::mm", MAIN),
    ]
    assert issues(trace) == {"missing_rows": 2}
    assert [message for message in trace.issues["message"] if "references" in message] == [
        "references are to rows that are not in the file (1): task_data.__bucket_idx to rows of dd_band",
        "references are to rows that are not in the file (1): task_data.attr to rows of dd_task",
    ]


REGION: dict[str, vtune.Rows] = {
    "dd_region_type_name": vtune.names("%SlowRegion"),
    "dd_region_type": [{"type_name": 1}],
    "dd_region": [{"type": 1, "domain": vtune.OPENMP}, {"type": 1, "domain": vtune.SOLVER}],
    "region_data": [at(10, 20, 2, -1)],
}


@pytest.mark.parametrize(
    ("stated", "instances", "name"),
    [
        ("dd_region", [], "Solver"),
        ("dd_region", [{"region": 1}, {"region": 1}], "Solver"),
        ("dd_region_instance", [{"region": 1}, {"region": 1}], "OpenMP"),
        # the file does not say; a table without rows is not what it refers to
        (None, [], "Solver"),
        (None, [{"region": 1}, {"region": 1}], "OpenMP"),
        ("dd_misspelt", [], "Solver"),
    ],
)
def test_a_region_is_found_by_what_the_file_says_of_itself(
    tmp_path: Path, stated: str | None, instances: vtune.Rows, name: str
) -> None:
    refs = [{"path": "region_data.attr", "ref": stated}] if stated else []
    trace = odd(tmp_path, **{**REGION, "dd_region_instance": instances, "_schema_refs": refs})
    regions = trace.ranges.filter("is_async")
    assert regions.select("name", "category").rows() == [(name, "SlowRegion")]
    assert issues(trace) == {}


@pytest.mark.parametrize("missing", ["dd_region_instance", "dd_region", "dd_domain"])
def test_what_a_region_refers_to_may_be_gone_and_that_is_no_damage(tmp_path: Path, missing: str) -> None:
    refs = [{"path": "region_data.attr", "ref": "dd_region_instance"}]
    tables = {**REGION, "dd_region_instance": [{"region": 1}, {"region": 2}], "_schema_refs": refs, missing: []}
    trace = odd(tmp_path, task_data=[], **tables)
    assert trace.ranges.select("pid", "start_ns").height == 1
    assert trace.ranges["name"].to_list() == ["SlowRegion" if missing == "dd_domain" else None]
    found = trace.issues.filter(pl.col("code") == "missing_rows")
    assert found["count"].to_list() == [1]
    assert found["message"][0].endswith(f"to rows of {missing}, which has none")
    assert "damaged" not in found["advice"][0]


def test_a_reference_to_a_table_of_another_kind_names_nothing(tmp_path: Path) -> None:
    trace = odd(tmp_path, _schema_refs=[{"path": "task_data.attr", "ref": "dd_cpu_usage"}], dd_cpu_usage=[{"value": 1}])
    assert trace.ranges["name"].to_list() == [None]
    assert trace.issues["message"][0].endswith("task_data.attr to rows of dd_cpu_usage, which has none of its columns")


def test_only_tables_of_events_are_counted_as_skipped(tmp_path: Path) -> None:
    listed = vtune.noise("2020")
    assert issues(odd(tmp_path, **listed)) == {}
    assert issues(odd(tmp_path / "unlisted", **{**listed, "_schema_instance_tables": []})) == {}
    trace = odd(tmp_path / "rows", **listed, sched_data=[at(0, 1, 1)])
    assert trace.issues["message"].to_list() == ["rows are in tables that opspan does not read (1): sched_data 1"]


def test_times_that_cannot_be(tmp_path: Path) -> None:
    never = {**at(0, 0, 1), "start_tsc": 0}
    backwards = at(40, 30, 1)
    trace = odd(tmp_path, task_data=[never, backwards, {**at(50, 0, 1), "end_tsc": None}])
    assert of_run(trace.ranges, "start_ns", "end_ns") == [(40, None), (50, None)]
    assert issues(trace) == {"no_time": 1, "negative_duration": 1}


def test_ticks_are_tenths_of_ns(tmp_path: Path) -> None:
    row = {**at(10, 20, 1), "start_tsc": vtune.tsc(10) + 9, "end_tsc": vtune.tsc(20) + 9}
    assert of_run(odd(tmp_path, task_data=[row]).ranges, "start_ns", "end_ns") == [(10, 20)]


@pytest.mark.parametrize("frequency", [10_000_000, 0, None])
def test_another_clock_counts_from_the_first_event(tmp_path: Path, frequency: int | None) -> None:
    # 10 MHz: QueryPerformanceCounter, on Windows
    marker = {**vtune.around("2020")["dd_marker_info"][0], "sys_frequency": frequency}
    trace = odd(tmp_path, dd_marker_info=[marker])
    assert (trace.metadata.clock, trace.metadata.origin_utc_ns) == (None, ZERO_UTC_NS + 10)
    assert trace.ranges["start_ns"].to_list() == [0]


def test_results_of_several_machines_have_no_common_monotonic_clock(tmp_path: Path) -> None:
    marker = vtune.around("2020")["dd_marker_info"][0]
    trace = odd(tmp_path, dd_marker_info=[marker, {**marker, "sys_tsc": 5}])
    assert trace.metadata.clock is None


def test_names_beside_metadata_are_names(tmp_path: Path) -> None:
    trace = odd(
        tmp_path,
        dd_task_type=vtune.names("mine, seq = 3", "theirs, seq = 3", domain=OWN),
        dd_task=[{"type": 1, "parameter": "seq=8; fwd_tid=1533"}, {"type": 2}],
        task_data=[at(10, 20, 1), at(30, 40, 2)],
    )
    assert of_run(trace.ranges, "start_ns", "name", "seq", "forward_tid") == [
        (10, "mine, seq = 3", 8, WORKER),
        (30, "theirs", 3, None),
    ]


def test_in_other_domains_texts_are_only_texts(tmp_path: Path) -> None:
    trace = odd(tmp_path, dd_task_type=vtune.names("aten::mm, seq = 3", domain=vtune.SOLVER))
    row = trace.ranges.row(0, named=True)
    assert (row["name"], row["seq"], row["kind"]) == ("aten::mm, seq = 3", None, "unknown")


def test_an_own_backward_without_a_thread_has_the_main_one(tmp_path: Path) -> None:
    trace = odd(
        tmp_path,
        dd_task_type=vtune.names("MmBackward0, seq = 4", "AddBackward0, seq = 5, fwd_tid = 1533", domain=OWN),
        task_data=[at(10, 20, 1, BAND_OF_WORKER), at(30, 40, 2, BAND)],
    )
    assert of_run(trace.ranges, "start_ns", "kind", "forward_tid") == [(10, "backward", PID), (30, "backward", WORKER)]


def test_tasks_whose_metadata_is_gone_are_counted_as_unlinked(tmp_path: Path) -> None:
    names = vtune.names("aten::mm", "MmBackward0", domain=OWN)
    trace = odd(tmp_path, dd_task_type=names, task_data=[at(10, 20, 1), at(30, 40, 2, BAND_OF_WORKER)])
    ranges = analysis.attribute(trace).ranges
    assert ranges.sort("start_ns")["link"].cast(pl.String).to_list() == [None, "no seq"]
    assert {link: count for link, count in trace.coverage.links.items() if count} == {"no seq": 1}


@pytest.mark.slow
def test_callsites_in_a_circle_end_somewhere(tmp_path: Path) -> None:
    tables = vtune.events("2020")
    sites = [{"code_loc": 1, "parent": 2}, {"code_loc": 2, "parent": 1}, {"code_loc": 3, "parent": -1}]
    path = vtune.database(tmp_path / "dicer.db", {**vtune.around("2020"), **tables, "dd_callsite": sites})
    trace = load(path)
    assert trace.samples["stack"].to_list() == [None, None]
    assert issues(trace)["damaged_file"] == 1


def test_a_band_that_claims_all_rows_does_not_multiply_them(tmp_path: Path) -> None:
    tables = vtune.events("2020")
    claims = [vtune.band(20, 30, 1, 1 << 60), vtune.band(30, 40, 1, 1 << 60), vtune.band(40, 50, 9, 3)]
    path = vtune.database(tmp_path / "dicer.db", {**vtune.around("2020"), **tables, "cpu_data_agg_band": claims})
    assert load(path).samples.height == 2
