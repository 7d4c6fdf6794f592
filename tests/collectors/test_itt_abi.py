"""Our own declarations of ITT's structures against the vendor's header that torch ships."""

from __future__ import annotations

from pathlib import Path

from collectors.running import CLIENTS, NATIVE, compile_, torch_with_itt


def test_layout_is_the_vendors(tmp_path: Path) -> None:
    include = torch_with_itt() / "include"

    compile_("g++", "-std=c++20", "-I", NATIVE, "-isystem", include, CLIENTS / "itt_layout.cpp", "-o", tmp_path / "out")
