"""Every command that a verb advises has something to show."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import opspan
from builders import kineto, vtune
from opspan.cli import main
from opspan.questions import Options, question
from readers.samples import samples

SAMPLES = samples()


def without_kernels(folder: Path) -> Path:
    return vtune.one_task(folder, "load")


def advised(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    monkeypatch.chdir(path.parent)
    found = question("summary").answer_of(opspan.load(path).analysed, Options(files=(path,)))
    lines = [line[13:] for line in found.notes if line.startswith(("Next ", "See it "))]
    findings = opspan.load(path).findings()
    lines += [command.replace("FILE", str(path)) for command in findings["command"].to_list() if command]
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("write", [*SAMPLES.values(), without_kernels], ids=[*SAMPLES, "vtune without kernels"])
def test_what_is_advised_shows_something(
    write: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path)
    commands = [
        words for words in advised(path, monkeypatch) if words[0] == "opspan" and words[1] not in ("report", "run")
    ]

    for words in commands:
        done = CliRunner().invoke(main, words[1:], standalone_mode=True)

        assert done.exit_code == 0, (words, done.output)
        assert done.output.strip()
        assert "Nothing to show" not in done.output, words


def test_of_nothing_the_advice_is_what_to_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    kineto.write(path, kineto.document([{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}]))

    found = question("summary").answer_of(opspan.load(path, source="kineto").analysed, Options(files=(path,)))

    text = "\n".join(found.notes)
    assert "Next         record again: `torch.profiler" in text
    assert "See it" not in text
