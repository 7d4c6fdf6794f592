"""Pages are made by processes of their own, and kept."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import opspan
from builders import kineto
from opspan.tensorboard.pages import PageError, PageNotReady, Pages
from opspan.views.page.document import page_parts
from opspan.views.page.section import Subject, as_json
from views.sources import nsys

pytestmark = pytest.mark.slow


@pytest.fixture
def pages() -> Iterator[Pages]:
    made = Pages()
    yield made
    made.close()
    assert not made._folder.exists()


def head(pages: Pages, *files: Path, others: tuple[Path, ...] = ()) -> Any:
    until = time.monotonic() + 60
    while True:
        try:
            return json.loads(pages.head(files, others))
        except PageNotReady:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_page_is_what_the_report_has(pages: Pages, tmp_path: Path) -> None:
    path = nsys(tmp_path / "a.sqlite")
    expected, parts = page_parts(Subject(opspan.load(path).analysed, (path,)))

    assert head(pages, path) == expected
    served = {name: json.loads(gzip.decompress(pages.part(name, (path,)))) for name in parts}
    assert served == json.loads(as_json(parts))
    with pytest.raises(KeyError):
        pages.part("../head", (path,))


def test_a_damaged_file_is_said_to_be_one(pages: Pages, tmp_path: Path) -> None:
    path = tmp_path / "a.pt.trace.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name":')

    with pytest.raises(PageError, match=r"a\.pt\.trace\.json"):
        head(pages, path)
    with pytest.raises(PageError, match="No such file"):
        head(pages, tmp_path / "missing.json")


def test_a_process_that_is_killed_is_no_page_and_no_harm(pages: Pages, tmp_path: Path) -> None:
    path = kineto.write(tmp_path / "a.json")
    with pytest.raises(PageNotReady):
        pages.head((path,))
    (made,) = pages._pages.values()
    assert made.process
    made.process.kill()
    made.process.wait()

    with pytest.raises(PageError, match="killed by signal 9"):
        pages.head((path,))


def test_a_file_that_is_written_again_is_read_again(pages: Pages, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[")
    with pytest.raises(PageError):
        head(pages, path)

    kineto.write(path)

    assert head(pages, path)["sections"]
