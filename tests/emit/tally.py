"""The session of tests/native/sinks/tally.cpp, a sink that counts ranges: src/opspan/emit/tally.py in a test."""

from opspan.emit import sink_list
from opspan.emit.sessions import Session
from opspan.emit.sinks import Sinks


class Tally(Session):
    _sinks = (sink_list.TALLY,)  # type: ignore[attr-defined]  # which the test adds
    _what = "tally"

    def __init__(self, modules: bool = False) -> None:
        super().__init__(enabled=True, record_shapes=False, modules=modules, schedule=None)

    def _start_sink(self, native: Sinks) -> str:
        native.start(self._sink.number)
        return "text"
