"""Every column of shares says of what it is one, and its cells are those shares: of every table of recorded files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import opspan
from cli.test_diff import training
from opspan.text_columns import Layout
from opspan.trace import Trace
from opspan.views import comm, diff, flops, idle, launches, path, steps, waits
from opspan.views.answer import Answer, Shown, as_text, shares_said
from readers.samples import samples
from real_files import in_parts, traces_of

SAMPLES = samples()
SMALL = (
    "kineto/compare_base.json.gz",
    "kineto/mtia_inference.json.gz",
    "kineto/norm_layers.json.gz",
    "nsys/train_fsdp_2gpu.sqlite",
    "nvprof/lm_emit_nvtx.sql",
    "rocpd/matmul_result_large.rpd",
)
# Columns whose shares are all parts of the column before "of": they add up to it.
WHOLES = {"steps": "Time", "idle": "Idle", "path": "Time", "waits": "Waited"}
BESIDE = ("Others busy", "Device busy")  # shares of the same that are no parts
# Totals of shares that no column shows.
WORDS = {
    "the whole path": "adds up",
    "the time of all rows": "adds up",
    "the peak of the device in that type": "at most all",
    "the peak of the memory": "at most all",
    "the whole time of the process": "at most all",
    "the time of those that matched": "at most all",
}


def answers(trace: Trace) -> Iterator[Answer]:
    found = trace.analysed
    yield steps.answer(found)
    for by in ("op", "module", "function", "device", "stream", "gap"):
        yield idle.answer(found, by)
    for by in path.BY:
        yield path.answer(found, by)
    yield path.answer(found, "op", {"computing": 0.5})
    for by in ("op", "why", "call"):
        yield waits.answer(found, by)
    for by in ("op", "stream"):
        yield launches.answer(found, by)
    for by in ("kind", "group", "size", "rank", "op", "call"):
        yield comm.answer(found, by)
    for by in ("op", "step", "run"):
        yield flops.answer(found, by)
    figures = diff.figures_of(found)
    yield diff.answer(figures, figures)


def numbers(answer: Answer, shown: Shown) -> list[float | None]:
    cells = shown.text(answer.rows, shown.column)
    return [float(cell.rstrip("%")) if cell else None for cell in cells]


def assert_shares(answer: Answer) -> None:
    if not answer.rows.height:
        return
    columns = {one.title: one.column for one in answer.shown}
    shares = [one for one in answer.shown if any(cell.endswith("%") for cell in one.text(answer.rows, one.column))]
    for one in shares:
        assert one.share_of, f"{answer.name}: {one.title} does not say of what it is a share"
        assert one.title in titles_said(answer, one.share_of)
        cells = numbers(answer, one)
        if one.share_of in columns:
            part = "change_ns" if one.column == "change" else one.column
            wholes = answer.rows.select(part=part, of=columns[one.share_of]).iter_rows()
            expected = [None if part is None or not of else 100 * part / of for part, of in wholes]
            assert cells == pytest.approx(expected, abs=0.051), one.title
            continue
        known = [cell for cell in cells if cell is not None]
        assert all(0 <= cell <= 100 for cell in known), one.title
        if WORDS[one.share_of] == "adds up":
            assert sum(known) == pytest.approx(100, abs=0.051 * len(known)), one.title
    if (whole := WHOLES.get(answer.name)) and answer.rows.width:
        parts = [one for one in shares if one.share_of == whole and one.title not in (*BESIDE, "Of it")]
        for row, cells in enumerate(zip(*(numbers(answer, one) for one in parts), strict=True)):
            known = [cell for cell in cells if cell is not None]
            if known:
                assert sum(known) == pytest.approx(100, abs=0.051 * len(known)), (answer.name, row)


def titles_said(answer: Answer, whole: str) -> list[str]:
    """The columns that are shares of it, by the line that people read under the table."""
    (line,) = shares_said(answer.shown)
    assert line in as_text(answer, 1, Layout(width=None, whole_names=True))
    (said,) = (one for one in line.removeprefix("Shares: ").split("; ") if one.endswith(f" of {whole}"))
    return said.removesuffix(f" of {whole}").split(", ")


def test_a_table_without_shares_says_nothing_of_any() -> None:
    assert shares_said([Shown("Time", "time_ns", lambda rows, column: [])]) == []


def test_columns_of_one_whole_are_said_together() -> None:
    def column(title: str, of: str) -> Shown:
        return Shown(title, title, lambda rows, name: [], share_of=of)

    said = shares_said([column("Host", "Idle"), column("Others busy", "Time"), column("Launch", "Idle")])
    assert said == ["Shares: Host, Launch of Idle; Others busy of Time"]


@pytest.mark.parametrize("name", SAMPLES)
def test_shares_of_each_source(name: str, tmp_path: Path) -> None:
    for answer in answers(opspan.load(SAMPLES[name](tmp_path))):
        assert_shares(answer)


@pytest.mark.parametrize("name", SMALL)
def test_shares_of_real_files(name: str, traces_dir: Path) -> None:
    if not (traces_dir / name).exists():
        pytest.skip(f"{name} is not among the recorded traces")
    for answer in answers(opspan.load(traces_dir / name)):
        assert_shares(answer)


def test_shares_of_two_runs(tmp_path: Path) -> None:
    before, after = (
        diff.figures_of(opspan.load(training(tmp_path / f"{op_us}.json", [op_us] * 3)).analysed) for op_us in (100, 120)
    )
    answer = diff.answer(before, after)
    assert_shares(answer)
    (change,) = (one for one in answer.shown if one.title == "Change %")
    assert numbers(answer, change) == [20, 0, 0, 0]


@pytest.mark.slow
@in_parts
def test_shares_of_every_real_file(part: int, traces_dir: Path) -> None:
    for trace in traces_of(traces_dir, part):
        for answer in answers(trace):
            assert_shares(answer)
