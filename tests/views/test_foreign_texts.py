"""Every text in a trace is foreign text: whatever stands in the columns, each answer and each output has an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import polars as pl
import pytest

import opspan
from analysis.frames import ranges
from opspan.errors import OpspanError
from opspan.outputs import OUTPUTS
from opspan.questions import BY, Options, question
from opspan.tables import TABLES, Metadata
from opspan.text_columns import Layout
from opspan.trace import Trace
from opspan.views import answer
from readers.samples import samples
from tiers import RELEASE

DEEP = 3_000  # more than Python's json reads
FOREIGN = [
    *("", "[]", "{}", "null", "[null]", "-0", "NaN", "5e999", "[1", '"a"', "9" * 5_000, "١٢٣", "forward", "kernel"),
    *("[[1e400]]", '[["x"], [2]]', '[[2, 3], [3, "4"]]', "[[-1, -2]]", "[[2.5, 3], [3, true]]", "[[[[1]]]]"),
    *("[[2, 3], [3, 4]]", f"[[{10**20}, 3], [3, {10**20}]]", "[" * DEEP + "]" * DEEP, '["float", "float"]'),
    *("__int64", "c10::Unheard", '["nope", "long long"]', '["nope", 5]', '["' + "complex<" * DEEP + '"]', '["", ""]'),
    *("\x00\n\x1b[31m</script><!--", "A100 \u2028", "sm_9.0", "9" * 400 + ".0", "ProfilerStep#" + "9" * 25),
    *('{"a": 1}', '{"Group size": "x", "dtype": 5, "Collective name": [1]}', '{"grid": 5, "occupancy": []}'),
    *('{"x": ' + "9" * 5_000 + "}", '{"grid": [1,' + "[" * DEEP + "}"),
    *(
        "aten::mm",
        "aten::_scaled_mm",
        "record_param_comms",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "nn.Module: x_1",
    ),
]
ANSWERS = ("idle", "launches", "waits", "flops", "path", "memory", "comm", "steps", "findings", "functions")


def with_foreign_texts(trace: Trace, random: Random) -> Trace:
    """The trace with foreign texts in some rows of some columns of each table."""
    frames = {}
    for table, frame in trace.frames.items():
        columns = [
            pl.Series(name, texts_among(frame[name], random), dtype=pl.String).cast(dtype)
            for name, dtype in frame.schema.items()
            if dtype in (pl.String, pl.Categorical) and name in TABLES[table].schema and random.random() < 0.5
        ]
        if table != "issues" and frame.height and columns:
            frames[table] = frame.with_columns(columns)
    return trace.replace(**frames)


def texts_among(column: pl.Series, random: Random) -> list[str | None]:
    share, few = random.choice((0.1, 0.5, 1.0)), random.sample(FOREIGN, random.choice((1, 2, 5)))
    return [random.choice(few) if random.random() < share else text for text in column.cast(pl.String)]


def asked(trace: Trace, folder: Path) -> Iterator[Callable[[], object]]:
    for by in BY["table"]:
        yield lambda by=by: answer.as_json(trace.table(by=by), [trace.analysed]) + str(trace.table(by=by))
    yield lambda: [event.metadata for event in trace.events(with_flops=True)]
    yield lambda: trace.events().key_averages(group_by_input_shapes=True).table()
    for name in ANSWERS:
        for by in BY[name] or ("",):
            yield partial(_in_all_forms, trace, partial(question(name).answer_of, trace.analysed, Options(by)))
    yield lambda: question("summary").answer_of(trace.analysed, Options())
    yield trace._repr_html_
    yield lambda: trace.compare(trace)
    yield lambda: trace.save_baseline(folder / "baseline.json")
    for output in OUTPUTS:
        name = f"run{output.suffixes[0]}" if output.suffixes else "a-hostname-b.csv"
        yield partial(trace.export, folder / name, overwrite=True)


def _in_all_forms(trace: Trace, ask: Callable[[], answer.Answer]) -> None:
    found = ask()
    answer.as_text(found, 10, Layout(whole_names=True))
    answer.as_json(found, [trace.analysed])
    answer.as_csv(found, -1)


def check(name: str, seed: int, folder: Path) -> None:
    trace = with_foreign_texts(opspan.load(samples()[name](folder)), Random(f"{name} {seed}"))
    for ask in asked(trace, folder):
        try:
            ask()
        except OpspanError:  # a sentence that says why there is no answer
            continue


@pytest.mark.parametrize("text", FOREIGN, ids=range(len(FOREIGN)))
def test_the_cost_of_an_op_takes_any_text(text: str) -> None:
    known = {"sizes": "[[2, 3], [3, 4]]", "inputs": "[null, null]", "input_types": '["float", "float"]'}
    rows = [
        {"name": name, **known, column: text} for column in known for name in ("aten::mm", "aten::mul", "aten::cat")
    ]
    trace = Trace((Metadata("test", ()),), ranges=ranges(*rows))
    for by in ("op", "shape", "step", "run"):
        trace.flops(by)
    trace.events(with_flops=True)
    trace.findings()


@pytest.mark.slow
@pytest.mark.parametrize("name", samples())
def test_every_answer_and_output_takes_any_text(name: str, tmp_path: Path) -> None:
    check(name, 0, tmp_path)


@pytest.mark.parametrize("name", [pytest.param(name, marks=RELEASE) for name in samples()])
@pytest.mark.parametrize("seed", range(1, 6))
def test_many_times(name: str, seed: int, tmp_path: Path) -> None:
    check(name, seed, tmp_path)
