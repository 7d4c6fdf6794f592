from __future__ import annotations

from pathlib import Path

import pytest

from opspan.addresses import Address, check_local, file_of
from opspan.errors import UsageError, WriteError

SECRET = "https://me:word@host:8443/runs/rank%200.json.gz?X-Amz-Signature=5ec2e7&key=word#word"


def test_a_path_stays_a_path() -> None:
    for text in ("run.json", "/a//b", "a:b", "./x://y", "s3", "rank::0.json"):
        assert file_of(text) == Path(text)
    assert file_of(Path("run.json")) == Path("run.json")
    assert (
        file_of("file:///tmp/run%201.json") == file_of("file://localhost/tmp/run%201.json") == Path("/tmp/run 1.json")
    )


def test_what_is_shown_of_an_address_has_no_secret() -> None:
    address = file_of(SECRET)

    assert isinstance(address, Address)
    assert address.text == SECRET
    assert str(address) == "https://host:8443/runs/rank%200.json.gz?..."
    for shown in (str(address), repr(address), f"{address}", address.__fspath__(), address.name):
        assert not {secret for secret in ("word", "me:", "5ec2e7") if secret in shown}, shown
    assert address.name == "rank 0.json.gz"
    assert address.secrets() == ["me", "word", "5ec2e7", "word", "word"]


@pytest.mark.parametrize(
    "text",
    [
        "memory://run.json",
        "ssh://host/run.json",
        "reference://run.json",
        "github://who:repo@/run.json",
        "simplecache::https://host/run.json",
        "zip://a::https://host/run.json",
        "local:///etc/passwd",
        "file://host/etc/passwd",
        "https:///run.json",
        "https://[::1/run.json",
    ],
)
def test_no_other_kind_of_address_is_read(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        file_of(text)


def test_several_files_are_a_pattern_or_end_with_a_slash() -> None:
    def several(text: str) -> tuple[bool, bool]:
        address = file_of(text)
        assert isinstance(address, Address)
        return address.is_several, address.is_folder

    assert several("s3://bucket/run/") == (True, True)
    assert several("s3://bucket/run/*.json.gz") == (True, False)
    assert several("s3://bucket/rank[01].json.gz") == (True, False)
    assert several("http://[::1]:8000/run.json?part=*") == (False, False)


def test_an_address_that_became_a_path_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"expected the address https://host/run\.json\?\.\.\. as a text"):
        file_of(Path(f"https://me:word@host/run.json?{'word' * 3}"))

    # A folder may be called like this.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "https:").mkdir()
    assert file_of(Path("https:/run.json")) == Path("https:/run.json")


def test_an_address_is_nothing_to_write_to(tmp_path: Path) -> None:
    assert check_local(tmp_path / "out.json") == tmp_path / "out.json"
    for text in ("s3://bucket/out.json", "https://host/out.json", "file:///tmp/out.json", "anything://x/out.json"):
        with pytest.raises(WriteError, match="is an address"):
            check_local(Path(text))
