"""What runs in a process of `Processes`: it takes a function and its arguments, and gives back what that returns.

It is started with the number of a pipe, and ends with the program at the other end of it.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from multiprocessing.connection import Connection


def main(descriptor: int) -> None:
    # Who interrupts the program interrupts all of its group: the program then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if descriptor > 2:  # else the program had closed one of its three
        with suppress(OSError):
            os.dup2(2, 1)  # what a library prints is no result of the program's
    pipe = Connection(descriptor)
    while True:
        try:
            function, arguments, named = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            result, error = function(*arguments, **named), None
        except BaseException as raised:  # noqa: BLE001  whatever it is, the program is told
            result, error = None, f"{type(raised).__name__}: {raised}"
        try:
            pipe.send((result, error))
        except OSError:
            return
