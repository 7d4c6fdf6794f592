"""Failures are not taken for regressions: exit codes if outputs, files or folders cannot be used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import ordinary_user
from builders import kineto
from builders.capture import Capture
from emit.running import MAIN, READ, environment, forked_into, python
from opspan.cli import VERBS

# With each verb what it needs to have something to print. attach, push and top find nobody who answers.
VERB_ARGUMENTS = {
    "attach": ["4194304"],
    "demo": ["--help"],
    "diff": ["a.json", "a.json", "--fail-over", "5%"],
    "doctor": ["--help"],
    "exec": ["--help"],
    "export": ["a.json", "out.csv", "--force"],
    "help": ["table"],
    "push": ["a.json", "--url", "http://127.0.0.1:9", "--app", "x"],
    "report": ["a.json", "-o", "out.html", "--force"],
    "run": ["--", "true"],
    "top": ["4194304", "--count", "1"],
    "view": ["--help"],  # it would serve until somebody ends it
}
QUICK = ("help", "diff", "export", "attach")
# Verbs that read, and yet start as users start them: `push`, as it waits before it asks again, all six side by side.
STARTED = (*QUICK, "push")
FULL = "/dev/full"


def start(*arguments: str, cwd: Path, shell: str) -> subprocess.Popen[bytes]:
    """`shell`: where the outputs of the command go, as a shell writes it."""
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, "-m", "opspan", *arguments]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Python ignores it, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL),
    )


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out.decode(), err.decode()


# How Python begins where an output is closed.
CLOSED = "import os, sys\nos.close({number})\nsys.{name} = sys.__{name}__ = None\n"
OUTPUTS = {"good": "", "full": f">{FULL}", "closed": ">&-", "no errors": "2>&-", "errors full": f"2>{FULL}"}
GONE = "gone"  # the reader has closed the pipe long before the verb prints
Done = dict[str, tuple[int, str, str]]


def each_started(arguments: list[str], folders: dict[str, Path]) -> Done:
    running = {name: start(*arguments, cwd=folders[name], shell=shell) for name, shell in OUTPUTS.items()}
    gone = start(*arguments, cwd=folders[GONE], shell="")
    assert gone.stdout is not None
    gone.stdout.close()
    done = {name: ended(process) for name, process in running.items()}
    _, err = gone.communicate(timeout=300)
    return done | {GONE: (gone.returncode, "", err.decode())}


def each_forked(arguments: list[str], folders: dict[str, Path]) -> Done:
    """The same in forks of a process that has imported what reads: that takes longer than the verbs."""
    done = {}
    for name, folder in folders.items():
        begin = {"closed": CLOSED.format(number=1, name="stdout"), "no errors": CLOSED.format(number=2, name="stderr")}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(FULL, "wb") as full:  # noqa: PTH123
            unread, pipe = os.pipe()
            os.close(unread)
            files = {"full": (full, err), "errors full": (out, full), GONE: (pipe, err)}.get(name, (out, err))
            descriptors = [file if isinstance(file, int) else file.fileno() for file in files]
            code = forked_into((descriptors[0], descriptors[1]), begin.get(name, "") + MAIN, *arguments, cwd=folder)
            os.close(pipe)
            out.seek(0)
            err.seek(0)
            done[name] = (code, out.read().decode(), err.read().decode())
    return done


def marked(verb: str) -> object:
    return verb if verb in QUICK else pytest.param(verb, marks=pytest.mark.slow)


@pytest.mark.skipif(not os.path.exists(FULL), reason="this system has no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("verb", [marked(verb) for verb in VERBS])
def test_an_output_that_cannot_be_written_is_no_regression(verb: str, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in (*OUTPUTS, GONE)}
    for folder in folders.values():
        folder.mkdir()
        kineto.write(folder / "a.json")
    each = each_forked if verb in READ and verb not in STARTED else each_started
    done = each([verb, *VERB_ARGUMENTS.get(verb, ["a.json"])], folders)

    code, out, _ = done["good"]
    assert code in (0, 2)
    for name in ("full", "closed"):
        found, _, said = done[name]
        assert found == (2 if out else code), (name, said)
        assert "Traceback" not in said
        assert not out or said.splitlines()[-1].startswith("error: cannot write to the standard output: ")
    for name in ("no errors", "errors full"):
        assert done[name][:2] == (code, out), name
    found, _, said = done[GONE]
    assert found == (141 if out else code)
    assert "Traceback" not in said


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], ["table", "--help"]])
def test_help_is_an_output_like_any_other(arguments: list[str], tmp_path: Path) -> None:
    code, _, err = ended(start(*arguments, cwd=tmp_path, shell=">&-"))

    assert (code, err) == (2, "error: cannot write to the standard output: it is closed\n")


def test_what_a_library_prints_goes_into_no_file_where_outputs_are_closed(tmp_path: Path) -> None:
    code = (
        "import os, opspan.cli\n"
        "opspan.cli._occupy_standard_streams()\n"
        "file = open('result', 'wb')\n"
        "os.write(1, b'of a library')\n"
        "file.close()\n"
    )
    subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "$0" >&- 2>&-', code], cwd=tmp_path, env=environment(), check=True
    )

    assert (tmp_path / "result").read_bytes() == b""


def test_a_fault_of_opspan_is_no_regression_either() -> None:
    code = """
    import sys
    from opspan.cli import doctor, main
    def fails():
        raise KeyError("a fault")
    import opspan.app.doctor
    opspan.app.doctor.checks = fails
    try:
        main(["doctor"])
    except SystemExit as ended:
        print(ended.code)
    """
    assert python(code) == "2\n"


# --- folders and files without permission, as a user to whom permissions apply


def shut(path: Path) -> Path:
    path.chmod(0)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A trace, and folders: one that may not be looked into, one that may be listed and no more, one with both."""
    kineto.write(tmp_path / "a.json")
    for name in ("shut", "listed", "run", "run/shut", "run/listed"):
        (tmp_path / name).mkdir()
        kineto.write(tmp_path / name / "rank0.json")
    Capture(pid=1).write(tmp_path / "shut" / "1-1.opspan")
    (tmp_path / "script.py").write_text("")
    for name in ("shut", "run/shut", "script.py"):
        shut(tmp_path / name)
    for name in ("listed", "run/listed"):
        (tmp_path / name).chmod(0o400)
    return tmp_path


