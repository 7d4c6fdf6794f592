"""The contract of emit_nvtx, emit_itt and record: torch's, and what is ours beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from emit.running import python, under_collectors

pytest.importorskip("torch")

EMITTERS = ["emit_nvtx", "emit_itt"]  # for one tool
SESSIONS = [*EMITTERS, "record"]


@pytest.fixture
def tool(tmp_path: Path) -> dict[str, str]:
    return under_collectors(tmp_path / "captured")


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_can_be_entered_once(name: str, tool: dict[str, str]) -> None:
    code = f"""
        import torch, opspan
        session = opspan.{name}()
        with session: pass
        try:
            with session: pass
        except RuntimeError as error:
            print(error)
    """
    assert "not reentrant" in python(code, env=tool)


@pytest.mark.parametrize("name", EMITTERS)
def test_a_second_one_while_one_is_active_is_refused_and_harmless(name: str, tool: dict[str, str]) -> None:
    code = f"""
        import torch, opspan
        with opspan.{name}() as first:
            try:
                with opspan.{name}(): print("entered")
            except RuntimeError as error:
                print(error)
            torch.ones(2).add(1)
        print(first.stats.ranges > 0)
        with opspan.{name}(): pass
    """
    assert python(code, env=tool).splitlines() == [
        f"{name} is already active in this process: one at a time, for all its threads",
        "True",
    ]


def test_another_thread_counts_as_a_second_one(tool: dict[str, str]) -> None:
    code = """
        import threading, torch, opspan
        def second():
            try:
                with opspan.emit_nvtx(): print("entered")
            except RuntimeError: print("refused")
        with opspan.emit_nvtx():
            thread = threading.Thread(target=second)
            thread.start(); thread.join()
    """
    assert python(code, env=tool) == "refused\n"


def test_all_three_at_once(tool: dict[str, str]) -> None:
    code = """
        import torch, opspan
        with opspan.emit_nvtx() as a, opspan.emit_itt() as b, opspan.record() as c:
            torch.ones(2).add(1)
        print(a.stats.ranges == b.stats.ranges == c.stats.ranges > 0, b.labels, c.labels)
    """
    assert python(code, env=tool) == "True task capture\n"


@pytest.mark.parametrize("name", SESSIONS)
def test_not_enabled_does_nothing_however_often(name: str) -> None:
    code = f"""
        import sys, opspan
        session = opspan.{name}(enabled=False)
        for _ in range(2):
            with session, opspan.{name}(enabled=False) as inner: inner.step()
        print(session.labels, session.stats.ranges, "torch" in sys.modules)
    """
    assert python(code) == "None 0 False\n"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("emit_nvtx", "`nsys profile -t cuda,nvtx -o report python train.py`"),
        ("emit_itt", "`vtune -collect hotspots -knob enable-user-tasks=true -r r000hs -- python train.py`"),
    ],
)
def test_nobody_listens_one_warning_and_nothing_installed(name: str, command: str) -> None:
    code = f"""
        import sys, warnings, torch, opspan
        torchs = torch.nn.Module.__call__.__code__
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                with opspan.{name}(modules=True) as session:
                    assert torch.nn.Module.__call__.__code__ is torchs
                    session.step()
                assert session.labels is None
        from opspan.emit import observer
        print(len(caught), caught[0].filename, observer._loaded)
        print(caught[0].message)
    """
    first, message = python(code).splitlines()

    assert first == "1 <string> None"
    assert command in message
    assert "opspan run" in message


@pytest.mark.parametrize(("name", "labels"), [("emit_nvtx", "task"), ("emit_itt", "payload"), ("emit_nvtx", "x")])
def test_labels_it_does_not_know_are_refused(name: str, labels: str) -> None:
    code = f"""
        import opspan
        try: opspan.{name}(labels={labels!r})
        except ValueError as error: print(error)
    """
    assert f"labels='{labels}': {name} knows auto" in python(code)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "labels", "used"),
    [
        ("emit_nvtx", "payload", "payload"),
        ("emit_nvtx", "text", "text"),
        ("emit_nvtx", "torch", "torch"),
        ("emit_itt", "auto", "task"),
        ("emit_itt", "text", "text"),
        ("emit_itt", "torch", "torch"),
    ],
)
def test_labels_tells_the_form_in_use(name: str, labels: str, used: str, tool: dict[str, str]) -> None:
    code = f"""
        import torch, opspan
        with opspan.{name}(record_shapes=True, labels={labels!r}) as session:
            print(session.labels)
            torch.ones(2, 3).add(1)
        print(session.stats.ranges > 0)
    """
    assert python(code, env=tool) == f"{used}\nTrue\n"


def test_an_exception_in_the_body_ends_the_session_and_comes_out(tool: dict[str, str]) -> None:
    code = """
        import torch, opspan
        try:
            with opspan.emit_nvtx(), opspan.annotate("mine"):
                torch.ones(2) @ torch.ones(3)
        except RuntimeError as error: print("size" in str(error))
        print(opspan.nvtx.range_push("next"), opspan.nvtx.range_pop())
        with opspan.emit_nvtx(): pass
    """
    assert python(code, env=tool) == "True\n0 0\n"


def test_sizes_past_the_bound_are_counted_and_warned_of(tool: dict[str, str]) -> None:
    code = """
        import warnings, torch, opspan
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with opspan.emit_nvtx(record_shapes=True, labels="payload", max_strings=4) as session:
                for n in range(1, 50): torch.ones(n)
        print(session.stats.sizes_dropped > 0, len(caught), "without their sizes" in str(caught[0].message))
        print(caught[0].filename)
    """
    assert python(code, env=tool) == "True 1 True\n<string>\n"


def test_torch_is_told_that_somebody_profiles_and_told_back(tool: dict[str, str]) -> None:
    code = """
        import torch, opspan
        from torch.autograd import profiler
        seen = []
        with opspan.emit_nvtx():
            with opspan.record(): seen.append(profiler._is_profiler_enabled)
            seen.append(profiler._is_profiler_enabled)
        seen.append(profiler._is_profiler_enabled)
        print(seen)
    """
    assert python(code, env=tool) == "[True, True, False]\n"


def test_a_schedule_labels_active_steps_only(tool: dict[str, str]) -> None:
    code = """
        import torch, opspan
        schedule = opspan.schedule(wait=1, warmup=1, active=2, repeat=2)
        with opspan.record(schedule=schedule) as session:
            before = 0
            for step in range(10):
                torch.ones(2)
                torch.ones(2)
                session.step()
        names = session.trace.ranges["name"].to_list()
        print([name for name in names if name.startswith("Prof")])
        print(names.count("aten::ones"))
    """
    assert python(code, env=tool).splitlines() == [
        "['ProfilerStep#2', 'ProfilerStep#3', 'ProfilerStep#6', 'ProfilerStep#7']",
        "8",
    ]


def test_torchs_own_schedule_will_do(tool: dict[str, str]) -> None:
    code = """
        import torch, opspan
        with opspan.emit_nvtx(schedule=torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=1)) as session:
            for _ in range(6):
                torch.ones(2)
                session.step()
        print(session.stats.ranges)
    """
    assert python(code, env=tool) == "3\n"  # ones, empty, fill_


def test_stepping_on_another_thread_is_refused() -> None:
    code = """
        import threading, torch, opspan
        with opspan.record(schedule=opspan.schedule(wait=0, warmup=0, active=1)) as session:
            def step():
                try: session.step()
                except RuntimeError as error: print(error)
            thread = threading.Thread(target=step)
            thread.start(); thread.join()
    """
    assert "another thread" in python(code)


def test_itt_collects_in_active_steps_only(tmp_path: Path, tool: dict[str, str]) -> None:
    code = """
        import ctypes, torch, opspan
        from opspan.emit import sinks
        told = []
        sinks.Sinks.itt_collect = lambda self, on: told.append(on)
        with opspan.emit_itt(schedule=opspan.schedule(wait=1, warmup=0, active=1, repeat=2)) as session:
            for _ in range(6): session.step()
        print(told)
    """
    assert python(code, env=tool) == "[False, True, False, True, False]\n"


# These calls start CUDA's driver, which forks cannot use after that, or warn if the driver is too old.
NOBODY_ASKS_FOR_CUDA = """
        import torch
        def asked(*_, **__): raise AssertionError("CUDA was asked for")
        for name in ("init", "is_available", "device_count", "current_device", "synchronize", "cudart", "_lazy_init"):
            setattr(torch.cuda, name, asked)
        torch._C._cuda_getDeviceCount = asked
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("scheduled", [False, True])
def test_cuda_is_not_asked_for_where_a_program_does_not_use_it(
    name: str, scheduled: bool, tool: dict[str, str]
) -> None:
    schedule = "opspan.schedule(wait=1, warmup=0, active=1, repeat=2)" if scheduled else "None"
    code = f"""{NOBODY_ASKS_FOR_CUDA}
        import opspan
        with opspan.{name}(record_shapes=True, modules=True, schedule={schedule}) as session:
            for _ in range(6):
                torch.nn.Linear(2, 2)(torch.ones(1, 2))
                session.step()
        print(session.stats.ranges > 0, torch.cuda.is_initialized())
    """
    assert python(code, env=tool) == "True False\n"


