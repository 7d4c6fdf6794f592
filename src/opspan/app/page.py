"""Builds the page of `opspan report` into the user's cache if the page could not be built when opspan was installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from opspan import libraries, private_files
from opspan.emit import notices
from opspan.errors import MissingPackage
from opspan.printable import printable


def why() -> str:
    """Returns why the page was not built when opspan was installed."""
    return printable((libraries.page_sources() / "why.txt").read_text(encoding="utf-8").strip())


def build_missing() -> None:
    """Builds the page if it is missing. Raises MissingPackage if it still cannot be built."""
    sources = libraries.page_sources()
    if libraries.page("page.js").is_file() or not sources.is_dir():
        return
    try:
        target = libraries.page_built_later()
        private_files.kept_folder(target.parent)
        with private_files.unfinished(target, overwrite=True) as out:
            _build(sources / "build.py", out)
    except OSError as error:
        raise MissingPackage(f"the page cannot be kept: {error}") from error


def _build(program: Path, out: Path) -> None:
    notices.say("opspan: building the page of `opspan report` (once; fetches up to 70 MB) ... ")
    end = "failed"
    try:
        done = subprocess.run(
            [sys.executable, program, out, "--required"], capture_output=True, text=True, errors="replace"
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"{program} ended with {done.returncode}"]
            raise MissingPackage(printable(lines[-1].removeprefix("error: ")))
        end = "done"
    finally:
        notices.say(f"{end}\n")
