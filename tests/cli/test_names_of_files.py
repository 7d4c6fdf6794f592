"""Names of files are anybody's: no line of an output is theirs, and a command that is advised can be pasted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from builders import kineto
from emit.running import environment, opspan
from test_printable import OBEYED

NAMES = {
    "newline": "a\nNext: rm -rf.json",
    "escape": "a\x1bcb.json",
    "quotes": 'it\'s "a" `b`.json',
    "spaces": "a  b .json",
    "dash": "-x.json",
    "bytes": os.fsdecode(b"g\xff\x9bh.json"),
    "turned": "a\u202eb.json",
}
names = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)


def run(*arguments: str, cwd: Path) -> tuple[int, str]:
    done = opspan(*arguments, cwd=cwd)
    return done.returncode, done.stdout + done.stderr


def pasted(command: str, cwd: Path) -> int:
    ours = f'opspan() {{ "{sys.executable}" -m opspan "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", ours], cwd=cwd, env=environment(), capture_output=True, timeout=300).returncode


def check_lines(text: str, name: str) -> None:
    lines = text.splitlines()
    assert not any(OBEYED.search(line) for line in lines), text
    assert not any(line.startswith("Next: rm") for line in lines), text
    assert name not in text or name.isprintable(), text


@names
def test_what_summary_advises_can_be_pasted(name: str, tmp_path: Path) -> None:
    kineto.write(tmp_path / name)

    code, text = run("summary", f"./{name}", cwd=tmp_path)

    assert code == 0
    check_lines(text, name)
    advised = dict(re.findall(r"^(Next|See it) +(opspan .*)$", text, re.MULTILINE))
    assert set(advised) == {"Next", "See it"}
    assert pasted(advised["Next"], tmp_path) == 0, advised
    assert name not in text or "  " not in name


@pytest.mark.slow
@names
def test_what_is_meant_can_be_pasted(name: str, tmp_path: Path) -> None:
    """Each sentence has a command or a word, which means the file whatever it is called."""
    (tmp_path / "run").mkdir()
    kineto.write(tmp_path / "run" / name)
    (tmp_path / "run" / "readme").write_text("x")
    (tmp_path / name.replace(".json", ".py")).write_text("")

    near = run("table", f"./run/{name}x", cwd=tmp_path)
    script = run("--", name.replace(".json", ".py"), cwd=tmp_path)
    python = run("export", "run/readme", "out.json", cwd=tmp_path)

    for code, text in (near, script, python):
        assert code == 2
        assert text.count("\n") == 1
        check_lines(text, name)
    meant = re.search(r"did you mean (.*)\?$", near[1].strip())
    assert meant is not None, near
    assert pasted(f"opspan table {meant[1]}", tmp_path) == 0, meant


@names
def test_what_was_written_and_what_cannot_be_is_one_line(name: str, tmp_path: Path) -> None:
    kineto.write(tmp_path / "a.json")

    code, text = run("export", "a.json", f"./{name}", cwd=tmp_path)
    again, refused = run("export", "a.json", f"./{name}", cwd=tmp_path)

    assert (code, again) == (0, 2)
    assert (tmp_path / name).is_file()
    check_lines(text, name)
    check_lines(refused, name)
    assert text.splitlines()[-1].startswith("Wrote ")
    assert refused.count("\n") == 1


@pytest.mark.parametrize("form", ["json", "csv"])
def test_data_has_the_name_whole(form: str, tmp_path: Path) -> None:
    name = NAMES["newline"]
    kineto.write(tmp_path / name)

    code, text = run("findings", name, "--format", form, cwd=tmp_path)

    assert code == 0
    assert not any(line.startswith("Next: rm") for line in text.splitlines())
