"""Results in zip and tar files: read as if unpacked; nothing is written where an archive says, or past a bound."""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import opspan
from builders import vtune
from opspan import load
from opspan.errors import NotATrace, NotReadable, ReadError, TooLarge

KINDS = {"zip": "zip", "tar": "tar", "gztar": "tar.gz", "bztar": "tar.bz2", "xztar": "tar.xz"}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that archives are unpacked in: empty again afterwards, whatever came of it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not any(folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return vtune.run(tmp_path / "in" / "r000hs", "2020")


def packed(folder: Path, kind: str, within: str | None = "r000hs") -> Path:
    root = folder.parent if within else folder
    return Path(shutil.make_archive(str(folder.parent.parent / "packed"), kind, root, within))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("within", ["r000hs", None], ids=["in a folder", "at the top"])
def test_an_archive_is_read_as_if_unpacked(folder: Path, kind: str, within: str | None) -> None:
    path = packed(folder, kind, within)
    whole, trace = opspan.load(folder), opspan.load(path)

    assert trace.metadata.paths == (str(path),)
    assert trace.metadata.options == whole.metadata.options
    assert all(frame.equals(trace.frames[name]) for name, frame in whole.frames.items() if name != "issues")
    assert set(trace.issues["path"]) == {str(path)}


def test_names_are_of_no_matter(folder: Path, tmp_path: Path) -> None:
    path = packed(folder, "gztar").rename(tmp_path / "trace.json.gz")
    assert opspan.load(path).ranges.height == 7


@pytest.mark.parametrize("kind", ["zip", "gztar"])
def test_not_finalised(folder: Path, kind: str) -> None:
    (folder / "sqlite-db" / "dicer.db").unlink()
    with pytest.raises(NotReadable, match=r"packed\S* is a result that is not finalised.*vtune -finalize"):
        opspan.load(packed(folder, kind))


@pytest.mark.parametrize("kind", ["zip", "gztar"])
def test_several_results_are_refused(folder: Path, kind: str) -> None:
    vtune.run(folder.parent / "r001hs", "2020")
    with pytest.raises(NotReadable, match="holds 2 results \\(r000hs, r001hs\\); expected one"):
        opspan.load(packed(folder, kind, "."))


def test_an_archive_of_something_else_is_not_of_vtune(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("text")
    for kind in ("zip", "gztar"):
        path = Path(shutil.make_archive(str(tmp_path / "other"), kind, tmp_path / "in"))
        with pytest.raises(NotATrace, match=r"a (zip|gzip) file"):
            opspan.load(path)
        with pytest.raises(NotReadable, match="no result of VTune"):
            load(path, source="vtune")


# --- what wants out


ESCAPES = (
    "../../escaped/sqlite-db/dicer.db",
    "/tmp/escaped.vtune",
    "r/sqlite-db/../../../x.vtune",
    "r/config/../x.options",
)


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_no_member_is_written_outside(folder: Path, tmp_path: Path, name: str, kind: str) -> None:
    before = {path for path in tmp_path.rglob("*") if "temporary" not in path.parts}
    path = tmp_path / f"bad.{kind}"
    database = (folder / "sqlite-db" / "dicer.db").read_bytes()
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, database)
            archive.writestr("r000hs/sqlite-db/dicer.db", database)
    else:
        with tarfile.open(path, "w") as tar:
            for member in (name, "r000hs/sqlite-db/dicer.db"):
                info = tarfile.TarInfo(member)
                info.size = len(database)
                tar.addfile(info, io.BytesIO(database))
    # The first of them is one more result, of a strange name; the others are no part of one.
    if name.endswith("dicer.db"):
        with pytest.raises(NotReadable, match="holds 2 results"):
            load(path, source="vtune")
    else:
        assert load(path, source="vtune").ranges.height == 7
    after = {path for path in tmp_path.rglob("*") if "temporary" not in path.parts}
    assert after == before | {path}
    assert not Path("/tmp/escaped.vtune").exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "links.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("r000hs/sqlite-db/dicer.db")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(NotReadable, match="no result of VTune"):
        opspan.load(path)


# --- what is too much


def zeros(path: Path, kind: str, count: int) -> Path:
    """An archive of one result whose database is nothing but zeros."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("r000hs/sqlite-db/dicer.db", bytes(count))
    else:
        with tarfile.open(path, f"w:{kind}") as tar:
            info = tarfile.TarInfo("r000hs/sqlite-db/dicer.db")
            info.size = count
            tar.addfile(info, io.BytesIO(bytes(count)))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zip", "gz", "xz"])
def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("OPSPAN_BUDGET", "0.01")
    path = zeros(tmp_path / "bomb", kind, 64 << 20)
    with pytest.raises(TooLarge, match="more bytes come out of it"):
        opspan.load(path)


def test_a_bomb_that_lies_before_the_result_is_not_read_over(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSPAN_BUDGET", "0.01")
    path = tmp_path / "bomb"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("r000hs/data.0/raw")
        info.size = 64 << 20
        tar.addfile(info, io.BytesIO(bytes(64 << 20)))
        tar.add(folder, "r000hs")
    with pytest.raises(TooLarge, match="more bytes come out of it"):
        opspan.load(path)


# --- what is broken


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_archive_is_refused(folder: Path, tmp_path: Path, kind: str) -> None:
    whole = packed(folder, kind).read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ReadError) as caught:
        load(cut, source="vtune")
    assert str(cut) in str(caught.value)


def test_an_encrypted_zip_is_refused(folder: Path) -> None:
    path = packed(folder, "zip")
    raw = bytearray(path.read_bytes())
    at = 0
    for magic, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = 0
        while (at := raw.find(magic, at)) >= 0:
            raw[at + flags] |= 1
            at += 4
    path.write_bytes(raw)
    with pytest.raises(ReadError, match="encrypted"):
        opspan.load(path)
