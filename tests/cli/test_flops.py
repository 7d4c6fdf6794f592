"""opspan flops: rates, shares of a device's peaks and the MFU, by hand and from the JSON of recorded files."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from math import prod
from pathlib import Path
from typing import Any

import pytest

import opspan as package
from builders import kineto
from cli.answers import rows
from emit.running import opspan
from opspan.analysis.parts import together
from opspan.analysis.peaks import parse_peaks
from opspan.errors import UsageError
from opspan.questions import BY, Options
from opspan.views import flops

MM = {"Input Dims": [[1000, 2000], [2000, 3000]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
ADD = {"Input Dims": [[1000, 3000], [1000, 3000], []], "Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"]}
FLOPS = 2 * 1000 * 2000 * 3000
BYTES = 2 * (1000 * 2000 + 2000 * 3000 + 1000 * 3000)
H100 = (989.4e12, 66.9e12, 3.35e12)  # bf16, fp32, bandwidth


def turn(number: int, at: int) -> list[Any]:
    """A step of 200 us: a product of 20 us, a sum of 10, and 5 of what nobody knows."""
    return [
        kineto.span("user_annotation", f"ProfilerStep#{number}", kineto.MAIN, at, 200),
        kineto.op("aten::matmul", kineto.MAIN, at + 5, 30),
        kineto.op("aten::mm", kineto.MAIN, at + 10, 20, **MM),
        kineto.call("cudaLaunchKernel", kineto.MAIN, at + 11, 4, at + 1),
        kineto.kernel("nvjet", at + 40, 20, at + 1),
        kineto.op("aten::add", kineto.MAIN, at + 50, 20, **ADD),
        kineto.call("cudaLaunchKernel", kineto.MAIN, at + 51, 4, at + 2),
        kineto.kernel("add", at + 60, 10, at + 2),
        kineto.op("mylib::op", kineto.MAIN, at + 80, 20),
        kineto.call("cudaLaunchKernel", kineto.MAIN, at + 81, 4, at + 3),
        kineto.kernel("own", at + 90, 5, at + 3),
    ]


def write(folder: Path, device: str, events: list[Any]) -> Path:
    properties = [{**kineto.HEAD["deviceProperties"][0], "name": device}]
    return kineto.write(folder / "run.json", kineto.document(events, deviceProperties=properties))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("flops"), "NVIDIA H100 80GB HBM3", [*turn(1, 1000), *turn(2, 1300)])


def test_rates_and_shares_by_op(run: Path) -> None:
    found = {row["op"]: row for row in rows("flops", run)}
    product, added, own = found["aten::mm"], found["aten::add"], found["mylib::op"]
    assert (product["count"], product["flops"], product["product_flops"], product["bytes"]) == (
        2,
        2 * FLOPS,
        2 * FLOPS,
        2 * BYTES,
    )
    assert product["time_ns"] == product["known_ns"] == 40_000
    assert product["flops_per_s"] == pytest.approx(FLOPS / 20e-6)
    assert product["bytes_per_s"] == pytest.approx(BYTES / 20e-6)
    assert product["intensity"] == pytest.approx(FLOPS / BYTES)
    assert product["compute_share"] == pytest.approx(FLOPS / 20e-6 / H100[0])
    assert product["memory_share"] == pytest.approx(BYTES / 20e-6 / H100[2])
    assert (product["bound"], product["type"], product["is_assumed"]) == ("compute", "bf16", False)

    assert (added["flops"], added["product_flops"], added["bytes"]) == (2 * 3_000_000, 0, 2 * 18_000_000)
    assert added["compute_share"] == pytest.approx(3_000_000 / 10e-6 / H100[1])  # not in tensor cores
    assert added["memory_share"] == pytest.approx(18_000_000 / 10e-6 / H100[2])
    assert added["bound"] == "memory"

    assert (own["count"], own["time_ns"], own["known_ns"]) == (2, 10_000, 0)
    assert all(own[name] is None for name in ("flops", "bytes", "flops_per_s", "bound", "type"))
    assert list(found) == ["aten::mm", "aten::add", "mylib::op"]


@pytest.mark.parametrize("by", BY["flops"])
def test_it_is_the_same_cost_and_time_whatever_it_is_by(run: Path, by: str) -> None:
    found = rows("flops", run, "--by", by)
    assert sum(row["flops"] or 0 for row in found) == 2 * (FLOPS + 3_000_000)
    assert sum(row["time_ns"] for row in found) == 70_000
    assert package.load(run).flops(by).to_dicts() == found


def test_mfu_is_of_products_and_of_the_time_of_steps_on_devices(run: Path) -> None:
    """From the first kernel of the first step to its end, and from the begin of the second to its last kernel."""
    lasted = (160_000, 95_000)
    steps = rows("flops", run, "--by", "step")
    assert [row["step"] for row in steps] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert [row["wall_ns"] for row in steps] == [*lasted]
    assert [row["mfu"] for row in steps] == [pytest.approx(FLOPS / (ns * 1e-9 * H100[0])) for ns in lasted]
    (whole,) = rows("flops", run, "--by", "run")
    use = 2 * FLOPS / (sum(lasted) * 1e-9 * H100[0])
    assert (whole["wall_ns"], whole["mfu"]) == (sum(lasted), pytest.approx(use))
    said = f"MFU: {100 * use:.1f}% of the peak of the devices, from the first work to the last of 2 steps"
    assert said in opspan("flops", run).stdout


def test_what_a_user_says_comes_first(run: Path) -> None:
    asked = ("--peak", "bf16=1e15", "--peak", "bandwidth=2e12")
    found = {row["op"]: row for row in rows("flops", run, *asked)}
    assert found["aten::mm"]["compute_share"] == pytest.approx(FLOPS / 20e-6 / 1e15)
    assert found["aten::mm"]["memory_share"] == pytest.approx(BYTES / 20e-6 / 2e12)
    assert found["aten::add"]["compute_share"] == pytest.approx(3_000_000 / 10e-6 / H100[1])
    same = package.load(run).flops(peak=["bf16=1e15", "bandwidth=2e12"])
    assert same["compute_share"].to_list() == [row["compute_share"] for row in found.values()]


def test_a_device_that_is_not_known_has_no_share_until_it_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "Some GPU", turn(1, 1000))
    assert all(row["compute_share"] is row["bound"] is None for row in rows("flops", path))
    assert "The peaks of a device are not known (Some GPU)" in opspan("flops", path).stdout
    assert rows("flops", path, "--by", "run")[0]["mfu"] is None
    named = rows("flops", path, "--peak", "H100 SXM")
    assert named[0]["compute_share"] == pytest.approx(FLOPS / 20e-6 / H100[0])
    # Without a bandwidth it is not known which bound is the nearer one.
    half = rows("flops", path, "--peak", "bf16=1e15")
    assert half[0]["compute_share"] == pytest.approx(FLOPS / 20e-6 / 1e15)
    assert half[0]["memory_share"] is half[0]["bound"] is None


def test_what_has_no_formula_is_said_with_its_share(run: Path) -> None:
    said = "Nothing is known of the cost of 14.3% of the device time: mylib::op 14.3% (no formula)"
    assert said in opspan("flops", run).stdout


def test_products_of_float32_in_tensor_cores_are_of_tf32(tmp_path: Path) -> None:
    sized = {"Input Dims": MM["Input Dims"], "Input type": ["float", "float"]}
    for name, type_, peak in (
        ("ampere_sgemm_128x64_nn", "fp32", 66.9e12),
        ("cutlass_tensorop_s1688gemm", "tf32", 494.7e12),
    ):
        events = [
            kineto.op("aten::mm", kineto.MAIN, 10, 20, **sized),
            kineto.call("cudaLaunchKernel", kineto.MAIN, 11, 4, 1),
            kineto.kernel(name, 40, 1000, 1),
        ]
        (row,) = rows("flops", write(tmp_path, "NVIDIA H100 80GB HBM3", events))
        assert row["type"] == type_
        assert row["compute_share"] == pytest.approx(FLOPS / 1000e-6 / peak)


def test_a_step_that_waits_for_little_is_near_neither_bound(tmp_path: Path) -> None:
    small = {"Input Dims": [[10, 10], [10, 10]], "Input type": ["float", "float"]}
    events = [
        kineto.op("aten::mm", kineto.MAIN, 10, 20, **small),
        kineto.call("cudaLaunchKernel", kineto.MAIN, 11, 4, 1),
        kineto.kernel("sgemm", 40, 10, 1),
    ]
    assert rows("flops", write(tmp_path, "NVIDIA A100-SXM4-40GB", events))[0]["bound"] == "neither"


def test_each_op_is_held_to_the_device_that_it_ran_on(tmp_path: Path) -> None:
    head = kineto.HEAD["deviceProperties"][0]
    devices = [{**head, "id": 0, "name": "NVIDIA H100 80GB HBM3"}, {**head, "id": 1, "name": "NVIDIA A100-SXM4-40GB"}]
    biased = {"Input Dims": [[3000], *MM["Input Dims"]], "Input type": ["c10::BFloat16", *MM["Input type"]]}
    events = []
    for device, (name, inputs) in enumerate((("aten::addmm", biased), ("aten::mm", MM))):
        at = 1000 * device
        work = kineto.kernel("nvjet", at + 40, 50, at + 1)
        events += [
            kineto.op(name, kineto.MAIN, at + 10, 20, **inputs),
            kineto.call("cudaLaunchKernel", kineto.MAIN, at + 11, 4, at + 1),
            {**work, "args": {**work["args"], "device": device}},
        ]
    path = kineto.write(tmp_path / "run.json", kineto.document(events, deviceProperties=devices))
    found = {row["op"]: row["compute_share"] for row in rows("flops", path)}
    assert found == {
        "aten::addmm": pytest.approx(FLOPS / 50e-6 / 989.4e12),
        "aten::mm": pytest.approx(FLOPS / 50e-6 / 312e12),
    }


def test_a_process_without_a_device_is_no_device(tmp_path: Path) -> None:
    """The MFU of a run is what its products would take on all devices of it, by the time of these."""
    other = {**kineto.op("aten::copy_", kineto.MAIN, 1000, 500), "pid": kineto.PID + 1}
    paths = [
        write(tmp_path / name, "NVIDIA H100 80GB HBM3", [*turn(1, 1000), *more])
        for name, more in (("alone", []), ("beside", [other]))
        if (tmp_path / name).mkdir() is None
    ]
    alone, beside = (rows("flops", path, "--by", "run")[0]["mfu"] for path in paths)
    assert alone == beside == pytest.approx(FLOPS / H100[0] / 55e-6)


def test_without_devices_it_is_the_time_of_the_host(tmp_path: Path) -> None:
    events = [
        kineto.op("aten::linear", kineto.MAIN, 0, 40),
        kineto.op("aten::mm", kineto.MAIN, 10, 20, **MM),
        kineto.op("aten::copy_", kineto.MAIN, 12, 5, **ADD),  # in one that has counted
    ]
    path = kineto.write(tmp_path / "run.json", kineto.document(events, deviceProperties=[]))
    linear, product = sorted(rows("flops", path), key=lambda row: row["op"])
    assert (linear["op"], linear["time_ns"], linear["flops"]) == ("aten::linear", 20_000, None)
    assert (product["time_ns"], product["flops"]) == (20_000, FLOPS)
    (whole,) = rows("flops", path, "--by", "run", "--peak", "bf16=1e15")
    assert whole["mfu"] == pytest.approx(FLOPS / (40e-6 * 1e15))


@pytest.mark.parametrize("by", BY["flops"])
def test_where_there_is_nothing_it_says_so(by: str, tmp_path: Path) -> None:
    path = kineto.write(tmp_path / "run.json", kineto.document([kineto.op("aten::mm", 1, 5, 9)]))
    done = opspan("flops", path, "--by", by)
    assert done.returncode == 0, done.stderr
    assert "No op of this trace has sizes" in done.stdout


@pytest.mark.parametrize("text", ["bf16", "fp12=3", "bf16=fast", "bandwidth=-1", "fp32=nan", "fp32=inf", "=3"])
def test_a_peak_that_is_none_is_refused(text: str, run: Path) -> None:
    with pytest.raises(UsageError):
        parse_peaks([text])
    done = opspan("flops", run, "--peak", text)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


# --- recorded files


def read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [event for event in found if event.get("ph") == "X"]


def launched(events: list[dict[str, Any]], of: list[dict[str, Any]]) -> dict[int, float]:
    """By the place in `of`, microseconds of the work whose calls the op has on its thread."""
    took: dict[int, float] = defaultdict(float)
    for event in events:
        if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            took[event["args"]["correlation"]] += event["dur"]
    calls = defaultdict(list)
    for event in events:
        if event["cat"] in ("cuda_runtime", "cuda_driver"):
            calls[event["tid"]].append((event["ts"], event["args"].get("correlation")))
    for those in calls.values():
        those.sort(key=lambda call: call[0])
    found = {}
    for place, op in enumerate(of):
        starts = [ts for ts, _ in calls[op["tid"]]]
        first, past = (bisect_right(starts, op["ts"] + edge) for edge in (-1e-4, op["dur"]))
        found[place] = sum(took[correlation] for _, correlation in calls[op["tid"]][first:past])
    return found


def product(dims: list[list[int]]) -> int:
    one, other = [size for size in dims if len(size) >= 2][-2:]
    return 2 * prod(one) * other[-1]


def convolution(args: dict[str, Any]) -> int:
    (batch, _, *inner), (out, *rest) = args["Input Dims"][:2]
    stride, padding, dilation = (json.loads(args["Concrete Inputs"][at]) for at in (3, 4, 5))
    sizes = zip(inner, rest[1:], stride, padding, dilation, strict=True)
    return 2 * batch * out * prod(rest) * prod((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("rank0_sampled", ["aten::mm", "aten::addmm", "aten::bmm"]),
        ("b200_eager", ["aten::mm", "aten::addmm"]),
        ("mi300_ddp_resnet18", ["aten::mm", "aten::addmm", "aten::conv2d"]),
    ],
)
def test_products_of_recorded_files_are_those_of_their_json(traces_dir: Path, file: str, names: list[str]) -> None:
    path = traces_dir / "kineto" / f"{file}.json.gz"
    events = read(path)
    found = {row["op"]: row for row in package.load(path).flops().to_dicts()}
    for name in names:
        ops = [event for event in events if event["name"] == name]
        counts = [convolution(op["args"]) if "conv" in name else product(op["args"]["Input Dims"]) for op in ops]
        assert found[name]["flops"] == found[name]["product_flops"] == sum(counts) > 0
        assert found[name]["count"] == len(ops)
        assert found[name]["time_ns"] == pytest.approx(1000 * sum(launched(events, ops).values()), rel=1e-3)


def test_bytes_of_norms_of_a_recorded_file_are_those_of_its_json(traces_dir: Path) -> None:
    path = traces_dir / "kineto" / "norm_layers.json.gz"
    found = {row["op"]: row for row in package.load(path).flops().to_dicts()}
    ops = [event["args"] for event in read(path) if event["name"] == "aten::native_layer_norm"]
    expected = 0
    for args in ops:
        given_, _, weight, bias, _ = args["Input Dims"]
        assert {name for name in args["Input type"] if name not in ("ScalarList", "Scalar", "")} == {"float"}
        statistics = 2 * prod(given_) // prod(json.loads(args["Concrete Inputs"][1]))
        weights = sum(prod(size) for size in (weight, bias) if size)
        expected += 4 * (2 * prod(given_) + weights + statistics)
    assert found["aten::native_layer_norm"]["bytes"] == expected > 0
    assert found["aten::native_layer_norm"]["flops"] == 7 * sum(prod(args["Input Dims"][0]) for args in ops)


def test_time_of_all_rows_is_the_time_of_the_devices(traces_dir: Path) -> None:
    for file in ("rank0_sampled", "b200_eager", "norm_layers", "mi300_ddp_resnet18"):
        path = traces_dir / "kineto" / f"{file}.json.gz"
        took = sum(event["dur"] for event in read(path) if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"))
        for by in BY["flops"][:4]:
            assert package.load(path).flops(by)["time_ns"].sum() == pytest.approx(1000 * took, rel=1e-3), (file, by)


def test_without_a_device_shares_are_of_the_time_of_ops(tmp_path: Path) -> None:
    events = [kineto.op("aten::mm", kineto.MAIN, 0, 30, **MM), kineto.op("mylib::op", kineto.MAIN, 40, 10)]
    said = opspan("flops", kineto.write(tmp_path / "host.json", kineto.document(events))).stdout
    assert "Nothing is known of the cost of 25.0% of the ops' time on the host: mylib::op 25.0% (no formula)" in said


def test_of_ranks_with_and_without_a_device_both_times_are_named(run: Path, tmp_path: Path) -> None:
    events = [kineto.op("mylib::op", kineto.MAIN, 1000, 70)]
    host = kineto.write(tmp_path / "host.json", kineto.document(events))
    each = [flops.parts(package.load(file).analysed, Options("op")) for file in (run, host)]
    notes = flops.answer({name: together([parts[name] for parts in each]) for name in each[0]}, Options("op")).notes
    # The device of one rank has 10 of 70 us, the host of the other 70 of 70.
    whole = "of the time of devices and, where a rank used none, of ops"
    assert f"Nothing is known of the cost of 57.1% {whole}: mylib::op 57.1% (no formula)" in notes
