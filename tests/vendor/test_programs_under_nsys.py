"""Every program, run under the real nsys and recorded by opspan at once: both must have seen the same ranges.

The recording goes straight from torch's callbacks to a file of ours; nsys gets the ranges through NVTX, keeps them its
own way, and is read here with plain SQL. What both agree on, name by name and level by level, was emitted right.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import nsys
import pytest
from recorded import recorded_ranges

from labels import grammar
from opspan.labels import Kind
from tiers import before_release

pytestmark = [pytest.mark.nsys, pytest.mark.skipif(not nsys.available(), reason="nsys is not installed")]

PROGRAMS = [
    ("mlp",),
    ("double_backward",),
    ("two_threads",),
    ("dataloader",),
    ("custom_function",),
    ("checkpointing",),
    ("hooks",),
    ("compiled", "aot_eager"),
    ("torchscript",),
    ("ddp",),
    ("raising",),
    ("names",),
    ("forking",),
    ("compiled", "inductor"),
]
FORMS = ["auto", "text", "torch"]
# One a mechanism: plain training, threads, forks, and what a compiler leaves of a program.
ALWAYS = [("two_threads",), ("forking",), ("checkpointing",), ("dataloader",), ("compiled", "aot_eager")]
OTHERS = [program for program in PROGRAMS if program not in ALWAYS]


@pytest.mark.slow
@pytest.mark.parametrize("program", [*ALWAYS, *before_release(OTHERS)], ids="-".join)
def test_nsys_and_the_recording_agree_on_every_program(program: tuple[str, ...], tmp_path: Path) -> None:
    agree(*both(tmp_path, program, "--shapes"))


@pytest.mark.slow
@pytest.mark.parametrize("shapes", [False, True], ids=["plain", "shapes"])
@pytest.mark.parametrize("program", before_release(["mlp", "two_threads"], kept=1))
def test_nsys_and_the_recording_agree_in_every_form(program: str, shapes: bool, tmp_path: Path) -> None:
    """One form after another, in one process."""
    more = ["--shapes"] if shapes else []
    turns = ["--in-turn", *(f"nvtx:{form}" for form in FORMS)]
    export = nsys.run_under_nsys(tmp_path, program, "--record", str(tmp_path), *more, *turns)
    for domain, forms in (("opspan", ("auto", "text")), (None, ("torch",))):
        with_sizes = domain is not None
        kept = [nsys.nested(recorded_ranges(tmp_path / f"nvtx-{form}", sizes=with_sizes)) for form in forms]
        expected = {thread: [what for one in kept for what in one.get(thread, [])] for one in kept for thread in one}
        agree(seen_by_nsys(export, domain, with_sizes), expected)


@pytest.mark.slow
def test_sessions_started_and_stopped_by_different_threads_lose_nothing_in_between(tmp_path: Path) -> None:
    seen, kept = both(tmp_path, ("cross_thread",))
    # The recording starts before emit_nvtx and stops after it: each thread's ranges are a stretch of the recorded ones.
    assert any(seen.values())
    for thread, ranges in seen.items():
        assert is_stretch(names_of(ranges), names_of(kept[thread]))


def agree(seen: dict, kept: dict) -> None:
    assert seen, "nsys saw nothing"
    for thread in kept:
        assert seen.get(thread) == kept[thread], (
            f"thread {thread}: {first_difference(seen.get(thread, []), kept[thread])}"
        )
    assert seen.keys() == kept.keys()


def both(folder: Path, program: tuple[str, ...], *more: str) -> tuple[dict, dict]:
    """Returns the ranges of nsys and of the recording: (process, thread) -> [(depth, (name, seq, sizes))] in order of
    start."""
    record = folder / "record"
    export = nsys.run_under_nsys(folder, *program, "--nvtx", "auto", "--record", str(record), *more)
    seen = seen_by_nsys(export, "opspan", with_sizes=True)
    # nsys follows a child that execs, not one that only forks; the recording has both.
    processes = {pid for pid, _ in seen}
    return seen, nsys.nested([row for row in recorded_ranges(record) if row[0][0] in processes])


def seen_by_nsys(export: Path, domain: str | None, with_sizes: bool) -> dict:
    """torch's form goes to the default domain, flattens lists of tensors and has its own judge: tests/sinks compares it
    with torch, byte for byte."""
    ranges = nsys.ranges(export, domain)
    return nsys.nested([((row.pid, row.tid), row.start, row.end, label_of(row, with_sizes)) for row in ranges])


def label_of(row: nsys.Range, with_sizes: bool) -> tuple[str, int | None, str | None]:
    label = grammar.parse(row.text or "")
    if row.category == Kind.USER and label.seq is not None:  # a text of the user's that only looks like a label
        return row.text or "", None, None
    return label.name, label.seq if label.seq is not None else row.payload, label.sizes if with_sizes else None


def names_of(ranges: list) -> list:
    return [what for _, what in ranges]


def is_stretch(part: list, whole: list) -> bool:
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1))


def first_difference(one: list, other: list, who: str = "nsys") -> str:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return f"at {index}: {who} has {a}, the recording {b}"
    missing = Counter(map(repr, one))
    missing.subtract(Counter(map(repr, other)))
    return f"{len(one)} ranges against {len(other)}: {[(k, v) for k, v in missing.items() if v][:5]}"
