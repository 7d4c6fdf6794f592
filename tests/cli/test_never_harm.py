"""The user's program runs as it would without opspan, whatever is wrong with the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import opspan as package
from emit.running import MAIN, copier_of, forked, opspan, run
from tiers import RELEASE

pytest.importorskip("torch")

PROGRAM = "import torch; print('result', int(torch.ones(3).sum()))"

# The user's own sitecustomize takes the home away, but only in the program, where OPSPAN_EMIT is set.
NO_HOME = """
    import pwd
    os.environ.pop("HOME", None)
    def getpwuid(uid): raise KeyError(uid)
    pwd.getpwuid = getpwuid
"""
UNFORESEEN = """
    import importlib.abc, sys
    class Broken(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name == "opspan.emit.sessions":
                raise ZeroDivisionError("nobody thought of this")
    sys.meta_path.insert(0, Broken())
"""
NO_STDERR = "    import sys; sys.stderr = None\n"
RAISES = "    raise ValueError('of the user')\n"


def emit(
    folder: Path, *options: str, site: str = "    pass", **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """The program under `opspan run --emit`, with every warning an error."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(f"import os\nif 'OPSPAN_EMIT' in os.environ:\n{site}\n")
    return opspan(
        *("run", "-o", folder / "capture", "--emit", "nvtx", *options),
        *("--", sys.executable, "-W", "error", "-c", PROGRAM),
        env={"PYTHONPATH": str(folder / "site"), "OPSPAN_CACHE_DIR": str(folder / "cache"), **environment},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "site", "said"),
    [
        ({"CXX": '"g++'}, "    pass", 'CXX="g++ cannot be read as a command (No closing quotation)'),
        ({"CXX": "no-such-compiler"}, "    pass", "CXX=no-such-compiler names no program that is there"),
        ({"CXX": "false"}, "    pass", "does not say its version (exit code 1)"),
        ({"CXX": "false", "OPSPAN_CACHE_DIR": None, "XDG_CACHE_HOME": None}, NO_HOME, "does not say its version"),
        ({}, UNFORESEEN, "this process is not labelled: ZeroDivisionError: nobody thought of"),
        ({"CXX": "false"}, NO_STDERR, "Captured nothing"),
        ({"CXX": "false"}, RAISES, "ValueError: of the user"),
    ],
)
def test_a_program_runs_whatever_is_wrong(
    environment: dict[str, str | None], site: str, said: str, tmp_path: Path
) -> None:
    done = emit(tmp_path, site=site, **environment)

    assert (done.stdout, done.returncode) == ("result 3\n", 0), done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr.replace("Error in sitecustomize", "")


@pytest.mark.slow
def test_warnings_that_are_errors_stop_neither_the_program_nor_its_labels(tmp_path: Path, observer: Path) -> None:
    (tmp_path / "file").write_text("")  # in the place of a folder: root may write to any folder

    done = emit(tmp_path, OPSPAN_CACHE_DIR=str(tmp_path / "file" / "cache"), CXX=str(copier_of(observer)))

    assert (done.stdout, done.returncode) == ("result 3\n", 0), done.stderr
    assert "opspan: the cache folder cannot be used" in done.stderr
    assert "aten::sum" in package.load(tmp_path / "capture").ranges["name"].to_list()


@pytest.mark.slow
def test_no_home_is_no_cache_and_doctor_says_what_to_do() -> None:
    code = NO_HOME.replace("\n    ", "\n") + "import opspan.cli; opspan.cli.main(['doctor'])"

    done = run(
        [sys.executable, "-c", "import os\n" + code],
        {"CXX": '"g++', "OPSPAN_CACHE_DIR": None, "XDG_CACHE_HOME": None},
    )

    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line and not line.startswith(" "))
    assert lines["compiler"].startswith('WRONG    CXX="g++ cannot be read as a command')
    assert lines["cache"].startswith("WRONG    ~/.cache/opspan cannot be written (this user has no home folder)")
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.slow
def test_exec_says_in_one_line_why_there_will_be_no_labels(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRAM)

    done = opspan(
        *("run", "-o", tmp_path / "capture", "--", sys.executable, "-m", "opspan", "exec", tmp_path / "script.py"),
        env={"CXX": '"g++', "OPSPAN_CACHE_DIR": str(tmp_path / "cache")},
    )

    assert done.returncode == 2
    assert "error: CXX=" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "said"),
    [
        ("/no/such/tool.so", "/no/such/tool.so names a file that is not there"),
        ("/etc/passwd", "cannot be loaded"),
        ("libm.so.6", "is not a tool for this: it has no function"),
    ],
)
@pytest.mark.parametrize(
    ("emitter", "variable"),
    [("emit_nvtx", "NVTX_INJECTION64_PATH"), pytest.param("emit_itt", "INTEL_LIBITTNOTIFY64", marks=RELEASE)],
)
def test_a_tool_that_does_not_listen_is_named(emitter: str, variable: str, library: str, said: str) -> None:
    code = f"import torch, opspan\nwith opspan.{emitter}(): torch.ones(2).add(1)\nprint('done')"

    done = forked(code, env={variable: library})
    doctor = forked(MAIN, "doctor", env={variable: library, "CXX": "false"})

    assert done.stdout == "done\n"
    for text in (done.stderr, doctor.stdout):
        assert f"{variable}={library} " in text
        assert said in text
