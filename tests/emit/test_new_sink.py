"""A sink is a file and a line on each side: the one that CONTRIBUTING.md adds, added to a copy of opspan and run."""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
from pathlib import Path

import pytest

from collectors.running import NATIVE
from emit.running import run
from opspan.emit import sink_list, sinks
from opspan.errors import EmitError
from sinks.running import Native

TESTS = Path(__file__).parents[1]
REPO = TESTS.parent

# The copy before the opspan that is installed, however that is found.
HERE = """
import importlib.machinery, sys
sys.path.insert(0, sys.argv[1])
sys.meta_path.insert(0, importlib.machinery.PathFinder)
"""
TALLIED = """
import torch, opspan
from opspan.emit.tally import Tally
model = torch.nn.Identity()
for modules in (False, True):
    with Tally(modules=modules) as session, opspan.annotate("mine"):
        torch.zeros(2)
        model(None)
    print(session.stats.ranges)
torch.zeros(2)
with opspan.annotate("nobody counts"): pass
with opspan.record() as recording, Tally() as session: torch.zeros(2)
print(session.stats.ranges, recording.stats.ranges)
"""


def added(text: str, before: str, line: str) -> str:
    assert text.count(before) == 1, before
    return text.replace(before, line)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """opspan's sources, with what the page says added."""
    folder = tmp_path_factory.mktemp("opspan")
    shutil.copytree(NATIVE, folder / "native")
    shutil.copytree(REPO / "src" / "opspan", folder / "src" / "opspan", ignore=shutil.ignore_patterns("__pycache__"))
    page = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"`(SINK\(TALLY, .*?\))`", page)
    (entry,) = re.findall(r"`(TALLY: Final = .*?)`, which joins `SINKS`", page)

    shutil.copy(TESTS / "native" / "sinks" / "tally.cpp", folder / "native" / "sinks")
    shutil.copy(TESTS / "emit" / "tally.py", folder / "src" / "opspan" / "emit")
    header = folder / "native" / "sinks" / "sinks.h"
    last = "SINK(CAPTURE_4, Capture4)"
    header.write_text(added(header.read_text(), last, f"{last} {line}"))
    sinks_of_python = folder / "src" / "opspan" / "emit" / "sink_list.py"
    joined = added(
        sinks_of_python.read_text(),
        "SINKS: Final = (NVTX, ITT, *CAPTURES)",
        f"{entry}\nSINKS: Final = (NVTX, ITT, *CAPTURES, TALLY)",
    )
    sinks_of_python.write_text(joined)
    return folder


@pytest.mark.slow
@pytest.mark.release
def test_ops_modules_and_ranges_of_ones_own_reach_it(copy: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    library = copy / "lib"
    shutil.copytree(copy / "native" / "observer", library / "observer")
    shutil.copy(copy / "native" / "sinks" / "sinks.h", library / "observer")
    shutil.copy(Native(tmp_path, copy / "native").sinks, library / "libopspan_sinks.so")

    env = {"OPSPAN_LIB_DIR": str(library), "OPSPAN_CACHE_DIR": str(tmp_path / "cache")}
    done = run([sys.executable, "-c", HERE + TALLIED, copy / "src"], env=env)

    # zeros, empty, zero_ and one's own; the same, and the module
    assert done.returncode == 0, done.stderr
    assert done.stdout == "4\n5\n3 3\n"


def test_lists_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = sinks.require()
    *others, last = sink_list.SINKS
    for wrong in (
        others,
        [*others, dataclasses.replace(last, number=0)],
        [*others, dataclasses.replace(last, name="x")],
    ):
        monkeypatch.setattr(sinks, "SINKS", wrong)
        with pytest.raises(EmitError, match="reinstall opspan"):
            sinks.Sinks(loaded.path)
