"""opspan idle: the same idle time whatever it is by, in each form, and a sentence where there is none."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

import opspan as package
from builders import kineto
from cli.answers import rows
from emit.running import opspan
from opspan.analysis.busy import devices
from opspan.analysis.idle import WHY
from opspan.questions import BY

US = 1000


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel that was launched 30 us after the one before had ended, 20 of them in aten::slow."""
    events = [
        kineto.span("user_annotation", "turn", kineto.MAIN, 0, 100),
        kineto.op("aten::first", kineto.MAIN, 0, 8),
        kineto.call("cudaLaunchKernel", kineto.MAIN, 1, 4, 1),
        kineto.kernel("one", 10, 20, 1),
        kineto.op("aten::slow", kineto.MAIN, 35, 20),
        kineto.op("aten::second", kineto.MAIN, 58, 10),
        kineto.call("cudaLaunchKernel", kineto.MAIN, 60, 4, 2),
        kineto.kernel("two", 65, 35, 2),
    ]
    return kineto.write(tmp_path_factory.mktemp("idle") / "run.json", kineto.document(events))


def test_the_op_that_the_host_was_in_has_the_time(late: Path) -> None:
    found = {row["op"]: (row["time_ns"] / US, row["host_ns"] / US, row["launch_ns"] / US) for row in rows("idle", late)}
    # 1 us before the first launch, 9 of that launch; 5 + 3 us between the ops are the turn's
    assert found == {"aten::slow": (20, 20, 0), "aten::first": (10, 1, 9), "turn": (8, 8, 0), "aten::second": (7, 2, 5)}


def test_gaps_come_longest_first(late: Path) -> None:
    assert [(row["time_ns"] / US, row["why"], row["op"]) for row in rows("idle", late, "--by", "gap")] == [
        (35, "host", "aten::slow"),
        (10, "launch", "aten::first"),
    ]


@pytest.mark.parametrize("by", BY["idle"])
def test_it_is_the_same_time_whatever_it_is_by(late: Path, by: str) -> None:
    found = rows("idle", late, "--by", by)
    assert sum(row["time_ns"] for row in found) == 45 * US
    assert all(sum(row[f"{why}_ns"] for why in WHY) == row["time_ns"] for row in found)
    assert package.load(late).idle(by).to_dicts() == found
    done = opspan("idle", late, "--by", by, "--format", "csv")
    assert sum(int(row["time_ns"]) for row in csv.DictReader(io.StringIO(done.stdout))) == 45 * US


def test_as_text_it_says_what_kept_devices_waiting(late: Path) -> None:
    done = opspan("idle", late)
    assert "Devices were idle for 0.045 ms: 0.031 ms until the host launched, 0.014 ms in launches" in done.stdout


def test_where_nothing_ran_on_a_device_it_says_so(tmp_path: Path) -> None:
    path = kineto.write(tmp_path / "run.json", kineto.document([kineto.op("aten::mm", 1, 5, 9)]))
    done = opspan("idle", path)
    assert (done.returncode, rows("idle", path)) == (0, [])
    assert "Nothing ran on a device in this trace" in done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "nsys/train_fsdp_2gpu.sqlite",
        "nsys/infer_2gpu.sqlite",
        "nsys/graph_nodes.sqlite",
        "kineto/b200_eager.json.gz",
        "kineto/mi300_ddp_resnet18.json.gz",
        "rocpd/torch_autograd.rpd",
    ],
)
def test_real_files_have_all_of_their_idle_time_explained(name: str, traces_dir: Path) -> None:
    trace = package.load(traces_dir / name)
    idle = devices(trace.analysed.complete, trace.analysed.iterations.clear())["idle_ns"].sum()
    assert idle > 0
    for by in BY["idle"]:
        if by != "stream":
            assert trace.idle(by)["time_ns"].sum() == idle
    # All streams of a device are idle where it is, and each alone while only others run.
    streams = trace.idle("stream")
    assert (streams["time_ns"] - streams["elsewhere_ns"]).sum() == _idle_of_streams(trace)


def _idle_of_streams(trace: package.Trace) -> int:
    """The idle time of each stream's device, once for each stream."""
    of_devices = trace.idle("device").select("rank", "pid", "device_id", device_ns="time_ns")
    streams = trace.idle("stream").join(of_devices, on=["rank", "pid", "device_id"], how="left", nulls_equal=True)
    return int(streams["device_ns"].fill_null(0).sum())
