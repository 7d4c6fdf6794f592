"""Files by address, of a store of objects: by one that is in memory."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.registry import _registry as registered
from polars.testing import assert_frame_equal

import opspan
from opspan.errors import ReadError
from remote.refused import refused


class Store(AbstractFileSystem):  # type: ignore[misc]
    """A file system like s3fs for S3: names have no leading slash, and folders are only prefixes of names."""

    protocol = ("s3", "s3a")
    cachable = False
    objects: ClassVar[dict[str, bytes]]

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        above = self._strip_protocol(path).rstrip("/")
        found: dict[str, dict[str, Any]] = {}
        for name, body in self.objects.items():
            if name == above:
                found[name] = {"name": name, "size": len(body), "type": "file"}
            elif name.startswith(f"{above}/"):
                first, slash, _rest = name.removeprefix(f"{above}/").partition("/")
                path = f"{above}/{first}"
                kind = {"size": 0, "type": "directory"} if slash else {"size": len(body), "type": "file"}
                found[path] = {"name": path, **kind}
        if not found:
            raise FileNotFoundError(path)
        return list(found.values()) if detail else list(found)

    def _open(self, path: str, *_: Any, **__: Any) -> Any:
        return Body(self.objects[path])


class Body(io.BytesIO):
    def __init__(self, body: bytes, told: int | None = None) -> None:
        super().__init__(body)
        self.size = len(body) if told is None else told


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    monkeypatch.setattr(Store, "objects", found, raising=False)
    monkeypatch.setitem(registered, "s3", Store)
    return found


def test_files_of_a_bucket(objects: dict[str, bytes], trace: bytes) -> None:
    for rank in range(3):
        objects[f"bucket/run/rank{rank}.json.gz"] = trace
    objects["bucket/run/sub/deeper.json.gz"] = trace

    assert opspan.load("s3://bucket/run/rank1.json.gz").paths == ["s3://bucket/run/rank1.json.gz"]
    assert len(opspan.load("s3://bucket/run/").ranks) == 3
    assert len(opspan.load("s3://bucket/run/*[02].json.gz").ranks) == 2
    assert "there is nothing at this address" in refused("s3://bucket/run/rank7.json.gz")


def test_a_trace_may_be_a_folder_there(objects: dict[str, bytes], trace: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.json.gz").write_bytes(trace)
    here = opspan.load(tmp_path / "run.json.gz")
    here.save(tmp_path / "saved")
    for file in (tmp_path / "saved").iterdir():
        objects[f"bucket/saved/{file.name}"] = file.read_bytes()

    found = opspan.load("s3://bucket/saved")

    assert_frame_equal(found.ranges, here.ranges)
    assert found.metadata.source == "kineto"


def test_names_in_a_folder_there_decide_nothing(objects: dict[str, bytes], temporary: Path) -> None:
    for name in ("../../escaped", "..", "a\nb", ".profile"):
        objects[f"bucket/run/{name}"] = b"x"

    said = refused("s3://bucket/run", ReadError)

    assert said.startswith("s3://bucket/run is a folder with ")
    assert not list(temporary.parent.rglob("*escaped*"))


def test_what_a_package_says_has_no_secrets(objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("no bucket s3://bucket/x?versionId=5ec2e7\nin 5ec2e7")

    monkeypatch.setattr(Store, "info", fails)

    said = refused("s3://bucket/x?versionId=5ec2e7")

    assert said.startswith("cannot read s3://bucket/x?...: ValueError: no bucket ")
    assert "5ec2e7" not in said


def test_a_shorter_file_than_was_told_is_not_read(objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    objects["bucket/x"] = b"{}"

    monkeypatch.setattr(Store, "_open", lambda *_, **__: Body(b"{}", told=1000))

    assert "2 of 1,000 bytes came. Nothing of it was read: try again" in refused("s3://bucket/x")


def test_no_store_is_asked_by_any_other_name() -> None:
    assert "memory" in fsspec.available_protocols()
    assert "expected one of https://" in refused("memory://bucket/x", opspan.errors.UsageError)
