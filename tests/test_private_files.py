"""Files that are this user's alone: whose they are, links that were planted, leftovers, results that become whole."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from opspan import private_files

STRANGER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder two below one that is this user's alone."""
    (tmp_path / "above" / "cache").mkdir(parents=True)
    return tmp_path / "above" / "cache"


def give_away(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER)


class TestWhoseItIs:
    def test_what_this_user_alone_can_write_is_fine(self, folder: Path) -> None:
        (folder / "file").write_bytes(b"content")

        assert private_files.check_folder(folder) == folder
        descriptor = private_files.opened(folder / "file")

        assert os.read(descriptor, 100) == b"content"
        os.close(descriptor)

    @pytest.mark.parametrize("spoilt", ["cache", "above"])
    @pytest.mark.parametrize(
        "spoil",
        [
            pytest.param(give_away, marks=needs_root, id="another user's"),
            pytest.param(lambda path: path.chmod(0o777), id="written by all"),
            pytest.param(lambda path: path.chmod(0o757), id="written by others"),
        ],
    )
    def test_a_folder_that_others_can_change_is_refused(
        self, folder: Path, spoilt: str, spoil: Callable[[Path], None]
    ) -> None:
        path = folder if spoilt == "cache" else folder.parent
        spoil(path)

        with pytest.raises(PermissionError, match=rf"{path} (belongs to user|can be written by others)"):
            private_files.check_folder(folder)
        with pytest.raises(PermissionError, match=str(path)):
            private_files.kept_folder(folder / "exports" if spoilt == "above" else folder)

    def test_a_folder_where_nobody_takes_what_is_not_theirs_may_lie_above_but_is_no_cache(self, folder: Path) -> None:
        folder.parent.chmod(0o1777)

        private_files.check_folder(folder)
        with pytest.raises(PermissionError, match="can be written by others"):
            private_files.check_folder(folder.parent)

    def test_a_group_that_is_this_user_alone_is_nobody_else(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder.parent.chmod(0o775)

        monkeypatch.setattr(private_files, "_is_alone", lambda user, group: True)
        private_files.check_folder(folder)
        monkeypatch.setattr(private_files, "_is_alone", lambda user, group: False)
        with pytest.raises(PermissionError):
            private_files.check_folder(folder)

    def test_a_link_to_a_folder_counts_as_where_it_leads(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(folder)
        assert private_files.check_folder(tmp_path / "link") == folder
        folder.chmod(0o777)
        with pytest.raises(PermissionError):
            private_files.check_folder(tmp_path / "link")

    @needs_root
    def test_what_roots_number_is_not_known_for_is_the_machines_own_only_above(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        os.chown(folder.parent, 65534, 65534)  # as / and /home look like in a container of one user
        shown = {"/proc/self/uid_map": ["         0       1000          1"], "/proc/sys/kernel/overflowuid": ["65534"]}

        with pytest.raises(PermissionError):
            private_files.check_folder(folder)
        monkeypatch.setattr(private_files, "_lines", shown.__getitem__)
        private_files.check_folder(folder)
        os.chown(folder, 65534, 65534)
        with pytest.raises(PermissionError):
            private_files.check_folder(folder)

    @pytest.mark.parametrize(
        "spoil",
        [
            pytest.param(give_away, marks=needs_root, id="another user's"),
            pytest.param(lambda path: path.chmod(0o622), id="written by others"),
            pytest.param(lambda path: path.chmod(0o620), id="written by a group"),
            pytest.param(lambda path: (path.rename(path.with_name("to")), path.symlink_to("to")), id="a link"),
            pytest.param(lambda path: (path.unlink(), os.mkfifo(path)), id="a pipe"),
            pytest.param(lambda path: (path.unlink(), path.mkdir()), id="a folder"),
        ],
    )
    def test_a_file_that_others_can_change_is_not_opened(self, folder: Path, spoil: Callable[[Path], object]) -> None:
        path = folder / "file"
        path.write_bytes(b"content")
        path.chmod(0o644)
        spoil(path)

        with pytest.raises(PermissionError, match=str(path)):
            private_files.opened(path)

    def test_new_folders_are_written_by_nobody_else_whatever_the_mask(self, folder: Path) -> None:
        before = os.umask(0)
        try:
            made = private_files.kept_folder(folder / "one" / "two", mode=0o700)
        finally:
            os.umask(before)

        assert [path.stat().st_mode & 0o777 for path in (made.parent, made)] == [0o755, 0o700]


class TestLocks:
    def test_a_planted_link_is_not_followed(self, folder: Path, tmp_path: Path) -> None:
        mine = tmp_path / "mine"
        mine.write_text("keep")
        (folder / "x.lock").symlink_to(mine)
        (folder / "new.lock").symlink_to(tmp_path / "made")

        for name in ("x.lock", "new.lock"):
            with pytest.raises(PermissionError, match="is a link"), private_files.locked(folder / name, lambda: None):
                pass
        assert mine.read_text() == "keep"
        assert not (tmp_path / "made").exists()

    def test_another_process_waits_and_says_so(self, folder: Path) -> None:
        program = f"""
from pathlib import Path
from opspan import private_files
with private_files.locked(Path({str(folder / "x.lock")!r}), lambda: print("waiting", flush=True)):
    print("had it", flush=True)
"""
        with private_files.locked(folder / "x.lock", lambda: None):
            other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
            assert other.stdout is not None
            assert other.stdout.readline() == "waiting\n"
        assert other.communicate(timeout=300)[0] == "had it\n"


class TestUnfinished:
    def test_it_has_the_name_in_a_folder_of_its_own_and_takes_its_place(self, folder: Path) -> None:
        with private_files.unfinished(folder / "out.json", overwrite=False) as path:
            path.write_text("content")
            (path.parent / "out.json-journal").write_text("")
            mode = path.parent.stat().st_mode & 0o777

        assert (path.name, path.parent.parent, mode) == ("out.json", folder, 0o700)
        assert [entry.name for entry in folder.iterdir()] == ["out.json"]
        assert (folder / "out.json").read_text() == "content"

    def test_no_two_have_one_name(self, folder: Path) -> None:
        names = set()
        for _ in range(20):
            with private_files.unfinished(folder / "out", overwrite=True) as path:
                path.write_text("")
            names.add(path.parent.name)
        assert len(names) == 20

    @pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
    def test_after_a_failure_there_is_what_was_there(self, folder: Path, failure: BaseException) -> None:
        (folder / "out").write_text("before")

        def write() -> None:
            with private_files.unfinished(folder / "out", overwrite=True) as path:
                path.write_text("half")
                path.with_name("out-journal").write_text("")
                raise failure

        with pytest.raises(type(failure)):
            write()

        assert [entry.name for entry in folder.iterdir()] == ["out"]
        assert (folder / "out").read_text() == "before"

    @pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
    def test_what_came_in_between_is_not_replaced_unasked(
        self, folder: Path, links: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        if not links:
            monkeypatch.setattr(os, "link", refuse)
        with private_files.unfinished(folder / "first", overwrite=False) as path:
            path.write_text("first")

        def write() -> None:
            with private_files.unfinished(folder / "out", overwrite=False) as path:
                path.write_text("mine")
                (folder / "out").symlink_to("nowhere")

        with pytest.raises(FileExistsError):
            write()

        assert (folder / "first").read_text() == "first"
        assert sorted(entry.name for entry in folder.iterdir()) == ["first", "out"]
        assert (folder / "out").is_symlink()

    @pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
    def test_several_at_once_are_each_whole(self, folder: Path, is_folder: bool) -> None:
        def write(number: int) -> None:
            with private_files.unfinished(folder / "out", overwrite=True) as path:
                if is_folder:
                    path.mkdir()
                for file in [path / name for name in "abc"] if is_folder else [path]:
                    file.write_text(f"{number}" * 1000)
                start.wait(timeout=300)

        start = threading.Barrier(8)
        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert [entry.name for entry in folder.iterdir()] == ["out"]
        files = sorted((folder / "out").iterdir()) if is_folder else [folder / "out"]
        assert len(files) == (3 if is_folder else 1)
        texts = {file.read_text() for file in files}
        assert len(texts) == 1
        assert len(texts.pop()) == 1000

    def test_what_a_killed_process_left_goes_at_the_next_use(self, folder: Path) -> None:
        program = f"""
import os
from pathlib import Path
from opspan import private_files
with private_files.unfinished(Path({str(folder / "out")!r}), overwrite=True) as path:
    path.write_text("half")
    os.kill(os.getpid(), 9)
"""
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
        assert len(list(folder.iterdir())) == 1

        with private_files.unfinished(folder / "other", overwrite=True) as path:
            path.write_text("whole")
        assert [entry.name for entry in folder.iterdir()] == ["other"]


@needs_root
def test_what_another_user_left_is_left_alone(folder: Path) -> None:
    theirs, mine = folder / "x-4194305-theirs", folder / "x-4194305-mine"
    theirs.mkdir()
    mine.mkdir()
    give_away(theirs)
    (folder / "x-4194305-link").symlink_to(folder.parent)

    with private_files.claimed(folder, "x-"):
        pass

    assert sorted(entry.name for entry in folder.iterdir()) == ["x-4194305-link", "x-4194305-theirs"]
