"""Every block of code of the README and of docs/ runs as it stands, and every command that they name is one.

A page's blocks run one after the other in a folder that has what they use (FIXTURES): Python in a program of its own,
shells line by line. What cannot run here says why, in a comment of the page right before the block:

    <!-- needs: vtune -->        programs and modules: a line runs where what it needs of them is there
    <!-- not run: reason -->     never, here
    <!-- command: demo -->       .ci/run runs it
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from builders import kineto, nsys, nvprof, vtune
from emit.running import environment, forked
from house.tree import REPO, files, modules
from opspan.cli import main
from vendor.nsys import AGENT_IS_LATE
from views import sources

FENCE = re.compile(r"^(?:<!-- *([a-z ]+): *(.*?) *-->\n+)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TRAIN = """
import torch
model = torch.nn.Linear(8, 4)
for step in range(3):
    model(torch.randn(5, 8)).sum().backward()
"""
LABELLED = TRAIN.replace("for step", "import opspan\nsession = opspan.{}()\nsession.__enter__()\nfor step")


def _report(path: Path) -> None:
    path.write_text("Task Type,CPU Time\naten::linear,1.5\n")


def _exported(path: Path) -> None:
    from opspan import load

    load(sources.nsys(path.with_name("of.sqlite"))).export(path)


# Files and variables that blocks may use, by their names there.
FIXTURES: dict[str, Callable[[Path], object]] = {
    "report.sqlite": lambda path: sources.nsys(path, scale=1000),
    "run.sqlite": _exported,
    "rank0.sqlite": lambda path: nsys.run(path, "2026"),
    "rank1.sqlite": lambda path: nsys.run(path, "2026"),
    "trace.prof": lambda path: nvprof.run(path, 26),
    "trace.json": kineto.write,
    "lines.py": lambda path: shutil.copy(REPO / "tests" / "programs" / "lines.py", path),
    "r000hs": lambda path: vtune.run(path, "2024"),
    "tasks.csv": _report,
    "train.py": lambda path: path.write_text(TRAIN),
    "labelled.py": lambda path: path.write_text(LABELLED.format("emit_nvtx") + "session.__exit__(None, None, None)\n"),
}
LANGUAGES = ("python", "sh", "text", "json", "")  # the last three are not run


@dataclass(frozen=True)
class Block:
    page: Path
    mark: str  # needs, not run, command, or nothing
    reason: str
    language: str
    code: str


def blocks(page: Path) -> list[Block]:
    return [Block(page, *(part or "" for part in found)) for found in FENCE.findall(page.read_text(encoding="utf-8"))]


PAGES = [page for page in files("*.md") if any(block.language in ("python", "sh") for block in blocks(page))]


def test_blocks_are_of_languages_that_are_looked_at() -> None:
    assert {block.language for page in files("*.md") for block in blocks(page)} <= set(LANGUAGES)
    assert REPO / "README.md" in PAGES


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=[pytest.mark.slow] if name in ("README.md", "docs/emit.md") else [])
        for page in PAGES
        for name in [str(page.relative_to(REPO))]
    ],
)
def test_a_pages_blocks_run_as_they_stand(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the examples label torch")
    text = page.read_text(encoding="utf-8")
    for name, make in FIXTURES.items():
        if name in text:
            make(tmp_path / name)
    shown = ""
    for block in blocks(page):
        if block.language in ("python", "sh") and block.mark not in ("not run", "command"):
            shown = run_python(block, tmp_path) if block.language == "python" else run_shell(block, tmp_path)
        elif block.language == "text" and shown:
            # The rows that a page shows of a result have the columns of that result.
            titles = next(line.split() for line in block.code.splitlines() if "Name" in line)
            assert titles in [line.split() for line in shown.splitlines()], shown


def is_there(name: str) -> bool:
    return shutil.which(name) is not None or importlib.util.find_spec(name) is not None


def run_python(block: Block, folder: Path) -> str:
    if block.mark == "needs" and not all(map(is_there, re.split(r",\s*", block.reason))):
        compile(block.code, str(block.page), "exec")
        return ""
    if re.search(r"^\s*(import|from) torch\b", block.code, re.MULTILINE):
        code = f"import warnings; warnings.simplefilter('error', DeprecationWarning)\n{block.code}"
        return checked(forked(code, cwd=folder, env=ENVIRONMENT), block.code)
    return run([sys.executable, "-W", "error::DeprecationWarning", "-c", block.code], folder)


def run_shell(block: Block, folder: Path) -> str:
    needed = re.split(r",\s*", block.reason) if block.mark == "needs" else []
    shown = ""
    for line in lines(block.code):
        if all(is_there(name) for name in needed if name in shlex.split(line, comments=True)):
            command = ["bash", "-euo", "pipefail", "-c", line]
            try:
                shown += run(command, folder)
            except AssertionError as error:  # its program has not begun then
                if not line.startswith("nsys") or not any(said in str(error) for said in AGENT_IS_LATE):
                    raise
                shown += run(command, folder)
    return shown


# The opspan and python of these tests, whatever else is on the PATH.
ENVIRONMENT = {
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    "OPSPAN_CACHE_DIR": None,
}


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(ENVIRONMENT),
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    return checked(done, command[-1])


def checked(done: subprocess.CompletedProcess[str], code: str) -> str:
    assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
    assert "Captured nothing" not in done.stderr, f"{code}\n{done.stderr}"
    assert "Nothing to show" not in done.stdout, f"{code}\n{done.stdout}"
    return done.stdout


def lines(code: str) -> Iterator[str]:
    """Yields the commands of a shell block: continued lines are joined, lines with only a comment are left out."""
    for line in code.replace("\\\n", " ").splitlines():
        if shlex.split(line, comments=True):
            yield line


# --- commands that are named anywhere: in blocks, in sentences, in help, in messages of the program


def commands() -> Iterator[tuple[str, str]]:
    """(where, command) of everything that calls opspan or vtune."""
    for page in files("*.md"):
        text = page.read_text(encoding="utf-8")
        for block in blocks(page):
            if block.language == "sh":
                yield from ((str(page.relative_to(REPO)), line) for line in lines(block.code))
        for said in re.findall(r"(?<!`)`([^`]+)`(?!`)", FENCE.sub("", text)):
            yield str(page.relative_to(REPO)), " ".join(said.split())
    context = click.Context(main)
    for verb in (main, *(main.get_command(context, name) for name in main.list_commands(context))):
        for line in (verb.help or "").split("Example:")[-1].splitlines():
            yield f"help of {verb.name}", line.strip()
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for text in (said for said in [text_of(node)] if said):
                yield from ((str(path.relative_to(REPO)), said) for said in re.findall(r"`([^`\n]+)`", text))


def text_of(node: ast.AST) -> str:
    """Returns the text of a string; each value in an f-string becomes X."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def calls(program: str) -> list[tuple[str, list[str]]]:
    """(where, arguments) of every call of the program, also as another's program."""
    found = []
    for where, command in commands():
        for part in re.split(r"&&|\|", command):
            try:
                words = shlex.split(part.replace("...", " ... "), comments=True)
            except ValueError:  # no command
                continue
            for at, word in enumerate(words):
                before = words[at - 1] if at else ""
                if word.rpartition("/")[2] == program and (not at or before == "--" or words[0] in ("nsys", "vtune")):
                    found.append((f"{where}: {command}", words[at + 1 :]))
                    break
    return found


