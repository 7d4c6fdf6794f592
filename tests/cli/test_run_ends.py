"""The last sentence of `opspan run`, and what any Python below it makes of opspan's sitecustomize."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emit.running import opspan, run
from opspan.app import launch, run_notes

TORCH = "import torch; torch.ones(2).add(1)"
OLDER = ("2.7", "3.6", "3.7", "3.8", "3.9")


def other_python(version: str) -> Path:
    """Returns a Python of this version that runs, of pyenv or on the PATH."""
    beside = Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python")
    pyenv = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")
    named = shutil.which(f"python{version}")
    for path in (*beside, *pyenv, *([Path(named)] if named else [])):
        asked = subprocess.run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True)
        if asked.stdout.decode().strip() == version:
            return path
    pytest.skip(f"no Python {version} was found")


@pytest.mark.parametrize("version", OLDER)
def test_a_python_that_opspan_is_not_for_says_nothing_and_runs(version: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.stdout.write('user site\\n')\n")
    python = other_python(version)
    code = "import sys; ours = [path for path in sys.path if 'launch_site' in path]\n"
    code += "sys.stdout.write('%d.%d %s\\n' % (sys.version_info[:2] + (ours,)))"
    command = ["run", "--emit", "nvtx", "-o", tmp_path / "capture", "--", python, "-c", code]

    done = opspan(*command, env={"PYTHONPATH": str(tmp_path)})

    assert done.stdout.splitlines()[-2:] == ["user site", f"{version} []"]
    why = f"1 Python process ran, and no import of torch was seen: Python {version} is older than opspan needs (3.10)"
    assert (done.stderr, done.returncode) == (f"Captured nothing: {why}\n", 0)
    assert not (tmp_path / "capture").exists()


def test_what_runs_in_any_python_is_written_so_that_all_can_read_it() -> None:
    text = (launch.SITE / "sitecustomize.py").read_bytes()
    tree = ast.parse(text, feature_version=(3, 4))
    newer = (ast.AnnAssign, ast.JoinedStr, ast.NamedExpr, ast.Nonlocal, ast.Starred, ast.AsyncFunctionDef)

    text.decode("ascii")
    for node in ast.walk(tree):
        assert not isinstance(node, newer), ast.unparse(node)
        assert not isinstance(node, ast.arg) or node.annotation is None
        assert not isinstance(node, ast.arguments) or not (node.kwonlyargs or node.posonlyargs)
        assert not isinstance(node, ast.Raise) or node.cause is None
        assert not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in ("print", "super")
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"os", "sys"}


def test_an_error_in_the_users_sitecustomize_is_told_as_without_us(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import no_such_module_of_the_user\n")
    python = [sys.executable, "-c", "print('runs')"]

    plain = run(python, {"PYTHONPATH": str(tmp_path)})
    done = run([sys.executable, "-c", "print('runs')"], {"PYTHONPATH": f"{launch.SITE}:{tmp_path}", "OPSPAN_IDLE": "1"})

    assert "no_such_module_of_the_user" in plain.stderr
    assert (done.stdout, done.stderr) == (plain.stdout, plain.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "wanted"),
    [(("--emit", "nvtx"), "Captured nothing: {} labelled"), (("--keep", "30s"), "Recorded nothing: {} recorded")],
)
def test_the_last_sentence_has_the_cause(how: tuple[str, str], wanted: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = ["run", *how, "-o", tmp_path / "capture", "--", sys.executable, "-c", TORCH]

    done = opspan(*command, env={"CXX": "no-such-compiler", "OPSPAN_CACHE_DIR": str(tmp_path / "cache")})

    last = done.stderr.splitlines()[-1]
    assert done.returncode == 0
    assert last.startswith(wanted.format("1 Python process imported torch and could not be") + ": CXX=no-such-compiler")
    assert not list((tmp_path / "capture").glob(".*"))


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["true"], "no Python process was reached: none was started, or with -S, -E or -I, which leave opspan out"),
        ([sys.executable, "-I", "-c", "1"], "no Python process was reached"),
        ([sys.executable, "-c", "1"], "1 Python process ran, and none imported torch"),
        (
            ["sh", "-c", f"{sys.executable} -c 1; {sys.executable} -c 1"],
            "2 Python processes ran, and none imported torch",
        ),
    ],
)
@pytest.mark.parametrize("how", [("--emit", "itt"), ("--keep", "30s")])
def test_it_says_what_was_seen(how: tuple[str, str], command: list[str], why: str, tmp_path: Path) -> None:
    done = opspan("run", *how, "-o", tmp_path / "capture", "--", *command)

    assert f" nothing: {why}" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "capture").exists()


@pytest.mark.slow
def test_torch_without_ops_is_said(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = ["--", sys.executable, "-c", "import torch"]

    done = opspan("run", "--emit", "nvtx", "-o", tmp_path / "capture", *command)

    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "Captured nothing: 1 Python process imported torch, and ran no ops while they were to be labelled"
    )


def test_a_python_without_opspan_is_no_python_without_torch() -> None:
    notes = run_notes.Notes(pythons={1: "3.12", 2: "3.11"}, without={1: "/other/python"})

    assert notes.why_nothing("labelled") == (
        "2 Python processes ran, and no import of torch was seen: opspan is not installed for /other/python"
    )


def test_notes_are_what_processes_say_whatever_else_is_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_notes.collect(tmp_path) as (file, notes):
        monkeypatch.setenv(run_notes.VARIABLE, str(file))
        file.write_bytes(b"\xff\xfe\tpython\t3.11\nnonsense\n\n7\tpython\n")
        run_notes.note("torch")
        run_notes.note("failed", "two\nlines\x1b[2J")
    run_notes.note("failed", "too late")

    assert notes.pythons == {7: ""}
    assert len(notes.torch) == 1
    assert list(notes.failed.values()) == ["two\\nlines\\x1b[2J"]
    assert not list(tmp_path.iterdir())
