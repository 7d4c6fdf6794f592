"""A file of torch.profiler that is read and exported again has what it had: the same keys, in events of the same
categories, with the same values. What is left out on purpose is named here."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import opspan

FILES = (
    "alexnet_sync_events",
    "b200_eager",
    "bert_h100_foreign_thread_functions",
    "compiled_triton",
    "cpu_only.pt.trace",
    "mi300_ddp_resnet18",
    "norm_layers",
    "ns_resolution.pt.trace",
    "rank0_sampled",
    "resnet50_memory_without_category.pt.trace",
    "resnet50_torch1.8.pt.trace",
    "triton_two_pids",
    "vllm_graph_execution",
)
# --- left out on purpose: events, by phase and category
OF_THE_PROFILER = {("X", "Trace"), ("i", None)}  # when it ran: spans "PyTorch Profiler", marks "Iteration Start: ..."
OF_WORK = {("X", "gpu_user_annotation")}  # the time of the work in an annotation
# Names of torch 1.8 to 1.10 become today's. (Those that new devices have, as mtia_ccp_events, become what the work is.)
RENAMED = {
    ("X", "Operator"): ("X", "cpu_op"),
    ("X", "Runtime"): ("X", "cuda_runtime"),
    ("X", "Kernel"): ("X", "kernel"),
    ("X", "Memcpy"): ("X", "gpu_memcpy"),
    ("X", "Memset"): ("X", "gpu_memset"),
    ("s", "async"): ("s", "ac2g"),
    ("f", "async"): ("f", "ac2g"),
}
# --- left out on purpose: keys of events
OF_NAMES = {"ts"}  # a name has no time
NO_NUMBER = {
    "args.Record function id",  # 0 in most files: none
    "args.Fwd thread id",  # torch's own number of a thread, where no arrow says which thread of the system that is
}
EMPTY = {"args.Concrete Inputs", "args.Input Dims", "args.Input type", "args.Input Strides"}  # lists of nothing
TODAYS = {"args.Input dims": "args.Input Dims"}
# Keys whose values are compared as text, because a tool would look them up.
COMPARED = {
    "External id",
    "Ev Idx",
    "Python module id",
    "Sequence number",
    "Input Dims",
    "Input type",
    "correlation",
    "cbid",
    "stream",
    "device",
    "est. achieved occupancy %",
    "blocks per SM",
    "shared memory",
    "queued",
    "Collective name",
    "Process Group Name",
    "Total Allocated",
    "Total Reserved",
    "Bytes",
}

Kind = tuple[str, str | None]


def document(path: Path) -> dict[str, Any]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as file:
        found = json.load(file, strict=False)
    return found if isinstance(found, dict) else {"traceEvents": found}


@pytest.fixture(scope="module", params=FILES)
def both(
    request: pytest.FixtureRequest, traces_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any]]:
    source = traces_dir / "kineto" / f"{request.param}.json.gz"
    if not source.exists():
        pytest.skip(f"{source.name} is not among the recorded traces")
    out = tmp_path_factory.mktemp("exported") / "out.json"
    opspan.load(source).export(out)
    return document(source), document(out)


def kind_of(event: dict[str, Any]) -> Kind:
    if event.get("name") == "[memory]":  # old traces gave these no category
        return "i", "cpu_instant_event"
    return event["ph"], event.get("cat")


def keys_by_kind(events: list[dict[str, Any]]) -> dict[Kind, set[str]]:
    found: dict[Kind, set[str]] = defaultdict(set)
    for event in events:
        found[kind_of(event)] |= {*event, *(f"args.{key}" for key in event.get("args") or {})}
    return found


@pytest.mark.slow
def test_the_keys_are_there(both: Any) -> None:
    theirs, ours = both
    assert not theirs.keys() - ours.keys()
    found = keys_by_kind(ours["traceEvents"])
    for kind, keys in keys_by_kind(theirs["traceEvents"]).items():
        if kind in OF_THE_PROFILER | OF_WORK:
            continue
        lost = {TODAYS.get(key, key) for key in keys} - found[RENAMED.get(kind, kind)]
        if kind[0] == "M":
            lost -= OF_NAMES
        if kind[1] in ("cpu_op", "Operator", "user_annotation"):
            lost -= NO_NUMBER | EMPTY
        if kind in RENAMED:
            lost -= {"cat", "args"}
        assert not lost, kind


@pytest.mark.slow
def test_the_values_are_the_same(both: Any) -> None:
    """Events are matched by their name and duration, and by how often they occur."""
    theirs, ours = both
    said, kept = values_of(theirs["traceEvents"]), values_of(ours["traceEvents"])
    lost = said - kept
    lost = Counter({key: count for key, count in lost.items() if key[-1] not in ("[]", "0")})
    assert not lost, lost.most_common(5)


def values_of(events: list[dict[str, Any]]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for event in events:
        kind = kind_of(event)
        if kind in OF_THE_PROFILER | OF_WORK or event["ph"] not in "Xi":
            continue
        duration = round(event.get("dur", 0) * 1000)
        for key, value in (event.get("args") or {}).items():
            if key in COMPARED:
                text = value if isinstance(value, str) else json.dumps(value)
                found[RENAMED.get(kind, kind), event["name"], duration, key, text] += 1
    return found


@pytest.mark.slow
def test_what_stands_beside_the_events_is_the_same(both: Any) -> None:
    theirs, ours = both
    for key in theirs.keys() - {"traceEvents", "baseTimeNanoseconds", "deviceProperties"}:
        assert ours[key] == theirs[key], key
    # A size may have been called otherwise; each is there.
    devices = {entry["id"]: entry for entry in ours.get("deviceProperties", [])}
    for entry in theirs.get("deviceProperties", []):
        same = {"multiProcessorCount": "numSms"}
        assert {same.get(key, key): value for key, value in entry.items() if value != ""} == devices[entry["id"]]