@pytest.mark.slow
def test_commands_of_opspan_that_are_named_can_be_given() -> None:
    wrong = []
    named = calls("opspan")
    for where, arguments in named:
        if len(arguments) < 2 or (len(arguments) == 2 and arguments[1].startswith("--")):
            continue  # the name of a verb, or of an option
        verb = main.get_command(click.Context(main), arguments[0])
        if verb is None:
            if re.fullmatch("[a-z]+", arguments[0]):
                wrong.append(f"{where}: no such verb")
            continue
        context = click.Context(verb, **verb.context_settings)
        try:
            verb.make_parser(context).parse_args([word for word in arguments[1:] if word != "..."])
        except click.UsageError as error:
            wrong.append(f"{where}: {error.format_message()}")
    assert not wrong, "\n".join(wrong)
    assert len(named) > 40


@pytest.mark.slow
def test_commands_of_vtune_that_are_named_collect_tasks() -> None:
    named = [(where, words) for where, words in calls("vtune") if "-collect" in words[:1] and "--" in words]
    wrong = [where for where, words in named if words[2:4] != ["-knob", "enable-user-tasks=true"]]

    assert not wrong, "\n".join(wrong)
    places = {where.partition(":")[0] for where, _ in named}
    assert {"README.md", "docs/emit.md"} <= places