def test_cuda_is_not_asked_for_without_a_compiler(tmp_path: Path, tool: dict[str, str]) -> None:
    code = f"""{NOBODY_ASKS_FOR_CUDA}
        import warnings, opspan
        try: opspan.emit_nvtx().__enter__()
        except opspan.OpspanError as error: print(type(error).__name__)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="no C.. compiler")
            with opspan.emit_itt() as session: print(session.labels)
    """
    env = {**tool, "PATH": str(tmp_path), "CXX": None, "OPSPAN_CACHE_DIR": str(tmp_path / "cache")}
    assert python(code, env=env) == "NoCompiler\ntorch\n"


def test_nsys_is_told_from_the_step_on_that_finds_cuda_in_use(tool: dict[str, str]) -> None:
    code = """
        import torch, opspan
        in_use, told = False, []
        torch.cuda.is_initialized = lambda: in_use
        torch.cuda.synchronize = lambda: None
        torch.cuda.profiler.start = lambda: told.append((step, "start"))
        torch.cuda.profiler.stop = lambda: told.append((step, "stop"))
        step = 0
        with opspan.emit_nvtx(schedule=opspan.schedule(wait=1, warmup=0, active=3, repeat=2)) as session:
            for step in range(8):
                in_use = step >= 1
                session.step()
        print(told)
    """
    # Steps 1 to 3 and 5 to 7 are active, and begin at the end of the step before; CUDA comes while step 1 runs.
    assert python(code, env=tool) == "[(1, 'start'), (3, 'stop'), (4, 'start'), (7, 'stop')]\n"


