"""The observer is built with the headers that a torch brings, whatever is missing or wrong among those of Kineto."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

from opspan.emit import compiler, observer, observer_cache
from opspan.emit.installed_torch import Torch

TELLS_KINETO = b"_ZN9libkineto3apiEv"

pytest.importorskip("torch")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "broken", "tells_kineto"),
    [
        ("fmt", "", True),  # as in torch 2.4, whose headers of Kineto ask for it
        ("kineto", "", False),
        ("", "kineto", False),
    ],
)
def test_it_is_built_and_tells_kineto_where_it_can(
    missing: str, broken: str, tells_kineto: bool, tmp_path: Path
) -> None:
    torch = Torch.here()
    found = compiler.find()
    assert found is not None, compiler.why_none()
    made = tmp_path / "made"
    made.mkdir()

    library, _ = observer_cache._compile(
        replace(torch, root=root_without(torch.root, tmp_path, missing, broken)), found, made, made
    )

    assert (TELLS_KINETO in library.read_bytes()) == tells_kineto
    assert ctypes.CDLL(str(library)).opspan_observer_abi() == observer.ABI


def root_without(root: Path, folder: Path, missing: str, broken: str) -> Path:
    """As that of torch, but for one of its folders of headers, which is not there or has what does not compile."""
    made = folder / "torch"
    (made / "include").mkdir(parents=True)
    (made / "lib").symlink_to(root / "lib")
    for headers in (root / "include").iterdir():
        if headers.name not in (missing, broken):
            (made / "include" / headers.name).symlink_to(headers)
    if broken:
        (made / "include" / broken).mkdir()
        (made / "include" / broken / "libkineto.h").write_text("#include <of/a/torch/to/come.h>\n")
    return made