def as_user(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        preexec_fn=ordinary_user.become,
    )
    return done.returncode, done.stdout, done.stderr


REFUSED = [
    "summary shut",
    "summary listed",
    "shut/rank0.json",
    "report a.json -o shut/out.html",
    "export a.json shut/out.json",
    "export a.json shut/out.parquet",
    "diff a.json --save-baseline shut/b.json",
    "diff a.json --baseline shut/b.json",
    "table a.json --metrics shut/x.csv",
    "run -o shut/capture -- true",
    "run -o shut -- true",
    "run -- shut/program",
    "run --idle -- shut/program",
    "exec shut/script.py",
    "exec script.py",
    "push shut --url http://127.0.0.1:9 --app x",
]


@pytest.mark.parametrize(
    "command", [one if number < 4 else pytest.param(one, marks=pytest.mark.slow) for number, one in enumerate(REFUSED)]
)
def test_a_folder_without_permission_is_one_line(command: str, place: Path) -> None:
    code, out, err = as_user("-m", "opspan", *command.split(), cwd=place)

    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("error: ")
    assert "Permission denied" in err
    assert sorted(path.name for path in place.iterdir()) == ["a.json", "listed", "run", "script.py", "shut"]


WRITES: dict[str, Callable[[Path], list[str]]] = {
    "summary": lambda _: ["summary", "run", "--format", "json"],
    "export": lambda place: ["export", "run", str(place / "out.json")],
    "report": lambda place: ["report", "run", "-o", str(place / "out.html")],
}


@pytest.mark.parametrize("verb", ["summary", "export", pytest.param("report", marks=pytest.mark.slow)])
def test_folders_without_permission_leave_the_rest_of_a_run(verb: str, place: Path) -> None:
    code, out, err = as_user("-m", "opspan", *WRITES[verb](place), cwd=place)

    assert code == 0, err
    if verb != "report":
        for name in ("run/shut", "run/listed"):
            assert f"cannot read {name}: Permission denied" in out + err


def test_loading_what_may_not_be_read_is_an_error_of_opspan(place: Path) -> None:
    code = """
    import opspan
    for load in (opspan.load, opspan.load_many, opspan.load_nsys, opspan.load_nvprof, opspan.load_kineto,
                 opspan.load_rocpd, opspan.load_unitrace, opspan.load_vtune, opspan.load_vtune_report):
        for path in ("shut", "shut/rank0.json", "listed/rank0.json", "shut/1-1.opspan"):
            try:
                found = load(path)
                found.issues  # load_many opens files late
            except opspan.OpspanError as error:
                assert "Permission denied" in str(error), (load, path, error)
            else:
                raise AssertionError((load, path))
    trace = opspan.load("a.json")
    for write in (trace.export, trace.report, trace.save, trace.save_baseline):
        for path in ("shut/x.json", "listed/x.json"):
            try:
                write(path)
            except opspan.OpspanError as error:
                assert "Permission denied" in str(error), (write, path, error)
            else:
                raise AssertionError((write, path))
    print("done")
    """
    code_, out, err = as_user("-c", textwrap.dedent(code), cwd=place)

    assert (code_, out) == (0, "done\n"), err
