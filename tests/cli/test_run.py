"""opspan run: the folder, the exit code, the signals, the children."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import opspan as package
from emit.running import environment, opspan, run
from tiers import before_release

pytestmark = pytest.mark.usefixtures("nothing_to_build")

ANNOTATE = "import opspan\nwith opspan.annotate('mine'): pass\n"
TRAIN = "import torch; torch.ones(2, 3).add(1)\n"


def py(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_it_captures_and_says_where(tmp_path: Path) -> None:
    done = opspan("run", "-o", "capture", "--", *py(ANNOTATE + "print('out')"), cwd=tmp_path)

    assert (done.stdout, done.returncode) == ("out\n", 0)
    size = sum(file.stat().st_size for file in (tmp_path / "capture").iterdir())
    assert done.stderr == f"Wrote {tmp_path / 'capture'} (1 process, {size:,} bytes)\n"
    assert "mine" in package.load(tmp_path / "capture").ranges["name"].to_list()


def test_without_a_folder_it_takes_the_first_free_number(tmp_path: Path) -> None:
    (tmp_path / "opspan-capture-1").mkdir()

    opspan("run", "--", *py(ANNOTATE), cwd=tmp_path)
    opspan("run", "--", *py(ANNOTATE), cwd=tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [f"opspan-capture-{n}" for n in (1, 2, 3)]


def test_a_capture_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    (tmp_path / "empty").mkdir()

    full = opspan("run", "-o", "full", "--", *py("print('ran')"), cwd=tmp_path)
    empty = opspan("run", "-o", "empty", "--", *py(ANNOTATE), cwd=tmp_path)

    assert (full.returncode, full.stdout) == (2, "")
    assert full.stderr.startswith("error: full is not empty")
    assert empty.returncode == 0


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_it_exits_as_the_command_did(command: str, code: int, tmp_path: Path) -> None:
    assert opspan("run", "--", "sh", "-c", command, cwd=tmp_path).returncode == code


def test_nothing_captured_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()

    plain = opspan("run", "--", "true", cwd=tmp_path)
    emitting = opspan("run", "--emit", "nvtx", "-o", "mine", "--", "true", cwd=tmp_path)

    assert "Captured nothing" in plain.stderr
    assert "to label them: `opspan run --emit nvtx -- true`" in plain.stderr
    assert "no Python process was reached" in emitting.stderr
    assert list(tmp_path.iterdir()) == [mine], "a folder that was there before stays"


@pytest.mark.slow
@pytest.mark.parametrize("more", before_release(["", "import opspan.nvtx as nvtx; nvtx.is_available()\n"], kept=1))
def test_an_unedited_script_is_told_the_command_that_captures_it(more: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(more + TRAIN)

    plain = opspan("run", "-o", "capture", "--", sys.executable, "train.py", cwd=tmp_path)
    (told,) = re.findall("`(opspan run .*?)`", plain.stderr)
    done = opspan(*shlex.split(told)[1:], cwd=tmp_path)

    assert plain.stderr.startswith("Captured nothing: ")
    assert done.stderr.startswith("Wrote "), done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--", "no-such-command"), "no command no-such-command"),
        (("--", "/etc/passwd"), "cannot be run: Permission denied"),
        ((), "Missing argument"),
        (("-o", "/dev/null/x", "--", "true"), "choose another folder with -o"),
        (("--emit", "cuda", "--", "true"), "'cuda' is not one of"),
        (("--modules", "--", "true"), "add --emit"),
    ],
)
def test_bad_use_is_one_line_and_two(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = opspan("run", *arguments, cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(number: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        f"signal.signal({number.value}, lambda *_: sys.exit(40))\n" + ANNOTATE + "print('ready', flush=True)\n"
        # Not one long sleep: a signal that comes just before it begins would be seen at its end.
        "while True: time.sleep(0.1)"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "opspan", "run", "-o", "capture", "--", *py(code)],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)

    assert process.returncode == 40
    assert errors.startswith("Wrote ")


def test_the_command_is_not_born_with_blocked_signals(tmp_path: Path) -> None:
    code = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"

    assert opspan("run", "--", *py(code), cwd=tmp_path).stdout == "set()\n"


def test_a_killed_program_keeps_what_was_captured(tmp_path: Path) -> None:
    done = opspan("run", "-o", "capture", "--", *py(ANNOTATE + "import os; os.kill(os.getpid(), 9)"), cwd=tmp_path)

    assert done.returncode == 137
    assert "mine" in package.load(tmp_path / "capture").ranges["name"].to_list()


@pytest.mark.slow
@pytest.mark.parametrize("tool", before_release(["nvtx", "itt"], kept=1))
def test_emit_labels_python_and_its_python_children(tool: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = (
        "import multiprocessing, subprocess, sys\n"
        "def work():\n    import torch; torch.ones(5).relu()\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    process.start(); process.join()\n"
        "    subprocess.run([sys.executable, '-c', 'import torch; torch.ones(3).relu()'], check=True)\n"
        "    work()\n"
    )
    (tmp_path / "script.py").write_text(code)

    done = opspan(
        "run", "-o", "capture", "--emit", tool, "--record-shapes", "--", sys.executable, "script.py", cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    ranges = package.load(tmp_path / "capture").ranges.filter(name="aten::relu")
    assert sorted(ranges["sizes"]) == ["[[3]]", "[[5]]", "[[5]]"]
    assert ranges["pid"].n_unique() == 3
    assert set(ranges["source"]) == {tool}


def test_the_hook_hands_over_to_the_users_sitecustomize_and_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('user site')\n")
    code = "import sys; print([p for p in sys.path if 'launch_site' in p], len(sys.meta_path) > 3)\n"
    code += "import sitecustomize; print(sitecustomize.__file__)"

    done = opspan("run", "--emit", "nvtx", "--", *py(code), env={"PYTHONPATH": path_with(tmp_path)}, cwd=tmp_path)

    # The first is that of the Python that `opspan run` runs in.
    assert done.stdout.splitlines() == ["user site", "user site", "[] True", str(tmp_path / "sitecustomize.py")]


def path_with(folder: Path) -> str:
    import os

    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


@pytest.mark.slow
def test_after_torch_is_imported_the_import_hook_is_gone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = (
        "import sys; before = len(sys.meta_path)\nimport torch\nloader = torch.__spec__.loader\n"
        "print(before - len(sys.meta_path), type(loader).__name__, 'exec_module' in vars(loader))"
    )

    done = opspan("run", "--emit", "nvtx", "--", *py(code), cwd=tmp_path)

    assert done.stdout == "1 SourceFileLoader False\n"


def test_a_python_without_opspan_says_so_and_runs(tmp_path: Path) -> None:
    # -S hides the site-packages that opspan is in; the hook is imported by hand, as `site` would.
    from opspan.app import launch

    code = f"import sys; sys.path.insert(0, {str(launch.SITE)!r}); import sitecustomize; print('runs')"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PATH": "/usr/bin"}, capture_output=True, text=True, check=True
    )

    assert done.stdout == "runs\n"
    assert done.stderr.startswith("opspan: this Python is not labelled, it has no opspan")
    assert done.stderr.count("\n") == 1


def test_another_tool_that_wanted_to_listen_is_named(tmp_path: Path) -> None:
    done = opspan("run", "--", "true", env={"NVTX_INJECTION64_PATH": "/other.so"}, cwd=tmp_path)

    assert "NVTX_INJECTION64_PATH=/other.so is set" in done.stderr


def test_it_comes_back_at_once(tmp_path: Path) -> None:
    code = """
