"""Runs a script or a module in this process as `python` would: argv, sys.path, __main__, exit codes, tracebacks.

There are two differences. opspan is already imported, and the call stack begins with opspan's frames. inspect.stack()
shows these frames, but a traceback does not.
"""

from __future__ import annotations

import functools
import io
import pkgutil
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from opspan.errors import UsageError
from opspan.printable import path_text


def script(name: str, arguments: Sequence[str]) -> Callable[[], NoReturn]:
    """Prepares `python NAME ARGUMENTS`. NAME may also be a folder or an archive with a __main__.py."""
    path = Path(name)
    if pkgutil.get_importer(name) is not None:
        return functools.partial(_run_container, name, arguments)
    # Keeps links in the path, because python also shows the path that the user gave.
    file = str(Path.cwd() / path)
    try:
        with io.open_code(file) as source:
            text = source.read()
    except FileNotFoundError as error:
        raise UsageError(f"there is no script {path_text(name)}: name a Python file, or -m MODULE") from error
    except OSError as error:
        raise UsageError(f"the script {path_text(name)} cannot be read: {error.strerror}") from error
    return functools.partial(_run_text, text, file, [name, *arguments])


def _run_container(name: str, arguments: Sequence[str]) -> NoReturn:
    sys.argv = [name, *arguments]
    _new_main()
    _set_first_path(str(Path.cwd() / name))
    _as_python(lambda: runpy._run_module_as_main("__main__", alter_argv=False))  # type: ignore[attr-defined]


def _run_text(text: bytes, file: str, argv: list[str]) -> NoReturn:
    sys.argv = argv
    # Follows links, because python searches for modules in the folder of the file that the link points to.
    _set_first_path(str(Path(file).resolve().parent))
    main = _new_main()
    vars(main).update(
        __file__=file,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", file),
    )

    def run() -> None:
        exec(compile(text, file, "exec", dont_inherit=True), vars(main))

    _as_python(run)


def run_module(module: str, arguments: Sequence[str]) -> NoReturn:
    """Runs `python -m MODULE ARGUMENTS`."""
    sys.argv = ["-m", *arguments]
    _new_main()
    _set_first_path(str(Path.cwd()))
    # Python itself calls this function for `python -m`. So even the frames in a traceback are the same.
    _as_python(lambda: runpy._run_module_as_main(module))  # type: ignore[attr-defined]


def _new_main() -> ModuleType:
    """Replaces opspan's module __main__ by an empty module for the script, because pickles and spawned processes look
    for the script's objects in __main__."""
    global _our_main
    _our_main = sys.modules["__main__"]  # keeps the module alive, because its code still runs
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main).update(__builtins__=sys.modules["builtins"], __annotations__={})
    return main


_our_main: ModuleType | None = None


def _set_first_path(entry: str) -> None:
    # The first entry of sys.path is the folder of the command `opspan`. The script's entry replaces this entry. With
    # Python's options -P and -I, sys.path has neither of them.
    if getattr(sys.flags, "safe_path", False) or sys.flags.isolated:
        return
    sys.path[0] = entry


def _as_python(run: Callable[[], Any]) -> NoReturn:
    """Calls `run`, and ends this process as the interpreter does after its main script."""
    caught: BaseException | None = None
    try:
        run()
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001  # the outermost handler, as in the interpreter
        caught = error
    if caught is None:
        sys.exit(0)
    _report(caught)
    if isinstance(caught, KeyboardInterrupt):
        # After Ctrl-C, Python cleans up and then ends the process by SIGINT. Only the interpreter can do that, so the
        # error is raised again. The traceback is already printed, so the hook prints nothing.
        sys.excepthook = lambda *_: None
        raise caught
    sys.exit(1)


def _report(error: BaseException) -> None:
    trace = _without_us(error.__traceback__)
    error = error.with_traceback(trace)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    sys.stdout.flush()
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit:
        raise
    except BaseException as second:  # noqa: BLE001  # reported as the interpreter reports it
        sys.stderr.write("Error in sys.excepthook:\n")
        second = second.with_traceback(_without_us(second.__traceback__))
        sys.__excepthook__(type(second), second, second.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, trace)


def _without_us(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
