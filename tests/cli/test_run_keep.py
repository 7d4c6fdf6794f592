"""opspan run --keep: the last of a program that was not edited, and copies of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import opspan
from emit.running import forked_file, run
from opspan.cli import main

TRAIN = """
import json, os, signal, sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(), torch.nn.Linear(16, 4))
first, second = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model[0], model[2]))
losses = []
for step in range(40):
    loss = model(torch.randn(8, 16)).square().mean()
    loss.backward()
    for one in (first, second):
        one.step()
        one.zero_grad()
    losses.append(loss.item().hex())
    if step == 30 and "signal" in sys.argv:
        os.kill(os.getpid(), signal.SIGUSR2)
json.dump(losses, open(sys.argv[1], "w"))
if "fail" in sys.argv:
    raise RuntimeError("as the test asked")
"""


def kept(folder: Path, *options: str, why: str = "") -> tuple[int, str]:
    program = folder / "train.py"
    program.write_text(TRAIN)
    command = [sys.executable, "-m", "opspan", "run", *options, "-o", str(folder / "ring"), "--"]
    done = run([*command, sys.executable, program, folder / "losses", why], cwd=folder)
    return done.returncode, done.stderr


def steps(folder: Path) -> list[int]:
    names = opspan.load(folder).ranges["name"].cast(pl.String)
    return sorted(int(name.partition("#")[2]) for name in names if name.startswith("ProfilerStep#"))


@pytest.mark.slow
def test_the_last_steps_are_kept_and_an_exception_leaves_a_copy(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "train.py").write_text(TRAIN)
    assert forked_file(plain / "train.py", plain / "losses", "").returncode == 0

    code, said = kept(tmp_path, "--keep", "5 steps", "--dump-to", str(tmp_path / "dumps"), why="fail")

    assert code == 1
    assert "RuntimeError: as the test asked" in said
    assert f"Wrote {tmp_path / 'ring'} (1 process" in said
    assert json.loads((tmp_path / "losses").read_text()) == json.loads((plain / "losses").read_text())
    (dump,) = (tmp_path / "dumps").iterdir()
    assert "-exception-" in dump.name
    for folder in (tmp_path / "ring", dump):
        found = steps(folder)
        assert found == list(range(found[0], 41))  # after the last one another has begun
        assert 5 <= len(found) <= 5 + 3
    assert (opspan.load(dump).ranges["name"].cast(pl.String) == "aten::addmm").any()


@pytest.mark.slow
def test_a_signal_leaves_a_copy_and_the_program_goes_on(tmp_path: Path) -> None:
    code, _ = kept(tmp_path, "--keep", "1h", "--dump-to", "dumps", "--dump-on", "signal", why="signal")

    assert code == 0
    assert len(json.loads((tmp_path / "losses").read_text())) == 40
    (dump,) = (tmp_path / "dumps").iterdir()
    assert "-signal-" in dump.name
    assert steps(dump)[-1] == 31
    assert steps(tmp_path / "ring") == list(range(41))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--keep", "30"), "keep='30' is no amount: expected a number and one of"),
        (("--keep", "30s", "--dump-on", "exit"), "add --dump-to, the folder for them"),
        (("--dump-to", "dumps"), "add --keep 30s"),
        (("--keep", "30s", "--emit", "nvtx"), "leave out --emit"),
        (("--keep", "30s", "--idle"), "--idle captures nothing"),
        (("--keep", "30s", "--dump-to", "dumps", "--dump-on", "never"), "'never' is not one of 'exception'"),
    ],
)
def test_what_cannot_be_kept_is_said_and_nothing_runs(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    found = CliRunner().invoke(main, ["run", *options, "-o", str(tmp_path / "ring"), "--", "no-such-program"])

    assert found.exit_code == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
