"""The site is built of docs/ without a warning, with the reference that mkdocstrings makes of the same docstrings; its
links lead somewhere, and `tools/docs serve` shows it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from house.tree import REPO, files

ENVIRONMENT = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONUNBUFFERED": "1"}


def need_the_theme() -> None:
    pytest.importorskip("material", reason="the site needs mkdocs-material: pip install 'opspan[docs]'")
    pytest.importorskip(
        "mkdocstrings_handlers.python", reason="the site needs mkdocstrings: pip install 'opspan[docs]'"
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_the_theme()
    folder = tmp_path_factory.mktemp("built")
    config = REPO / "tools" / "docs" / "mkdocs.yml"

    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", folder / "site"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=ENVIRONMENT,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


class Page(HTMLParser):
    """The places of a page that links may lead to, and the links that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = {"__skip"}  # the theme's link to the text, which a page with no heading lacks
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.places |= {value for name, value in attrs if name == "id" and value}
        self.links += [value for name, value in attrs if name in ("href", "src") and value]


def broken_links(site: Path) -> list[str]:
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc or path.name == "404.html":  # which is served for every address
                continue
            target = Path(os.path.normpath(path.parent / unquote(address.path))) if address.path else path
            target = target / "index.html" if target.is_dir() else target
            place = unquote(address.fragment)
            if not target.exists() or (place and target in pages and place not in pages[target].places):
                broken.append(f"{path.relative_to(site)}: {link}")
    return broken


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(site: Path) -> None:
    page = (site / "python" / "index.html").read_text(encoding="utf-8")
    assert 'id="opspan.Trace.kernels"' in page
    assert "columns-of-kernels" in page


@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    assert broken_links(site) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text('<h1 id="top"></h1><a href="../">up</a><a href="#top"></a>')
    (tmp_path / "index.html").write_text('<a href="a/#top"></a><a href="a/#gone"></a><img src="b.png"><a href="b/">')

    assert broken_links(tmp_path) == [f"index.html: {link}" for link in ("a/#gone", "b.png", "b/")]


@pytest.mark.slow
def test_every_page_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))

    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    pages = [path.relative_to(REPO / "docs").with_suffix("") for path in files("docs/*.md", "docs/**/*.md")]
    assert found == {"" if str(page) == "README" else f"{page}/".replace("/README/", "/") for page in pages}


@pytest.mark.slow
def test_versions_stand_beside_each_other(tmp_path: Path) -> None:
    need_the_theme()
    pytest.importorskip("mike", reason="versions need mike: pip install 'opspan[docs]'")
    identity = {
        f"GIT_{who}_{what}": "test@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

    def run(*command: str) -> str:
        env = {**ENVIRONMENT, **identity, "PATH": path}
        return subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True).stdout

    run("git", "init", "--quiet")
    run("git", "commit", "--quiet", "--allow-empty", "--message", "first")
    config = (REPO / "tools" / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
    for name in ("docs", "src"):
        config = config.replace(f"../../{name}", str(REPO / name))
    config = config.replace("../../build/site", str(tmp_path / "site"))
    config = config.replace("[site_hooks.py]", f"[{REPO / 'tools' / 'docs' / 'site_hooks.py'}]")
    (tmp_path / "mkdocs.yml").write_text(config, encoding="utf-8")
    for version in ("0.1", "0.2"):
        run("mike", "deploy", "--update-aliases", version, "latest")

    versions = json.loads(run("git", "show", "gh-pages:versions.json"))
    assert [(one["version"], one["aliases"]) for one in versions] == [("0.2", ["latest"]), ("0.1", [])]
    for version in ("0.1", "0.2"):
        assert '"provider": "mike"' in run("git", "show", f"gh-pages:{version}/index.html")


@pytest.mark.slow
def test_serve_shows_the_site() -> None:
    need_the_theme()
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, REPO / "tools" / "docs", "serve", "--address", address]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            assert any(f"Serving on http://{address}" in line for line in process.stdout)
            with urllib.request.urlopen(f"http://{address}") as answer:
                assert "opspan" in answer.read().decode()
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.stdout.read()
    assert process.returncode == 0
