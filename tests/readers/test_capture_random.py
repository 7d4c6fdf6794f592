"""The capture reader against its brute-force twin, on captures that hypothesis makes up."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from hypothesis import strategies as st

from builders import capture as build
from builders.capture import Capture
from opspan.readers import capture
from opspan.readers.capture import reading
from properties import property_of
from readers import brute

names = st.sampled_from(
    [
        None,
        "aten::mm",
        "aten::mm, seq = 3",
        "MmBackward0",
        "MmBackward0, fwd_tid = 101",
        "Square, seq = 4, op_id = 9",
        "SquareBackward, seq = 4, op_id = 9",
        "net, class = Net",
        "go, args = a, b",
        "x, sizes = [[2], [[3]]]",
        "ProfilerStep#3",
        "MmBackward0, fwd_tid = 0",
        "aten::t, op_id = 0, sizes = [[2]], input_op_ids = [(1,0)]",
        "",
        "ü\n, seq = 1",
    ]
)
domains = st.sampled_from([None, "opspan", "PyTorch", "NCCL"])
times = st.integers(0, 30)
small = st.integers(0, 6)
values = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
identities = st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 0x6F7073]), st.sampled_from([0, 0, 1]))
own_keys = st.sampled_from(
    ["kind", "seq", "op_id", "fwd_tid", "payload", "name", "sizes", "category", "class", "args", "other"]
)
sizes = st.sampled_from([None, "[[2, 4]]", "[[[2], [3]], []]"])


@st.composite
def captures(draw: st.DrawFn) -> Capture:
    made = Capture(pid=100, halves=draw(st.booleans()))
    threads = [made.thread(tid) for tid in draw(st.lists(st.integers(100, 102), min_size=1, max_size=4))]
    schemas = set()
    for _ in range(draw(st.integers(0, 25))):
        thread = draw(st.sampled_from(threads))
        what = draw(
            st.sampled_from(
                [
                    "range",
                    "range",
                    "async",
                    "torch",
                    "own",
                    "label",
                    "label",
                    "end",
                    "foreign",
                    "ids",
                    "ids",
                    "attribute",
                    "attribute",
                    "by_id",
                    "relation",
                    "category",
                ]
            )
        )
        owners = thread.owners()
        if what in ("range", "async", "torch"):
            start = draw(times)
            end = draw(st.none() | st.integers(1, 40))
            kind = (
                draw(st.sampled_from([build.ASYNC, build.FRAME]))
                if what == "async"
                else draw(st.sampled_from([1, 1, 1, 3]))
            )
            more = {
                "kind": kind,
                "source": build.TORCH if what == "torch" else draw(st.integers(0, 5)),
                "domain": None if what == "torch" else draw(domains),
                "value": draw(st.none() | st.integers(-1, 5)) if what == "torch" else draw(values),
                "identity": draw(small),
                "category": draw(st.integers(0, 15)),
                "forward": draw(st.none() | st.integers(0, 102)),
                "sizes": draw(sizes),
                "color": draw(st.none() | st.integers(0, 2**32 - 1)),
                "inputs": draw(st.none() | st.tuples(*[st.sampled_from([None, "[]", '["float"]'])] * 3)),
                "stack": draw(st.sampled_from([None, None, "a.py(1): f", "a.py(1): f\nb.py(2): g"])),
            }
            if kind == build.MARK:
                end = None
            thread.range(draw(names), start, end, **more)
        elif what == "label":
            source = draw(st.sampled_from([build.NVTX, build.ITT]))
            parents = st.just(0) | small | small.map(lambda number: number | 1 << 63)
            more = {
                "source": source,
                "domain": "opspan" if draw(st.booleans()) else draw(domains),
                "value": draw(st.none() | st.integers(0, 4)),
                "identity": draw(st.integers(1, 6)) if source == build.ITT else draw(small),
                "category": draw(small) if source == build.NVTX else 0,
                "forward": draw(st.none() | st.integers(0, 102)),
                "sizes": draw(sizes),
                "parent": draw(parents) if source == build.ITT else 0,
            }
            thread.range(draw(names), draw(times), draw(st.none() | st.integers(1, 40)), label=True, **more)
        elif what == "own":
            unit = thread.range(draw(names), draw(times), 40, domain="opspan", category=draw(small), schema=4096)
            text = made.text(draw(sizes))
            thread.blob(
                unit, build.own_payload(draw(st.integers(-1, 4)), draw(small), draw(small), draw(small), text), 4096
            )
            schemas.add(4096)
        elif what == "end":
            thread.end(draw(times), draw(small))
        elif what == "foreign":
            thread.foreign_end(draw(st.integers(0, 40)), draw(st.integers(100, 102)), draw(small))
        elif what == "ids" and owners:
            thread.ids(draw(st.sampled_from(owners)), draw(identities), draw(identities))
        elif what == "attribute" and owners:
            attribute(draw, thread, draw(st.sampled_from(owners)), by_id=False)
        elif what == "by_id":
            attribute(draw, thread, thread.ids(build.NOTHING, draw(identities)), by_id=True)
        elif what == "relation":
            thread.relation(draw(times), draw(identities), draw(st.integers(0, 7)), draw(identities))
        elif what == "category":
            # Named once: which of two names holds is nobody's business.
            number, domain = draw(st.integers(0, 15)), draw(domains)
            if (number, domain) not in schemas:
                schemas.add((number, domain))
                thread.name_category(number, f"category {number}", domain)
    if 4096 in schemas:
        threads[0].schema(4096, "opspan.op", build.OWN_ENTRIES, domain="opspan", size=32)
    return made


def attribute(draw: st.DrawFn, thread: build.Thread, owner: int, by_id: bool) -> None:
    what = draw(st.sampled_from(["int", "uint", "float", "text", "bytes"]))
    if what == "text":
        found = [draw(st.sampled_from(["a", 'say "hi"\n', "[[7]]", ""]))]
    elif what == "bytes":
        found = [draw(st.binary(min_size=1, max_size=40))]
    elif what == "float":
        found = draw(st.lists(st.floats(-4, 4), min_size=1, max_size=5))
    else:
        found = draw(st.lists(st.integers(0, 5) if what == "uint" else st.integers(-5, 5), min_size=1, max_size=5))
    thread.attribute(owner, draw(own_keys), *found, unsigned=what == "uint", by_id=by_id)


def as_they_are(ranges: pl.DataFrame, relations: pl.DataFrame, _issues: object) -> tuple[pl.DataFrame, pl.DataFrame]:
    return ranges, relations


@pytest.mark.slow
@property_of(captures(), few=60, many=300)
def test_reader_and_its_twin_agree(made: Capture) -> None:
    expected, relations = brute.decode(made.to_bytes())

    # A range that was recorded twice is one row (test_capture_twice.py), but here every unit is a row.
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(reading, "merge_pairs", as_they_are):
        trace = capture.read(made.write(Path(folder) / "100-1.opspan"))

    found = trace.ranges.drop("rank").rows(named=True)
    for row in [*found, *expected]:
        row["payload_json"] = row["payload_json"] and json.loads(row["payload_json"])
    assert found == expected
    assert trace.relations.drop("rank").rows(named=True) == relations
