"""tools/vendor-tools edits a machine's package sources: only the distribution's own entries, and only once."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from house.tree import REPO

DEB822 = """\
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main contrib

Types: deb
URIs: https://third.example/linux/debian
Suites: bookworm
Components: stable
"""

CLASSIC = """\
# the machine's own
deb [signed-by=/usr/share/keyrings/a.gpg] http://mirror.example/debian bookworm main
deb-src http://mirror.example/debian bookworm main
deb http://mirror.example/debian-security bookworm-security main contrib non-free
deb https://third.example/linux bookworm main
"""

WANTED = ["contrib", "non-free"]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    loader = SourceFileLoader("vendor_tools", str(REPO / "tools" / "vendor-tools"))
    spec = spec_from_loader(loader.name, loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_stanzas_get_the_components_they_lack(tool: ModuleType) -> None:
    after = tool.with_components(DEB822, WANTED, "bookworm")

    assert [line for line in after.splitlines() if line.startswith("Components:")] == [
        "Components: main contrib non-free",
        "Components: main contrib non-free",
        "Components: stable",
    ]
    assert after.replace(" contrib", "").replace(" non-free", "") == DEB822.replace(" contrib", "")


def test_lines_get_the_components_they_lack(tool: ModuleType) -> None:
    expected = CLASSIC.replace("/debian bookworm main\ndeb-src", "/debian bookworm main contrib non-free\ndeb-src")

    assert tool.with_components(CLASSIC, WANTED, "bookworm") == expected


@pytest.mark.parametrize("text", [DEB822, CLASSIC])
def test_a_second_time_changes_nothing(tool: ModuleType, text: str) -> None:
    once = tool.with_components(text, WANTED, "bookworm")

    assert tool.with_components(once, WANTED, "bookworm") == once


def test_another_release_is_left_alone(tool: ModuleType) -> None:
    assert tool.with_components(DEB822, WANTED, "noble") == DEB822


@pytest.mark.parametrize(
    ("text", "key"),
    [(DEB822, "/usr/share/keyrings/debian-archive-keyring.gpg"), (CLASSIC, "/usr/share/keyrings/a.gpg")],
)
def test_the_second_suite_comes_from_the_same_server_and_key(tool: ModuleType, text: str, key: str) -> None:
    stanza = tool.other_suite(text, "bookworm", "trixie", ["main", "non-free"])

    assert stanza.splitlines() == [
        "Types: deb",
        "URIs: http://mirror.example/debian",
        "Suites: trixie",
        "Components: main non-free",
        f"Signed-By: {key}",
    ]


def test_the_importer_is_linked_where_nsys_looks(tool: ModuleType, tmp_path: Path) -> None:
    host = tmp_path / "usr/lib/nsight-systems/host-linux-x64"
    host.mkdir(parents=True)
    (tmp_path / "usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64").mkdir(parents=True)
    link = tmp_path / "usr/lib/x86_64-linux-gnu/nsight-systems/host-linux-x64"
    link.symlink_to("nowhere")  # an earlier version has left it

    tool.mend_importer(tmp_path)

    assert link.resolve() == host
    assert not link.readlink().is_absolute()
    assert tool.unlinked_importers(tmp_path) == []
