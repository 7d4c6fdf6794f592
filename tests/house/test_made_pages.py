"""Pages that tools/docs makes from the code are what it makes of the code as it is now."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from house.tree import REPO, files

MADE = re.compile(r"^<!-- Made by `python tools/docs` from (\S+)(?:;| -->)", re.MULTILINE)


def tools_docs(repo: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, repo / "tools" / "docs", *options], capture_output=True, text=True)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The tool and what it writes, in a place where pages may be spoilt. The sources are there by name alone."""
    for path in files("tools/docs/*", "docs/*"):
        copy = tmp_path / path.relative_to(REPO)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for name in ("src", "tests"):
        (tmp_path / name).symlink_to(REPO / name)
    return tmp_path


def test_every_made_page_is_up_to_date() -> None:
    pytest.importorskip("griffe", reason="docs/python.md is made with griffe: pip install 'opspan[test]'")
    done = tools_docs(REPO, "--check")

    assert done.returncode == 0, done.stdout + done.stderr
    pages = [page for page in files("docs/*.md") if MADE.search(page.read_text(encoding="utf-8"))]
    assert f"{len(pages)} of {len(pages)} pages were up to date" in done.stdout


def test_a_stale_page_is_named_and_left_alone_by_check_and_written_again_without(copied: Path) -> None:
    page = copied / "docs" / "schema.md"
    good = page.read_text(encoding="utf-8")
    page.write_text(good.replace("`start_ns`", "`start`"), encoding="utf-8")
    spoilt = page.read_text(encoding="utf-8")

    checked = tools_docs(copied, "--check")
    assert (checked.returncode, checked.stdout.splitlines()[0]) == (
        1,
        "docs/schema.md is stale: run `python tools/docs`",
    )
    assert page.read_text(encoding="utf-8") == spoilt != good

    written = tools_docs(copied)
    assert (written.returncode, written.stdout.splitlines()[0]) == (0, "Wrote docs/schema.md")
    assert page.read_text(encoding="utf-8") == good


def test_a_page_that_is_gone_is_stale(copied: Path) -> None:
    (copied / "docs" / "cli.md").unlink()

    assert "docs/cli.md is stale" in tools_docs(copied, "--check").stdout
