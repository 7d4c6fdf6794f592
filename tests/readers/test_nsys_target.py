"""Facts of an nsys export about itself: its tool, the begin of the recording, and the tool's messages."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from builders import nsys as build
from opspan.trace import Trace


def load(tmp_path: Path, **tables: build.Rows) -> Trace:
    return opspan.load(build.export(tmp_path / "x.sqlite", {"StringIds": build.strings("a"), **tables}))


def test_the_tool_is_nsys_unless_the_file_names_another(tmp_path: Path) -> None:
    assert load(tmp_path).metadata.tool == "NVIDIA Nsight Systems"
    (tmp_path / "x.sqlite").unlink()
    product = [{"name": "EXPORT_PRODUCT_NAME", "value": "Nsight Streamer"}]
    assert load(tmp_path, META_DATA_EXPORT=product).metadata.tool == "Nsight Streamer"


def test_the_options_of_the_capture_are_kept_without_environment_and_arguments(tmp_path: Path) -> None:
    facts = {"CUDA:TRACE": "1", "PROCESS_0:ENVIRONMENT": "TOKEN=secret", "PROCESS_0:ARGUMENT_0": "train.py"}
    trace = load(tmp_path, META_DATA_CAPTURE=[{"name": name, "value": value} for name, value in facts.items()])
    assert trace.metadata.options == {"CUDA:TRACE": "1", "schema_version": None}


@pytest.mark.parametrize(("shift", "expected"), [("0", 5000), ("-300", 5300), ("5000", 0)])
def test_shifted_and_normalised_exports_have_their_zero_moved(tmp_path: Path, shift: str, expected: int) -> None:
    trace = load(
        tmp_path,
        TARGET_INFO_SESSION_START_TIME=[{"utcEpochNs": 5000}],
        META_DATA_EXPORT=[{"name": "EXPORT_CONFIG_TIME_SHIFT", "value": shift}],
    )
    assert trace.origin_utc_ns == expected


def message(severity: int | None, text: str | None) -> dict[str, object]:
    return {"timestamp": 1, "source": 1, "severity": severity, "text": text}


def test_the_tools_own_messages_are_issues(tmp_path: Path) -> None:
    said = [message(3, "no GPU"), message(2, "slow"), message(2, "slow"), message(1, "started"), message(None, None)]
    trace = load(tmp_path, DIAGNOSTIC_EVENT=said)
    assert [(row["code"], row["count"], row["message"].split(": ")[-1]) for row in trace.issues.to_dicts()] == [
        ("tool_errors", 1, "no GPU"),
        ("tool_warnings", 2, "slow"),
        ("tool_messages", 2, "started"),
    ]


def test_of_many_messages_the_first_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    trace = load(tmp_path, DIAGNOSTIC_EVENT=[message(2, f"message {number}") for number in range(8)])
    assert trace.issues["message"].item().endswith(": message 0; message 1; message 2; and 5 more")
