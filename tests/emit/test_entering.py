"""If anything fails while a session begins or ends, everything is as before, and the end raises nothing."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from emit.running import python, under_collectors

pytest.importorskip("torch")

SESSIONS = ["emit_nvtx", "emit_itt", "record"]

SETUP = textwrap.dedent(
    """
    import gc, os, sys, warnings, torch, opspan
    from opspan.emit import changes, labelling, modules, observer, ranges, sessions, sinks, steps
    from torch.autograd import profiler
    torchs = torch.nn.Module.__call__.__code__
    folder = sys.argv[2] + "/a/b"

    def make(schedule=None):
        more = {"path": folder} if sys.argv[1] == "record" else {}
        return getattr(opspan, sys.argv[1])(modules=True, schedule=schedule, **more)

    def state():
        around = torch.nn.Module.__call__.__code__ is not torchs
        files = [name for _, _, names in os.walk(sys.argv[2]) for name in names]
        return (profiler._is_profiler_enabled, around, dict(changes.active), ranges._open, labelling._observing,
                modules._to, len(warnings.filters), files, os.path.exists(sys.argv[2] + "/a"))

    def labelled():
        seen.clear()
        torch.zeros(2)
        return len(seen)

    def broken(where, name, when):
        before = getattr(where, name)
        def call(*arguments, **more):
            if when == "after": before(*arguments, **more)
            raise OSError("injected")
        setattr(where, name, call)
        return lambda: setattr(where, name, before)

    with make(): pass  # the observer, the tools
    for _, _, names in os.walk(sys.argv[2]):
        for name in names: os.unlink(folder + "/" + name)
    if os.path.isdir(folder): os.removedirs(folder)
    os.makedirs(sys.argv[2], exist_ok=True)
    """
)

WHERE = {
    "observer.Torch, 'here'": "either",
    "sessions, '_synchronize'": "either",
    "sinks, 'require'": "either",
    "observer, 'load'": "either",
    "sinks.Sinks, 'start'": "either",
    "ranges, 'refresh'": "either",
    "ranges, 'set_open'": "either",
    "observer.Observer, 'attach'": "either",
    "labelling, '_set_torchs_flag'": "either",
    "modules, 'start'": "either",
    "modules.module_calls, 'start'": "either",
    "sinks.Sinks, 'turn'": "either",
    "steps.Steps, 'start'": "scheduled",
}


@pytest.mark.parametrize("name", SESSIONS)
def test_a_failure_while_entering_restores_everything(tmp_path: Path, name: str) -> None:
    code = f"""
        before = state()
        for point, kind in {WHERE!r}.items():
            for when in ("before", "after"):
                for schedule in (None, opspan.schedule(wait=0, warmup=0, active=2)):
                    if schedule is None and kind == "scheduled": continue
                    mend = eval(f"broken({{point}}, {{when!r}})")
                    session = make(schedule)
                    try:
                        session.__enter__()
                    except OSError as error:
                        assert str(error) == "injected", error
                    else:
                        session.__exit__()
                        for _, _, names in os.walk(folder):
                            for file in names: os.unlink(folder + "/" + file)
                        if os.path.isdir(folder): os.rmdir(folder); os.rmdir(os.path.dirname(folder))
                    mend()
                    if point == "labelling, '_set_torchs_flag'":  # it was not called, or called once more than undone
                        labelling._observing, profiler._is_profiler_enabled = 0, False
                    now = state()
                    assert now == before, (point, when, schedule, now, before)
        with make() as session: torch.zeros(2)
        assert session.stats.ranges == 3, session.stats  # zeros, empty, zero_
        print("done")
    """
    env = under_collectors(tmp_path / "captured")
    assert python(SETUP + textwrap.dedent(code), name, str(tmp_path / "x"), env=env) == "done\n"


LEAVING = [
    "sessions, '_synchronize'",
    "observer.Observer, 'detach'",
    "modules, 'stop'",
    "sinks.Sinks, 'stop'",
    "sinks.Sinks, 'turn'",
    "ranges, 'set_open'",
    "steps.Steps, 'stop'",
]


@pytest.mark.parametrize("name", SESSIONS)
def test_a_failure_while_leaving_is_said_and_the_rest_is_done(tmp_path: Path, name: str) -> None:
    code = f"""
        before = state()[:5]
        for point in {LEAVING!r}:
            for schedule in (None, opspan.schedule(wait=0, warmup=0, active=2)):
                session = make(schedule)
                with session:
                    torch.zeros(2)
                    mend = eval(f"broken({{point}}, 'after')")  # where warnings are errors, as here
                mend()
                assert state()[:5] == before, (point, schedule, state(), before)
                if sys.argv[1] == "record":
                    os.unlink(session.file)
        print("done")
    """
    env = under_collectors(tmp_path / "captured")
    assert python(SETUP + textwrap.dedent(code), name, str(tmp_path / "x"), env=env) == "done\n"


def test_losses_are_said_without_an_error_where_warnings_are_errors(tmp_path: Path) -> None:
    code = """
        import torch, opspan
        with opspan.emit_nvtx(record_shapes=True, labels="payload", max_strings=4) as session:
            for n in range(1, 50): torch.ones(n)
        print(session.stats.sizes_dropped > 0)
    """
    assert python(code, env=under_collectors(tmp_path / "captured")) == "True\n"
