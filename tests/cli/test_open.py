"""`--open`, which opens a page in the browser, or says why not."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from builders import kineto
from cli.browsing import fake_browser, no_display
from emit.running import MAIN, READING, forked
from opspan.app import browser


def report(trace: Path, *options: str, env: Mapping[str, str | None]) -> subprocess.CompletedProcess[str]:
    return forked(MAIN, "report", trace, *options, env=env, cwd=trace.parent, imported=READING)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return kineto.write(tmp_path / "trace.json")


def test_the_page_is_opened_in_the_browser(trace: Path, tmp_path: Path) -> None:
    env, opened = fake_browser(tmp_path)

    done = report(trace, "--open", env=env)

    assert (done.returncode, done.stderr) == (0, "")
    wrote, last = done.stdout.splitlines()
    assert wrote.startswith("Wrote report.html (")
    assert last == "Opened it in the browser"
    assert opened.read_text() == f"{(tmp_path / 'report.html').as_uri()}\n"


def test_a_name_that_is_taken_is_not_in_the_way_of_a_page_that_is_opened(trace: Path, tmp_path: Path) -> None:
    env, opened = fake_browser(tmp_path)
    (tmp_path / "report.html").write_text("kept")
    (tmp_path / "report-2.html").write_text("kept")

    assert report(trace, "--open", env=env).returncode == 0
    assert report(trace, env=env).returncode == 2
    assert report(trace, "--open", "-o", "report.html", env=env).returncode == 2
    assert opened.read_text() == f"{(tmp_path / 'report-3.html').as_uri()}\n"
    assert (tmp_path / "report.html").read_text() == (tmp_path / "report-2.html").read_text() == "kept"
    assert report(trace, "--open", "--force", env=env).returncode == 0
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "there is no display"),
        ({"DISPLAY": ":7", "SSH_CONNECTION": "192.0.2.1 50000 192.0.2.2 22"}, "this session is over ssh"),
        ({"BROWSER": "true", "SSH_CONNECTION": "192.0.2.1 50000 192.0.2.2 22"}, "this session is over ssh"),
        ({"BROWSER": "missing"}, "no browser was found"),
    ],
)
def test_where_no_browser_can_be_seen_a_line_says_why_and_names_the_page(
    more: dict[str, str], reason: str, trace: Path, tmp_path: Path
) -> None:
    done = report(trace, "--open", "-o", "a page.html", env={**no_display(), **more})

    assert (done.returncode, done.stderr) == (0, "")
    line = done.stdout.splitlines()[-1]
    assert line.startswith(f"No browser was opened, as {reason}")
    assert str(tmp_path / "a page.html") in line


def test_a_browser_that_fails_does_not_fail_the_command(trace: Path, tmp_path: Path) -> None:
    env, opened = fake_browser(tmp_path, exit_code=1)

    done = report(trace, "--open", env=env)

    assert (done.returncode, done.stderr) == (0, "")
    assert "No browser was opened, as no browser was found" in done.stdout
    assert opened.exists()


def test_a_module_of_the_working_directory_is_not_run(trace: Path, tmp_path: Path) -> None:
    env, opened = fake_browser(tmp_path)
    (tmp_path / "webbrowser.py").write_text("raise SystemExit(3)")

    assert "Opened it" in report(trace, "--open", env=env).stdout
    assert opened.exists()


def test_over_ssh_a_chosen_browser_gets_addresses_but_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in no_display():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.2 22")

    assert browser.why_none("http://127.0.0.1:1/x") == "this session is over ssh"
    monkeypatch.setenv("BROWSER", "helper")
    assert browser.why_none("http://127.0.0.1:1/x") is None
    assert browser.why_none("file:///tmp/report.html") == "this session is over ssh"


def test_a_browser_in_the_foreground_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    env, opened = fake_browser(tmp_path)
    program = tmp_path / "browser"
    program.write_text(program.read_text().replace("echo noise >&2", f"while [ -e {opened} ]; do sleep 0.1; done"))
    monkeypatch.setattr(browser, "PATIENCE_S", 3)
    for name, value in env.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)

    try:
        assert browser.open_address("http://127.0.0.1:1/x") is None
        assert opened.read_text() == "http://127.0.0.1:1/x\n"
    finally:
        opened.unlink()
