"""Backward to forward in recordings of our own programs, against torch.profiler as a witness in the same process."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest
from nsys import PROGRAMS

import opspan
from emit.running import forked_file
from opspan.analysis import attribute
from tiers import before_release

torch = pytest.importorskip("torch")
if "profile_all_threads" not in (torch._C._profiler._ExperimentalConfig.__init__.__doc__ or ""):
    pytest.skip("this torch's profiler watches one thread alone", allow_module_level=True)

Place = tuple[int, int]  # the n-th range of the n-th thread, both in the order of their starts


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    ["double_backward", *before_release(["two_threads", "checkpointing", "mlp", "custom_function", "hooks"])],
)
def test_each_backward_op_is_linked_to_the_op_that_torch_names(program: str, tmp_path: Path) -> None:
    folder = tmp_path / "record"
    done = forked_file(PROGRAMS / "witness.py", program, folder)
    assert done.returncode == 0, done.stderr
    names, expected = links_of(json.loads(done.stdout.splitlines()[-1]))

    ranges = attribute(opspan.load(folder)).ranges.with_row_index("row").sort("start_ns", "row")
    starts = ranges.group_by("tid").agg(pl.col("start_ns").min()).sort("start_ns")["tid"].to_list()
    places: dict[int, Place] = {}
    found_names = defaultdict(list)
    for row, tid, name in ranges.select("row", "tid", pl.col("name").cast(pl.String)).rows():
        thread = starts.index(tid)
        places[row] = thread, len(found_names[thread])
        found_names[thread].append(name)
    backward = ranges.filter(pl.col("kind") == "backward").select("row", "forward").rows()
    found = {places[row]: None if forward is None else places[forward] for row, forward in backward}

    assert dict(found_names) == names
    assert found == expected
    assert sum(forward is not None for forward in found.values()) > 0


def links_of(events: list) -> tuple[dict[int, list[str]], dict[Place, Place | None]]:
    """Names by thread; and for each backward event the last op that its forward thread began with its number before."""
    events.sort(key=lambda event: event[5])
    threads = list(dict.fromkeys(event[1] for event in events))
    names: dict[int, list[str]] = defaultdict(list)
    began: dict[tuple[int, int], Place] = {}
    links: dict[Place, Place | None] = {}
    for name, thread, sequence, forward_thread, is_backward, _ in events:
        place = threads.index(thread), len(names[threads.index(thread)])
        names[place[0]].append(name)
        if is_backward:
            links[place] = began.get((forward_thread, sequence)) if sequence >= 0 else None
        elif sequence >= 0 and not name.startswith("autograd::engine::"):
            began[thread, sequence] = place
    return dict(names), links
