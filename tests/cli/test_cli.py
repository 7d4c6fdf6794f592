"""The command line as a whole: start-up, help, errors, and the verbs doctor and demo."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import opspan as package
from builders import kineto
from emit.running import MAIN, cpu_seconds, forked, opspan, run
from opspan.cli import VERBS


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("help",), ()])
def test_help_names_every_verb_what_one_sees_first_before_the_rest(arguments: tuple[str, ...]) -> None:
    done = run([sys.executable, "-m", "opspan", *arguments])

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    at = [lines.index(f"{title}:") for title in ("See first", "Measure", "Show", "Capture", "Other")]
    assert at == sorted(at)
    verbs = [line.split()[0] for line in lines[at[0] :] if line.startswith("  ") and line[2] != " "]
    assert tuple(verbs) == VERBS
    commands = {path.stem for path in Path(package.__file__).with_name("cli").glob("*.py") if is_verb(path)}
    assert set(VERBS) == commands


def is_verb(path: Path) -> bool:
    return re.search(r"^(command = |def command)", path.read_text(), re.MULTILINE) is not None


def test_help_of_a_verb_is_what_the_verb_says() -> None:
    done = opspan("help", "idle")

    assert (done.returncode, done.stdout) == (0, opspan("idle", "--help").stdout)
    assert done.stdout.startswith("Usage: opspan idle ")
    assert "did you mean `opspan idle`?" in opspan("help", "idel").stderr


class TestAFileAlone:
    @pytest.mark.parametrize("name", ["a.json", "tabel", "./table"])
    def test_shows_its_summary_which_names_the_report(self, name: str, tmp_path: Path) -> None:
        kineto.write(tmp_path / name)

        done = opspan(name, cwd=tmp_path)

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == opspan("summary", name, cwd=tmp_path).stdout
        assert f"opspan report {Path(name)}" in done.stdout.splitlines()[-1]

    def test_that_is_called_like_a_verb_is_not_meant(self, tmp_path: Path) -> None:
        kineto.write(tmp_path / "table")

        done = opspan("table", cwd=tmp_path)

        assert (done.returncode, "Missing argument" in done.stderr) == (2, True)

    def test_may_be_several_and_have_the_options_of_summary(self, tmp_path: Path) -> None:
        for name in ("a.json", "b.json"):
            kineto.write(tmp_path / name)

        done = opspan("a.json", "b.json", "--format=json", "--limit", "-1", cwd=tmp_path)

        assert (done.returncode, json.loads(done.stdout)["rows"][0]["ranks"]) == (0, 2)

    @pytest.mark.parametrize("name", ["missing/run.db", "run.sqlite"])
    def test_that_is_not_there_is_said_to_be_missing(self, name: str, tmp_path: Path) -> None:
        done = opspan(name, cwd=tmp_path)

        assert done.returncode == 2
        assert done.stderr == f"error: cannot read {name}: No such file or directory\n"


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
        (("tabl",), "opspan table"),
        (("train.py", "--lr", "1"), "opspan run --emit nvtx -o capture -- python train.py --lr 1"),
    ],
)
def test_what_is_no_verb_leads_to_what_was_meant(typed: tuple[str, ...], meant: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")

    done = opspan(*typed, cwd=tmp_path)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"did you mean `{meant}`?" in done.stderr


def test_the_version_is_that_of_the_package() -> None:
    assert opspan("--version").stdout == f"opspan {package.__version__}\n"


@pytest.mark.parametrize(("times", "command"), [(1.5, ["-c", "import opspan"]), (4, ["-m", "opspan", "--help"])])
def test_start_up_takes_little_more_than_importing_click(times: float, command: list[str]) -> None:
    # In turn, as a machine that is slow is so for all of them.
    taken = [[cpu_seconds("-c", "pass"), cpu_seconds("-c", "import click"), cpu_seconds(*command)] for _ in range(7)]
    nothing, click, ours = map(min, zip(*taken, strict=True))
    assert ours - nothing < times * (click - nothing), taken


def doctor(*options: str, env: dict[str, str | None]) -> subprocess.CompletedProcess[str]:
    """In a process that has imported torch, which it imports as well."""
    return forked(MAIN, "doctor", *options, env=env)


class TestDoctor:
    @pytest.mark.slow
    def test_all_is_well_here(self) -> None:
        pytest.importorskip("torch")
        done = opspan("doctor")

        assert done.returncode == 0, done.stdout
        states = {line[:19].strip(): line_state(line) for line in done.stdout.splitlines() if line[:1].strip()}
        assert states["torch"] == states["sinks library"] == states["collectors library"] == "ok"
        assert states["NVTX tool"] == states["ITT tool"] == "optional"

    @pytest.mark.slow
    def test_it_sees_the_tools_that_are_attached(self, tmp_path: Path) -> None:
        done = opspan("run", "-o", tmp_path / "capture", "--", sys.executable, "-m", "opspan", "doctor")

        assert [line.split()[:3] for line in done.stdout.splitlines() if " tool " in line] == [
            ["NVTX", "tool", "ok"],
            ["ITT", "tool", "ok"],
        ]

    @pytest.mark.slow
    def test_what_is_optional_looks_like_no_fault(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")
        bare = '#!/bin/sh\nexec {} "$@"\n'
        for name in ("g++", "ld", "as"):
            (tmp_path / name).write_text(bare.format(shutil.which(name)))
            (tmp_path / name).chmod(0o755)

        done = doctor(env={"PATH": str(tmp_path), "CXX": None})

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

    @pytest.mark.slow
    def test_a_tool_that_does_not_run_is_wrong(self, tmp_path: Path) -> None:
        (tmp_path / "vtune").write_text("no program")
        (tmp_path / "vtune").chmod(0o755)

        done = doctor(env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})

        assert {line_state(line) for line in done.stdout.splitlines() if line.startswith("vtune")} == {"WRONG"}
        assert done.returncode == 2

    @pytest.mark.slow
    def test_what_is_missing_comes_with_the_command_that_fixes_it(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        env = {"PATH": str(tmp_path), "CXX": None, "OPSPAN_CACHE_DIR": str(tmp_path / "file" / "cache")}

        done = doctor(env=env)

        assert done.returncode == 2
        lines = done.stdout.splitlines()
        for check, todo in [("compiler", "apt-get install g++"), ("cache", "export OPSPAN_CACHE_DIR=")]:
            (at,) = (i for i, line in enumerate(lines) if line.startswith(check))
            assert line_state(lines[at]) == "WRONG"
            assert f"fix: {todo}" in lines[at + 1]

    @pytest.mark.slow
    def test_fix_without_a_compiler_is_an_error(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")
        env = {"PATH": str(tmp_path), "CXX": None, "OPSPAN_CACHE_DIR": str(tmp_path)}

        done = doctor("--fix", env=env)

        assert done.returncode == 2
        assert done.stderr.startswith("error: no C++ compiler")


def line_state(line: str) -> str:
    return line[20:28].strip()


class TestDemo:
    @pytest.fixture(scope="class")
    @staticmethod
    def demo(nothing_to_build: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
        """Without perf; test_demo_perf.py has it."""
        pytest.importorskip("torch")
        folder = tmp_path_factory.mktemp("demo")
        done = opspan("demo", "-o", "demo", cwd=folder, env={"COLUMNS": "90", "PATH": str(folder)})
        assert done.returncode == 0, done.stderr
        return folder / "demo", done.stdout.splitlines()

    @pytest.mark.slow
    def test_it_prints_a_table_backward_beside_forward_and_what_was_seen(self, demo: tuple[Path, list[str]]) -> None:
        folder, lines = demo
        rules = [number for number, line in enumerate(lines) if line.startswith("---")]

        assert len(rules) == 6
        assert len(lines) < 50
        assert max(map(len, lines[: rules[-1]])) <= 90
        assert lines[rules[0] + 1].split()[:4] == ["Name", "Self", "CPU", "%"]
        pairs = [line.split() for line in lines[rules[4] + 1 : rules[5]]]
        assert ["aten::addmm", "AddmmBackward0"] in [
            [one[0], *(part for part in one if "Backward" in part)] for one in pairs
        ]
        ranges = package.load(folder).ranges
        counts = dict(ranges["kind"].cast(pl.String).value_counts().iter_rows())
        (seen,) = (line for line in lines if line.startswith("Seen: "))
        assert [int(number) for number in re.findall(r"\d+", seen)][:4] == [
            counts["op"], ranges.filter(kind="op")["sizes"].count(), counts["module"], counts["backward"]
        ]  # fmt: skip
        assert seen.endswith("14 of 14 linked to their forward op.")

    @pytest.mark.slow
    def test_the_commands_that_it_names_next_work(self, demo: tuple[Path, list[str]]) -> None:
        folder, lines = demo
        following = lines[lines.index("Next:") + 1 :]
        commands = [line.strip().split("  ")[0] for line in following if line.startswith("  opspan ")]

        assert len(commands) == 4
        for command in commands[:3]:  # the fourth is of the user's own program
            done = opspan(*command.split()[1:], cwd=folder.parent)
            assert done.returncode == 0, (command, done.stderr)

    def test_the_tree_of_all_ranges_is_in_a_file(self, demo: tuple[Path, list[str]]) -> None:
        folder, shown = demo
        lines = (folder / "ranges.txt").read_text().splitlines()

        (module,) = (i for i, line in enumerate(lines) if line.split()[:1] == ["MLP.layers.0"] and i < 10)
        assert lines[module + 1].split()[:4] == ["aten::linear", "[op]", "seq", "0"]
        assert "sizes [[4, 8], [16, 8], [16]]" in lines[module + 1]
        assert indent(lines[module + 1]) == indent(lines[module]) + 2
        assert any("AddmmBackward0  [backward]" in line and "forward on thread" in line for line in lines)
        assert len(lines) > 100
        (wrote,) = (line for line in shown if line.startswith(f"Wrote {folder} ("))
        assert wrote.endswith(str(folder / "ranges.txt"))

    def test_it_ends_with_the_summary_and_a_page(self, demo: tuple[Path, list[str]]) -> None:
        folder, shown = demo
        summary = opspan("summary", "demo", cwd=folder.parent, env={"COLUMNS": "90"}).stdout.splitlines()
        at = shown.index("In short, as opspan summary has it:") + 1
        assert shown[at : at + len(summary)] == summary
        (why,) = filter(None, shown[at + len(summary) : -2])
        assert why.startswith("There are no samples of functions: `perf` is not on the PATH: ")
        page = folder / "report.html"
        assert shown[-2:] == ["", f"All of it as a page: open {page.as_uri()} in a browser"]
        assert "opspan: demo" in page.read_text(encoding="utf-8")

    def test_without_torch_it_says_what_to_install(self, tmp_path: Path) -> None:
        (tmp_path / "torch.py").write_text("raise ImportError('gone')")
        code = "import sys; sys.path.insert(0, '.'); from opspan.cli import main; main(['demo'])"

        done = run([sys.executable, "-c", code], cwd=tmp_path)

        assert done.returncode == 2
        assert done.stderr.startswith("error: the demo trains a model")
        assert "pip install torch" in done.stderr


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())
