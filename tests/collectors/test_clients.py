"""Programs that know nothing of opspan: the PyPI packages, and torch's own emitter."""

from __future__ import annotations

import sys

import pytest

from builders.capture_units import ASYNC, MARK, NAME, NVTX, RANGE, STATE
from collectors.running import Collected

NVTX_PROGRAM = """
import nvtx, threading

@nvtx.annotate("decorated", color="red", domain="python", category="cat", payload=7)
def decorated():
    nvtx.mark("märk \\"quoted\\"\\nsecond line")

with nvtx.annotate("outer"):
    with nvtx.annotate("inner"):
        decorated()
    thread = threading.Thread(target=decorated)
    thread.start()
    thread.join()
range_id = nvtx.start_range("started")
nvtx.end_range(range_id)
with nvtx.annotate("x" * 100_000):
    pass
"""

ITT_PROGRAM = """
import ittapi
with ittapi.task("outer", "python"):
    with ittapi.task("inner", "python"):
        pass
overlapped = ittapi.task("overlapped", "python", overlapped=True)
overlapped.begin()
overlapped.end()
with ittapi.event("event"):
    pass
with ittapi.paused_region():
    pass
ittapi.thread_set_name("a thread's name")
"""

TORCH_PROGRAM = """
import torch
model = torch.nn.Linear(4, 2)
with torch.autograd.profiler.emit_itt():
    with torch.profiler.itt.range("own range"):
        model(torch.ones(3, 4)).sum().backward()
"""


def test_package_nvtx(collected: Collected) -> None:
    pytest.importorskip("nvtx")
    collected.run(sys.executable, "-c", NVTX_PROGRAM)
    capture = collected.capture()
    main = capture.pid
    (other,) = [tid for tid in capture.threads if tid != main]

    mine = [(depth, name) for depth, name in capture.depths(main) if name in ("outer", "inner", "started")]
    assert mine == [(0, "outer"), (1, "inner")]
    decorated = [unit for unit in capture.units(RANGE) if unit.name == "decorated"]
    assert [unit.tid for unit in decorated] == [main, other]
    assert {(capture.text(unit.domain), unit.color, unit.value) for unit in decorated} == {("python", 0xFF0000, 7)}
    assert {unit.name for unit in capture.units(MARK)} == {'märk "quoted"\nsecond line'}
    (started,) = capture.units(ASYNC)
    assert (started.name, capture.ended(started) is not None) == ("started", True)
    (longest,) = [unit for unit in capture.units(RANGE) if len(unit.name or "") == 100_000]
    assert longest.end_ns > 0
    assert all(unit.source == NVTX for unit in capture.units(RANGE))


def test_package_ittapi(collected: Collected) -> None:
    pytest.importorskip("ittapi")
    collected.run(sys.executable, "-c", ITT_PROGRAM)
    capture = collected.capture()

    assert [name for _, name in capture.depths(capture.pid)] == ["outer", "inner"]
    assert {capture.text(unit.domain) for unit in capture.units(RANGE)} == {"python"}
    assert [unit.name for unit in capture.units(ASYNC)] == ["overlapped", "event"]
    assert all(capture.ended(unit) for unit in capture.units(ASYNC, RANGE))
    assert [unit.flags for unit in capture.units(STATE)] == [0, 1]
    assert [unit.name for unit in capture.units(NAME)] == ["a thread's name"]


@pytest.mark.slow
def test_torch_emit_itt(collected: Collected) -> None:
    pytest.importorskip("torch")
    collected.run(sys.executable, "-c", TORCH_PROGRAM)
    capture = collected.capture()
    ranges = capture.units(RANGE)
    depths = capture.depths(capture.pid)  # a graph on the CPU runs backward in the calling thread

    assert list(capture.threads) == [capture.pid]
    assert all(unit.end_ns >= unit.start_ns for unit in ranges)
    assert {capture.text(unit.domain) for unit in ranges} == {"PyTorch"}
    assert depths[:2] == [(0, "own range"), (1, "aten::ones")]
    assert (2, "aten::addmm") in depths
    engine = depths.index((1, "autograd::engine::evaluate_function: AddmmBackward0"))
    assert depths[engine + 1] == (2, "AddmmBackward0")
