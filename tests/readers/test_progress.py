"""Counts of progress while a file is read, for whoever shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from opspan.formats import progress
from opspan.readers.nsys import reports


def test_while_nsys_exports_a_report_that_is_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "said"
    nsys = tmp_path / "bin" / "nsys"
    nsys.parent.mkdir()
    nsys.write_text(f"#!/bin/sh\ncase $1 in --version) echo version 2022.4.2.1;; *) touch {said}; exit 1;; esac\n")
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", str(nsys.parent), prepend=":")
    monkeypatch.setenv("OPSPAN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "run.nsys-rep").write_bytes(reports.MAGIC + b" 1.\n")
    waited: list[str] = []
    monkeypatch.setattr(progress, "wait_for", waited.append)

    with pytest.raises(opspan.OpspanError):
        opspan.load(tmp_path / "run.nsys-rep")

    assert said.exists()
    assert waited == ["nsys exports 'run.nsys-rep'", ""]
