"""Answers TensorBoard's requests. TensorBoard loads this module through opspan's entry point tensorboard_plugins."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from opspan.errors import MissingPackage
from opspan.printable import printable
from opspan.tensorboard.pages import PageError, PageNotReady, Pages
from opspan.tensorboard.runs import LogRun, LogWorker, Span, runs_in

if TYPE_CHECKING:
    from werkzeug.wrappers import Request, Response

T = TypeVar("T", LogRun, Span, LogWorker)

_PATIENCE_S = 10.0  # the most seconds that a request for the list of runs waits for the search of the folders


class Opspan(base_plugin.TBPlugin):  # type: ignore[misc]  # TensorBoard has no types
    plugin_name = "opspan"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._folders = _folders(context)
        self._runs: list[LogRun] = []
        self._said = ""
        self._looking: threading.Thread | None = None
        self._pages = Pages()
        self._look()  # starts the search now, so that is_active soon finds runs

    def is_active(self) -> bool:
        """Returns whether any trace has been found so far. Does not wait for the search, because TensorBoard shows
        nothing until it has this answer."""
        self._look()
        return bool(self._runs)

    def frontend_metadata(self) -> Any:
        return base_plugin.FrontendMetadata(es_module_path="/tensorboard.js", tab_name="opspan", disable_reload=True)

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        return {
            "/tensorboard.js": _asset("tensorboard.js", "text/javascript"),
            "/page.css": _asset("tensorboard.css", "text/css"),
            "/runs": wrappers.Request.application(self._serve_runs),
            "/head": wrappers.Request.application(self._serve_head),
            "/part": wrappers.Request.application(self._serve_part),
        }

    # --- the log folder

    def _look(self) -> threading.Thread:
        """Starts a thread that searches the folders for traces, unless such a thread still runs. Returns the thread."""
        looking = self._looking
        if looking is None or not looking.is_alive():
            looking = self._looking = threading.Thread(target=self._find_runs, daemon=True)
            looking.start()
        return looking

    def _find_runs(self) -> None:
        runs: list[LogRun] = []
        notes = []
        for folder in self._folders:
            try:
                runs += runs_in(folder)
            except OSError as error:
                notes.append(f"{folder}: {error.strerror}")
        where = ", ".join(map(str, self._folders)) or "the log folder, which is not on this machine"
        notes.append(f"There are no traces in {where}. opspan.profiler.tensorboard_trace_handler writes some")
        self._runs, self._said = runs, printable("; ".join(notes))

    def _serve_runs(self, request: Request) -> Response:
        looking = self._look()
        looking.join(_PATIENCE_S)
        notes = "Still looking for traces" if looking.is_alive() else self._said
        runs = [
            {
                "name": run.name,
                "spans": [
                    {"name": span.name, "workers": [{"name": worker.name} for worker in span.workers]}
                    for span in run.spans
                ],
            }
            for run in self._runs
        ]
        return _respond(request, json.dumps({"runs": runs, "said": notes}), "application/json")

    # --- pages

    def _serve_head(self, request: Request) -> Response:
        return self._serve(request, lambda *files: _respond(request, self._pages.head(*files), "application/json"))

    def _serve_part(self, request: Request) -> Response:
        name = request.args.get("name", "")

        def part(*files: tuple[Path, ...]) -> Response:
            return _respond(request, self._pages.part(name, *files), "application/json", content_encoding="gzip")

        return self._serve(request, part)

    def _serve(self, request: Request, respond: Callable[..., Response]) -> Response:
        """Responds to a request. A request contains names from the list of runs instead of paths."""
        names = {name: request.args.get(name, "") for name in ("run", "span", "worker", "against")}
        try:
            files = _worker(self._runs, names["run"], names["span"], names["worker"]).files
            others = _worker(self._runs, names["against"]).files if names["against"] else ()
            return respond(files, others)
        except KeyError as error:
            return _respond(request, f"There is no {error.args[0]!r} any more", "text/plain", code=404)
        except PageNotReady as waiting:
            return _respond(request, printable(str(waiting)), "text/plain", code=202)
        except PageError as failed:
            return _respond(request, printable(str(failed)), "text/plain", code=422)


def _folders(context: Any) -> list[Path]:
    """Returns the folders of --logdir or --logdir_spec (name:folder,...) that are on this machine."""
    flags = context.flags
    spec = getattr(flags, "logdir_spec", "") if flags is not None else ""
    named = [part.partition(":")[2] or part for part in spec.split(",") if part] if spec else [context.logdir or ""]
    return [Path(name).expanduser() for name in named if name and "://" not in name]


def _worker(runs: Iterable[LogRun], run: str, span: str = "", worker: str = "") -> LogWorker:
    """Returns the worker with these names. An empty name means the first run, span or worker. Raises KeyError with the
    unknown name."""
    return _by_name(_by_name(_by_name(runs, run).spans, span).workers, worker)


def _by_name(of: Iterable[T], name: str) -> T:
    for entry in of:
        if entry.name == name or not name:
            return entry
    raise KeyError(name)


def _asset(name: str, kind: str) -> Callable[..., Any]:
    @wrappers.Request.application
    def serve(request: Request) -> Response:
        from opspan.views.page.document import asset  # imported here, so that TensorBoard starts faster

        try:
            return _respond(request, asset(name), kind)
        except MissingPackage as missing:
            return _respond(request, str(missing), "text/plain", code=404)

    return serve


def _respond(request: Request, content: str | bytes, kind: str, **more: Any) -> Response:
    answer: Response = http_util.Respond(request, content, kind, **more)
    return answer
