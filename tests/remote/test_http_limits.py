"""Servers that are too slow, and files that are too large, to fetch."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

import pytest
from click.testing import CliRunner

import opspan
from loopback import Asked, Served, in_chunks, whole
from opspan import remote
from opspan.cli import main
from opspan.errors import NotReadable
from remote.refused import refused


def dripping(asked: Asked) -> None:
    """A byte at a time, for ever."""
    asked.begin(Content_Length=1 << 20)
    with contextlib.suppress(OSError):  # nobody listens any more
        while not asked.server.over.wait(0.05):
            asked.wfile.write(b" ")
            asked.wfile.flush()


def test_a_server_that_drips_is_left(web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RATED_S", 0.5)
    begin = time.monotonic()

    said = refused(web.give("/drip.json", dripping), NotReadable)

    assert re.search(r"its server is too slow: [0-9]+ bytes came", said)
    assert time.monotonic() - begin < 20
    assert web.counts["/drip.json"] == 1  # it would be as slow again


@pytest.mark.parametrize("is_told", [True, False], ids=["length told", "length not told"])
def test_more_than_may_be_fetched_is_refused(web: Served, is_told: bool) -> None:
    body = b"x" * 100_000
    address = web.give("/large.json", whole(body) if is_told else in_chunks(body, has_end=True))

    with pytest.raises(NotReadable, match=r"no more than 0\.1 MB may be fetched; allow more with --most-fetched"):
        opspan.load(address, most_bytes=50_000)


def test_how_much_may_be_fetched_is_an_option(web: Served, trace: bytes) -> None:
    address = web.give("/run.json.gz", whole(trace))

    def summary(size: str) -> Any:
        return CliRunner().invoke(main, ["summary", address, "--most-fetched", size])

    refusal, answer, odd = summary("0.1kB"), summary("1MB"), summary("much")

    assert (refusal.exit_code, answer.exit_code, odd.exit_code) == (2, 0, 2)
    assert "may be fetched" in refusal.output
    assert "expected a number and a unit" in odd.output
