"""Every program under opspan's own collectors and recorded at once: NVTX and ITT must each have carried all of it.

One after the other: what goes to both at once is told once. Unlike nsys, the collectors follow forks, and they keep
ids, metadata and relations: those are compared as well.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from nsys import PROGRAMS as FOLDER
from nsys import nested
from recorded import recorded_ranges
from test_programs_under_nsys import PROGRAMS, first_difference

import opspan
from emit.running import forked_file, under_collectors
from tiers import RELEASE, before_release

# Fields of a label that must arrive unchanged, whichever way they take.
FIELDS = ["pid", "tid", "name", "kind", "seq", "op_id", "forward_tid", "sizes"]


def run(folder: Path, program: tuple[str, ...], *arguments: str) -> tuple[Path, Path]:
    """The capture of the collectors, and the recording."""
    name, *own = program
    capture, record = folder / "capture", folder / "record"
    environment = under_collectors(capture)
    done = forked_file(FOLDER / f"{name}.py", *own, "--record", record, *arguments, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return capture, record


# nsys has all of them, too; here are those that it cannot follow, and some of each kind.
ALWAYS = ["two_threads", "dataloader", "names", "forking"]
OTHERS = [program for program in PROGRAMS if program[0] not in ALWAYS]


@pytest.fixture(
    scope="module",
    params=[*(program for program in PROGRAMS if program[0] in ALWAYS), *before_release(OTHERS)],
    ids="-".join,
)
def in_turn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A program that has emitted through one protocol, and then, in the same process, through the other."""
    return run(tmp_path_factory.mktemp("ran"), request.param, "--in-turn", "nvtx:auto", "itt:auto", "--shapes")


@pytest.mark.slow
@pytest.mark.parametrize("source", ["nvtx", "itt"])
def test_both_protocols_carry_every_range_of_every_program(in_turn: tuple[Path, Path], source: str) -> None:
    capture, record = in_turn
    kept = nested(recorded_ranges(record / f"{source}-auto"))
    assert kept
    seen = nested(own_ranges(capture, source))
    for thread in kept:
        assert seen.get(thread) == kept[thread], f"{thread}: " + first_difference(seen.get(thread, []), kept[thread])
    assert seen.keys() == kept.keys()


@pytest.mark.slow
@pytest.mark.parametrize("source", ["nvtx", "itt"])
def test_every_field_of_an_op_arrives(source: str, tmp_path: Path) -> None:
    capture, record = run(tmp_path, ("two_threads",), f"--{source}", "auto", "--shapes")
    kept = fields(opspan.load(record).ranges.filter(pl.col("source") == "torch"))
    seen = fields(opspan.load(capture).ranges.filter((pl.col("source") == source) & (pl.col("domain") == "opspan")))
    assert kept.filter(pl.col("forward_tid").is_not_null()).height > 0
    assert kept.filter(pl.col("sizes").is_not_null()).height > 0
    assert seen.equals(kept)


@pytest.mark.slow
def test_an_itt_task_names_its_parent_and_its_forward(tmp_path: Path) -> None:
    capture, _ = run(tmp_path, ("two_threads",), "--itt", "auto")
    trace = opspan.load(capture)
    tasks = trace.ranges.filter(pl.col("domain") == "opspan")
    inside = nested_parents(tasks)
    assert dict(tasks.select("id", "parent_id").iter_rows()) == inside

    told = trace.relations.filter(pl.col("relation") == "is_dependent_on").select("range_id", "other_id")
    forward = {}
    for row in tasks.sort("start_ns").iter_rows(named=True):
        if row["kind"] != "backward" and row["seq"] is not None:
            forward[row["tid"], row["seq"]] = row["id"]  # the last one started with this number
    expected = {
        row["id"]: forward[row["forward_tid"], row["seq"]]
        for row in tasks.iter_rows(named=True)
        if row["kind"] == "backward" and row["seq"] is not None
    }
    assert len(expected) >= 20
    assert dict(told.iter_rows()) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "form"),
    [
        ("nvtx", "payload"),
        ("itt", "torch"),
        pytest.param("nvtx", "text", marks=RELEASE),
        pytest.param("nvtx", "torch", marks=RELEASE),
        pytest.param("itt", "text", marks=RELEASE),
    ],
)
def test_the_other_forms_carry_names_levels_and_what_they_can(source: str, form: str, tmp_path: Path) -> None:
    capture, record = run(tmp_path, ("mlp",), f"--{source}", form, "--shapes")
    with_sizes = form != "torch"
    kept = nested(recorded_ranges(record, sizes=with_sizes))
    seen = nested(own_ranges(capture, source, sizes=with_sizes))
    if (source, form) == ("itt", "torch"):  # names alone
        kept, seen = (
            {thread: [(depth, what[0]) for depth, what in rows] for thread, rows in side.items()}
            for side in (kept, seen)
        )
    assert seen == kept


def own_ranges(capture: Path, source: str, *, sizes: bool = True) -> list:
    return recorded_ranges(capture, sizes=sizes, source=(source,))


def fields(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.col(name).cast(pl.String) for name in FIELDS).sort(FIELDS)


def nested_parents(frame: pl.DataFrame) -> dict[int, int | None]:
    """Each range's innermost enclosing range on its thread, by a stack."""
    parents: dict[int, int | None] = {}
    stacks: dict[int, list[tuple[int, int]]] = {}
    for row in frame.sort("start_ns").iter_rows(named=True):
        stack = stacks.setdefault(row["tid"], [])
        while stack and stack[-1][1] <= row["start_ns"]:
            stack.pop()
        parents[row["id"]] = stack[-1][0] if stack else None
        stack.append((row["id"], row["end_ns"]))
    return parents
