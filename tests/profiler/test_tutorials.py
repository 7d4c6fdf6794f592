"""torch's own pages of its profiler, run with opspan's: the programs of its tutorials and what its docstrings show.

The programs are ours, step by step what the pages do. The docstrings are read where torch is installed.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emit.running import forked

torch_profiler = pytest.importorskip("torch.profiler")
pytestmark = pytest.mark.slow
TUTORIALS = Path(__file__).with_name("tutorials")
THEIRS = "from torch.profiler import "
MODULES = ("torch.profiler", "torch.profiler.profiler", "torch.autograd.profiler", "torch.autograd.profiler_util")


def shown(code: str, folder: Path, *arguments: str) -> list[list[str]]:
    folder.mkdir()
    done = forked(f"import sys; sys.path.insert(0, {str(TUTORIALS)!r})\n{code}", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    found: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def both(name: str, tmp_path: Path, *arguments: str) -> tuple[list[list[str]], list[list[str]]]:
    code = (TUTORIALS / name).read_text().replace("from __future__ import annotations\n", "")
    assert code.count(THEIRS) == 1
    ours = code.replace(THEIRS, "from opspan.profiler import ")
    return shown(ours, tmp_path / "ours", *arguments), shown(code, tmp_path / "theirs", *arguments)


def test_the_recipe_shows_the_same_ops_in_every_step(tmp_path: Path) -> None:
    ours, theirs = both("recipe.py", tmp_path)
    assert ours == theirs
    assert len(theirs) == 8
    assert all("aten::conv2d" in names for names in theirs)
    for module in ("ours", "theirs"):
        made = sorted(path.name for path in (tmp_path / module).iterdir())
        assert made == ["stacks.txt", "trace.json", "trace_10.json", "trace_6.json"], module
    assert "small_resnet.py" in (tmp_path / "ours" / "stacks.txt").read_text()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_training_for_tensorboard_shows_the_same_ops(workers: str, tmp_path: Path) -> None:
    ours, theirs = both("tensorboard.py", tmp_path, workers)
    assert ours == theirs
    assert {"aten::conv2d", "Optimizer.step#SGD.step", "ProfilerStep*"} <= set(theirs[0])


# --- docstrings


def documented(module: str) -> Iterator[tuple[str, str]]:
    """Names, and docstrings, of a module, of what it defines, and of what its classes do."""
    found = importlib.import_module(module)
    yield module, inspect.getdoc(found) or ""
    for name, value in vars(found).items():
        if getattr(value, "__module__", None) == module:
            yield f"{module}.{name}", inspect.getdoc(value) or ""
            if inspect.isclass(value):
                for inner, method in vars(value).items():
                    yield f"{module}.{name}.{inner}", getattr(method, "__doc__", None) or ""


def snippets_of(text: str) -> Iterator[str]:
    """Code after >>>, and indented code below `.. code-block:: python` or `Example::`."""
    prompted = [line.strip() for line in text.splitlines() if re.match(r"\s*(>>>|\.\.\.)( |$)", line)]
    if prompted:
        yield "\n".join(line[4:] for line in prompted)
    for block in re.findall(r"(?:code-block:: python|Examples?::)\n((?:\n|[ \t]+.*(?:\n|$))+)", inspect.cleandoc(text)):
        lines = block.strip("\n").split("\n")
        indent = len(lines[0]) - len(lines[0].lstrip())
        kept = [line for line in lines if not line.strip() or len(line) - len(line.lstrip()) >= indent]
        kept = [line for line in kept if line.strip() != "..."]  # "..." stands for left-out code there
        yield textwrap.dedent("\n".join(kept)).replace("// ", "# ")


def snippets() -> list[Any]:
    found = {}
    for module in MODULES:
        for name, text in documented(module):
            for number, code in enumerate(snippets_of(text)):
                found.setdefault(code, pytest.param(code, id=f"{name}-{number}"))
    return list(found.values())


SNIPPETS = snippets()
AROUND = """
import io, json, os, sys, warnings
import torch
import torch.profiler
import torch.autograd.profiler
warnings.simplefilter("ignore")
from torch.profiler import ExecutionTraceObserver
N = 5
model = torch.nn.Linear(3, 4)
x = torch.ones(2, 3)
def code_to_profile(*_):
    model(x).sum().backward()
code_to_profile_0 = code_to_profile_1 = code_to_profile_2 = code_iteration_to_profile = code_to_profile
code_to_profile()
"""


def test_the_docstrings_have_the_snippets_that_are_known_of() -> None:
    names = " ".join(param.id for param in SNIPPETS)
    for of in ("profiler.profile", "record_function", "emit_nvtx", "emit_itt"):
        assert of in names
    # torch 2.4 does not have this method.
    has_toggle = hasattr(torch_profiler._KinetoProfile, "toggle_collection_dynamic")
    assert ("_KinetoProfile.toggle_collection_dynamic" in names) is has_toggle
    assert len(SNIPPETS) >= 8


@pytest.mark.parametrize("code", SNIPPETS)
def test_what_a_docstring_shows_runs(code: str, tmp_path: Path) -> None:
    ours = code.replace("torch.autograd.profiler.", "autograd_profiler.").replace("torch.profiler", "opspan.profiler")
    imported = "import opspan.profiler\nfrom opspan import autograd_profiler\n"
    failed = {}
    for name, snippet in (("ours", imported + ours), ("theirs", code)):
        done = forked(AROUND + snippet, cwd=tmp_path)
        failed[name] = done.stderr.strip().splitlines()[-1] if done.returncode else None
    # Tutorials that fail in torch as well need a GPU.
    assert failed["ours"] == failed["theirs"]
    if failed["theirs"] is not None:
        assert "CUDA" in failed["theirs"] or "NVTX" in failed["theirs"], failed["theirs"]
