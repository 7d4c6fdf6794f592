"""A reader's error names the file in the command that it advises: that is pasted, and means this file."""

from __future__ import annotations

import ast
import gzip
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import opspan
from builders import vtune
from opspan.app import ingest
from opspan.errors import ReadError
from opspan.printable import replace_path
from test_printable import OBEYED

BASH = shutil.which("bash") or "/bin/bash"
NAMES = {
    "space": "a b",
    "spaces": "a  b",
    "quote": "it's",
    "newline": "a\nb",
    "dollar": "$HOME;true",
    "escape": "a\x1bcb",
}
names = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)


def written(suffix: str, content: bytes) -> Callable[[Path], Path]:
    def write(place: Path) -> Path:
        path = place.with_name(place.name + suffix)
        path.write_bytes(content)
        return path

    return write


def stream(place: Path) -> Path:
    """With an nsys that cannot export it."""
    program = place.parent / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ncase $1 in --version) echo version 2022.4.2.1;; *) exit 1;; esac\n")
    program.chmod(0o755)
    return written(".qdstrm", b"U3w[END]NVIDIA Nsight Systems Stream 2022.4.2.1")(place)


def not_finalised(place: Path) -> Path:
    path = vtune.run(place, "2024")
    (path / "sqlite-db" / "dicer.db").unlink()
    return path


# Unreadable files: a function that writes one, and the commands that its error has, with FILE for the path.
FILES: dict[str, tuple[Callable[[Path], Path], list[str]]] = {
    "a script": (
        written("", b"#!/bin/sh\ntrue\n"),
        ["opspan run --emit nvtx -o capture -- sh FILE", "opspan table capture"],
    ),
    "a packed database": (written(".gz", gzip.compress(b"SQLite format 3\0" + bytes(100))), ["gunzip -k FILE"]),
    "samples of perf": (
        written("", b"PERFILE2h\0\0\0" + bytes(60)),
        ["perf record", "perf script --header --ns -F +pid -i FILE > perf.txt"],
    ),
    "a report of VTune": (
        written(".csv", b"Task Type,CPU Time\naten::mm,1.5\naten::add,0.5\n"),
        ["vtune -report", "opspan table FILE", "opspan table RESULT --metrics FILE"],
    ),
    "a result that is not finalised": (not_finalised, ["vtune -finalize -r FILE"]),
    "a report of nsys": (
        written("", b"NVIDIA Tegra Profiler Report 2024@1@1" + bytes(100)),
        ["nsys export --type sqlite --output FILE.sqlite FILE"],
    ),
    "a stream of nsys": (stream, ["QdstrmImporter -i FILE"]),
}


def words(command: str) -> list[str]:
    """Returns the words that a shell makes of a command. A redirection is a word, too, and nothing is written."""
    command = re.sub(r" > (\S+)$", r" '>' \1", command)
    done = subprocess.run([BASH, "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True)
    return os.fsdecode(done.stdout).split("\0")[:-1]


def refused(path: Path) -> str:
    """The message, which is one line whatever the file is called."""
    with pytest.raises(ReadError) as raised:
        opspan.load(path)
    said = str(raised.value)
    assert "\n" not in said
    assert not OBEYED.search(said)
    return said


def commands_of(said: str) -> list[str]:
    return re.findall("`([^`]*)`", said)


@names
@pytest.mark.parametrize("what", FILES)
def test_a_command_means_the_file(what: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, expected = FILES[what]
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("OPSPAN_CACHE_DIR", str(tmp_path / "cache"))
    path = write(tmp_path / name)

    found = [words(command) for command in commands_of(refused(path))]

    assert found == [[word.replace("FILE", str(path)) for word in command.split()] for command in expected]


@names
def test_a_call_of_python_means_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b'{"traceEvents": [{"ph": "X", "name": "x", "ts": 1, "dur": 1}]}')

    (code,) = commands_of(refused(path))

    call = ast.parse(code).body[0].value  # type: ignore[attr-defined]
    assert ast.unparse(call.func) == "opspan.load"
    assert ast.literal_eval(call.args[0]) == str(path)


@names
def test_what_is_in_an_archive_is_unpacked_first(name: str, tmp_path: Path) -> None:
    folder = not_finalised(tmp_path / "r000hs")
    path = tmp_path / f"{name}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.rglob("*"):
            archive.write(file, file.relative_to(tmp_path))

    said = refused(path)

    assert "opspan-unpacked-" not in said
    assert re.search("unpack it, then `vtune -finalize -r [^ ]+`$", said.partition(";")[2]), said


@names
def test_credentials_that_others_can_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("token")
    path.chmod(0o644)

    _, (said,) = ingest.credentials(path)

    assert words(commands_of(said)[0]) == ["chmod", "600", str(path)]
    assert said.isprintable()


@pytest.mark.parametrize("address", ["https://host/a.gz", "https://host/it's a.gz", "https://host/a.gz?..."])
def test_a_command_has_the_address_where_opspan_can_read_it(address: str) -> None:
    path = Path("/tmp/x 1/a.gz")
    text = f"{path} is odd: `opspan table '{path}'`, `gunzip -k '{path}'` or `opspan.load('{path}', source='kineto')`"

    said = replace_path(text, path, address, "fetch the file")

    ours, theirs, code = commands_of(said)
    assert said.startswith(f"{address} is odd: `opspan ")
    assert words(ours) == ["opspan", "table", address]
    assert f"fetch the file, then `{theirs}`" in said
    assert words(theirs) == ["gunzip", "-k", "a.gz"]
    assert ast.literal_eval(code.partition("(")[2].partition(", source")[0]) == address
