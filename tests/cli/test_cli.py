"""The command line as a whole: start-up, help, errors, and the verbs doctor and demo."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import opspan as package
from emit.running import environment, opspan, run

VERBS = ["demo", "doctor", "exec", "export", "run", "table"]


def test_help_names_every_verb() -> None:
    done = opspan("--help")

    assert done.returncode == 0
    assert all(f"\n  {verb} " in done.stdout for verb in VERBS)


@pytest.mark.parametrize("arguments", [("nosuch",), ("--nosuch",), ("run", "--nosuch"), ("doctor", "extra")])
def test_bad_use_is_one_line_that_names_the_help(arguments: tuple[str, ...]) -> None:
    done = opspan(*arguments)

    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "--help`" in done.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("tabel", "run.sqlite", "--by", "shape"), "opspan table run.sqlite --by shape"),
        (("Export", "a", "b.json"), "opspan export a b.json"),
        (("docter",), "opspan doctor"),
        (("run.sqlite", "--by", "shape"), "opspan table run.sqlite --by shape"),
        (("missing/run.db",), "opspan table missing/run.db"),
        (("r000hs",), "opspan table r000hs"),
        (("train.py", "--lr", "1"), "opspan run --emit nvtx -o capture -- python train.py --lr 1"),
    ],
)
def test_what_is_no_verb_leads_to_what_was_meant(typed: tuple[str, ...], meant: str, tmp_path: Path) -> None:
    (tmp_path / "r000hs").mkdir()
    (tmp_path / "train.py").write_text("")

    done = opspan(*typed, cwd=tmp_path)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"did you mean `{meant}`?" in done.stderr


def test_the_version_is_that_of_the_package() -> None:
    assert opspan("--version").stdout == f"opspan {package.__version__}\n"


@pytest.mark.parametrize("command", [["-c", "import opspan"], ["-m", "opspan", "--help"]])
def test_start_up_takes_less_than_150_ms_over_bare_python(command: list[str]) -> None:
    def fastest(*arguments: str) -> float:
        taken = []
        for _ in range(7):
            process = subprocess.Popen([sys.executable, *arguments], env=environment(), stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = status  # it has been waited for
            assert status == 0
            taken.append(used.ru_utime + used.ru_stime)  # not of the clock: the machine may be busy
        return min(taken)

    assert fastest(*command) - fastest("-c", "pass") < 0.150


def test_the_reference_is_up_to_date(repo: Path) -> None:
    done = run([sys.executable, repo / "tools" / "cli-docs", "--check"])

    assert done.returncode == 0, done.stderr


class TestDoctor:
    def test_all_is_well_here(self) -> None:
        pytest.importorskip("torch")
        done = opspan("doctor")

        assert done.returncode == 0, done.stdout
        states = {line[:19].strip(): line_state(line) for line in done.stdout.splitlines() if line[:1].strip()}
        assert states["torch"] == states["sinks library"] == states["collectors library"] == "ok"
        assert states["NVTX tool"] == states["ITT tool"] == "optional"

    def test_it_sees_the_tools_that_are_attached(self, tmp_path: Path) -> None:
        done = opspan("run", "-o", tmp_path / "capture", "--", sys.executable, "-m", "opspan", "doctor")

        assert [line.split()[:3] for line in done.stdout.splitlines() if " tool " in line] == [
            ["NVTX", "tool", "ok"],
            ["ITT", "tool", "ok"],
        ]

    def test_what_is_optional_looks_like_no_fault(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")
        bare = '#!/bin/sh\nexec {} "$@"\n'
        for name in ("g++", "ld", "as"):
            (tmp_path / name).write_text(bare.format(shutil.which(name)))
            (tmp_path / name).chmod(0o755)

        done = opspan("doctor", env={"PATH": str(tmp_path), "CXX": None})

        lines = done.stdout.splitlines()
        assert {line_state(line) for line in lines if line.startswith(("nsys", "vtune"))} == {"optional"}
        assert lines[-1].startswith("Nothing is wrong")
        assert not any(word in done.stdout for word in ("WRONG", "FAIL", "mend", " fix:"))
        assert done.returncode == 0

    def test_without_torch_there_is_nothing_wrong(self, tmp_path: Path) -> None:
        code = "import sys; sys.modules['torch'] = None\nfrom opspan.cli import main; main(['doctor'])"

        done = run([sys.executable, "-c", code], env={"PATH": str(tmp_path), "CXX": None}, cwd=tmp_path)

        assert done.returncode == 0, done.stdout
        states = {line[:19].strip(): line_state(line) for line in done.stdout.splitlines()}
        assert states["torch"] == states["compiler"] == states["observer"] == "optional"

    def test_a_tool_that_does_not_run_is_wrong(self, tmp_path: Path) -> None:
        (tmp_path / "vtune").write_text("no program")
        (tmp_path / "vtune").chmod(0o755)

        done = opspan("doctor", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})

        assert {line_state(line) for line in done.stdout.splitlines() if line.startswith("vtune")} == {"WRONG"}
        assert done.returncode == 1

    def test_what_is_missing_comes_with_the_command_that_fixes_it(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        env = {"PATH": str(tmp_path), "CXX": None, "OPSPAN_CACHE_DIR": str(tmp_path / "file" / "cache")}

        done = opspan("doctor", env=env)

        assert done.returncode == 1
        lines = done.stdout.splitlines()
        for check, todo in [("compiler", "apt-get install g++"), ("cache", "export OPSPAN_CACHE_DIR=")]:
            (at,) = (i for i, line in enumerate(lines) if line.startswith(check))
            assert line_state(lines[at]) == "WRONG"
            assert f"fix: {todo}" in lines[at + 1]

    def test_fix_without_a_compiler_is_an_error(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")
        env = {"PATH": str(tmp_path), "CXX": None, "OPSPAN_CACHE_DIR": str(tmp_path)}

        done = opspan("doctor", "--fix", env=env)

        assert done.returncode == 2
        assert done.stderr.startswith("error: no C++ compiler")


def line_state(line: str) -> str:
    return line[20:28].strip()


class TestDemo:
    def test_it_shows_ops_modules_sequence_numbers_and_sizes_and_leaves_them(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")

        done = opspan("demo", "-o", "demo", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        (module,) = (i for i, line in enumerate(lines) if line.split()[:1] == ["MLP.layers.0"] and i < 10)
        assert lines[module + 1].split()[:4] == ["aten::linear", "[op]", "seq", "0"]
        assert "sizes [[4, 8], [16, 8], [16]]" in lines[module + 1]
        assert indent(lines[module + 1]) == indent(lines[module]) + 2
        assert any("AddmmBackward0  [backward]" in line and "forward on thread" in line for line in lines)
        folder = tmp_path / "demo"
        assert lines[-1].startswith(f"Wrote {folder} (")
        assert lines[-1].endswith(str(folder / "ranges.txt"))
        assert (folder / "ranges.txt").read_text().splitlines() == lines[:-2]
        assert package.load(folder).ranges.height > 100

    def test_without_torch_it_says_what_to_install(self, tmp_path: Path) -> None:
        (tmp_path / "torch.py").write_text("raise ImportError('gone')")
        code = "import sys; sys.path.insert(0, '.'); from opspan.cli import main; main(['demo'])"

        done = run([sys.executable, "-c", code], cwd=tmp_path)

        assert done.returncode == 2
        assert done.stderr.startswith("error: the demo trains a model")
        assert "pip install torch" in done.stderr


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())