class TestRecord:
    def test_the_trace_is_read_once_and_the_folder_goes(self, tmp_path: Path) -> None:
        code = """
            import torch, opspan
            with opspan.record(record_shapes=True) as session:
                torch.ones(2, 3).add(1)
            print(session.path.is_dir(), session.file.parent == session.path)
            trace = session.trace
            print("aten::add" in trace.ranges["name"].to_list(), session.path.exists(), session.trace is trace)
        """
        assert python(code, env={"TMPDIR": str(tmp_path)}) == "True True\nTrue False True\n"
        assert list(tmp_path.iterdir()) == []

    def test_a_recording_that_nobody_reads_goes_at_exit_of_its_own_process(self, tmp_path: Path) -> None:
        code = """
            import os, torch, opspan
            with opspan.record() as session: torch.ones(2)
            if not (child := os.fork()): raise SystemExit  # runs atexit functions, unlike os._exit
            os.waitpid(child, 0)
            print(session.path.is_dir())
        """
        assert python(code, env={"TMPDIR": str(tmp_path)}) == "True\n"
        assert list(tmp_path.iterdir()) == []

    def test_a_path_of_ones_own_is_made_and_stays(self, tmp_path: Path) -> None:
        folder = tmp_path / "a" / "b"
        code = f"""
            import torch, opspan
            with opspan.record(path={str(folder)!r}) as session: torch.ones(2)
            session.trace
        """
        python(code)
        assert [file.suffix for file in folder.iterdir()] == [".opspan"]

    def test_a_folder_that_cannot_be_made_is_a_clear_error_and_leaves_nothing_active(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        code = f"""
            import torch, opspan
            from opspan.errors import CaptureError
            try:
                with opspan.record(path={str(tmp_path / "file" / "x")!r}): print("entered")
            except CaptureError as error: print(error)
            with opspan.record(): pass
        """
        assert "choose another path=" in python(code)

    def test_the_trace_of_an_unfinished_recording_is_refused(self) -> None:
        code = """
            import torch, opspan
            for session, enter in ((opspan.record(), False), (opspan.record(), True)):
                try:
                    if enter: session.__enter__()
                    session.trace
                except RuntimeError as error: print(error)
        """
        assert python(code).splitlines() == [
            "nothing was recorded: enter the context manager first, outside of compiled code",
            "still recording: leave the context manager first",
        ]


def test_without_a_compiler_torchs_emitter_labels_and_one_warning_says_what_is_lost(
    tmp_path: Path, tool: dict[str, str]
) -> None:
    code = """
        import warnings, torch, opspan
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with opspan.emit_itt(modules=True) as session:
                torch.nn.Linear(2, 2)(torch.ones(1, 2))
                print(session.labels)
        print(len(caught), caught[0].filename)
        print(caught[0].message)
        try: opspan.emit_nvtx().__enter__()
        except opspan.OpspanError as error: print(type(error).__name__)
    """
    env = {**tool, "PATH": str(tmp_path), "CXX": None, "OPSPAN_CACHE_DIR": str(tmp_path / "cache")}

    lines = python(code, env=env).splitlines()

    assert lines[:2] == ["torch", "1 <string>"]
    assert "opspan doctor --fix" in lines[2]
    assert "without sequence numbers" in lines[2]
    assert lines[3] == "NoCompiler"  # torch's emit_nvtx would start CUDA
