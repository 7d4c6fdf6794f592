"""The site is built of docs/ without a warning, with the reference that mkdocstrings makes of the same docstrings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from house.tree import REPO


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the site needs mkdocs-material: pip install 'opspan[docs]'")
    pytest.importorskip(
        "mkdocstrings_handlers.python", reason="the site needs mkdocstrings: pip install 'opspan[docs]'"
    )
    config = REPO / "tools" / "docs" / "mkdocs.yml"

    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", tmp_path / "site"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site" / "python" / "index.html").read_text(encoding="utf-8")
    assert 'id="opspan.Trace.kernels"' in page
    assert "columns-of-kernels" in page