import time
from pathlib import Path
from opspan.cli import main
def at_rest_ns():  # so far: neither at work nor in the queue of a busy machine for a processor
    ran, queued, _ = map(int, Path("/proc/self/schedstat").read_text().split())
    return time.monotonic_ns() - ran - queued
before = at_rest_ns()
try: main(["run", "--", "true"])
finally: print(at_rest_ns() - before)
"""
    assert int(run(py(code), cwd=tmp_path).stdout) < 5_000_000_000


def test_it_ends_when_it_was_started_with_sigchld_ignored(tmp_path: Path) -> None:
    # As under a supervisor that does not want to hear of its children. Shells cannot set this, and pass it on.
    code = "import signal, sys; print(signal.getsignal(signal.SIGCHLD).name); sys.exit(7)"
    ours = [sys.executable, "-m", "opspan", "run", "--", *py(code)]
    program = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )

    done = run([sys.executable, "-c", program, *ours], cwd=tmp_path)

    assert (done.returncode, done.stdout) == (7, "SIG_IGN\n"), done.stderr


def test_a_pipe_that_was_closed_ends_the_command_as_it_does_without_us(tmp_path: Path) -> None:
    done = opspan("run", "--", "sh", "-c", "yes | head -1; kill -PIPE $$", cwd=tmp_path)

    assert done.stdout == "y\n"
    assert "Broken pipe" not in done.stderr
    assert done.returncode == 128 + signal.SIGPIPE


def test_a_process_that_was_listened_to_and_said_nothing_is_nothing_captured(tmp_path: Path) -> None:
    code = "from opspan.emit import ranges; assert ranges.listening()"

    done = opspan("run", "-o", "capture", "--", *py(code), cwd=tmp_path)

    assert done.stderr.startswith("Captured nothing: ")
    assert "1 process could be listened to" in done.stderr
    assert "Wrote" not in done.stderr


def test_what_cannot_be_looked_into_costs_no_exit_code(tmp_path: Path) -> None:
    code = ANNOTATE + "import os, sys; os.mkdir('capture/1-1.opspan'); sys.exit(7)"

    done = opspan("run", "-o", "capture", "--", *py(code), cwd=tmp_path)

    assert done.returncode == 7
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.nsys
@pytest.mark.skipif(shutil.which("nsys") is None, reason="needs nsys: tools/vendor-tools installs it")
def test_under_nsys_it_says_that_nsys_wins(tmp_path: Path) -> None:
    profile = ["nsys", "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", "--output=report"]
    done = run([*profile, sys.executable, "-m", "opspan", "run", "-o", "capture", "--", *py(ANNOTATE)], cwd=tmp_path)

    assert "note: nsys already profiles this command: NVTX goes to nsys, opspan" in done.stdout + done.stderr
    assert set(package.load(tmp_path / "capture").ranges["source"]) == {"itt"}
