"""Reports that were cut, mixed up or made to harm: a frame or an error of ours comes out, soon, and nothing else."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import pytest

from opspan.errors import OpspanError
from opspan.formats.budget import REPORT
from opspan.readers.vtune.reports import is_report, read
from tiers import before_release

# fmt: off
SOURCES = (
    "Elapsed Time: 9.1s\n    Paused Time: 0s\n | low\n\n    Top\n    Function  CPU Time\n    --------  --------\n"
    "    main          1s\nCollection and Platform Info\n----------------------------\n"
    "Parameter  r0\n---------  --\nA  b\n    Operating System: NAME=1\nVERSION=2\n",
    'war: x\nFunction Stack,CPU Time:Total,Module\nTotal,1.5,\n  main,"1,5",\'a.so\n\nModule,CPU Time\na,b,c\n',
    "Collection and Platform Info\nParameter;r0\nOperating System;4 NAME=x\nVERSION=1\n\nSummary\nElapsed Time:;4.1\n",
    "Source Line  Source    CPU Time\n-----------  --------  --------\n"
    "1            int main     0.1s\n\n2                             \n",
)
# fmt: on
PIECES = ("\n", "-", "--  --", " | ", ":", ",", '"', "  ", "\t", "\0", "\ufffd", "\x85", "%", "CPU Time", "1e999", "µ")


def damaged(seed: int) -> str:
    chance = random.Random(seed)
    text = chance.choice(SOURCES)
    for _ in range(chance.randint(1, 12)):
        at, end = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
        what = chance.random()
        if what < 0.4:
            text = text[:at] + chance.choice(PIECES) * chance.choice((1, 1, 3, 50)) + text[at:]
        elif what < 0.7:
            text = text[:at] + text[min(end, at + chance.randint(1, 40)) :]
        elif what < 0.9:
            text = text[:end] + text[at:]  # a piece twice
        else:
            lines = text.split("\n")
            chance.shuffle(lines)
            text = "\n".join(lines)
    return text


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(at, at + 250) for at in range(0, 1000, 250)], ids=str)
def test_damaged_reports(seeds: range, tmp_path: Path) -> None:
    file = tmp_path / "report"
    found = 0
    for seed in seeds:
        file.write_text(damaged(seed), encoding="utf-8")
        try:
            read(file)
            found += 1
        except OpspanError as error:
            assert "\n" not in str(error), seed  # noqa: PT017
    assert found > len(seeds) // 4


# fmt: off
HOSTILE = {
    "rules": "--  --\n" * 100_000,
    "titles": "Function  CPU Time\n--------  --------\n" * 30_000,
    "titles alone": "Top Things\n" * 100_000,
    "deeper and deeper": "".join(" " * depth + f"a{depth}: 1\n" for depth in range(1_500)),
    "figures": "Elapsed Time: 1s\n    CPU Time: 1s\n" * 50_000,
    "advice": "Paused Time: 0s\n" + " | low\n" * 200_000,
    "empty lines": "Paused Time: 0s\nTop\n" + "\n" * 500_000 + "    a: b\n",
    "never a row": "Top\nFunction  CPU Time\n--------  --------\n" + "Paused Time x\n" * 100_000,
    "between": "Paused Time: 0s\n" + ("Module  CPU Time\n------  --------\nf             1s\n" + "x=1\n" * 99) * 500,
    "one line": "Function,CPU Time" + "," * 1_000_000,
    "many cells": "Function,CPU Time\n" + "f," * 1_000_000 + "\n",
    "many columns": "Function  CPU Time" + "  a" * 5_000 + "\n--------  --------" + "  --" * 5_000 + "\n",
    "spaces": "Function" + " " * 2_000_000 + "CPU Time\n",
    "dashes": "x\n" + "- " * 500_000 + "\n",
    "colons": "a: " * 500_000 + "\n",
    "an open quote": 'Function,CPU Time\n"' + "f,1\n" * 100_000,
    "the system": "Paused Time: 0s\nOperating System: A=1\n" + "B=2\n" * 500_000,
    "the system in csv": "Parameter,r0\nOperating System,A=1\n" + "B=2\n" * 125_000,
}
# fmt: on


LONG = ["between", "figures", "the system", "the system in csv", "titles"]  # some seconds each


@pytest.mark.slow
@pytest.mark.parametrize("what", [*(what for what in HOSTILE if what not in LONG), *before_release(LONG)])
def test_what_is_made_to_take_long_does_not(what: str, tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_text(HOSTILE[what], encoding="utf-8")
    began = time.process_time()
    is_report(file)
    with contextlib.suppress(OpspanError):
        read(file)
    assert time.process_time() - began < 20


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "report"
    with file.open("wb") as opened:
        opened.write(b"Function,CPU Time\n")
        opened.truncate(REPORT.allows() + 1)
    with pytest.raises(OpspanError, match="more bytes are in a report than are allowed"):
        read(file)
