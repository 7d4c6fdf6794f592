"""record's folders: what is in them, who may write there, and what a trace of one recording holds."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest

import opspan
from emit.running import python, run

pytest.importorskip("torch")

TWICE = """
    import sys, torch, opspan
    for name in ("first", "second"):
        try:
            with opspan.record(sys.argv[1], **eval(sys.argv[2])) as rec:
                with opspan.annotate(name): torch.ones(2)
            print(rec.trace.ranges["name"].to_list(), rec.trace.issues.height)
        except opspan.errors.CaptureError as error:
            print(error)
"""


def test_a_folder_that_holds_a_recording_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first, second = python(TWICE, str(folder), "{}").splitlines()

    assert first.startswith("['first'")
    assert f"{folder} holds another recording" in second
    assert "add=True" in second
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("name", ["link", "link/deeper", "sub/../run"])
def test_a_folder_may_be_named_by_a_link_or_by_way_of_another(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    first, second = python(TWICE, str(tmp_path / name), "{}").splitlines()

    assert first.startswith("['first'")
    assert "holds another recording" in second


def test_added_recordings_read_their_own_files_and_all_of_them_are_cycles(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first, second = python(TWICE, str(folder), "{'add': True}").splitlines()

    assert ("first" in first, "second" in first) == (True, False)
    assert ("first" in second, "second" in second) == (False, True)
    assert first.endswith(" 0")
    assert second.endswith(" 0")
    whole = opspan.load(folder)
    assert whole.issues.is_empty()
    (rank,) = whole.ranks
    assert len(rank.cycles) == 2
    named = whole.ranges.filter(pl.col("name").cast(pl.String).is_in(["first", "second"]))
    assert named.select(pl.col("name").cast(pl.String), "cycle").rows() == [("first", 1), ("second", 2)]


@pytest.mark.slow
def test_ranks_that_record_into_one_folder_at_once_are_one_run(tmp_path: Path) -> None:
    code = """
        import os, sys, torch, opspan
        (a, b), (c, d) = os.pipe(), os.pipe()
        child = os.fork()
        def meet(hear, tell):
            os.write(tell, b"x"); os.read(hear, 1)
        mine = (a, d) if child else (c, b)
        with opspan.record(sys.argv[1]) as rec:
            meet(*mine)
            torch.ones(2)
            meet(*mine)
        assert set(rec.trace.processes["pid"]) == {os.getpid()}
        if child: assert os.waitpid(child, 0)[1] == 0
    """
    python(code, str(tmp_path / "run"))

    whole = opspan.load(tmp_path / "run")
    assert whole.issues.select("code", "severity", "count").rows() == [("several_recordings", "info", 2)]
    assert whole.ranges.filter(pl.col("name") == "aten::ones")["pid"].n_unique() == 2


def test_other_files_in_the_folder_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_text("")
    assert python(TWICE, str(tmp_path), "{}").startswith("['first'")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("record(True)", "TypeError: record(True): the first argument is the folder: write record(record_shapes=True)"),
        ("record(path='')", "ValueError: record(path=''): name a folder, or leave path out for a temporary one"),
        ("record('')", "ValueError: record(path=''): name a folder, or leave path out for a temporary one"),
    ],
)
def test_a_first_argument_that_is_no_folder_is_refused(call: str, said: str, tmp_path: Path) -> None:
    code = (
        f"import opspan\ntry: opspan.{call}\nexcept Exception as error: print(f'{{type(error).__name__}}: {{error}}')"
    )
    assert python(code, cwd=tmp_path) == said + "\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_leftovers_of_a_killed_process_go_at_the_next_use(tmp_path: Path) -> None:
    killed = """
        import os, torch, opspan
        with opspan.record():
            torch.ones(2)
            os.kill(os.getpid(), 9)
    """
    env = {"TMPDIR": str(tmp_path)}
    assert run([sys.executable, "-c", textwrap.dedent(killed)], env).returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / "opspan-record-of-somebody").mkdir()  # not one of ours

    using = """
        import os, torch, opspan
        with opspan.record() as first: torch.ones(2)
        before = len(os.listdir(os.environ["TMPDIR"]))
        if not (child := os.fork()):
            with opspan.record(): torch.ones(2)
            os._exit(0)  # leaves its folder
        os.waitpid(child, 0)
        print(before, first.trace.ranges.height)
        with opspan.record(): torch.ones(2)
    """
    assert python(using, env=env) == "2 3\n"
    # A process takes away what others left when it first needs a folder: the fork's is for the next one.
    python("import opspan\nwith opspan.record(): pass", env=env)
    assert [path.name for path in tmp_path.iterdir()] == ["opspan-record-of-somebody"]


class TestClaims:
    """Temporary folders by process, without torch."""

    def test_a_live_ones_folder_stays_and_a_dead_ones_goes(self, tmp_path: Path) -> None:
        code = """
            import os, sys
            from pathlib import Path
            from opspan import private_files
            here = Path(sys.argv[1])
            claim = private_files._claim(here, "building-")
            (claim.path / "observer.so").write_text("")
            hear, tell = os.pipe()
            if not (child := os.fork()):
                os.close(claim.lock)
                theirs = private_files._claim(here, "building-")
                print(len(list(here.iterdir())), flush=True)
                os.kill(os.getpid(), 9)
            os.waitpid(child, 0)
            print(len(list(here.iterdir())))
            with private_files.claimed(here, "building-") as mine:
                print(len(list(here.iterdir())), claim.path.is_dir(), mine.is_dir())
            claim.release()
            print(len(list(here.iterdir())))
        """
        assert python(code, str(tmp_path)).splitlines() == ["2", "2", "2 True True", "0"]

    def test_a_lock_that_is_held_counts_though_the_number_says_nothing(self, tmp_path: Path) -> None:
        code = """
            import os, sys
            from pathlib import Path
            from opspan import private_files
            here = Path(sys.argv[1])
            claim = private_files._claim(here, "x-")
            os.rename(claim.path, here / "x-4194305-abc")  # a process of another container, as seen from here
            private_files._sweep(here, "x-", os.geteuid())
            print(len(list(here.iterdir())))
            os.close(claim.lock)
            private_files._sweep(here, "x-", os.geteuid())
            print(len(list(here.iterdir())))
        """
        assert python(code, str(tmp_path)) == "1\n0\n"


@pytest.mark.parametrize("where", ["given", "new", "temporary"])
def test_out_of_descriptors_is_said_and_the_program_goes_on(where: str, tmp_path: Path) -> None:
    program = """
        import os, resource, sys, torch, opspan
        path = sys.argv[1] or None
        with opspan.record(): torch.ones(2)
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        held = []
        try:
            while True: held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError: pass
        try:
            with opspan.record(path): torch.ones(2)
            print("recorded")
        except opspan.errors.CaptureError as error:
            print(error)
        for fd in held: os.close(fd)
        with opspan.record(path) as rec: torch.ones(2)
        print(rec.trace.ranges.height > 0)
    """
    path = tmp_path / where
    if where == "given":
        path.mkdir()
    lines = python(program, "" if where == "temporary" else str(path)).splitlines()
    assert "Too many open files" in lines[0]
    assert "raise the limit (ulimit -n)" in lines[0]
    assert lines[1:] == ["True"]
