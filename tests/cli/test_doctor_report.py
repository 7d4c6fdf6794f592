"""`opspan doctor --json` and `--report`."""

from __future__ import annotations

import json
import platform
import pwd
from pathlib import Path

import pytest

import opspan as package
from emit.running import MAIN, forked
from opspan.app import doctor_report
from opspan.app.doctor import Check

WITHOUT_TORCH = f"import sys; sys.modules['torch'] = None\n{MAIN}"

HOMES = "/" + "home"  # where most systems have the homes of their users


def test_json_is_one_object_with_versions_and_checks(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = {"PATH": str(tmp_path), "OPSPAN_CACHE_DIR": str(tmp_path / "file" / "cache")}

    done = forked(WITHOUT_TORCH, "doctor", "--json", env=env)

    shown = json.loads(done.stdout)
    assert list(shown) == ["opspan", "python", "platform", "checks"]
    assert (shown["opspan"], shown["python"]) == (package.__version__, platform.python_version())
    assert {tuple(check) for check in shown["checks"]} == {("name", "state", "found", "todo")}
    checks = {check["name"]: check for check in shown["checks"]}
    assert checks["python"]["state"] == "ok"
    assert (checks["torch"]["state"], checks["torch"]["todo"]) == ("optional", 'pip install "torch>=2.4"')
    assert checks["cache"]["state"] == "WRONG"
    assert (done.returncode, done.stderr) == (2, "")


def test_the_block_is_fenced_and_has_no_home_folder_and_no_user(tmp_path: Path) -> None:
    home = tmp_path / "people" / "mallory"
    home.mkdir(parents=True)
    env = {"PATH": str(tmp_path), "HOME": str(home), "LOGNAME": "mallory", "OPSPAN_CACHE_DIR": str(home / "cache")}

    done = forked(WITHOUT_TORCH, "doctor", "--report", env=env)

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1]) == ("```text", "```")
    assert lines[1] == f"opspan {package.__version__}, Python {platform.python_version()}, {platform.platform()}"
    assert any(line.split() == ["cache", "ok", "~/cache"] for line in lines)
    assert "mallory" not in done.stdout


def test_json_and_report_exclude_each_other() -> None:
    done = forked(MAIN, "doctor", "--json", "--report")

    assert (done.returncode, done.stdout) == (2, "")
    assert "leave one of them out" in done.stderr


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("/homes/eve/.cache/opspan", "~/.cache/opspan"),
        ("(/homes/eve)", "(~)"),
        ("/homes/eveline/x", "/homes/eveline/x"),
        ("/homes/eve.old/x", "/homes/eve.old/x"),
        ("/real/eve/.venv/lib", "~/.venv/lib"),
        ("/scratch/eve/venv and /tmp/opspan-eve", "/scratch/USER/venv and /tmp/opspan-USER"),
        (f"{HOMES}/bob/bin/c++ (x)", f"{HOMES}/USER/bin/c++ (x)"),
        ("believe, eve", "believe, eve"),
    ],
)
def test_paths_are_made_public(text: str, public: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = pwd.struct_passwd(("eve", "x", 1000, 1000, "", "/real/eve", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    monkeypatch.setenv("HOME", "/homes/eve")
    monkeypatch.setenv("LOGNAME", "eve")

    assert doctor_report.without_user(text) == public


def test_a_user_without_a_name_and_a_home_has_a_block_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/")

    assert doctor_report.without_user(f"/cache/x {HOMES}/ann/y") == f"/cache/x {HOMES}/USER/y"


def test_the_text_cannot_end_the_fence() -> None:
    block = doctor_report.as_markdown([Check("python", "ok", "````\x1b[2J")])

    assert block.splitlines()[0] == "`````text"
    assert block.splitlines()[-1] == "`````"
    assert "\x1b" not in block
