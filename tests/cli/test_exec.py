"""opspan exec against plain python: the same program, the same output, the same end."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

import opspan as package
from emit.running import opspan, run, under_collectors

pytestmark = pytest.mark.usefixtures("nothing_to_build")

# Each prints what could differ.
SCRIPTS = {
    "what it sees": """
        import os, sys
        print(sys.argv, sys.path[0], __name__, __file__, __package__, __spec__ and __spec__.name, __cached__, __doc__)
        print(sorted(name for name in globals() if name not in ("os", "sys")), type(__loader__).__name__)
        print(sys.modules["__main__"].__dict__ is globals(), __builtins__.__name__, sys.flags.optimize)
    """,
    "what Python looks after": """
        import gc
        class Ring:
            def __init__(self): self.me = self
            def __del__(self): print("gone", flush=True)
        print(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count())
        ring = Ring()
    """,
    "docstring and futures": '''
        """What it is."""
        from __future__ import annotations
        x: NotDefined = 1
        print(__doc__, __annotations__)
    ''',
    "sibling": "import sibling; print(sibling.__file__)",
    "exit code": "import sys; sys.exit(7)",
    "exit with a text": "import sys; sys.exit('a reason')",
    "exit with none": "raise SystemExit",
    "exception": """
        def inner(): raise ValueError("wrong\\nvalue")
        def outer():
            try: inner()
            except ValueError as error: raise KeyError("outer") from error
        print("before")
        outer()
    """,
    "exception group": "raise ExceptionGroup('several', [ValueError(1), KeyError(2)])",
    "syntax error": "print('never')\nx = = 1",
    "syntax error in an import": "import broken",
    "import error": "import no_such_module",
    "hook of its own": """
        import sys, traceback
        def hook(kind, error, trace): print("hook", kind.__name__, len(traceback.extract_tb(trace)))
        sys.excepthook = hook
        raise ValueError("x")
    """,
    "broken hook": """
        import sys
        def hook(*_): raise KeyError("hook")
        sys.excepthook = hook
        raise ValueError("x")
    """,
    "recursion": """
        def deeper(n): return deeper(n + 1)
        try: deeper(0)
        except RecursionError: print("deep")
    """,
    "atexit and threads": """
        import atexit, sys, threading, time
        atexit.register(lambda: print("atexit"))
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
        print("main")
        raise ValueError("x")
    """,
    "pickle of its own class": """
        import pickle
        class Mine: pass
        print(type(pickle.loads(pickle.dumps(Mine()))) is Mine, Mine.__module__)
    """,
    "spawned process": """
        import multiprocessing
        class Mine: value = 5
        def work(queue, mine): queue.put((mine.value, __name__))
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=work, args=(queue, Mine()))
            process.start()
            print(queue.get(), process.join(), process.exitcode)
    """,
    "os._exit": "import os; print('x', flush=True); os._exit(5)",
    "input": "print(input())",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sibling.py").write_text("")
    (tmp_path / "broken.py").write_text("def f(:\n")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys\nprint('main', sys.argv, __package__, __spec__.name)\n")
    (package / "raising.py").write_text("import sys\nprint(sys.argv, sys.path[0], __name__)\nraise ValueError('x')\n")
    return tmp_path


def same(folder: Path, *command: str, env: dict[str, str | None] | None = None) -> subprocess.CompletedProcess[str]:
    """Both ways give the same."""
    env = {"PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
    plain = run([sys.executable, *command], env, folder)
    ours = opspan("exec", *command, env=env, cwd=folder)
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)
    return ours


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_does_what_it_does_under_python(name: str, folder: Path) -> None:
    if name == "exception group" and sys.version_info < (3, 11):
        pytest.skip("Python 3.11 has exception groups")
    (folder / "script.py").write_text(textwrap.dedent(SCRIPTS[name]).lstrip())

    same(folder, "script.py", "a", "--record-shapes", "-m", "--", "--help")


def test_a_script_elsewhere_and_one_behind_a_link(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "script.py").write_text(textwrap.dedent(SCRIPTS["what it sees"]))
    (folder / "link.py").symlink_to(folder / "sub" / "script.py")

    same(folder, "sub/script.py")
    same(folder, str(folder / "sub" / "script.py"))
    same(folder, "link.py")


def test_a_folder_and_an_archive_with_a_main(folder: Path) -> None:
    program = textwrap.dedent(SCRIPTS["what it sees"])
    (folder / "app").mkdir()
    (folder / "app" / "__main__.py").write_text(program)
    with zipfile.ZipFile(folder / "app.zip", "w") as archive:
        archive.writestr("__main__.py", program)

    same(folder, "app", "x")
    same(folder, "app.zip", "x")


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "package", "--modules", "-x"),
        ("-mpackage", "--modules", "-x"),
        ("-mpackage",),
        ("-m", "package.raising", "a"),
        ("-m", "sibling"),
        ("-m", "no_such_module"),
        ("-m", "json.tool", "--help"),
    ],
)
def test_a_module_does_what_it_does_under_python(command: tuple[str, ...], folder: Path) -> None:
    done = same(folder, *command, env={"COLUMNS": "80"})

    assert done.stdout or done.stderr or command == ("-m", "sibling")


def test_safe_path_is_respected(folder: Path) -> None:
    (folder / "script.py").write_text("import sys; print(sys.path)")

    same(folder, "script.py", env={"PYTHONSAFEPATH": "1"})


def test_an_interrupt_is_shown_and_ends_it_by_the_signal(folder: Path) -> None:
    (folder / "script.py").write_text(
        "import atexit, signal\natexit.register(lambda: print('atexit'))\nsignal.raise_signal(signal.SIGINT)\n"
    )
    plain, ours = (
        run([*command, "script.py"], cwd=folder)
        for command in ([sys.executable], [sys.executable, "-m", "opspan", "exec"])
    )

    assert (ours.stdout, ours.stderr) == (plain.stdout, plain.stderr)
    assert ours.returncode == plain.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in ours.stderr


def test_nothing_to_run_is_bad_use(folder: Path) -> None:
    for command, said in [((), "nothing to run"), (("nosuch.py",), "no script nosuch.py"), (("-m",), "-m")]:
        done = opspan("exec", *command, cwd=folder)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert said in done.stderr


TRAIN = """
import os, threading, torch
assert "opspan_enter" in torch.nn.Module.__call__.__code__.co_names or not os.environ.get("MODULES")
torch.nn.Linear(2, 3)(torch.ones(4, 2))
thread = threading.Thread(target=lambda: torch.ones(7).relu())
thread.start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["nvtx", "itt", None])
def test_the_script_is_labelled_for_the_tool_that_is_attached(tool: str | None, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (folder / "script.py").write_text(TRAIN)
    captured = tmp_path / "captured"
    options = ["--emit", tool] if tool else []

    done = opspan(
        "exec", *options, "--record-shapes", "--modules", "script.py", env=under_collectors(captured), cwd=folder
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    ranges = package.load(captured).ranges
    # Without --emit: one collector listens to both, and is told each range once.
    assert set(ranges["source"]) == {tool or "nvtx"}
    assert ranges.filter(name="aten::linear")["sizes"].to_list() == ["[[4, 2], [3, 2], [3]]"]
    assert ranges.filter(name="Linear")["kind"].to_list() == ["module"]
    assert ranges.filter(name="aten::relu").height == 1, "a thread that outlives the main script is labelled too"


@pytest.mark.slow
def test_it_gives_way_to_the_scripts_own_session(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (folder / "script.py").write_text(
        "import torch, opspan\ntorch.ones(1)\n"
        "with opspan.emit_nvtx(record_shapes=True) as session: torch.ones(3).relu()\nprint(session.stats.ranges > 0)\n"
    )
    captured = tmp_path / "captured"

    done = opspan("exec", "--emit", "nvtx", "script.py", env=under_collectors(captured), cwd=folder)

    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)
    ranges = package.load(captured).ranges
    assert ranges.filter(name="aten::relu")["sizes"].to_list() == ["[[3]]"]
    assert ranges.filter(name="aten::ones").height == 2


@pytest.mark.slow
def test_nobody_listens_is_one_warning(folder: Path) -> None:
    pytest.importorskip("torch")
    (folder / "script.py").write_text("import torch; print('runs')")

    done = opspan("exec", "script.py", cwd=folder)

    assert (done.stdout, done.returncode) == ("runs\n", 0)
    assert done.stderr.count("labels nothing") == 1


@pytest.mark.slow
def test_labels_that_cannot_be_had_end_it_before_the_work(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (folder / "script.py").write_text("import torch; print('runs')")
    env = {**under_collectors(tmp_path / "captured"), "PATH": "/nonexistent", "CXX": None}

    done = opspan("exec", "--emit", "nvtx", "script.py", env={**env, "OPSPAN_CACHE_DIR": str(tmp_path)}, cwd=folder)

    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr.startswith("error: no C++ compiler was found")
