"""Every column of shares says of what it is one, and its cells are those shares: of every table of recorded files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import opspan
from cli.test_diff import training
from opspan.questions import BY, Options, question
from opspan.text_columns import Layout
from opspan.trace import Trace
from opspan.views import diff
from opspan.views.answer import Answer, as_text
from opspan.views.fields import Field, shares_note
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
    "the peak of the device, or of the processor, in that type": "at most all",
    "the peak of the memory": "at most all",
    "the whole time of the process": "at most all",
    "the time of those that matched": "at most all",
}


def answers(trace: Trace) -> Iterator[Answer]:
    found = trace.analysed
    yield question("steps").answer_of(found, Options())
    for by in ("op", "module", "function", "device", "stream", "gap"):
        yield question("idle").answer_of(found, Options(by))
    for by in BY["path"]:
        yield question("path").answer_of(found, Options(by))
    yield question("path").answer_of(found, Options("op", factors={"computing": 0.5}))
    for by in ("op", "why", "call"):
        yield question("waits").answer_of(found, Options(by))
    for by in ("op", "stream"):
        yield question("launches").answer_of(found, Options(by))
    for by in ("kind", "group", "size", "rank", "op", "call"):
        yield question("comm").answer_of(found, Options(by))
    for by in ("op", "step", "run"):
        yield question("flops").answer_of(found, Options(by))
    figures = diff.figures_of(found)
    yield diff.answer(figures, figures)


def numbers(answer: Answer, field: Field) -> list[float | None]:
    cells = field.cells(answer.rows)
    return [float(cell.rstrip("%")) if cell else None for cell in cells]


def assert_shares(answer: Answer) -> None:
    if not answer.rows.height:
        return
    columns = {one.title: one.name for one in answer.fields}
    shares = [one for one in answer.fields if any(cell.endswith("%") for cell in one.cells(answer.rows))]
    for one in shares:
        assert one.total_title, f"{answer.name}: {one.title} does not say of what it is a share"
        assert one.title in titles_said(answer, one.total_title)
        cells = numbers(answer, one)
        if one.total_title in columns:
            part = "change_ns" if one.name == "change" else one.name
            wholes = answer.rows.select(part=part, of=columns[one.total_title]).iter_rows()
            expected = [None if part is None or not of else 100 * part / of for part, of in wholes]
            assert cells == pytest.approx(expected, abs=0.051), one.title
            continue
        known = [cell for cell in cells if cell is not None]
        assert all(0 <= cell <= 100 for cell in known), one.title
        if WORDS[one.total_title] == "adds up":
            assert sum(known) == pytest.approx(100, abs=0.051 * len(known)), one.title
    if (whole := WHOLES.get(answer.name)) and answer.rows.width:
        parts = [one for one in shares if one.total_title == whole and one.title not in (*BESIDE, "Of it")]
        for row, cells in enumerate(zip(*(numbers(answer, one) for one in parts), strict=True)):
            known = [cell for cell in cells if cell is not None]
            if known:
                assert sum(known) == pytest.approx(100, abs=0.051 * len(known)), (answer.name, row)


def titles_said(answer: Answer, whole: str) -> list[str]:
    """The columns that are shares of it, by the line that people read under the table."""
    (line,) = shares_note(answer.fields)
    assert line in as_text(answer, 1, Layout(width=None, whole_names=True))
    (said,) = (one for one in line.removeprefix("Shares: ").split("; ") if one.endswith(f" of {whole}"))
    return said.removesuffix(f" of {whole}").split(", ")


def test_a_table_without_shares_says_nothing_of_any() -> None:
    assert shares_note([Field("time_ns", "Time", "ns")]) == []


def test_columns_of_one_whole_are_said_together() -> None:
    def column(title: str, of: str) -> Field:
        return Field(title, title, "share", total_title=of)

    said = shares_note([column("Host", "Idle"), column("Others busy", "Time"), column("Launch", "Idle")])
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
    (change,) = (one for one in answer.fields if one.title == "Change %")
    assert numbers(answer, change) == [20, 0, 0, 0]


@pytest.mark.slow
@in_parts
def test_shares_of_every_real_file(part: int, traces_dir: Path) -> None:
    for trace in traces_of(traces_dir, part):
        for answer in answers(trace):
            assert_shares(answer)
