"""What VTune's results say about the machine, waits of threads and uncore events, in results made by hand."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import opspan
from builders import vtune
from builders.vtune import MAIN
from opspan import load
from readers.test_vtune import issues, odd, of_run


@pytest.mark.parametrize(
    ("events", "name", "expected"),
    [
        ("skylake", "Unknown", "skylake"),
        ("Unknown", "Intel(R) microarchitecture code named Coffeelake", "Coffeelake"),
        ("", "Intel(R) Xeon(R) E5/E7 v3 processor", None),
        ("Unknown", "Unknown", None),
    ],
)
def test_the_microarchitecture_is_the_one_that_vtune_names(
    tmp_path: Path, events: str, name: str, expected: str | None
) -> None:
    folder = vtune.run(tmp_path / "r000hs", "2020")
    folder.joinpath("config", "context_values.cfg").write_text(vtune.MACHINE.format(events=events, name=name))
    assert opspan.load(folder).metadata.options.get("microarchitecture") == expected


def test_facts_about_the_machine_may_be_damaged_or_missing(tmp_path: Path) -> None:
    folder = vtune.run(tmp_path / "r000hs", "2020")
    file = folder.joinpath("config", "context_values.cfg")
    for text, count in (("<bag>", 1), ('<!DOCTYPE a [<!ENTITY b "c">]><bag>&b;</bag>', 1), ("<bag/>", None)):
        file.write_text(text)
        trace = opspan.load(folder)
        assert issues(trace).get("damaged_file") == count
        assert "microarchitecture" not in trace.metadata.options
    file.unlink()
    assert "damaged_file" not in issues(opspan.load(folder))


def test_uncore_events_are_counters(tmp_path: Path) -> None:
    """The references are those of _schema_refs; no file with such rows was seen, so this example is made."""
    tables: dict[str, vtune.Rows] = {
        **vtune.around("2020"),
        "dd_hw_context": vtune.names("cpu_0", "cpu_5"),
        "dd_uncore_event_unit": vtune.names("imc_0"),
        "dd_uncore_event_type": [{"name": "UNC_M_CAS_COUNT.RD", "unit": 1}, {"name": "UNC_M_CAS_COUNT.RD"}],
        "dd_sample_event_name": [{"value": "CPU_CLK_UNHALTED.THREAD"}],
        "dd_sample_event_type": [{"name": 1, "events_per_sample": 1000}],
        "dd_sample": [
            {"uncore_event_type": 1, "cpu": 2},
            {"uncore_event_type": 2},
            {"uncore_event_type": 3},
            {"event_type": 1, "uncore_event_type": -1},
            {"event_type": 1},
        ],
    }
    folder = vtune.result(tmp_path / "r000ma", tables)
    records = [
        (vtune.tsc(at), attr, 0, 0, 0, 0, 0, 0, 0, 1000 * attr, vtune.tsc(at - 5), 0.0)
        for at, attr in ((10, 1), (20, 1), (30, 2), (40, 3), (50, 4), (60, 5))
    ]
    vtune.container(folder / "sqlite-db" / "pmu_data", records)
    trace = load(folder)
    name = "UNC_M_CAS_COUNT.RD"
    assert of_run(trace.counters, "time_ns", "domain", "name", "value", "tid") == [
        (10, "VTune", f"{name} (imc_0, cpu_5)", 1000, None),
        (20, "VTune", f"{name} (imc_0, cpu_5)", 1000, None),
        (30, "VTune", name, 2000, None),
        (40, "VTune", "?", 3000, None),
    ]
    event = "CPU_CLK_UNHALTED.THREAD"
    assert of_run(trace.samples, "time_ns", "event", "weight") == [(50, event, 4000), (60, event, 5000)]
    assert issues(trace) == {"missing_rows": 1, "no_tasks": 1}


def test_tables_of_uncore_samples_are_counted(tmp_path: Path) -> None:
    path = vtune.database(tmp_path / "dicer.db", vtune.around("2020"))
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE uncore_data(start_tsc, end_tsc, count, attr, __bucket_idx)")
        connection.execute("INSERT INTO uncore_data VALUES (1, 2, 3, 4, 5)")
    assert any("uncore_data 1" in message for message in load(path).issues["message"])


def test_a_wait_of_no_known_kind_is_counted(tmp_path: Path) -> None:
    waits = [vtune.wait(10, 20, 9), vtune.wait(30, 40, 1), vtune.wait(50, 60, 2, 77)]
    kinds = [{"sync_object": 5, "thread_state": 8, "wait_cs": 7}, {"sync_object": None, "thread_state": 3}]
    trace = odd(tmp_path, dd_wait=kinds, wait_data=waits, dd_thread_state=[{"rowid": 3, "name": "%Spin"}])
    assert of_run(trace.calls, "start_ns", "tid", "name", "payload_json") == [
        (10, MAIN, "Wait", None),
        (30, MAIN, "Wait", None),
        (50, None, "Spin", None),
    ]
    assert issues(trace) == {"missing_rows": 5}
